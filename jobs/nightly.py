"""Runs tonight's cells as a Ray job and compares them with the nights before.

    ray job submit --working-dir . -- python jobs/nightly.py studies/nightly.yaml

Needs a cluster (`ray start --head`) and, in both shells, RAY_AUTH_MODE=token. Data, results and the history are under
VSETUNE_HOME: a folder that every node sees (default ~/vsetune), or s3://bucket/prefix. Submitting again on the same day
continues a night that was interrupted. What Ray sends has no repository: name the commit in VSETUNE_REVISION of the
job's environment (--runtime-env-json), so that a report can name suspects.

Exit codes: 0 no change, 1 a regression or changed first losses, 2 the night could not run or is not complete, 130
interrupted.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))  # the code that was submitted, not an old one

from vsetune.cli.entry import run_script

if __name__ == "__main__":
    run_script(__doc__, ["nightly", "run"], then=["--address", "auto"])
