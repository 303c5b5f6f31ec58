"""Every network by the name that study files use."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from vsetune.config.components.catalogue import Catalogue, selected_by_name
from vsetune.networks.network_spec import NetworkSpec

NETWORKS: Catalogue[NetworkSpec] = Catalogue("network", NetworkSpec, __package__)

AnyNetwork = Annotated[SerializeAsAny[NetworkSpec], selected_by_name(lambda: NETWORKS)]
