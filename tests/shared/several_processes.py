"""Processes of this machine that train together, as a test starts them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from vsetune.training.processes import Processes


def together(count: int, function: Callable[..., Any], *arguments: Any, folder: Path) -> list[Any]:
    """The results of function(processes, *arguments) in each of `count` new processes. folder: new, for their files."""
    folder.mkdir()
    context = multiprocessing.get_context("forkserver")  # one process imports torch for all
    context.set_forkserver_preload(["ready_to_fork"])
    started = [
        context.Process(target=_run, args=(number, count, str(folder), function, arguments)) for number in range(count)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the server, once it starts, is told no other way
        for process in started:
            process.start()
    for process in started:
        process.join(600)
    assert [process.exitcode for process in started] == [0] * count
    return [torch.load(folder / str(number), weights_only=False) for number in range(count)]


def _run(number: int, count: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=number, world_size=count, timeout=timedelta(seconds=120)
    )
    torch.save(function(Processes(number, count), *arguments), Path(folder) / str(number))
    distributed.destroy_process_group()
