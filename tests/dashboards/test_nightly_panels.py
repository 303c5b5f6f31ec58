"""Every panel of the nightly dashboard finds something in the metrics that a night leaves."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from night_reports import sample_report

from vsetune.nightly.night_metrics import exposition
from watching.panels import NIGHTLY, filled


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH; it comes with prometheus")
def test_every_panel_has_data_after_one_night(tmp_path: Path) -> None:
    report = sample_report()
    lines = [line.rpartition(" ") for line in exposition(report, report.ended).splitlines() if line[0] != "#"]
    tests = [{
        "interval": "1m", "input_series": [{"series": series, "values": f"{value}x5"} for series, _, value in lines],
        "promql_expr_test": [
            {"expr": f"count({filled(panel.expr)}) > bool 0", "eval_time": "2m",
             "exp_samples": [{"labels": "{}", "value": 1}]} for panel in NIGHTLY.panels
        ],
    }]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert (done.returncode, re.findall("expr:.*", done.stderr)) == (0, []), done.stderr
