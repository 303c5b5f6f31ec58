"""The device of a given name, or the reason why it is unavailable."""

from __future__ import annotations

import torch

from vsetune.data import messages
from vsetune.errors import ConfigError


def device_named(name: str | torch.device, *, key: str, choices: str = "cpu, cuda or cuda:N") -> torch.device:
    """ConfigError for a device that is unknown or not here. key: the setting, choices: its possible values; for the
    message."""
    wrong = messages.DEVICE_UNKNOWN(key=key, device=str(name), choices=choices)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(wrong) from error
    if device.type not in {"cpu", "cuda"}:
        raise ConfigError(wrong)
    found = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= found:
        here = f"there are {found} GPUs here" if found else "no GPU is visible here"
        raise ConfigError(messages.DEVICE_NOT_HERE(key=key, device=str(name), here=here))
    return device
