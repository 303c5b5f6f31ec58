"""Where a job is sent, and what goes along: files, command, variables; never a secret."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from full_disk import largest_file
from plugin_folders import write_loss
from ray._private.runtime_env.packaging import create_package
from refusals import refused

from vsetune.study.job_package import PASSED_ON, packed
from vsetune.study.submission import DEFAULT_ADDRESS, job_address, require_listener
from vsetune.version import PACKAGE_FOLDER, git_revision


@pytest.fixture(autouse=True)
def _plain_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PASSED_ON, "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("study: mine\n", encoding="utf-8")
    return path


def sent(folder: Path) -> list[str]:
    """The files that Ray's client puts into the package of a working directory."""
    target = folder.parent / f"{folder.name}.zip"
    obeys = os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0") != "1"
    create_package(str(folder), target, include_gitignore=obeys, excludes=[])
    with zipfile.ZipFile(target) as package:
        names = package.namelist()
    target.unlink()
    return names


@pytest.mark.parametrize(("given", "environment", "address"), [
    (None, {}, DEFAULT_ADDRESS),
    ("http://head:8265/", {"RAY_ADDRESS": "http://other:1"}, "http://head:8265"),
    ("head", {}, "http://head:8265"),
    ("head/", {}, "http://head:8265"),
    ("HTTP://head:8265/#/jobs?x=1", {}, "http://head:8265"),
    ("http://head:", {}, "http://head:8265"),
    ("https://ray.example.org/cluster/", {}, "https://ray.example.org/cluster"),
    ("http://ray.example.org/cluster/", {}, "http://ray.example.org:8265/cluster"),
    ("[::1]:8265", {}, "http://[::1]:8265"),
    ("[fd00::5]", {}, "http://[fd00::5]:8265"),
    ("fd00::5", {}, "http://[fd00::5]:8265"),
    ("http://[::1]/", {}, "http://[::1]:8265"),
    (None, {"RAY_ADDRESS": "[::1]:6379"}, "http://[::1]:8265"),
    (None, {"RAY_ADDRESS": "ray://[fd00::5]:10001"}, "http://[fd00::5]:8265"),
    (None, {"RAY_ADDRESS": "fd00::5"}, "http://[fd00::5]:8265"),
    ("head:9000", {}, "http://head:9000"),
    ("https://ray.example.org", {}, "https://ray.example.org"),
    (None, {"RAY_API_SERVER_ADDRESS": "http://a:1", "RAY_ADDRESS": "http://b:2"}, "http://a:1"),
    (None, {"RAY_ADDRESS": "http://b:2"}, "http://b:2"),
    (None, {"RAY_ADDRESS": "10.0.0.5:6379"}, "http://10.0.0.5:8265"),
    (None, {"RAY_ADDRESS": "ray://10.0.0.5:10001"}, "http://10.0.0.5:8265"),
    (None, {"RAY_ADDRESS": "auto"}, DEFAULT_ADDRESS),
])
def test_the_dashboard_is_found(
    given: str | None, environment: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert job_address(given) == address


def test_a_full_temporary_folder_is_one_short_line(study_file: Path) -> None:
    with largest_file(1000), refused("VSE-S058", reason="File too large") as caught, packed(
        study_file, "mine"
    ):
        pass
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("given", ["", "ftp://head", "http://", "http://head:port", "a b", "http://me:hunter2@head:8265"])
def test_what_can_be_no_address_is_refused(given: str) -> None:
    message = "VSE-S055" if "@" in given else "VSE-S054"
    with refused(message, where="--address") as caught:
        job_address(given)
    assert "hunter2" not in str(caught.value)


def test_a_place_where_nothing_listens_is_told_at_once() -> None:
    with refused("VSE-S043"):
        require_listener("http://127.0.0.1:9")


def test_a_study_takes_the_package_and_its_plugins_along(study_file: Path) -> None:
    write_loss(study_file.parent / "losses" / "half_hinge")
    (study_file.parent / "huge.tar").write_bytes(bytes(1000))
    for name in (".gitignore", ".rayignore", "table.npz", "sub/table.csv"):
        file = study_file.parent / "losses" / "half_hinge" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("*.npz\nsub/\n")
    study_file.write_text("study: mine\nplugins: [losses/, gone/]\n", encoding="utf-8")
    with packed(study_file, "mine") as package:
        assert package.command == (
            "python -m vsetune.cli.entry study run study/mine.yaml --resume --address auto"
        )
        there = set(sent(package.folder))
    assert {"study/mine.yaml", "study/losses/half_hinge/spec.py", "vsetune/cli/entry.py"} <= there
    assert {f"study/losses/half_hinge/{name}" for name in ("table.npz", "sub/table.csv")} <= there
    assert not any("__pycache__" in path or path.endswith(".tar") for path in there)
    assert not package.folder.exists()


@pytest.mark.parametrize("reference", ["../elsewhere", "{absolute}"])
def test_plugins_that_a_job_cannot_take_along_are_refused(reference: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "mine.yaml"
    path.write_text(f"study: mine\nplugins: ['{reference.format(absolute=tmp_path / 'elsewhere')}']\n")
    with refused("VSE-S059", file=path), packed(path, "mine"):
        pass


def test_addresses_go_along_and_keys_do_not(study_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", "s3://bucket/home")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3:8333")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:${PG_PASSWORD}@db/runs")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "PG_PASSWORD", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "hunter2-hunter2")
    with packed(study_file, "mine") as package:
        pass
    assert package.variables == {
        "VSETUNE_HOME": "s3://bucket/home", "AWS_ENDPOINT_URL": "http://s3:8333", "RAY_JOB_STOP_WAIT_TIME_S": "120",
        "VSETUNE_REVISION": git_revision(PACKAGE_FOLDER),
    }
    assert package.command.startswith("MLFLOW_TRACKING_URI='postgresql://me:${PG_PASSWORD}@db/runs' python ")
    assert "hunter2" not in repr(package)


def test_places_on_this_machine_stay_here(study_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", "/home/me/vsetune")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////home/me/mlflow.db")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3:8333")
    with packed(study_file, "mine") as package:
        pass
    assert package.left_here == ["VSETUNE_HOME", "MLFLOW_TRACKING_URI"]
    assert set(package.variables) == {"AWS_ENDPOINT_URL", "RAY_JOB_STOP_WAIT_TIME_S", "VSETUNE_REVISION"}


def test_an_address_with_a_password_in_it_is_not_sent(study_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:hunter2@db/runs")
    message = "VSE-S060"
    with refused(message, variable="MLFLOW_TRACKING_URI") as caught, packed(study_file, "mine"):
        pass
    assert "hunter2" not in str(caught.value)
