"""Runs a study as a Ray job and prints its leaderboard.

    ray job submit --working-dir . -- python jobs/sweep.py studies/quickstart.yaml

Needs a cluster (`ray start --head`) and, in both shells, RAY_AUTH_MODE=token. Data and results are under VSETUNE_HOME:
a folder that every node sees (default ~/vsetune), or s3://bucket/prefix. Submitting the same study again continues it;
`vsetune job submit` does the same with less to type. Exit codes: 0 all trials ended as they should, 4 they did but
records wait for the tracking store, 3 some failed for good, 1 all failed, 2 the input is wrong, 130 interrupted.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))  # the code that was submitted, not an old one

from vsetune.cli.entry import run_script

if __name__ == "__main__":
    run_script(__doc__, ["study", "run"], then=["--resume", "--address", "auto"])
