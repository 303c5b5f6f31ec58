"""The losses as classes, by the names that papers print, for other people's training loops."""

from __future__ import annotations

from typing import Any, ClassVar

from vsetune.config.component_specs import LOSSES
from vsetune.config.spec.base import unknown_name
from vsetune.config.spec.keywords import show_settings
from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError
from vsetune.losses.plain_loss import PlainLoss


class NamedLoss(PlainLoss):
    """A loss whose settings are keyword arguments; those that are not given have their defaults.

    component: its name in study files. embedding_size, images: see `PlainLoss`. ConfigError lists every wrong setting.
    """

    component: ClassVar[str]

    def __init_subclass__(cls, component: str | None = None) -> None:
        super().__init_subclass__()
        if component is not None:
            cls.component = component
            show_settings(cls, LOSSES[component])

    def __init__(self, *, embedding_size: int | None = None, images: int | None = None, **settings: Any) -> None:
        spec = parse_spec(
            {"name": self.component, **settings}, LOSSES[self.component], where=f"vsetune.losses.{type(self).__name__}"
        )
        super().__init__(spec, embedding_size=embedding_size, images=images)


class AdaptiveMargin(NamedLoss, component="adaptive_margin"): ...


class AdditiveMargin(NamedLoss, component="additive_margin"): ...


class CLIP(NamedLoss, component="clip"): ...


class Contrastive(NamedLoss, component="contrastive"): ...


class HCL(NamedLoss, component="hcl"): ...


class InfoNCE(NamedLoss, component="info_nce"): ...


class IRTM(NamedLoss, component="irtm"): ...


class LMH(NamedLoss, component="lmh"): ...


class LSEH(NamedLoss, component="lseh"): ...


class LSH(NamedLoss, component="lsh"): ...


class LUWM(NamedLoss, component="luwm"): ...


class ManyToMany(NamedLoss, component="many_to_many"): ...


class MarginBased(NamedLoss, component="margin_based"): ...


class NTXent(NamedLoss, component="nt_xent"): ...


class Order(NamedLoss, component="order"): ...


class PCME(NamedLoss, component="pcme"): ...


class PCMEpp(NamedLoss, component="pcme_pp"): ...


class PVSE(NamedLoss, component="pvse"): ...


class SemanticCenter(NamedLoss, component="semantic_center"): ...


class SigLIP(NamedLoss, component="siglip"): ...


class TopF(NamedLoss, component="top_f"): ...


def named(name: str, *, embedding_size: int | None = None, images: int | None = None, **settings: Any) -> PlainLoss:
    """The loss of this name in study files, also of a plugin that is loaded. The rest as for the classes."""
    if name not in LOSSES:
        raise ConfigError(unknown_name(name, sorted(LOSSES), kind="loss"))
    spec = parse_spec({"name": name, **settings}, LOSSES[name], where=f"vsetune.losses.named({name!r})")
    return PlainLoss(spec, embedding_size=embedding_size, images=images)
