"""Homes with unusual names hold what is written to them, and addresses that are misspelt are no folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refused

from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import ConfigError
from vsetune.home.paths import home, remote_home, under_home
from vsetune.records.mlflow_client import artifact_location, open_client
from vsetune.study.places import tracking_uri

NAMES = ["a b", "a#b", "100%", "[x]", "q'u\"o", "a;b&c=d+e", "café", "名　前"]


@pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves
@pytest.mark.parametrize("name", NAMES)
def test_mlflow_writes_below_a_home_of_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / name
    place.mkdir()
    monkeypatch.setenv("VSETUNE_HOME", str(place))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = tracking_uri(TrackingSpec())
    client = open_client(uri)
    run = client.create_run(client.create_experiment("x", artifact_location(uri, "x")))
    client.log_text(run.info.run_id, "text", "note.txt")
    assert (place / "mlflow.db").stat().st_size
    assert [each.name for each in (place / "artifacts").rglob("note.txt")] == ["note.txt"]
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a?b", "a%20b", "what?"])
def test_a_home_that_no_sqlite_file_can_be_addressed_in_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / name))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with refused("VSE-S470", by=ConfigError, folder=tmp_path / name):
        tracking_uri(TrackingSpec())
    assert tracking_uri(TrackingSpec(uri="none")) is None


@pytest.mark.parametrize(("given", "code"), [
    *((given, "VSE-O470") for given in (
        "s3:/bucket/x", "s3:bucket/x", "S3:/bucket/x", "s3//bucket/x", "s3a:/bucket", "gs:/bucket/x",
        "https:/host/x", "http:host", "file:/data", "hdfs:/x",
    )),
    *((given, "VSE-O471") for given in (" /tmp/x", "/tmp/x ", "$HOME/x", "${HOME}/x", " s3://bucket/x")),
    *((given, "VSE-O014") for given in ("gs://bucket/x", "https://host/x", "file:///data", "az://b/x", "S3://bucket/x")),
    *((given, "VSE-O008") for given in ("s3://", "s3:///x", "s3://b//x", "s3://b/x ", "s3://b/../x")),
    ("~nobody_of_this_name/x", "VSE-O015"),
])
def test_a_home_that_is_no_folder_and_no_prefix_is_refused_in_one_line(
    given: str, code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VSETUNE_HOME", given)
    with refused(code, by=ConfigError) as caught:
        remote_home()
        home()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["s3:/bucket/x", "S3://bucket/x", "s3//bucket/x", "https:/host/x.tar"])
def test_a_path_of_a_file_that_is_a_misspelt_address_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    with refused("VSE-O470", by=ConfigError):
        under_home(given)


@pytest.mark.parametrize("name", ["data/s3", "s3", "gs_1/x", "a:b/c", "https", "s3x:/y"])
def test_names_that_only_resemble_an_address_stay_folders(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    assert under_home(name) == str(tmp_path / name)
