"""The history of a nightly sweep where machines share no disk: whoever runs tonight knows the nights of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from night_files import night_of_day
from refusals import refused
from s3_server import endpoint, machine, prefix

from vsetune.errors import Overtaken, StudyConflict
from vsetune.home.s3 import listing, upload
from vsetune.nightly.history import Accepted, History, nightly_folder

__all__ = ["endpoint", "machine", "prefix"]
pytestmark = pytest.mark.filterwarnings("default")  # the S3 server's own


def history() -> History:
    return History(nightly_folder("tiny"))


def test_another_machine_goes_on_with_the_nights_of_the_first(machine: Callable[[str], None], prefix: str) -> None:
    accepted = Accepted("2026-01-01", None, None, "meant", "abc", "now")
    with history().held():
        history().keep(night_of_day(1))
        history().accept(accepted)
        with refused("VSE-G010", what="nightly tiny", by=StudyConflict), history().held():
            pass
    machine("second")
    assert history().nights() == []
    with history().held():
        assert history().nights() == [night_of_day(1)]
        assert history().accepted() == [accepted]
        history().keep(night_of_day(2))
    machine("first")
    with history().held():
        assert [night.date for night in history().nights()] == ["2026-01-01", "2026-01-02"]
        (nightly_folder("tiny") / "nights" / "2026-01-02.json").write_text("{")
    with history().held():  # what is damaged here alone is fetched again
        assert len(history().nights()) == 2
    assert sum("nights/" in url for url in listing(f"{prefix}/nightly/tiny/")) == 2


def test_what_another_machine_has_written_meanwhile_is_not_overwritten(machine: Callable[[str], None]) -> None:
    """Of a machine that slept while it was at work."""
    slept, of_first, of_second = history(), *(Accepted("2026-01-01", None, None, who, "abc", "now") for who in "ab")
    slept.fetch()
    machine("second")
    history().accept(of_second)
    machine("first")
    with refused("VSE-G017", by=Overtaken):
        slept.accept(of_first)
    history().fetch()
    assert history().accepted() == [of_second]


def test_two_machines_never_run_one_night(machine: Callable[[str], None]) -> None:
    with history().held():
        machine("second")
        with pytest.raises(StudyConflict, match="nightly tiny"), history().held():
            pass


def test_a_name_on_the_server_that_leads_out_of_the_history_is_left_there(
    machine: Callable[[str], None], prefix: str, tmp_path: Path
) -> None:
    with history().held():
        history().keep(night_of_day(1))
    (tmp_path / "evil.json").write_text("{}")
    upload(tmp_path / "evil.json", f"{prefix}/nightly/tiny/nights/../../evil.json")
    machine("second")
    history().fetch()
    assert len(history().nights()) == 1
    assert not list(nightly_folder("tiny").parent.glob("evil*"))
