"""A study that is asked to stop far from the next validation: each trial leaves with a checkpoint of its last step."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import torch
import yaml
from plugin_folders import LOSS, write_loss
from rich.console import Console

from vsetune.study.preparation import prepare_study
from vsetune.study.run import run_study
from vsetune.training.checkpoint import CHECKPOINT_FILE
from vsetune.training.executions import PROGRESS_FILE

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
STUDY = {
    "study": "tiny", "plugins": ["half_hinge"],
    "data": {"path": "data/scenes", "scenes": {"train": 480, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
    "losses": [{"name": "half_hinge"}], "baseline": "half_hinge", "training": {"epochs": 1, "batch_size": 40},
    "search": {"configurations": 1}, "seeds": [0],
}
SLOW_LOSS = LOSS.replace(
    "        similarity = inputs.similarity\n",
    "        import time\n        time.sleep(1.0)  # 60 steps to the first validation\n"
    "        similarity = inputs.similarity\n",
)


@pytest.fixture(autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_what_was_trained_since_the_last_validation_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    assert SLOW_LOSS != LOSS
    write_loss(tmp_path / "half_hinge", loss=SLOW_LOSS)
    file, console, is_over = tmp_path / "tiny.yaml", Console(file=io.StringIO(), width=200), threading.Event()
    file.write_text(yaml.safe_dump(STUDY))

    def ctrl_c_while_it_trains() -> None:
        while not is_over.wait(0.1):
            if list(tmp_path.glob(f"runs/tiny/trials/*/{PROGRESS_FILE}")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    person = threading.Thread(target=ctrl_c_while_it_trains)
    person.start()
    try:
        outcome = run_study(
            prepare_study(file, console), resume=False, retry_failed=False, address=None, console=console
        )
    finally:
        is_over.set()
        person.join(30)
    assert (outcome.ending, outcome.stopped_by) == ("interrupted", "Ctrl-C")
    (folder,) = tmp_path.glob("runs/tiny/trials/*")
    state = torch.load(folder / CHECKPOINT_FILE, weights_only=True)["state"]
    assert 0 < state["progress"]["step"] < 60
    assert state["progress"]["pairs_seen"] == json.loads((folder / PROGRESS_FILE).read_text())["pairs"]
