"""The command line of vsetune, as a person would type it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.logged import export_problems, read_log, twice
from chaos.processes import Processes
from chaos.recorded import Recorded, read, read_board
from chaos.sweeps import Sweep

_VSETUNE = (sys.executable, "-m", "vsetune.cli.entry")
_QUICK_LIMIT_S = 300.0


class CommandFailed(RuntimeError):
    """A command that nothing disturbed ended with another exit code than 0."""


@dataclass(frozen=True)
class Place:
    """Where one sweep runs. home: VSETUNE_HOME, or the node's folder where that is on S3. logs: one file of output per
    round. tracking_uri: of the MLflow that it is exported to. database: its SQLite file.
    """

    home: Path
    logs: Path
    study_file: Path
    env: Mapping[str, str]
    tracking_uri: str
    database: Path

    def stderr(self, number: int) -> Path:
        return self.logs / f"round-{number:02d}.stderr"


def environment(
    home: Path, s3: Mapping[str, str], tracking_uri: str | None, ray_folder: Path, *, remote: str | None
) -> dict[str, str]:
    """What every command of ours is started with. remote: the home on S3, of which `home` is the folder of this node;
    None: `home` is the home."""
    env = os.environ | dict(s3) | {
        "VSETUNE_HOME": remote or str(home), "VSETUNE_NODE_FOLDER": str(home),
        "OMP_NUM_THREADS": "1", "COLUMNS": "200", "RAY_TMPDIR": str(ray_folder),
        "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
    }
    for name in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        env.pop(name, None)
    return env | ({"MLFLOW_TRACKING_URI": tracking_uri} if tracking_uri is not None else {})


def start_study(place: Place, number: int, processes: Processes) -> subprocess.Popen[bytes]:
    """`vsetune study run FILE --resume`, round `number` (from 0) of a sweep."""
    return processes.start(
        [*_VSETUNE, "study", "run", str(place.study_file), "--resume"], env=place.env,
        stdout=place.logs / f"round-{number:02d}.stdout", stderr=place.stderr(number),
    )


def run_quick(env: Mapping[str, str], *words: str) -> str:
    """The output of a command that nobody disturbs. CommandFailed unless it exits 0 within five minutes."""
    done = subprocess.run(
        [*_VSETUNE, *words], env=dict(env), capture_output=True, text=True, timeout=_QUICK_LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise CommandFailed(f"vsetune {' '.join(words)}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def recorded(place: Place, sweep: Sweep) -> Recorded:
    """What the sweep left. CommandFailed when there is no leaderboard."""
    board = read_board(run_quick(place.env, "leaderboard", "show", sweep.study_name, "--json"))
    return read(place.home / "runs" / sweep.study_name, board)


def record_problems(place: Place, sweep: Sweep) -> list[str]:
    """What is wrong in the log of a sweep that has ended, and where MLflow says something else."""
    logged = read_log(place.home / "runs" / sweep.study_name)
    return logged.problems + twice(logged) + export_problems(place.tracking_uri, sweep.study_name, logged)
