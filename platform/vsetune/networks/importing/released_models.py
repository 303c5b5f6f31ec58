"""Weights of released implementations, under our names: each network's `released.py` has its table of names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from vsetune import networks
from vsetune.config.component_specs import NETWORKS, NetworkSpec
from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError, DataError
from vsetune.networks.importing.imported import Imported, Recognised, mapped_weights
from vsetune.networks.importing.released_file import Released, read_released, read_words
from vsetune.networks.network_building import build_network


@dataclass(frozen=True)
class Source:
    """recognised: recognises the network in a file. parts, renamed: see `read_released`."""

    recognised: Callable[[Released], Recognised]
    parts: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)


def _sources() -> dict[str, Source]:
    """Readers from the folders of networks that have a `released.py`; `OTHERS` are further implementations that can
    initialise such a network."""
    found = {}
    for file in sorted(file for folder in networks.__path__ for file in Path(folder).glob("*/released.py")):
        released = importlib.import_module(f"{networks.__name__}.{file.parent.name}.released")
        renamed = getattr(released, "RENAMED", {})
        for name, recognised in {file.parent.name: released.recognised, **getattr(released, "OTHERS", {})}.items():
            found[name] = Source(recognised, released.PARTS, renamed)
    return found


SOURCES: Mapping[str, Source] = _sources()
"""Released implementations whose weights can be imported, most by the folder of their network."""


def import_released(path: Path, source: str, *, words: Path | None = None) -> Imported:
    """The contents of a weights file of the implementation `source` (a key of SOURCES), as one of our networks.

    words: the vocabulary it was trained with, as released; without it the weights can be inspected, but neither scored
    nor trained further, unless they read word pieces. DataError for an invalid file: damaged, with code, of another
    network, or partial; the names are listed. The same when words and weights differ in number.
    """
    chosen = SOURCES[source]
    released = read_released(path, parts=chosen.parts, renamed=chosen.renamed)
    recognised = chosen.recognised(released)
    try:
        spec = parse_spec(dict(recognised.spec), NETWORKS[recognised.spec["name"]], where=source)
        with torch.device("meta"):  # names and shapes only
            network = build_network(
                spec, regions=recognised.regions, width=recognised.width, vocabulary_size=recognised.vocabulary_size
            )
    except ConfigError as error:
        raise DataError(
            "VSE-N046", "{path}: not the weights of {source} ({reason}); check --from.", path=path, source=source,
            reason=error.problem,
        ) from error
    weights, unused = mapped_weights(network, recognised, released, source=source)
    return Imported(
        source=source, name=recognised.spec["name"], spec=spec, settings=recognised.spec, regions=recognised.regions,
        width=recognised.width, vocabulary_size=recognised.vocabulary_size, weights=weights, unused=unused,
        assumed=recognised.assumed,
        words=None if words is None else _checked_words(words, spec, recognised.vocabulary_size),
        spare=recognised.spare,
    )


def _checked_words(path: Path, spec: NetworkSpec, rows: int) -> tuple[str, ...]:
    if spec.reads.word_pieces is not None:
        raise DataError(
            "VSE-N043", "{path}: got a vocabulary, but these weights read word pieces of {model}; leave it out.",
            path=path, model=spec.reads.word_pieces,
        )
    words = read_words(path)
    if len(words) != rows:
        raise DataError(
            "VSE-N042", "{path}: {got} words, the weights have vectors of {need}; need the vocabulary of their "
            "training.", path=path, got=len(words), need=rows,
        )
    return words
