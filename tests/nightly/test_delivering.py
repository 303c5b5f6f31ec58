"""A report reaches files, MLflow, Prometheus, chat and mail; a failed step is one line in it, and never its end."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from night_reports import sample_report, short_report
from receiving_servers import http_receiver

from vsetune.errors import StorageError
from vsetune.nightly import delivering
from vsetune.nightly.delivering import chat_text, deliver
from vsetune.nightly.night import NightReport
from vsetune.nightly.night_metrics import FILE
from vsetune.nightly.nightly_spec import ReportSpec

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # Apprise's
UNUSED_PORT = 9  # the port `discard`, where nothing listens
SECRET = "verysecrettoken"


@dataclass
class Kept:
    """A history that remembers what it was given. trouble: raised instead."""

    trouble: Exception | None = None
    reports: list[NightReport] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __call__(self, report: NightReport, html: str, markdown: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.reports.append(report)
        self.texts += [html, markdown]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (("TIMEOUT_S", 0.4), ("RETRIES", 2), ("PAUSE_S", 0.0)):
        monkeypatch.setattr(delivering, name, value)
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.delenv("VSETUNE_PUSHGATEWAY", raising=False)
    return tmp_path


def sent(report: NightReport, kept: Kept | None = None, **wanted: object) -> tuple[list[str], NightReport]:
    """(new notes, report after its delivery)."""
    spec = ReportSpec.model_validate({"mlflow": False} | wanted)
    after = deliver(report, kept or Kept(), spec, last_complete=report.ended, tracking_uri=None)
    return list(after.notes[len(report.notes):]), after


def test_a_report_is_stored_and_exported_and_stays_as_it_is(home: Path) -> None:
    failed = replace(sample_report(), exit_code=2, rows=(), headline="could not run: the lock is held", notes=())
    for report in (sample_report(), failed):
        kept = Kept()
        assert sent(report, kept) == ([], report)
        assert kept.reports == [report]
        assert "<!doctype html>" in kept.texts[0]
        assert kept.texts[1].startswith("## ")
    assert (home / "nightly" / "scenes" / FILE).is_file()


def test_a_webhook_gets_slacks_json_and_its_address_appears_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, page = Kept(), "https://ci.example.org/{name}/{date}.html"
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", f"{server.url}?channel=a%26b")
        assert sent(sample_report(), kept, webhook="CHAT", page_url=page)[0] == []
    ((method, path, body, headers),) = server.requests
    assert (method, headers["Content-Type"], headers["User-Agent"]) == ("POST", "application/json", "vsetune")
    assert path == f"/services/T000/B000/{SECRET}?channel=a%26b"
    text = json.loads(body).pop("text")
    assert json.loads(body).keys() == {"text"}
    assert text.splitlines()[0] == "✗ scenes, 2026-11-21"
    assert text.splitlines()[1].endswith("time per epoch of sgraf.lmh (+21.4 %)*")
    assert text.endswith("<https://ci.example.org/scenes/2026-11-21.html|the whole report>")
    assert SECRET not in "".join(kept.texts)


@pytest.mark.parametrize("is_slack", [True, False])
def test_a_chat_gets_no_mentions_and_no_links_of_others(is_slack: bool) -> None:
    hostile = "<!channel> <https://evil.example|see> [see](https://evil.example) & *bold* @here"
    title, text = chat_text(replace(short_report(), headline=hostile, nightly="@all"), page=None, is_slack=is_slack)
    assert "@all" not in title + text
    assert "@here" not in text
    assert "<!" not in text
    assert "<https" not in text
    assert "](" not in text
    assert ("&lt;!channel&gt;" in text) is is_slack


def test_any_address_of_apprise_is_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url.replace("http://", "json://"))
        assert sent(sample_report(), webhook="CHAT")[0] == []
    plain = json.loads(server.requests[0][2])
    assert plain["title"] == "✗ scenes, 2026-11-21"
    assert plain["message"].startswith("*2 regressions")
    assert "✗ vsepp.lseh, best M-Recall: " in plain["message"]


@pytest.mark.parametrize(("answers", "tries", "reason"), [
    ([500], 3, "answered 500"), ([429, 503, 200], 3, None), ([404], 1, "answered 404"), ([302], 1, "answered 302"),
    ([None], 3, "Read timed out"),
])
def test_a_webhook_without_a_good_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, answers: list[int | None], tries: int, reason: str | None,
) -> None:
    kept = Kept()
    with http_receiver(answers) as server:
        monkeypatch.setenv("CHAT", server.url)
        notes, after = sent(sample_report(), kept, webhook="CHAT")
    assert len(server.requests) == tries
    assert len(notes) == (reason is not None)
    if reason is not None:
        assert notes[0].startswith("webhook of CHAT: not delivered (")
        assert reason in notes[0]
        assert kept.reports[-1] == after
        assert all("webhook of CHAT: not delivered" in text for text in kept.texts[-2:])
    assert SECRET not in "".join([*notes, *kept.texts])


@pytest.mark.parametrize("value", [
    f"https://{'a' * 70}.example.org/{SECRET}", f"https://[::1/{SECRET}", f"http://127.0.0.1:{UNUSED_PORT}/x/{SECRET}",
    f"mailto://me:{SECRET}@localhost:{UNUSED_PORT}",
])
def test_a_webhook_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CHAT", value)
    monkeypatch.setattr(delivering, "RETRIES", 0)
    (note,) = sent(sample_report(), webhook="CHAT")[0]
    assert note.startswith("webhook of CHAT: not delivered (")
    assert SECRET not in note


@pytest.mark.parametrize("value", ["file:///etc/passwd", "nothing", "https://"])
def test_a_variable_without_an_address_is_one_line(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CHAT", value)
    (note,) = sent(sample_report(), webhook="CHAT")[0]
    assert note.startswith("webhook of CHAT: holds no address that can be used")


@pytest.mark.parametrize(("notify", "exit_code", "told"), [
    ("regressions", 1, 1), ("regressions", 0, 1), ("always", 0, 1), ("never", 1, 0),
])
def test_a_variable_that_is_not_set_is_a_note_of_every_night(
    monkeypatch: pytest.MonkeyPatch, notify: str, exit_code: int, told: int,
) -> None:
    monkeypatch.delenv("CHAT", raising=False)
    notes = sent(replace(short_report(), exit_code=exit_code), webhook="CHAT", notify=notify)[0]
    assert [note.partition(";")[0] for note in notes] == ["webhook of CHAT: the environment lacks CHAT"] * told


@pytest.mark.parametrize(
    ("notify", "exit_code", "count"),
    [("regressions", 0, 0), ("regressions", 1, 1), ("regressions", 2, 1), ("always", 0, 1), ("never", 1, 0)],
)
def test_notify_decides_when_the_chat_gets_a_report(
    monkeypatch: pytest.MonkeyPatch, notify: str, exit_code: int, count: int,
) -> None:
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        sent(replace(short_report(), exit_code=exit_code), webhook="CHAT", notify=notify)
    assert len(server.requests) == count


def test_a_full_disk_is_noted_and_the_rest_of_the_report_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(StorageError("reports/2026-11-21.html: cannot write 9 bytes (No space left on device)"))
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        (note,), _ = sent(sample_report(), kept, webhook="CHAT")
    assert note.startswith("the report could not be stored: reports/2026-11-21.html: cannot write")
    assert "could not be stored" in server.requests[0][2].decode()


def test_secrets_and_broken_characters_of_commits_reach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, report = Kept(), short_report()
    broken = "fix \udcff\x00 https://me:gitpassword@example.org/x"
    row = replace(report.rows[0], text="", suspects=[broken])
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        sent(replace(report, rows=[row], notes=[broken]), kept, webhook="CHAT")
    written = "".join(kept.texts) + server.requests[0][2].decode() + repr(kept.reports[0])
    written.encode()
    assert "gitpassword" not in written
    assert "\x00" not in written


@pytest.mark.parametrize(("answers", "tries"), [([503, 202], 2), ([404], 1)])
def test_a_push_replaces_the_metrics_of_the_sweep(
    home: Path, monkeypatch: pytest.MonkeyPatch, answers: list[int | None], tries: int
) -> None:
    with http_receiver(answers) as server:
        monkeypatch.setenv("VSETUNE_PUSHGATEWAY", f"http://me:gatewaypassword@127.0.0.1:{server.port}/")
        notes, _ = sent(sample_report())
    assert len(server.requests) == tries
    assert len(notes) == (answers[-1] != 202)
    assert all(note.startswith("Pushgateway of VSETUNE_PUSHGATEWAY: not delivered (") for note in notes)
    assert "gatewaypassword" not in "".join(notes)
    method, path, body, headers = server.requests[-1]
    assert (method, path) == ("PUT", "/metrics/job/vsetune_nightly/nightly/scenes")
    assert headers["Authorization"].startswith("Basic ")
    assert body == (home / "nightly" / "scenes" / FILE).read_bytes()


@pytest.mark.parametrize("gateway", ["127.0.0.1", "https://[::1"])
def test_metrics_are_pushed_where_the_disk_is_full_and_a_failed_push_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, gateway: str
) -> None:
    (home / "nightly").write_text("a file where the folder should be")
    monkeypatch.setenv("VSETUNE_PUSHGATEWAY", gateway)
    disk, push = sent(sample_report())[0]
    assert "metrics.prom" in disk
    assert push.startswith("Pushgateway of VSETUNE_PUSHGATEWAY: not delivered (")


def test_metrics_of_a_night_are_in_a_file_for_prometheus(home: Path) -> None:
    file, report = home / "nightly" / "scenes" / FILE, sample_report()
    sent(report)
    text = file.read_text()
    assert 'vsetune_nightly_regressed{nightly="scenes",cell="vsepp.lseh",measure="best_m_recall"} 1.0' in text
    assert 'vsetune_nightly_regressed{nightly="scenes",cell="sgraf.lmh",measure="first_losses"} 1.0' in text
    assert 'vsetune_nightly_value{nightly="scenes",cell="pcme.pcme"' not in text
    assert 'vsetune_nightly_exit_code{nightly="scenes"} 1' in text
    assert 'vsetune_nightly_last_complete_timestamp_seconds{nightly="scenes"} 1795226981.0' in text
    assert 'vsetune_nightly_duration_seconds{nightly="scenes"} 577.0' in text
    deliver(report, Kept(), ReportSpec(mlflow=False), last_complete="", tracking_uri=None)
    assert "last_complete" not in file.read_text()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH; it comes with prometheus")
@pytest.mark.parametrize("report", [sample_report(), short_report()], ids=["sample", "hostile names"])
def test_promtool_finds_nothing_wrong_with_the_metrics(home: Path, report: NightReport) -> None:
    sent(report)
    text = (home / "nightly" / "scenes" / FILE).read_text()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
