"""Every end of the command has its exit code and one line: bad input 2, failures and our mistakes 1, Ctrl-C 130."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trials_here import without_ray

PACKAGES = str(Path(__file__).parents[2] / "platform")


def raising(error: BaseException) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (TypeError("boom\nsqlite://me:hunter2@host"), 1, "failed TypeError at cli/study.py:"),
        (RecursionError("too deep"), 1, "a mistake of vsetune, please report it; VSETUNE_LOG=DEBUG shows the whole"),
        (MemoryError(), 1, "failed out of memory"),
        (OSError(36, "File name too long", "x"), 2, "error x: File name too long; name another file or folder"),
        (OSError(36, "File name too long", "y/" * 3000), 2, f"{'y/' * 150}...{'/y' * 49}/: File name too long; name"),
        (OSError(5, "Input/output error", "x"), 1, "failed OSError: x: Input/output error"),
    ],
)
def test_whatever_a_command_raises_is_one_line(
    error: BaseException, code: int, said: str, vsetune: Any, study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vsetune.cli.study.resolve_cells", raising(error))
    answer = vsetune("study", "validate", str(study()))
    assert answer.code == code
    (line,) = answer.lines
    assert said in line
    assert "hunter2" not in line


@pytest.mark.parametrize("place", ["{}", "exec({!r})"])  # what is inside exec counts as unhandled, caught or not
def test_ctrl_c_while_the_commands_are_imported_is_one_line(place: str, tmp_path: Path) -> None:
    strike = place.format("os.kill(os.getpid(), signal.SIGINT); [0 for _ in range(9)]")
    script = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pydantic':\n"
        f"            {strike}\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from vsetune.cli.entry import run\n"
        "run()\n"
    )
    (tmp_path / "interrupted_start.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "interrupted_start", "losses", "list"], capture_output=True, text=True, timeout=120,
        check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": PACKAGES},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_while_python_clears_up_does_not_change_how_a_command_has_ended(name: str, tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "class ClearedUp:\n"
        f"    def __del__(self, kill=os.kill, own=os.getpid(), sent=signal.{name}):\n"
        "        kill(own, sent)\n"
        "last = ClearedUp()\n"
        "from vsetune.cli.entry import run\n"
        "run()\n"
    )
    (tmp_path / "signalled_end.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "signalled_end", "--version"], capture_output=True, text=True, timeout=120,
        check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": PACKAGES},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [
        (("losses", "list"), "stdout", 0),
        (("losses", "--help"), "stdout", 0),
        (("study", "validate", "nowhere.yaml"), "stderr", 2),
        (("losses", "lsit"), "stderr", 2),
    ],
)
def test_a_reader_that_leaves_does_not_change_how_a_command_ends(
    words: tuple[str, ...], closed: str, code: int, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "vsetune.cli.entry", *words], timeout=120, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: writer},  # type: ignore[call-overload]
    )
    os.close(writer)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (code, b"", b"")


def test_a_study_whose_records_still_wait_at_its_end_leaves_with_4(
    vsetune: Any, study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_ray(monkeypatch)
    monkeypatch.setattr("vsetune.study.run.DELIVER_WITHIN_S", 0.0)
    answer = vsetune("study", "run", str(study(tracking={"uri": "http://127.0.0.1:9"}, search={"configurations": 1})))
    assert answer.code == 4, answer.err
    assert "events are not in MLflow yet (tracking uri http://127.0.0.1:9: cannot reach 127.0.0.1:9" in answer.err
    assert "export them with: vsetune tracking flush tiny" in answer.err


def test_a_home_that_cannot_be_written_is_named_by_every_command_that_needs_it(
    vsetune: Any, study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VSETUNE_HOME")
    monkeypatch.setenv("HOME", "/dev/null")
    file = str(study())
    for words in (
        ("study", "list"), ("leaderboard", "show", "x"), ("leaderboard", "serve"), ("trial", "show", "x/y"),
        ("data", "make-scenes"), ("data", "verify", "data/scenes"), ("train", file), ("study", "run", file),
        ("study", "plan", file), ("tracking", "doctor"), ("tracking", "flush", file), ("nightly", "history", "x"),
    ):
        answer = vsetune(*words)
        assert answer.code == 2
        (line,) = answer.lines
        assert "set VSETUNE_HOME" in line, words


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("VSETUNE_LOG", "nonsense", "VSETUNE_LOG: got NONSENSE, need DEBUG"),
        ("VSETUNE_HOME", "gs://bucket/x", "VSETUNE_HOME: got gs://bucket/x, need a local or shared folder"),
        ("VSETUNE_HOME", "s3:///x", "VSETUNE_HOME: got 's3:///x', need s3://bucket/prefix"),
        ("VSETUNE_HOME", "s3://key:secret@bucket/x", "VSETUNE_HOME: got s3://key:***@bucket/x, keys do not belong"),
        ("VSETUNE_HOME", "~nosuchuser/x", "VSETUNE_HOME: ~nosuchuser/x: no home folder of ~nosuchuser"),
        ("MLFLOW_TRACKING_URI", "http://host:port", "MLFLOW_TRACKING_URI: need a URI"),
    ],
)
def test_a_variable_that_makes_no_sense_is_told(
    variable: str, value: str, said: str, vsetune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    answer = vsetune("trial", "model", "x/y")
    assert answer.code == 2
    (line,) = answer.lines
    assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("data", "show", "~nosuchuser/x"), "~nosuchuser/x: no home folder of ~nosuchuser on this machine"),
        (("data", "make-scenes", "--output", "s3://bucket/x"), "--output: got s3://bucket/x, scenes can only be made"),
        (("data", "make-scenes", "--seed", str(10**22)), "seed: got 10000000000000000000000, need a number <"),
        (("leaderboard", "show", "\udcff"), "argument 3: got '\\udcff', need UTF-8"),
        (("trial", "model", "x/y", "--tracking-uri", "http://[::1"), "--tracking-uri: uri: need a URI"),
        (("study", "validate", "/dev/zero"), "/dev/zero: is a device or a pipe; need a regular YAML file"),
        (("study", "validate", "a\nb.yaml"), "error a b.yaml: no such file"),
    ],
)
def test_a_word_of_the_command_that_makes_no_sense_is_told(words: tuple[str, ...], said: str, vsetune: Any) -> None:
    answer = vsetune(*words)
    assert answer.code == 2
    (line,) = answer.lines
    assert said in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("study", "run"), "error vsetune study run: missing argument 'file'; vsetune study run --help shows"),
        (("study", "rnu", "x"), "error vsetune study: no such command 'rnu', did you mean 'run'?; vsetune study --hel"),
        (("studdy",), "error vsetune: no such command 'studdy', did you mean 'study'?; vsetune --help shows"),
        (("study", "run", "x", "--resum"), "error vsetune study run: no such option: --resum (possible options: --add"),
        (("data", "verify", "a", "b"), "error vsetune data verify: got unexpected extra argument(s) (b); vsetune dat"),
        (("data", "show", "x", "--count", "few"), "error vsetune data show: invalid value for '--count': "),
    ],
)
def test_a_command_line_that_no_command_takes_is_told_in_one_line(
    words: tuple[str, ...], said: str, vsetune: Any
) -> None:
    answer = vsetune(*words)
    assert answer.code == 2
    (line,) = answer.lines
    assert said in line


@pytest.mark.parametrize("words", [(), ("study",)])
def test_a_group_alone_shows_its_help(words: tuple[str, ...], vsetune: Any) -> None:
    answer = vsetune(*words)
    assert (answer.code, answer.err) == (2, "")
    assert "Usage: vsetune" in answer.out[:400]


def test_a_fresh_home_takes_a_contact_sheet(vsetune: Any, home: Path) -> None:
    assert vsetune("data", "make-scenes", "--train", "4", "--validation", "2", "--test", "2").code == 0
    answer = vsetune("data", "show", "data/scenes", "--count", "2")
    assert answer.code == 0, answer.err
    assert (home / "sheets" / "scenes-train.png").stat().st_size > 1000
