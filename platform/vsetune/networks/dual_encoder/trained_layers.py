"""Which parts of a tower train, and at which rate: last layers, decay from layer to layer, low-rank updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from vsetune.errors import ConfigError
from vsetune.networks.network_base import NetworkGroup

_ADAPTED = "lora_"
"""In the names of low-rank updates."""


@dataclass(frozen=True)
class TowerRates:
    """side: image or text. trained: last layers that train, 0 for a frozen tower, None for all of it. factor: of the
    learning rate. decay: of the factor from each layer to the one before it."""

    side: str
    trained: int | None
    factor: float
    decay: float

    @property
    def setting(self) -> str:
        return f"{self.side}_layers"


def layers_of(tower: nn.Module) -> list[nn.Module]:
    """The layers of a tower in their order: its list of modules with the most parameters; of nested ones the outer."""
    lists = [module for module in tower.modules() if isinstance(module, nn.ModuleList)]
    sizes = [sum(parameter.numel() for parameter in each.parameters()) for each in lists]
    return list(lists[sizes.index(max(sizes))]) if lists else []


def tower_groups(tower: nn.Module, rates: TowerRates, *, are_adapted: bool) -> list[NetworkGroup]:
    """The parameters of a tower by level, the last level first: what stands behind the layers, the layers, what stands
    before them. Frozen ones start at infinity.

    are_adapted: only low-rank updates train. ConfigError where more layers are to train than there are.
    """
    layers = layers_of(tower)
    if rates.trained and not layers:
        raise ConfigError(
            "VSE-N062", "network.{setting}: the {side} tower has no list of layers to count; set it to 0 (frozen) or "
            "null (all train)", setting=rates.setting, side=rates.side,
        )
    if rates.trained is not None and rates.trained > len(layers):
        raise ConfigError(
            "VSE-N063", "network.{setting}: got {got}, the {side} tower has {has} layers; set at most {has}, or null "
            "for all", setting=rates.setting, got=rates.trained, side=rates.side, has=len(layers),
        )
    last = len(layers) + 1 if rates.trained is None else rates.trained
    groups = []
    for level, parameters in enumerate(_levels(tower, layers)):
        is_frozen = rates.trained == 0 or level > last
        trained = [] if is_frozen else [value for name, value in parameters if not are_adapted or _ADAPTED in name]
        known = {id(value) for value in trained}
        frozen = [value for _, value in parameters if id(value) not in known]
        for chosen, start in ((trained, 0.0), (frozen, math.inf)):
            if chosen:
                groups.append(NetworkGroup(chosen, rates.factor * rates.decay**level, start))
    return groups


def _levels(tower: nn.Module, layers: list[nn.Module]) -> list[list[tuple[str, nn.Parameter]]]:
    """Named parameters by level: 0 behind the layers, 1 the last layer, ..., the last level before the layers."""
    depth = {id(value): len(layers) - number for number, layer in enumerate(layers) for value in layer.parameters()}
    levels: list[list[tuple[str, nn.Parameter]]] = [[] for _ in range(len(layers) + 2)]
    is_before = bool(layers)
    for name, value in tower.named_parameters():
        level = depth.get(id(value))
        if level is not None:
            is_before = False
        levels[level if level is not None else len(layers) + 1 if is_before else 0].append((name, value))
    return levels


def add_low_rank_updates(tower: nn.Module, *, rank: int, alpha: int, names: tuple[str, ...]) -> None:
    """Put low-rank updates, which start at zero, beside the linear layers of these names. ConfigError without peft."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            "VSE-N009", "{key}: {model} needs the package {package}; run: pip install 'vsetune[{extra}]'",
            key="network.lora_rank", model="LoRA", package="peft", extra="lora",
        ) from error
    found = {name.rpartition(".")[2] for name, module in tower.named_modules() if isinstance(module, nn.Linear)}
    wanted = [name for name in names if name in found]
    if not wanted:
        raise ConfigError(
            "VSE-N064", "network.lora_rank: no layer of the towers is named {names}; set lora_layers to names of "
            "linear layers in them", names=" or ".join(names),
        )
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=wanted), tower)


def merged_state(model: nn.Module) -> dict[str, Any]:
    """The state of the model without low-rank updates: they are added to the weights that they belong to."""
    updated = {
        name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")
    }
    state = {}
    for name, value in model.state_dict().items():
        if _ADAPTED in name:
            continue
        layer, _, rest = name.rpartition(".base_layer.")
        if layer in updated and rest == "weight":
            module: Any = updated[layer]
            value = value + sum(module.get_delta_weight(adapter) for adapter in module.active_adapters)
        state[f"{layer}.{rest}" if layer else name] = value
    return state
