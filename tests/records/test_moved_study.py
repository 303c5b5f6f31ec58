"""A study carried to another home is the same study there, however often and with whatever interruptions."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from foreign_exports import CONFIG, PAGE, RECORD, WEIGHTS, at, boards, goes_on, record
from full_disk import largest_file
from refusals import refused
from s3_server import endpoint, machine, prefix

from vsetune.errors import DataError, StorageError, StudyConflict
from vsetune.home.locks import take_lock
from vsetune.records import moved_study
from vsetune.records.log import LOG_FILE, lines_of
from vsetune.records.moved_study import export_study, import_study
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.study_lock import LOCK_FILE, locked_study

__all__ = ["at", "endpoint", "machine", "prefix"]
Moves = Callable[[str], Path]


@pytest.fixture
def file(at: Moves, tmp_path: Path) -> Path:
    """An export; this process stays where it was made."""
    record(at("here"))
    export_study("nightly", tmp_path / "study.zip")
    return tmp_path / "study.zip"


@pytest.mark.parametrize("name", ["another.zip", "folder"])
def test_attempts_numbers_search_and_files_of_a_moved_study_equal_those_of_the_original(
    file: Path, at: Moves, tmp_path: Path, name: str
) -> None:
    here, before = at("here"), boards()
    assert export_study("nightly", tmp_path / name) == 5
    there = at("elsewhere")
    assert import_study(tmp_path / name) == ("nightly", 5)
    assert boards() == before
    lines, moved = (list(lines_of(folder / LOG_FILE)) for folder in (here, there))
    assert [line.event() for line in moved[1:]] == [line.event() for line in lines[1:]]
    for kept in (WEIGHTS, PAGE, "leaderboard.html", "study.yaml"):
        assert (there / kept).read_bytes() == (here / kept).read_bytes()
    assert Studies().status("nightly") == "finished"


def test_where_the_sender_exported_to_is_forgotten_and_all_else_of_its_settings_stays(file: Path, at: Moves) -> None:
    at("elsewhere")
    import_study(file)
    found = Studies().record("nightly")
    assert found.config == CONFIG | {"tracking": {"series": "all"}}
    assert (found.fingerprint, found.tags) == (RECORD.fingerprint, RECORD.tags)


def test_an_import_that_is_repeated_changes_nothing_but_brings_lost_files_back(file: Path, at: Moves) -> None:
    for name in ("here", "elsewhere"):
        folder = at(name)
        import_study(file)
        before = (folder / LOG_FILE).read_bytes()
        (folder / PAGE).write_text("a newer gallery")
        assert import_study(file) == ("nightly", 0)
        (folder / WEIGHTS).unlink()
        assert import_study(file) == ("nightly", 1)
        assert (folder / WEIGHTS).read_bytes() == b"weights"
        assert (folder / PAGE).read_text() == "a newer gallery"
        assert (folder / LOG_FILE).read_bytes() == before


def test_a_newer_export_brings_what_is_new_and_comes_back_the_same_way(file: Path, at: Moves, tmp_path: Path) -> None:
    there = at("elsewhere")
    import_study(file)
    goes_on(there, 2)
    after = boards()
    export_study("nightly", tmp_path / "back.zip")
    here = at("here")
    assert import_study(tmp_path / "back.zip") == ("nightly", 5)
    assert boards() == after
    assert Studies().record("nightly").config == CONFIG | {"tracking": {"series": "all"}}
    assert [line.number for line in lines_of(here / LOG_FILE, strict=True)] == list(range(14))
    assert import_study(file) == ("nightly", 0)
    assert boards() == after


def test_a_study_that_went_on_at_both_places_or_is_another_one_is_refused_and_stays(
    file: Path, at: Moves, tmp_path: Path
) -> None:
    there = at("elsewhere")
    import_study(file)
    goes_on(there, 2)
    export_study("nightly", tmp_path / "there.zip")
    here = at("here")
    goes_on(here, 3)
    before = (here / LOG_FILE).read_bytes()
    with refused("VSE-R013", by=StudyConflict, folder=here):
        import_study(tmp_path / "there.zip")
    assert (here / LOG_FILE).read_bytes() == before


def test_an_import_that_breaks_off_is_no_study_until_its_log_is_there_and_goes_on(
    file: Path, at: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, there = boards(), at("elsewhere")
    moved: list[Path] = []

    def break_off(*words: object, **more: object) -> None:
        moved.append(there)
        if len(moved) == 3:
            raise KeyboardInterrupt
        move(*words, **more)  # type: ignore[arg-type]

    move = moved_study.move_in_place
    with monkeypatch.context() as broken:
        broken.setattr(moved_study, "move_in_place", break_off)
        with pytest.raises(KeyboardInterrupt):
            import_study(file)
    assert Studies().studies() == []
    with refused("VSE-R008", study="nightly"):
        Studies().attempts("nightly")
    assert import_study(file) == ("nightly", 5)
    assert boards() == before


def test_an_import_onto_a_full_disk_is_one_line_and_goes_on_when_there_is_room(file: Path, at: Moves) -> None:
    before = boards()
    at("elsewhere")
    with largest_file(1000), refused("VSE-R007", by=StorageError, reason="File too large"):
        import_study(file)
    assert Studies().studies() == []
    assert import_study(file) == ("nightly", 5)
    assert boards() == before


def test_an_export_that_arrives_is_no_study_to_others(
    file: Path, at: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    at("elsewhere")
    seen: list[str] = []
    check = moved_study.require_sound_log

    def look_around(*words: object, **more: object) -> None:
        with refused("VSE-R008", known="none"):
            Studies().attempts("nightly")
        seen.append("nightly")
        check(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(moved_study, "require_sound_log", look_around)
    import_study(file)
    assert seen == ["nightly"]


def test_nothing_is_imported_into_a_study_that_runs(file: Path, at: Moves) -> None:
    with take_lock(at("here") / LOCK_FILE, wait_s=0), refused("VSE-R010", by=StudyConflict):
        import_study(file)


def test_a_study_that_runs_is_exported_as_it_is_and_its_torn_line_is_left_out(
    at: Moves, tmp_path: Path
) -> None:
    record(at("here"))
    with (at("here") / LOG_FILE).open("ab") as log:
        log.write(b"0123abcd 99 begun {")
    export_study("nightly", tmp_path / "study.zip")
    there = at("elsewhere")
    import_study(tmp_path / "study.zip")
    assert (there / LOG_FILE).read_bytes().count(b"\n") == 10
    goes_on(there, 2)
    assert len(Studies().attempts("nightly")) == 3


def test_checkpoints_copies_of_plugins_and_links_stay_behind(at: Moves, tmp_path: Path) -> None:
    folder = at("here")
    record(folder)
    (tmp_path / "secret").write_text("secret")
    (folder / "secret.html").symlink_to(tmp_path / "secret")
    for name in ("plugins/own-abc/plugin.json", "trials/vsepp.lmh-c000-s0/checkpoint.pt", "mlflow.json", "stop"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    export_study("nightly", tmp_path / "folder")
    plain = json.loads((tmp_path / "folder" / "export.json").read_text())
    assert sorted(plain["files"]) == sorted([LOG_FILE, WEIGHTS, PAGE, "leaderboard.html", "study.yaml"])


def test_a_changed_byte_and_a_missing_file_are_refused_before_anything_is_placed(
    file: Path, at: Moves, tmp_path: Path
) -> None:
    export_study("nightly", tmp_path / "folder")
    at("elsewhere")
    weights = tmp_path / "folder" / "files" / WEIGHTS
    weights.write_bytes(b"weighty")
    for _ in range(2):
        with refused("VSE-R016", by=DataError, file=WEIGHTS):
            import_study(tmp_path / "folder")
        weights.unlink(missing_ok=True)
    assert list((tmp_path / "elsewhere" / "runs").iterdir()) == []


def test_what_is_no_export_and_a_place_that_is_taken_are_one_line(file: Path, at: Moves, tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    (tmp_path / "empty").mkdir()
    for name in ("text.zip", "other.zip", "nowhere.zip", "empty"):
        with refused("VSE-R014", by=DataError) as caught:
            import_study(tmp_path / name)
        assert "\n" not in str(caught.value)
    with refused("VSE-R019"):
        export_study("nightly", tmp_path / "text.zip")


def test_an_export_of_a_version_before_the_log_names_the_way_over_mlflow(file: Path, tmp_path: Path) -> None:
    export_study("nightly", tmp_path / "folder")
    (tmp_path / "folder" / "export.json").write_text('{"format": 1}')
    with refused("VSE-R015", by=DataError, got=1, known=2):
        import_study(tmp_path / "folder")


def test_a_study_comes_to_a_home_on_object_storage_and_is_there_for_every_machine(
    at: Moves, machine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    record(at("here"))
    before = boards()
    export_study("nightly", tmp_path / "study.zip")
    monkeypatch.setenv("VSETUNE_HOME", prefix)
    machine("first")
    import_study(tmp_path / "study.zip")
    machine("second")
    assert boards() == before
    attempt = Studies().attempts("nightly")[0].attempt_id
    for name, content in ((PAGE.partition("s0/")[2], b"<p>gallery</p>"), ("best.safetensors", b"weights")):
        found = Studies().fetch_artifact(attempt, name)
        assert found is not None
        assert found.read_bytes() == content
    with locked_study(folder_of_study("nightly")):
        machine("first")
        with refused("VSE-R010", by=StudyConflict):
            import_study(tmp_path / "study.zip")
