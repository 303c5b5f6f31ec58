from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vsetune.home.locks import take_lock


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    with take_lock(tmp_path / "lock", wait_s=0):
        for wait_s in (0, 0.01):
            with pytest.raises(BlockingIOError):
                take_lock(tmp_path / "lock", wait_s=wait_s)
    take_lock(tmp_path / "lock", wait_s=0).close()


def test_a_lock_does_not_touch_what_stands_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("x")
    take_lock(tmp_path / "lock", wait_s=None).close()
    assert (tmp_path / "lock").read_text() == "x"


def test_a_lock_whose_file_was_removed_while_it_was_waited_for_is_taken_on_the_new_file(tmp_path: Path) -> None:
    """Else two processes would hold it: one the file that is gone, one the next."""
    file, taken = tmp_path / "lock", []
    with take_lock(file, wait_s=0):
        waiting = threading.Thread(target=lambda: taken.append(take_lock(file, wait_s=60)))
        waiting.start()
        waiting.join(0.3)
        assert not taken
        file.unlink()
    waiting.join(60)
    with taken[0], pytest.raises(BlockingIOError):
        take_lock(file, wait_s=0)


def test_no_lock_without_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        take_lock(tmp_path / "nowhere" / "lock", wait_s=0)


_HOLD = """
import sys
from pathlib import Path
from vsetune.home.locks import take_lock

with take_lock(Path(sys.argv[1]), wait_s=0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("wait_s", [None, 60.0])
def test_a_lock_goes_with_a_killed_process(wait_s: float | None, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", _HOLD, str(tmp_path / "lock")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            take_lock(tmp_path / "lock", wait_s=0)
        other.kill()
        take_lock(tmp_path / "lock", wait_s=wait_s).close()
