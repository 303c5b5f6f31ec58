"""The processes of a trial beside its first one: they train and rank with it and write nothing."""

from __future__ import annotations

from pathlib import Path

from vsetune.config.sources.trial_inputs import STREAMED, Reading
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset, further_tests
from vsetune.training.batches import TrainingBatches
from vsetune.training.checkpoint import CheckpointFolder
from vsetune.training.device import choose_device, use_threads
from vsetune.training.evaluation import score_split
from vsetune.training.loop import TrainingLoop
from vsetune.training.processes import Processes
from vsetune.training.random_state import RandomState
from vsetune.training.restoring import learner_state, restore
from vsetune.training.step import Learner
from vsetune.training.trained import KeptStage, open_first_stage


def help_training(
    trial: TrialSpec, folder: Path, processes: Processes, *, device: str, threads: int | None,
    first_stage: KeptStage | None = None, reading: Reading = STREAMED,
) -> None:
    """Do the tasks of the attempt of the first process, until it ends. Arguments as those of `TrainingAttempt`; the
    state comes from the first process, and `folder` only names the trial in errors."""
    use_threads(threads)
    chosen = choose_device(device)
    dataset = Dataset.open(trial.data.path, reading=reading)
    tests, first = further_tests(trial.data, dataset), open_first_stage(trial, first_stage, dataset, chosen)
    batches, random = TrainingBatches(trial, dataset, chosen), RandomState(trial.seed, chosen)
    checkpoints = CheckpointFolder(folder, fingerprint=trial.fingerprint(), data=dataset.fingerprint)
    state = processes.from_first(None)
    with random.active():
        learner = Learner.build(
            trial, dataset, chosen, saved=learner_state(state, checkpoints), processes=processes
        )
    learner, progress = restore(state, learner, random, checkpoints)
    loop = TrainingLoop(trial, learner, batches, progress, where=f"trial {trial.trial} process {processes.number}")
    try:
        while (task := processes.task()) is not None:
            with random.active():
                if task == "step":
                    loop.begin()
                    loop.step()
                else:
                    network = loop.learner.network
                    if task.weights is not None:
                        network.load_state_dict(task.weights)
                    ranked = dataset if task.test is None else tests[task.test][0]
                    score_split(
                        network, ranked, task.split, trial=trial, device=chosen, images=task.images, first=first,
                        processes=processes,
                    )
    finally:
        batches.close()
