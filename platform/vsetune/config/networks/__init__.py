"""Hyperparameters of every network, one file per family. The network itself stands in `vsetune.networks`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vsetune.config.networks.backbone import BackboneSpec
from vsetune.config.networks.base import ALL_KINDS, ALL_SCORES, Kind, NetworkSpec, PairCost, Score
from vsetune.config.networks.cgmn import CgmnSpec
from vsetune.config.networks.gsmn import GsmnSpec
from vsetune.config.networks.malali_keller import MalaliKellerSpec
from vsetune.config.networks.mse import MseSpec
from vsetune.config.networks.pcme import PcmeNetworkSpec
from vsetune.config.networks.pvse import PvseNetworkSpec
from vsetune.config.networks.scan import ScanSpec
from vsetune.config.networks.sgraf import SgrafSafSpec, SgrafSgrSpec
from vsetune.config.networks.vse_infinity import VseInfinitySpec
from vsetune.config.networks.vsepp import VseppSpec
from vsetune.config.networks.vsrn import VsrnSpec

AnyNetwork = Annotated[
    VseppSpec | VsrnSpec | VseInfinitySpec | ScanSpec | SgrafSafSpec | SgrafSgrSpec | GsmnSpec | PvseNetworkSpec
    | PcmeNetworkSpec | CgmnSpec | MseSpec | MalaliKellerSpec,
    Field(discriminator="name"),
]

NETWORKS: dict[str, type[NetworkSpec]] = {
    spec.model_fields["name"].default: spec
    for spec in (
        VseppSpec, VsrnSpec, VseInfinitySpec, ScanSpec, SgrafSafSpec, SgrafSgrSpec, GsmnSpec, PvseNetworkSpec,
        PcmeNetworkSpec, CgmnSpec, MseSpec, MalaliKellerSpec,
    )
}
"""Every network by the name that study files use."""

__all__ = [
    "ALL_KINDS", "ALL_SCORES", "NETWORKS", "AnyNetwork", "BackboneSpec", "CgmnSpec", "GsmnSpec", "Kind",
    "MalaliKellerSpec", "MseSpec", "NetworkSpec", "PairCost", "PcmeNetworkSpec", "PvseNetworkSpec", "ScanSpec", "Score",
    "SgrafSafSpec", "SgrafSgrSpec", "VseInfinitySpec", "VseppSpec", "VsrnSpec",
]
