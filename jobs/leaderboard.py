"""Prints the leaderboard of a study as a Ray job, from the tracking store that the cluster writes to.

    ray job submit --working-dir . -- python jobs/leaderboard.py quickstart

Reads MLFLOW_TRACKING_URI and changes nothing; the study may still run. What follows the name is passed on to
`vsetune leaderboard show`, as in: quickstart --json. Exit codes: 0 done, 1 failed, 2 no such study, 130 interrupted.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))  # the code that was submitted, not an old one

from vsetune.cli.entry import run_script

if __name__ == "__main__":
    run_script(__doc__, ["leaderboard", "show"])
