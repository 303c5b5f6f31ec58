"""`make chaos` itself: a run with few disturbances begins, plays them, and finds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_servers import stoppable_s3

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_chaos_run_of_a_few_disturbances_passes_its_own_checks(tmp_path: Path) -> None:
    stoppable_s3(tmp_path)  # skips where there is none
    environment = os.environ | {
        "CHAOS_COUNT": "4", "CHAOS_KINDS": "driver_killed,worker_killed",
        "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("platform", "benchmarks")),
    }
    done = subprocess.run(
        [sys.executable, "-m", "chaos.run"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
