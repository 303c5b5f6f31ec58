"""Runs a study as a Ray job and prints its leaderboard.

    ray job submit --working-dir . -- python jobs/sweep.py studies/quickstart.yaml

Needs a cluster (`ray start --head`) and, in both shells, RAY_AUTH_MODE=token. Data and results are under VSETUNE_HOME
(default ~/vsetune), which every node must see. Submitting the same study again continues it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))  # the code that was submitted, not an old one

from vsetune.cli.entry import run

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    sys.argv = ["sweep.py", "study", "run", sys.argv[1], "--resume", "--address", "auto"]
    run()
