"""What can be set of the network word_cnn."""

from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.spec.base import Choices, tunable


class WordCnnSpec(NetworkSpec):
    """VSE++ with a convolution over the words instead of a GRU: windows of words, the largest answer of each filter."""

    source: ClassVar[str] = "captions as Kim, EMNLP 2014; images as Faghri et al., BMVC 2018"

    name: Literal["word_cnn"] = "word_cnn"
    embedding_size: int = tunable(
        256, Choices(choices=[128, 256, 512]), ge=1, le=65_536, description="D, size of the joint space",
    )
    filters: int = tunable(
        100, Choices(choices=[50, 100, 200]), ge=1, le=4096,
        description="filters of each window length", paper="Kim 2014: 100",
    )
    longest_window: int = tunable(
        3, Choices(choices=[2, 3, 4]), ge=1, le=16, description="windows of 1, 2, ... this many words",
    )
