"""In a copied home MLflow still names the old one's folder for files: nothing is written there from the copy."""

import hashlib
import shutil
from pathlib import Path

import pytest
import safetensors.numpy
from mlflow import MlflowClient

from vsetune.errors import UnusableStore
from vsetune.tracking import open_store
from vsetune.tracking.doctor import doctor_of
from vsetune.tracking.models import logged_models
from vsetune.tracking.night_runs import NightRun
from vsetune.tracking.opening import open_existing, open_journaled, open_nights
from vsetune.tracking.study_state import open_states

NIGHT = NightRun("scenes", "2026-01-31", 1.0, 2.0, {}, {}, "")


def contents(folder):
    return {path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def original(database, tmp_path, study, start, points):
    """A home with a finished attempt that has weights, and a night."""
    home = tmp_path / "original"
    home.mkdir()
    for file in database.parent.glob("mlflow.db*"):
        shutil.move(file, home / file.name)
    weights = tmp_path / "best.safetensors"
    weights.write_bytes(safetensors.numpy.save({}))
    store = open_store(f"sqlite:///{home / 'mlflow.db'}", None)
    store.open_study(study, resume=False)
    run = store.start_attempt(start())
    store.record_points(run, points(1, 3))
    store.finish_attempt(run, "finished", {"best_m_recall": 50.0}, [weights], None)
    open_nights(f"sqlite:///{home / 'mlflow.db'}", None).keep(NIGHT)
    return home


@pytest.fixture
def copy(original, tmp_path):
    """Of that home, and its URI."""
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"


def uri_of(home):
    return f"sqlite:///{home / 'mlflow.db'}"


@pytest.fixture
def mended(copy):
    """The copy, once the doctor has been at it."""
    for finding in doctor_of(uri_of(copy)).examine(None, weights=lambda start: None):
        finding.mend()
    return copy


WRITERS = {
    "a study is resumed": lambda uri, study, run, file: open_store(uri, None).open_study(study, resume=True),
    "a gallery is kept": lambda uri, study, run, file: open_existing(uri).keep_artifacts(run, [file], folder="gallery"),
    "a page is kept": lambda uri, study, run, file: open_states(uri).keep_page(study.name, "page.html", "<p>"),
    "a model is logged": lambda uri, study, run, file: logged_models(uri).log(
        open_existing(uri).attempt(run), file.parent, weights_sha256="0" * 64, index=None, reads_pieces=False
    ),
    "a night is kept": lambda uri, study, run, file: open_nights(uri, None).keep(NIGHT),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_what_would_write_into_the_original_from_a_copy_is_refused_and_goes_after_the_mend(
    write, original, copy, study, tmp_path
):
    before, (run,) = contents(original), [each.attempt_id for each in open_existing(uri_of(copy)).attempts("nightly")]
    file = tmp_path / "page.html"
    file.write_text("<p>")
    with pytest.raises(UnusableStore, match=r"its files would go to .*original/artifacts/night") as told:
        write(uri_of(copy), study, run, file)
    assert "\n" not in str(told.value)
    assert "vsetune tracking doctor" in str(told.value)
    for finding in doctor_of(uri_of(copy)).examine(None, weights=lambda start: None):
        finding.mend()
    write(uri_of(copy), study, run, file)
    assert contents(original) == before


def test_records_that_wait_in_a_copied_journal_stay_there(original, copy, study, start):
    before = contents(original)
    with pytest.raises(UnusableStore, match="vsetune tracking doctor nightly --mend"):
        open_journaled(uri_of(copy), None, copy / "runs" / "nightly").open_study(study, resume=True)
    assert contents(original) == before


def test_the_copy_is_read_as_before(original, copy, tmp_path):
    here, there = (open_existing(uri_of(home)) for home in (copy, original))
    assert here.attempts("nightly") == there.attempts("nightly")
    (attempt,) = here.attempts("nightly")
    assert here.fetch_artifact(attempt.attempt_id, "best.safetensors", tmp_path).read_bytes()


def test_the_doctor_tells_of_a_copy_in_a_line_and_has_its_files_kept_there(original, copy):
    found = doctor_of(uri_of(copy)).examine("nightly", weights=lambda start: None)
    assert [finding.line for finding in found] == [
        f"study nightly: its files are kept in {original}/artifacts/nightly, in the home that this one was copied or "
        f"moved from; --mend: has them kept in {copy}/artifacts/nightly, copies there what is missing, and leaves the "
        "old folder as it is"
    ]
    before = contents(original)
    found[0].mend()
    assert contents(original) == before
    shutil.rmtree(original)
    assert doctor_of(uri_of(copy)).examine("nightly", weights=lambda start: None) == []


def test_files_that_a_copy_has_written_into_the_original_come_along(original, copy, start, points, tmp_path):
    """As earlier versions did."""
    client = MlflowClient(uri_of(copy))
    (attempt,) = open_existing(uri_of(copy)).attempts("nightly")
    experiment = client.get_run(attempt.attempt_id).info.experiment_id
    later = client.create_run(experiment).info.run_id
    client.log_text(later, "later", "folder/later.txt")
    (finding,) = doctor_of(uri_of(copy)).examine("nightly", weights=lambda start: None)
    finding.mend()
    shutil.rmtree(original)
    again = MlflowClient(uri_of(copy))
    assert Path(again.download_artifacts(later, "folder/later.txt", str(tmp_path))).read_text() == "later"


def test_a_home_under_two_names_and_one_that_was_moved(original, study, tmp_path):
    (tmp_path / "link").symlink_to(original)
    open_store(uri_of(tmp_path / "link"), None).open_study(study, resume=True)
    moved = original.rename(tmp_path / "moved")
    (tmp_path / "link").unlink()
    with pytest.raises(UnusableStore, match="copied or moved"):
        open_store(uri_of(moved), None).open_study(study, resume=True)
    for finding in doctor_of(uri_of(moved)).examine(None, weights=lambda start: None):
        finding.mend()
    open_store(uri_of(moved), None).open_study(study, resume=True)
    assert doctor_of(uri_of(moved)).examine(None, weights=lambda start: None) == []
    assert not original.exists()
