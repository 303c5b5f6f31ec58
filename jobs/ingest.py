"""Makes a data set as a Ray job: the shards are written in parallel by the nodes of the cluster.

    ray job submit --working-dir . -- python jobs/ingest.py studies/data/flickr8k.yaml

What the recipe reads must be seen by every node; the data set goes where the recipe says, under VSETUNE_HOME. The bytes
are those that one machine would write. Submitting the same recipe again goes on where it ended. Exit codes: 0 done, 1
failed, 2 the input is wrong, 130 interrupted.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "platform"))  # the code that was submitted, not an old one

from vsetune.cli.entry import run_script

if __name__ == "__main__":
    run_script(__doc__, ["data", "ingest"], then=["--address", "auto"])
