"""The device of a given name, or the reason why it is unavailable."""

from __future__ import annotations

import torch

from vsetune.errors import ConfigError, Problem


def device_named(name: str | torch.device, *, key: str, choices: str = "cpu, cuda or cuda:N") -> torch.device:
    """ConfigError for a device that is unknown or not here. key: the setting, choices: its possible values; for the
    message."""
    wrong = Problem.of("VSE-D073", "{key}: got {device!r}, need {choices}", key=key, device=str(name), choices=choices)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(wrong) from error
    if device.type not in {"cpu", "cuda"}:
        raise ConfigError(wrong)
    found = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= found:
        here = f"there are {found} GPUs here" if found else "no GPU is visible here"
        raise ConfigError(
            "VSE-D074", "{key}: got {device!r}, but {here}; use cpu", key=key, device=str(name), here=here
        )
    return device
