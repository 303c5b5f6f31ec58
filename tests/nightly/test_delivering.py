"""A report reaches files, MLflow, Prometheus, chat and mail; whatever fails is one line in it, and never its end."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from local_certificate import write_certificate
from night_reports import night_of, sample_report, short_report
from receiving_servers import DRIP, http_receiver, smtp_receiver

from vsetune.errors import StorageError
from vsetune.nightly.delivering import deliver, was_kept
from vsetune.nightly.night import NightReport
from vsetune.nightly.night_metrics import FILE
from vsetune.nightly.nightly_spec import ReportSpec
from vsetune.nightly.sending import Patience, within

NOBODY = 9  # the port `discard`, where nothing listens
HASTY = Patience(timeout_s=0.2, pauses_s=(0.0, 0.0), sleep=lambda _: None)


@dataclass
class Kept:
    """A history that remembers what it was given. trouble: raised instead."""

    trouble: Exception | None = None
    reports: list[NightReport] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    markdowns: list[str] = field(default_factory=list)

    def __call__(self, report: NightReport, html: str, markdown: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.reports.append(report)
        self.pages.append(html)
        self.markdowns.append(markdown)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    for name in ("HOST", "PORT", "USER", "PASSWORD", "FROM"):
        monkeypatch.delenv(f"VSETUNE_SMTP_{name}", raising=False)
    monkeypatch.delenv("VSETUNE_PUSHGATEWAY", raising=False)
    return tmp_path


def spec(**given: object) -> ReportSpec:
    return ReportSpec.model_validate({"mlflow": False} | given)


def send_out(report: NightReport, kept: Kept, wanted: ReportSpec, tracking_uri: str | None = None) -> NightReport:
    return deliver(report, kept, wanted, night=night_of(report), tracking_uri=tracking_uri, patience=HASTY)


def new_notes(before: NightReport, after: NightReport) -> list[str]:
    assert list(after.notes[: len(before.notes)]) == list(before.notes)
    return list(after.notes[len(before.notes) :])


def test_a_report_is_kept_and_exported_and_stays_as_it_is(home: Path) -> None:
    kept, report = Kept(), sample_report()
    assert send_out(report, kept, spec()) == report
    assert kept.reports == [report]
    assert "<!doctype html>" in kept.pages[0]
    assert kept.markdowns[0].startswith("## ")
    assert (home / "nightly" / "scenes" / FILE).is_file()


def test_a_webhook_gets_slacks_json_and_its_address_stands_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept()
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        wanted = spec(webhook="CHAT", page_url="https://ci.example.org/{name}/{date}.html")
        assert new_notes(sample_report(), send_out(sample_report(), kept, wanted)) == []
    ((method, path, body, headers),) = server.requests
    assert (method, headers["Content-Type"]) == ("POST", "application/json")
    assert server.url.endswith(path)
    plain = json.loads(body)
    assert plain["text"].endswith("time per epoch of sgraf.lmh (+21.4 %)")
    assert [block["type"] for block in plain["blocks"]] == ["header", "section", "section", "section", "context"]
    assert "<https://ci.example.org/scenes/2026-11-21.html|the whole report>" in body.decode()
    assert "verysecrettoken" not in "".join([*kept.pages, *kept.markdowns])


def test_slack_is_given_no_mentions_and_no_links_of_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = replace(short_report(), headline="<!channel> <https://evil.example|see> & *bold* @here")
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        send_out(report, Kept(), spec(webhook="CHAT"))
    plain = json.loads(server.requests[0][2])
    assert "<" not in plain["text"]
    assert "&lt;!channel&gt;" in plain["text"]
    assert "<" not in plain["blocks"][1]["text"]["text"]


@pytest.mark.parametrize(
    ("answers", "tries", "told"),
    [
        ([500], 3, "in 3 tries (answered 500: went wrong at /services/T000/B000/***)"),
        ([500, 200], 2, None),
        ([429, 503, 200], 3, None),
        ([404], 1, "not delivered (answered 404: went wrong at /services/T000/B000/***)"),
        ([302, 200], 1, "not delivered (answered 302"),
        ([None], 3, "in 3 tries (no answer within 0.2 s)"),
    ],
)
def test_a_webhook_that_does_not_answer_well_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, answers: list[int | None], tries: int, told: str | None,
) -> None:
    kept = Kept()
    with http_receiver(answers) as server:
        monkeypatch.setenv("CHAT", server.url)
        after = send_out(sample_report(), kept, spec(webhook="CHAT"))
    assert len(server.requests) == tries
    notes = new_notes(sample_report(), after)
    assert len(notes) == (told is not None)
    if told is not None:
        assert notes[0].startswith("webhook of CHAT: not delivered")
        assert told in notes[0]
        assert "verysecrettoken" not in notes[0]
        assert kept.reports[-1] == after
        assert "webhook of CHAT: not delivered" in kept.markdowns[-1]
        assert "webhook of CHAT: not delivered" in kept.pages[-1]


def test_a_webhook_that_answers_a_byte_at_a_time_does_not_hold_the_night(
    home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    with http_receiver([DRIP]) as server:
        monkeypatch.setenv("CHAT", server.url)
        after = deliver(sample_report(), Kept(), spec(webhook="CHAT"), night=None, tracking_uri=None,
                        patience=Patience(timeout_s=0.2, pauses_s=()))
    assert new_notes(sample_report(), after) == ["webhook of CHAT: not delivered (no whole answer within 0.4 s)"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "webhook of CHAT: not set in the environment; export CHAT, or take `webhook` out of the file"),
        ("file:///etc/passwd", "webhook of CHAT: holds no address; need https://... without blanks"),
        (f"https://{'a' * 70}.example.org/x", "webhook of CHAT: not delivered (its host can be no name)"),
        ("https://[::1", "webhook of CHAT: holds no address (ValueError); need https://..."),
        (f"http://127.0.0.1:{NOBODY}/x/verysecrettoken",
         "webhook of CHAT: not delivered in 3 tries (Connection refused)"),
    ],
)
def test_a_webhook_that_cannot_be_reached_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, told: str,
) -> None:
    monkeypatch.delenv("CHAT", raising=False)
    if value is not None:
        monkeypatch.setenv("CHAT", value)
    assert new_notes(sample_report(), send_out(sample_report(), Kept(), spec(webhook="CHAT"))) == [told]


@pytest.mark.parametrize(
    ("notify", "exit_code", "sent"),
    [("regressions", 0, 0), ("regressions", 1, 1), ("regressions", 2, 1), ("always", 0, 1), ("never", 1, 0)],
)
def test_who_is_told_when(
    home: Path, monkeypatch: pytest.MonkeyPatch, notify: str, exit_code: int, sent: int,
) -> None:
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        send_out(replace(short_report(), exit_code=exit_code), Kept(), spec(webhook="CHAT", notify=notify))
    assert len(server.requests) == sent


def test_a_full_disk_is_told_and_the_rest_of_the_report_goes_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(StorageError("reports/2026-11-21.html: cannot write 9 bytes (No space left on device)"))
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        after = send_out(sample_report(), kept, spec(webhook="CHAT"))
    (note,) = new_notes(sample_report(), after)
    assert note.startswith("the report could not be stored: reports/2026-11-21.html: cannot write")
    assert "could not be stored" in server.requests[0][2].decode()
    assert not was_kept(after)
    assert was_kept(sample_report())


def test_secrets_and_broken_characters_in_what_people_wrote_reach_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, report = Kept(), short_report()
    broken = "fix \udcff\x00 https://me:gitpassword@example.org/x"
    row = replace(report.rows[0], text="", suspects=[broken])
    with http_receiver([200]) as server:
        monkeypatch.setenv("CHAT", server.url)
        send_out(replace(report, rows=[row], notes=[broken]), kept, spec(webhook="CHAT"))
    written = kept.pages[0] + kept.markdowns[0] + server.requests[0][2].decode()
    written.encode()
    assert "gitpassword" not in written
    assert "gitpassword" not in repr(kept.reports[0])
    assert "\x00" not in written


def test_a_night_that_could_not_run_is_reported_like_any_other(home: Path) -> None:
    report = replace(sample_report(), exit_code=2, rows=(), headline="could not run: the lock is held", notes=())
    kept = Kept()
    assert deliver(report, kept, spec(), night=None, tracking_uri=None) == report
    assert kept.reports == [report]


def test_a_push_replaces_the_metrics_of_the_sweep(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_receiver([202]) as server:
        monkeypatch.setenv("VSETUNE_PUSHGATEWAY", f"http://me:gatewaypassword@127.0.0.1:{server.port}/")
        assert new_notes(sample_report(), send_out(sample_report(), Kept(), spec())) == []
    ((method, path, body, headers),) = server.requests
    assert (method, path) == ("PUT", "/metrics/job/vsetune_nightly/nightly/scenes")
    assert headers["Authorization"].startswith("Basic ")
    assert body == (home / "nightly" / "scenes" / FILE).read_bytes()


def test_metrics_are_pushed_where_the_disk_takes_no_more(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "nightly").write_text("a file where the folder should be")
    with http_receiver([202]) as server:
        monkeypatch.setenv("VSETUNE_PUSHGATEWAY", f"http://127.0.0.1:{server.port}")
        (note,) = new_notes(sample_report(), send_out(sample_report(), Kept(), spec()))
    assert "metrics.prom" in note
    assert len(server.requests) == 1


def test_metrics_are_as_prometheus_reads_them_and_remember_the_last_complete_night(home: Path) -> None:
    file = home / "nightly" / "scenes" / FILE
    report = sample_report()
    send_out(report, Kept(), spec())
    text = file.read_text()
    assert 'vsetune_nightly_regressed{nightly="scenes",cell="vsepp.lseh",measure="best_m_recall"} 1.0' in text
    assert 'vsetune_nightly_regressed{nightly="scenes",cell="sgraf.lmh",measure="first_losses"} 1.0' in text
    assert 'vsetune_nightly_value{nightly="scenes",cell="pcme.pcme"' not in text
    complete = next(line for line in text.splitlines() if line.startswith("vsetune_nightly_last_complete"))
    later = replace(report, ended="2026-11-22T02:10:00+00:00", exit_code=2, rows=[])
    deliver(later, Kept(), spec(), night=None, tracking_uri=None)
    text = file.read_text()
    assert complete in text
    assert 'vsetune_nightly_exit_code{nightly="scenes"} 2' in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH; it comes with prometheus")
@pytest.mark.parametrize("report", [sample_report(), short_report()], ids=["sample", "hostile names"])
def test_promtool_finds_nothing_wrong_with_the_metrics(home: Path, report: NightReport) -> None:
    send_out(report, Kept(), spec())
    text = (home / "nightly" / "scenes" / FILE).read_text()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def mail_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_them(port: int, **more: str) -> None:
        for name, value in {"HOST": "127.0.0.1", "PORT": str(port), "FROM": "nightly@example.org", **more}.items():
            monkeypatch.setenv(f"VSETUNE_SMTP_{name}", value)

    return set_them


def test_a_mail_has_text_html_and_the_whole_page(mail_settings: Callable[..., None]) -> None:
    report = replace(short_report(), headline="worse\r\nBcc: everybody@example.org\r\n\r\nnothing")
    with smtp_receiver() as server:
        mail_settings(server.port, USER="me", PASSWORD="mailpassword")
        wanted = spec(mail_to=["a@example.org", "b@example.org"])
        assert new_notes(report, send_out(report, Kept(), wanted)) == []
    (mail,) = server.mails
    assert server.envelopes[0][1] == ["TO:<a@example.org>", "TO:<b@example.org>"]
    assert mail["To"] == "a@example.org, b@example.org"
    assert "Bcc" not in mail
    assert mail["Subject"] == "✗ scenes 2026-11-21: worse Bcc: everybody@example.org nothing"
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert html is not None
    assert "✗ " in text.get_content()
    assert "<table" in html.get_content()
    (page,) = mail.iter_attachments()
    assert page.get_filename() == "scenes-2026-11-21.html"
    assert page.get_content().startswith("<!doctype html>")
    assert len(server.logins) == 1  # on this machine, where nobody listens in


def test_a_mail_is_encrypted_where_the_server_offers_it(
    mail_settings: Callable[..., None], certificate: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with smtp_receiver(certificate) as server:
        mail_settings(server.port, USER="me", PASSWORD="mailpassword")
        wanted = spec(mail_to=["a@example.org"], mail_encryption="required")
        assert new_notes(sample_report(), send_out(sample_report(), Kept(), wanted)) == []
    assert server.encrypted == [True]


@pytest.mark.parametrize(
    ("settings", "wanted", "told"),
    [
        ({}, {"mail_encryption": "required"}, "offers no STARTTLS, and mail_encryption is required; use another port"),
        ({"PORT": str(NOBODY)}, {}, f"mail to a@example.org: not handed in at 127.0.0.1:{NOBODY} ([Errno 111]"),
        ({"HOST": "a" * 70}, {}, "mail to a@example.org: not handed in at aaaa"),
        ({"PORT": "many"}, {}, "mail: VSETUNE_SMTP_PORT: got 'many', need a port such as 587"),
        ({"FROM": "a@b\nBcc: c@d"}, {}, "mail: VSETUNE_SMTP_FROM: got 'a@b\\nBcc: c@d', need one mail address"),
        ({"FROM": ""}, {}, "mail: VSETUNE_SMTP_FROM not set in the environment"),
        ({"USER": "me"}, {}, "mail: VSETUNE_SMTP_PASSWORD not set in the environment"),
    ],
)
def test_a_mail_that_cannot_be_handed_in_is_one_line(
    mail_settings: Callable[..., None], settings: dict[str, str], wanted: dict[str, str], told: str,
) -> None:
    with smtp_receiver() as server:
        mail_settings(server.port, **settings)
        after = send_out(sample_report(), Kept(), spec(mail_to=["a@example.org"], **wanted))
    (note,) = new_notes(sample_report(), after)
    assert told in note
    assert server.mails == []


def test_a_recipient_that_is_refused_is_told_and_the_others_get_their_mail(mail_settings: Callable[..., None]) -> None:
    with smtp_receiver(refuse="gone@") as server:
        mail_settings(server.port)
        after = send_out(sample_report(), Kept(), spec(mail_to=["a@example.org", "gone@example.org"]))
    (note,) = new_notes(sample_report(), after)
    assert note.endswith("127.0.0.1 did not take some of them (gone@example.org: 550 nobody here)")
    assert len(server.mails) == 1


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """For 127.0.0.1, signed by itself, with its key in the same file."""
    return write_certificate(tmp_path / "server.pem")


def test_a_step_without_end_is_left_behind_and_one_that_fails_fails_here() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError, match=r"no end within 0.01 s"):
        within(0.01, over.wait)
    over.set()
    with pytest.raises(KeyError):
        within(5, lambda: {}["x"])
    assert within(5, lambda: 3) == 3
