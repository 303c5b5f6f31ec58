"""The further processes of a trial that several train together: actors of the trial's worker, on any node.

Each has a bundle of the trial's placement group. They live as long as the worker's attempt: it ends them, and Ray ends
them when the worker dies. When one of them dies, its connection breaks, and the attempt ends as interrupted. Where a
broken connection is not noticed, because a GPU waits for it, the worker ends itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import ray
import torch
from ray.util import get_current_placement_group, get_node_ip_address
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, and exported only where it is built

from vsetune.config.sources.trial_inputs import Reading
from vsetune.config.study.resources import Needs
from vsetune.config.study.training import TrialSpec
from vsetune.home.paths import HOME_VARIABLE, home
from vsetune.study.first_stages import kept_stage
from vsetune.study.kept_plugins import load_kept, study_folder_of
from vsetune.training.helper import help_training
from vsetune.training.processes import Processes

logger = logging.getLogger(__name__)

_PATIENCE = timedelta(days=30)
"""How long processes wait for one another: also while the first writes a checkpoint, or waits for its driver."""
_NOTICED_WITHIN_S = 30.0


class TrialProcesses:
    """Starts needs.workers - 1 processes beside this one and joins them. Close it when the attempt ends.

    config: of the trial's worker. reading: as of the attempt. Ray must be connected.
    """

    def __init__(self, config: Mapping[str, Any], needs: Needs, reading: Reading) -> None:
        self._is_over = threading.Event()
        address = get_node_ip_address()
        self._store = TCPStore(address, 0, needs.workers, is_master=True, timeout=_PATIENCE, wait_for_workers=False)
        given = {name: config.get(name) for name in ("trial", "folder", "home")}
        self._helpers = [_start_helper(number, needs.of_process) for number in range(1, needs.workers)]
        self._ends = [
            helper.help.remote(number, (address, self._store.port), given, needs, reading)
            for number, helper in enumerate(self._helpers, start=1)
        ]
        threading.Thread(target=self._watch, daemon=True).start()
        self.processes = _join(0, self._store, needs)

    def close(self) -> None:
        """End the other processes. Nothing of theirs is lost: they write nothing."""
        self._is_over.set()
        for helper in self._helpers:
            ray.kill(helper)
        distributed.destroy_process_group()

    def _watch(self) -> None:
        ray.wait(self._ends, num_returns=1)
        if not self._is_over.wait(_NOTICED_WITHIN_S):
            logger.error("a process of the trial is gone, and its worker waits for it: the worker ends")
            os._exit(1)


def _start_helper(number: int, needs: Needs) -> Any:
    """An actor in the bundle of this number; without a placement group, wherever there is room."""
    group = get_current_placement_group()
    where = "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, number)
    actor = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_restarts=0)(_Helper)
    return actor.options(scheduling_strategy=where).remote()


def _join(number: int, store: TCPStore, needs: Needs) -> Processes:
    if needs.gpus:
        torch.cuda.set_device(0)  # Ray shows each process its own
    distributed.init_process_group(
        "nccl" if needs.gpus else "gloo", store=store, rank=number, world_size=needs.workers, timeout=_PATIENCE
    )
    return Processes(number, needs.workers)


class _Helper:
    """The actor."""

    def help(
        self, number: int, meeting: tuple[str, int], config: Mapping[str, Any], needs: Needs, reading: Reading
    ) -> None:
        if config["home"] is not None:
            os.environ[HOME_VARIABLE] = config["home"]
        plain, folder = config["trial"], home() / str(config["folder"])
        load_kept(plain.get("plugins", {}), study_folder_of(folder), where=f"trial {plain['trial']}")
        processes = _join(number, TCPStore(*meeting, needs.workers, timeout=_PATIENCE), needs)
        trial = TrialSpec.model_validate(plain)
        help_training(
            trial, folder, processes, device="cuda" if needs.gpus else "cpu", threads=needs.threads,
            first_stage=kept_stage(trial, folder), reading=reading,
        )
