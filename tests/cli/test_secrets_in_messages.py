"""Whatever goes wrong with an address, its password is not in the message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from vsetune.cli.main import run as vsetune_command
from vsetune.config.study.study_spec import StudySpec
from vsetune.home.hashes import fingerprint_of
from vsetune.study.places import mlflow_ui
from vsetune.study.preparation import PreparedStudy, prepare_study

SECRET = "pl4nted-w0rd"
CLOSED = "127.0.0.1:9"  # the port of `discard`, where nothing listens


@pytest.mark.parametrize(("uri", "shown"), [
    (f"http://ann:{SECRET}@{CLOSED}", "http://ann:***@127.0.0.1:9"),
    (f"postgresql://ann:{SECRET}@{CLOSED}/db", "postgresql://ann:***@127.0.0.1:9/db"),
    (f"nosuch://ann:{SECRET}@host", "nosuch://ann:***@host"),
    (f"sqlite:///{__file__}?password={SECRET}", "?password=***"),
    ("postgresql://ann:***@host/db", "postgresql://ann:***@host/db"),
    ("postgresql://ann:${NO_SUCH_VARIABLE}@host/db", "${NO_SUCH_VARIABLE}"),
])
def test_a_tracking_store_that_fails_is_shown_without_its_password(vsetune, uri, shown) -> None:
    said = vsetune("tracking", "import", "tiny", "--tracking-uri", uri)
    assert said.code == 2
    assert shown in said.lines[-1]
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("changes", [
    {"tracking": f"http://a-rather-long-name:{SECRET}{SECRET}{SECRET}@host"},
    {"tracking": {"uri": [f"http://a-rather-long-name:{SECRET}{SECRET}{SECRET}@host"]}},
    {f"http://ann:{SECRET}@host": 1},
    {"data": {"path": f"s3://ann:{SECRET}@bucket/scenes"}},
])
def test_a_study_file_with_a_password_in_the_wrong_place_is_told_without_it(vsetune, study, changes) -> None:
    said = vsetune("study", "validate", str(study(**changes)))
    assert said.code == 2
    assert "***" in said.err
    assert SECRET[:8] not in said.out + said.err


def test_the_resolved_study_is_printed_with_variables_and_without_passwords(vsetune, study) -> None:
    for word, shown in ((SECRET, "***"), ("${PW}", "${PW}")):
        file = study(tracking={"uri": f"http://ann:{word}@host"})
        printed = yaml.safe_load(vsetune("study", "run", str(file), "--dry-run").out)
        assert printed["tracking"]["uri"] == f"http://ann:{shown}@host"


def test_a_fault_of_ours_is_told_without_passwords(monkeypatch, capfd) -> None:
    def fault(**_: object) -> int:
        raise RuntimeError(f"http://ann:{SECRET}@host")

    monkeypatch.setattr("vsetune.cli.main.app", fault)
    monkeypatch.setattr("sys.argv", ["vsetune"])
    monkeypatch.setattr("vsetune.cli.main.mask_output", lambda: None)
    with pytest.raises(SystemExit) as left:
        vsetune_command()
    assert left.value.code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("failed VSE-X023: ")
    assert "http://ann:***@host" in line


def test_the_address_of_the_mlflow_ui_has_no_password() -> None:
    assert mlflow_ui(None, f"https://ann:{SECRET}@host:5000/mlflow/") == "https://host:5000/mlflow"
    assert mlflow_ui("http://127.0.0.1:5000", "sqlite:///x.db") == "http://127.0.0.1:5000"
    assert mlflow_ui(None, "sqlite:///x.db") is None


@pytest.fixture
def record_of(study: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Any]:
    monkeypatch.setenv("PG_PASSWORD", SECRET)
    prepared = prepare_study(study(), Console(quiet=True))

    def with_changes(changes: dict[str, Any]) -> Any:
        spec = StudySpec.model_validate(prepared.spec.to_plain() | changes)
        return PreparedStudy(spec, prepared.cells, prepared.data_fingerprint).record()

    return with_changes


def test_a_study_is_the_same_study_with_another_password(record_of) -> None:
    words = (SECRET, "0ther-pl4nted", "${PG_PASSWORD}")
    records = [record_of({"tracking": {"uri": f"postgresql://ann:{word}@host/db"}}) for word in words]
    assert len({record.fingerprint for record in records}) == 1
    assert not any(SECRET in str(record) for record in records)
    assert records[2].config["tracking"]["uri"] == "postgresql://ann:${PG_PASSWORD}@host/db"


def test_the_fingerprint_of_a_study_without_passwords_is_that_of_its_settings(record_of) -> None:
    record = record_of({})
    left_out = {"description", "resources", "tracking"}
    counted = {key: value for key, value in record.config.items() if key not in left_out}
    assert counted.pop("plugins") == []  # a study without any has the fingerprint of before there were plugins
    counted["data"] = counted["data"] | {"path": None}
    later = {
        "at_once": None, "objective": "best_m_recall", "target": "baseline", "points": [],
        "repeats": 1,
        "constraints": {"seconds_per_epoch": None, "peak_memory_gib": None},
    }  # nor had searches these
    assert {key: counted["search"].pop(key) for key in later} == later
    counted["search"]["storage"] = None  # a setting of earlier versions, which stays in fingerprints
    rules = {"patience_epochs": 2.0, "fewest_trials": 4}  # nor rules of other kinds
    assert {key: counted["scheduler"].pop(key) for key in rules} == rules
    assert counted["scheduler"] == {"kind": "none", "grace_epochs": None, "reduction_factor": 3.0}
    counted["scheduler"]["grace_epochs"] = 1.0  # the default of earlier versions
    assert record.fingerprint == fingerprint_of(counted | {"data_fingerprint": record.tags["data_fingerprint"]})
