"""The networks as classes, by the names that papers print, for other people's training loops."""

from __future__ import annotations

from typing import Any, ClassVar

from vsetune.config.component_specs import NETWORKS
from vsetune.config.spec.base import unknown_name
from vsetune.config.spec.keywords import show_settings
from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError
from vsetune.networks.cgmn.network import Cgmn
from vsetune.networks.dual_encoder import network as dual_encoder
from vsetune.networks.gsmn.network import Gsmn
from vsetune.networks.malali_keller import network as malali_keller
from vsetune.networks.mse.network import Mse
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network, sizes_of
from vsetune.networks.pcme.network import Pcme
from vsetune.networks.pvse.network import Pvse
from vsetune.networks.scan.network import Scan
from vsetune.networks.sgraf.network import Sgraf
from vsetune.networks.tags.network import Tags
from vsetune.networks.vse_infinity.network import VseInfinity
from vsetune.networks.vsepp.network import Vsepp
from vsetune.networks.vsrn.network import Vsrn


class NamedNetwork(Network):
    """A network whose settings are keyword arguments; those that are not given have their defaults. Its weights are
    fresh, from torch's global generator.

    component: its name in study files. width: numbers per region of the image features. vocabulary_size: number of word
    ids, from 0 (padding). regions: of an image. ConfigError lists every wrong setting.
    """

    component: ClassVar[str]

    def __init_subclass__(cls, component: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if component is not None:
            cls.component = component
            show_settings(cls, NETWORKS[component])

    def __init__(self, *, width: int, vocabulary_size: int, regions: int = 1, **settings: Any) -> None:
        where = f"vsetune.networks.{type(self).__name__}"
        spec = parse_spec({"name": self.component, **settings}, NETWORKS[self.component], where=where)
        sizes = sizes_of(type(self), spec, regions=regions, width=width, vocabulary_size=vocabulary_size)
        super().__init__(spec, **sizes)  # of the network that it is derived from beside this class


class CGMN(NamedNetwork, Cgmn, component="cgmn"): ...


class DualEncoder(NamedNetwork, dual_encoder.DualEncoder, component="dual_encoder"): ...


class GSMN(NamedNetwork, Gsmn, component="gsmn"): ...


class MalaliKeller(NamedNetwork, malali_keller.MalaliKeller, component="malali_keller"): ...


class MSE(NamedNetwork, Mse, component="mse"): ...


class PCME(NamedNetwork, Pcme, component="pcme"): ...


class PVSE(NamedNetwork, Pvse, component="pvse"): ...


class SAF(NamedNetwork, Sgraf, component="sgraf_saf"): ...


class SCAN(NamedNetwork, Scan, component="scan"): ...


class SGR(NamedNetwork, Sgraf, component="sgraf_sgr"): ...


class TAGS(NamedNetwork, Tags, component="tags"): ...


class VSEInfinity(NamedNetwork, VseInfinity, component="vse_infinity"): ...


class VSEpp(NamedNetwork, Vsepp, component="vsepp"): ...


class VSRN(NamedNetwork, Vsrn, component="vsrn"): ...


def named(name: str, *, width: int, vocabulary_size: int, regions: int = 1, **settings: Any) -> Network:
    """The network of this name in study files, also of a plugin that is loaded. The rest as for the classes."""
    if name not in NETWORKS:
        raise ConfigError(unknown_name(name, sorted(NETWORKS), kind="network"))
    spec = parse_spec({"name": name, **settings}, NETWORKS[name], where=f"vsetune.networks.named({name!r})")
    return build_network(spec, regions=regions, width=width, vocabulary_size=vocabulary_size)
