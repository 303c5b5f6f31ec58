"""Fields that specs of several networks share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

Norm = Literal["guarded", "released"]
RegionNormalization = Literal["channel_over_regions", "feature"]

_ADDED_TO_LENGTHS = 1e-8


def norm_with_added_length() -> Norm:
    """The field of networks whose released code adds 1e-8 to the lengths it divides by (SCAN, SGRAF)."""
    return Field(
        "guarded",
        description="of vectors, and of attention over what attends: `guarded` divides by the length, and zero stays "
        "zero; `released` by the length plus 1e-8, which moves short attention (decision 0030)",
    )


def added_to_lengths(norm: Norm) -> float:
    """The number that `unit_length` and `inverse_length` add to lengths under this norm."""
    return _ADDED_TO_LENGTHS if norm == "released" else 0.0


def region_normalization() -> RegionNormalization:
    """The field of networks whose released code normalises regions along the wrong axis (VSRN, CGMN)."""
    return Field(
        "channel_over_regions",
        description="`channel_over_regions` gives each channel unit length across the regions, as the released code; "
        "`feature` gives each region vector unit length",
    )
