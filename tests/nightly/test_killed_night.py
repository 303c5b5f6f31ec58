"""A night whose process is killed: the next start of the same day goes on with it, and it is judged once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from night_files import PLAIN

from vsetune.nightly.history import History, nightly_folder
from vsetune.records.studies import Studies

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
PLATFORM = Path(__file__).parents[2] / "platform"
LOSSES = [{"name": "lmh"}, {"name": "info_nce"}, {"name": "lsh"}, {"name": "top_f"}]
STUDY = "nightly-tiny-2026-01-02"


def started(file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vsetune.cli.main", "nightly", "run", str(file), "--date", "2026-01-02"]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(PLATFORM)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )


def finished() -> set[str]:
    """Attempts that the log holds as finished, read beside the running night."""
    studies = Studies()
    if STUDY not in studies.names():
        return set()
    return {each.attempt_id for each in studies.attempts(STUDY) if each.status == "finished"}


def test_a_killed_night_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(PLAIN | {"losses": LOSSES, "resources": {"cpus": 2}}))
    first = started(file)
    deadline = time.monotonic() + 250
    while not (before := finished()):
        assert first.poll() is None
        assert time.monotonic() < deadline, "no trial finished in time"
        time.sleep(0.2)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    history = History(nightly_folder("tiny"))
    (night,) = history.nights()
    assert (night.state, night.ended) == ("partial", "")

    second = started(file)
    told, _ = second.communicate(timeout=250)
    assert second.returncode == 0
    assert "baseline night 1 of 7: 48 measures not judged yet" in told
    (after,) = history.nights()
    assert (after.state, after.started, after.study) == ("complete", night.started, STUDY)
    assert before <= finished()
    assert len(finished()) == 4
