"""Weights of the released implementations, under our names. One file per source, with its table of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from vsetune.config.loading import parse_spec
from vsetune.config.networks import NETWORKS, NetworkSpec
from vsetune.errors import ConfigError, DataError
from vsetune.networks import build_network
from vsetune.networks.importing import gsmn, pcme, pvse, scan, sgraf, vse_infinity, vsepp, vsrn
from vsetune.networks.importing.imported import Imported, network_of
from vsetune.networks.importing.mapping import Recognised, mapped_weights
from vsetune.networks.importing.released import Released, read_released
from vsetune.networks.importing.words import read_words

__all__ = ["SOURCES", "Imported", "Source", "import_released", "network_of"]


@dataclass(frozen=True)
class Source:
    """recognised: reads the network off a file. parts, renamed: see `read_released`."""

    recognised: Callable[[Released], Recognised]
    parts: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)


SOURCES: Mapping[str, Source] = {
    "vsepp": Source(vsepp.recognised, vsepp.PARTS),
    "vsrn": Source(vsrn.recognised, vsrn.PARTS),
    "sgraf": Source(sgraf.recognised, sgraf.PARTS),
    "scan": Source(scan.recognised, scan.PARTS),
    "gsmn": Source(gsmn.recognised, gsmn.PARTS, gsmn.RENAMED),
    "vse_infinity": Source(vse_infinity.recognised, vse_infinity.PARTS),
    "pvse": Source(pvse.recognised, pvse.PARTS, pvse.RENAMED),
    "pcme": Source(pcme.recognised, pcme.PARTS),
}


def import_released(path: Path, source: str, *, words: Path | None = None) -> Imported:
    """What a weights file of the implementation `source` (a key of SOURCES) holds, as one of our networks.

    words: the vocabulary it was trained with, as released; without it the weights can be looked at, but neither scored
    nor trained further, unless they read word pieces. DataError when it is no such file: damaged, with code, of
    another network, or partial; the names are listed. The same when words and weights differ in number.
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
        raise DataError(f"{path}: not the weights of {source} ({error.problems[0]}); check --from.") from error
    weights, unused = mapped_weights(network, recognised, released, source=source)
    return Imported(
        source=source, spec=spec, told=recognised.spec, regions=recognised.regions, width=recognised.width,
        vocabulary_size=recognised.vocabulary_size, weights=weights, unused=unused, assumed=recognised.assumed,
        words=None if words is None else _checked_words(words, spec, recognised.vocabulary_size),
    )


def _checked_words(path: Path, spec: NetworkSpec, rows: int) -> tuple[str, ...]:
    if spec.word_pieces is not None:
        raise DataError(
            f"{path}: got a vocabulary, but these weights read word pieces of {spec.word_pieces}; leave it out."
        )
    words = read_words(path)
    if len(words) != rows:
        raise DataError(
            f"{path}: {len(words)} words, the weights have vectors of {rows}; need the vocabulary of their training."
        )
    return words
