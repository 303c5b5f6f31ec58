"""Files of a run that are no longer what was kept with it: the doctor tells each in a line, on a disk and on S3."""

import boto3
import numpy as np
import pytest
import safetensors.numpy
from mlflow import MlflowClient
from s3_server import endpoint, prefix

from vsetune.files.hashes import sha256_hex
from vsetune.tracking import open_store
from vsetune.tracking.doctor import doctor_of
from vsetune.tracking.models import logged_models

__all__ = ["endpoint", "prefix"]

WEIGHTS = safetensors.numpy.save({"a": np.arange(600, dtype=np.float32)}, {"note": "n"})
OTHERS = safetensors.numpy.save({"a": np.zeros(600, dtype=np.float32)}, {"note": "n"})


class OnDisk:
    def __init__(self, root):
        self.root = root

    def read(self, run, name):
        return (self.root / run / "artifacts" / name).read_bytes()

    def write(self, run, name, content):
        (self.root / run / "artifacts" / name).write_bytes(content)


class OnS3:
    def __init__(self, root):
        self._bucket, self._key = root.removeprefix("s3://").split("/", 1)
        self._client = boto3.client("s3")

    def _of(self, run, name):
        return {"Bucket": self._bucket, "Key": f"{self._key}/{run}/artifacts/{name}"}

    def read(self, run, name):
        return self._client.get_object(**self._of(run, name))["Body"].read()

    def write(self, run, name, content):
        self._client.put_object(**self._of(run, name), Body=content)


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path):
    """(root of the artifacts, their files)"""
    if request.param == "disk":
        return None, OnDisk(tmp_path / "artifacts" / "nightly")
    root = request.getfixturevalue("prefix")
    return root, OnS3(f"{root}/nightly")


@pytest.fixture
def run(database, place, study, start, points, tmp_path):
    """A finished attempt with weights, on either place."""
    weights = tmp_path / "best.safetensors"
    weights.write_bytes(WEIGHTS)
    store = open_store(f"sqlite:///{database}", place[0])
    store.open_study(study, resume=False)
    made = store.start_attempt(start())
    store.record_points(made, points(1, 3))
    store.finish_attempt(made, "finished", {"best_m_recall": 50.0}, [weights], None)
    return made


@pytest.fixture
def examine(database):
    def examined(kept=None):
        return doctor_of(f"sqlite:///{database}").examine("nightly", weights=lambda start: kept)

    return examined


DAMAGE = {
    "cut short": lambda content: content[: len(content) // 2],
    "nothing left": lambda content: b"",
    "zeros": lambda content: bytes(len(content) - 1),
}


@pytest.mark.parametrize("spoil", DAMAGE.values(), ids=DAMAGE)
def test_every_damaged_file_is_a_line_and_is_made_again(spoil, place, run, examine, tmp_path):
    _, files = place
    assert examine() == []
    before = {name: files.read(run, name) for name in ("config.yaml", "best.safetensors", "curves.svg")}
    for name, content in before.items():
        files.write(run, name, spoil(content))
    found = examine(tmp_path / "best.safetensors")
    assert [finding.what.split(" (")[0] for finding in found] == [
        "config.yaml is not what was recorded", "best.safetensors is damaged", "curves.svg is cut short",
    ]
    assert not any("\n" in finding.line for finding in found)
    for finding in found:
        finding.mend()
    assert {name: files.read(run, name) for name in before} == before
    assert examine() == []


def test_a_damaged_study_file_is_written_again(place, run, examine, database):
    _, files = place
    (parent,) = {each.info.run_id for each in _runs(database)} - {run}
    before = files.read(parent, "study.yaml")
    files.write(parent, "study.yaml", before[:20])
    (finding,) = examine()
    assert finding.what == "study.yaml is not what was recorded"
    finding.mend()
    assert files.read(parent, "study.yaml") == before


@pytest.mark.parametrize("kept", [WEIGHTS[:-4], None], ids=["damaged too", "gone"])
def test_weights_without_a_sound_copy_are_for_a_person(kept, place, run, examine, tmp_path):
    _, files = place
    files.write(run, "best.safetensors", WEIGHTS[:-8])
    copy = tmp_path / "copy.safetensors"
    if kept is not None:
        copy.write_bytes(kept)
    (finding,) = examine(copy if kept is not None else None)
    said = "damaged too" if kept is not None else "gone"
    assert finding.mend is None
    assert finding.line.endswith(
        f"best.safetensors is damaged ({len(WEIGHTS) - 8:,} bytes, its header says {len(WEIGHTS):,}), and the one in "
        f"the folder of its trial is {said}; by hand: bring the file back into the trial's folder, or train the trial "
        "again"
    )


def test_of_a_winner_other_weights_of_the_same_size_are_found_by_the_hash_of_its_model(
    place, run, examine, database, tmp_path
):
    _, files = place
    record = open_store(f"sqlite:///{database}", None).attempt(run)
    carried = tmp_path / "carried"
    carried.mkdir()
    (carried / "best.safetensors").write_bytes(WEIGHTS)
    logged_models(f"sqlite:///{database}").log(
        record, carried, weights_sha256=sha256_hex(WEIGHTS), index=None, reads_pieces=False
    )
    assert examine() == []
    files.write(run, "best.safetensors", OTHERS)
    (finding,) = examine(tmp_path / "best.safetensors")
    assert "its SHA-256 is not the one that its model was logged with" in finding.what
    finding.mend()
    assert files.read(run, "best.safetensors") == WEIGHTS


def test_a_file_written_otherwise_by_an_earlier_version_is_no_damage(place, run, examine):
    _, files = place
    text = files.read(run, "config.yaml").decode()
    files.write(run, "config.yaml", f"# by hand\n{text}".encode())
    files.write(run, "curves.svg", b"<svg/></svg>\n")
    assert examine() == []


def _runs(database):
    client = MlflowClient(f"sqlite:///{database}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "nightly"]
    return client.search_runs([experiment.experiment_id])
