"""Parts of a network with their own learning rates or start epochs."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from vsetune.networks.network_base import NetworkGroup
from vsetune.networks.parts.network_fields import BackboneSpec


def groups_beside(network: nn.Module, groups: Sequence[NetworkGroup]) -> list[NetworkGroup]:
    """These groups after one of all other parameters, which train from the start at the rate of the training."""
    taken = {id(parameter) for group in groups for parameter in group.parameters}
    return [NetworkGroup([each for each in network.parameters() if id(each) not in taken]), *groups]


def backbone_groups(backbone: nn.Module | None, spec: BackboneSpec) -> list[NetworkGroup]:
    """The group of a CNN, if there is one."""
    if backbone is None:
        return []
    return [NetworkGroup(list(backbone.parameters()), spec.rate_factor, spec.start_epoch)]
