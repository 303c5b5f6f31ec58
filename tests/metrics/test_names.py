"""The names of `vsetune.metrics`, of which those that need torch are loaded when they are asked for."""

import pkgutil
from types import ModuleType

from vsetune import metrics


def test_every_name_is_what_it_says_in_whatever_order_modules_were_loaded() -> None:
    for module in pkgutil.iter_modules(metrics.__path__, "vsetune.metrics."):
        __import__(module.name)
    assert [name for name in metrics.__all__ if isinstance(getattr(metrics, name), ModuleType)] == []
