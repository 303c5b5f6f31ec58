"""Fields that specs of several networks share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

RegionNormalization = Literal["channel_over_regions", "feature"]


def region_normalization() -> RegionNormalization:
    """The field of networks whose released code normalises regions along the wrong axis (VSRN, CGMN)."""
    return Field(
        "channel_over_regions",
        description="`channel_over_regions` gives each channel unit length across the regions, as the released code; "
        "`feature` gives each region vector unit length",
    )
