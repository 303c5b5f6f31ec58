"""Contents of `parses.json`: the arrays of parses and phrases of every split, and the pipeline that made them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vsetune.config.spec.base import Spec

PARSES_FORMAT = "vsetune-parses-1"


class SplitPhrases(Spec):
    """The phrases of one split. `file` is relative to parses.json, see `vsetune.data.captions.phrase_codes`."""

    file: str = Field(pattern=r"^phrases-[A-Za-z0-9._-]+\.npy$")
    sha256: str
    phrases: int = Field(ge=0, description="all captions together")
    without: int = Field(ge=0, description="captions that have none")


class SplitParses(Spec):
    """One split. `file` is relative to parses.json: (captions, words) int16, row = caption id.

    An entry is the position of the head among the words of the caption, from 0; -1 for a root and after the last word;
    a caption without parse is a row of -2.
    """

    file: str = Field(pattern=r"^parses-[A-Za-z0-9._-]+\.npy$")
    sha256: str
    captions_fingerprint: str = Field(description="which captions these are: of the shards they stand in")
    captions: int = Field(ge=0, le=1 << 40)
    pairs: int = Field(ge=0, description="pairs of words that are joined, all captions together")
    not_parsed: int = Field(ge=0, description="captions without parse: the pipeline changed their words, or too long")
    phrases: SplitPhrases | None = Field(None, description="null: not made")

    @model_serializer(mode="wrap")
    def _as_before_phrases(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `phrases` if there are none, which leaves the older form of parses.json."""
        plain: dict[str, Any] = handler(self)
        return {key: value for key, value in plain.items() if key != "phrases" or value is not None}


class Parses(Spec):
    """Contents of parses.json."""

    format: str = PARSES_FORMAT
    pipeline: str
    version: str = Field(description="of the pipeline, and of spaCy")
    splits: dict[str, SplitParses]

    @property
    def has_phrases(self) -> bool:
        """Whether every split has phrases."""
        return all(info.phrases is not None for info in self.splits.values())

    def files(self) -> list[str]:
        """All listed arrays."""
        infos = self.splits.values()
        return [info.file for info in infos] + [info.phrases.file for info in infos if info.phrases is not None]
