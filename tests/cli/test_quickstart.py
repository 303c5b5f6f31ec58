"""`vsetune quickstart` runs the study of the package, from a checkout and from a wheel in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from written_pages import ROOT

from vsetune.cli.quickstart import STUDY_FILE
from vsetune.config.study.cells import repeated_cells, resolve_cells
from vsetune.study.observed import promised_trials
from vsetune.study.study_file import load_study


def test_its_file_is_that_of_the_checkout_and_searches_nothing() -> None:
    """Losses at equal settings can be compared over pairs of seeds; tuned ones would take three searches."""
    assert STUDY_FILE.resolve() == ROOT / "studies" / "quickstart.yaml"
    study = load_study(STUDY_FILE)
    cells = repeated_cells(study, resolve_cells(study, where="test"))
    assert [cell.name for cell in cells if cell.domains] == []
    assert promised_trials(study, cells) == len(study.losses) * len(study.seeds)
    assert len(study.seeds) >= 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wheel_needs_no_checkout(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "platform", source / "platform", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("vsetune-*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {
        **os.environ, "VSETUNE_HOME": str(tmp_path / "home"), "COLUMNS": "80",
        "PYTHONPATH": os.pathsep.join([str(site), sysconfig.get_paths()["purelib"]]),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from vsetune.cli.entry import run; run()", "quickstart"],
        cwd=empty, env=environment, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "first results" in done.stderr
    # 7 points higher than lsh over ten seeds, each by 4 or more
    assert "info_nce reaches +" in " ".join(done.stdout.split())
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert list(empty.iterdir()) == []
    again = subprocess.run(
        [sys.executable, "-c", "import vsetune; print(vsetune.__file__)"], cwd=empty, env=environment,
        capture_output=True, text=True,
    )
    assert again.stdout.startswith(str(site))
