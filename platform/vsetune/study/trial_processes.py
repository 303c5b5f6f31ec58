"""The further processes of a trial that several train together: children of its worker, on its node.

They live as long as the worker's attempt: it ends them, and they end when it dies. When one of them dies, its
connection breaks, and the attempt ends as interrupted. Where a broken connection is not noticed, because a GPU waits
for it, the worker ends itself.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from vsetune.config.sources.trial_inputs import Reading
from vsetune.config.study.resources import Needs
from vsetune.config.study.training import TrialSpec
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

    trial: plain data. folder: of the trial. reading: as of the attempt.
    """

    def __init__(self, trial: Mapping[str, Any], folder: Path, needs: Needs, reading: Reading) -> None:
        self._is_over = threading.Event()
        self._meeting = tempfile.mkdtemp(prefix="vsetune-processes-")
        context = multiprocessing.get_context("spawn")
        self._helpers = [
            context.Process(target=_help, args=(number, self._meeting, trial, folder, needs, reading))
            for number in range(1, needs.workers)
        ]
        for helper in self._helpers:
            helper.start()
        threading.Thread(target=self._watch, daemon=True).start()
        self.processes = _join(0, self._meeting, needs)

    def close(self) -> None:
        """End the other processes. Nothing of theirs is lost: they write nothing."""
        self._is_over.set()
        for helper in self._helpers:
            helper.kill()
        for helper in self._helpers:
            helper.join()
        distributed.destroy_process_group()
        shutil.rmtree(self._meeting, ignore_errors=True)

    def _watch(self) -> None:
        connection.wait([helper.sentinel for helper in self._helpers])
        if not self._is_over.wait(_NOTICED_WITHIN_S):
            logger.error("a process of the trial is gone, and its worker waits for it: the worker ends")
            os._exit(1)


def _join(number: int, meeting: str, needs: Needs) -> Processes:
    if needs.gpus:
        torch.cuda.set_device(number)
    distributed.init_process_group(
        "nccl" if needs.gpus else "gloo", init_method=f"file://{meeting}/group", rank=number, world_size=needs.workers,
        timeout=_PATIENCE,
    )
    return Processes(number, needs.workers)


def _help(
    number: int, meeting: str, plain: Mapping[str, Any], folder: Path, needs: Needs, reading: Reading
) -> None:
    worker = multiprocessing.parent_process()
    assert worker is not None
    threading.Thread(target=_end_with, args=(worker,), daemon=True).start()
    load_kept(plain.get("plugins", {}), study_folder_of(folder), where=f"trial {plain['trial']}")
    processes = _join(number, meeting, needs)
    trial = TrialSpec.model_validate(plain)
    help_training(
        trial, folder, processes, device=f"cuda:{number}" if needs.gpus else "cpu",
        threads=needs.threads, first_stage=kept_stage(trial, folder), reading=reading,
    )


def _end_with(worker: BaseProcess) -> None:
    connection.wait([worker.sentinel])
    os._exit(1)
