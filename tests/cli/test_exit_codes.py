"""Every end of the command has its exit code and one line: bad input 2, failures and our mistakes 1, Ctrl-C 130."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from trials_here import without_ray

from vsetune.cli.output import interruptible
from vsetune.errors import AttemptError, ConfigError, DataError, Message

PACKAGES = str(Path(__file__).parents[2] / "platform")


def raising(error: BaseException) -> Any:
    """A function that raises it, of somebody else's code in a folder that is called like the package."""
    scope: dict[str, Any] = {"error": error}
    exec(compile("def refuse(*_, **__):\n    raise error", "/home/me/vsetune/mine.py", "exec"), scope)
    return scope["refuse"]


@pytest.mark.parametrize(
    ("error", "code", "message", "words"),
    [
        (TypeError("boom\nsqlite://me:hunter2@host"), 1, "VSE-X023", "TypeError at cli/study.py:"),
        (RecursionError("too deep"), 1, "VSE-X023", "too deep"),
        (MemoryError(), 1, "VSE-X020", ""),
        (OSError(28, "No space left on device", "x"), 2, "VSE-X012", "x: No space left on device"),
        (OSError(36, "File name too long", "x"), 2, "VSE-X013", "x: File name too long"),
        (OSError(36, "Too long", "y/" * 3000), 2, "VSE-X013", f"{'y/' * 150}...{'/y' * 49}/: Too long"),
        (OSError(5, "Input/output error", "x"), 1, "VSE-X021", "OSError: x: Input/output error"),
    ],
)
def test_every_exception_of_a_command_is_one_line(error, code, message, words, vsetune, study, monkeypatch) -> None:
    monkeypatch.setattr("vsetune.cli.study.resolve_cells", raising(error))
    answer = vsetune("study", "validate", str(study()))
    assert answer.refused(message, words, code=code)
    assert "hunter2" not in answer.err


def test_an_error_of_a_package_is_printed_with_its_code(vsetune, study, monkeypatch) -> None:
    cut = Message("VSE-D999", "{shard}: {missing} bytes are missing.")
    for problem, printed in (
        (cut(shard="a.tar", missing=3), "VSE-D999: a.tar: 3 bytes are missing."),
        (cut(shard="a.tar", missing=3).at("study.yaml"), "VSE-D999: study.yaml: a.tar: 3 bytes are missing."),
        ("a.tar: too short", "a.tar: too short"),
    ):
        for error, kind in ((DataError, "error"), (ConfigError, "error"), (AttemptError, "failed")):
            monkeypatch.setattr("vsetune.cli.study.resolve_cells", raising(error(problem)))
            assert vsetune("study", "validate", str(study())).err == f"{kind} {printed}\n"


def test_ctrl_c_in_a_command_is_one_line(vsetune, study, monkeypatch) -> None:
    monkeypatch.setattr("vsetune.cli.study.resolve_cells", raising(KeyboardInterrupt()))
    said = vsetune("study", "validate", str(study()))
    assert (said.code, said.err) == (130, "interrupted\n")


class _Strikes:
    """Ctrl-C falls into the making of a class that has one of these."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def make_class() -> None:
    type("Made", (), {"part": _Strikes()})


def test_ctrl_c_in_the_making_of_a_class_is_one_line_too(vsetune, study, monkeypatch) -> None:
    monkeypatch.setattr("vsetune.cli.study.resolve_cells", lambda *_, **__: make_class())
    said = vsetune("study", "validate", str(study()))
    assert (said.code, said.err) == (130, "interrupted\n")
    with pytest.raises(typer.Exit) as ended, interruptible("go on with: this"):
        make_class()
    assert ended.value.exit_code == 130
    with pytest.raises(RuntimeError, match="another"), interruptible("go on with: this"):
        raise RuntimeError("another")


@pytest.mark.parametrize("place", ["{}", "exec({!r})"])  # what is inside exec counts as unhandled, caught or not
def test_ctrl_c_while_the_commands_are_imported_is_one_line(place, tmp_path) -> None:
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
def test_a_signal_while_python_clears_up_does_not_change_how_a_command_has_ended(name, tmp_path) -> None:
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
        (("losses", "list", "--json"), "stdout", 0),
        (("losses", "--help"), "stdout", 0),
        (("study", "validate", "nowhere.yaml"), "stderr", 2),
        (("losses", "lsit"), "stderr", 2),
    ],
)
def test_a_reader_that_leaves_does_not_change_how_a_command_ends(words, closed, code, tmp_path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "vsetune.cli.entry", *words], timeout=120, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: writer},  # type: ignore[call-overload]
    )
    os.close(writer)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (code, b"", b"")


def test_a_study_whose_records_still_wait_at_its_end_leaves_with_4(vsetune, study, monkeypatch) -> None:
    without_ray(monkeypatch)
    monkeypatch.setattr("vsetune.study.run.DELIVER_WITHIN_S", 0.0)
    answer = vsetune("study", "run", str(study(tracking={"uri": "http://127.0.0.1:9"}, search={"configurations": 1})))
    assert answer.code == 4, answer.err
    (line,) = [line for line in answer.lines if "warning VSE-X035: " in line]
    assert "tracking uri http://127.0.0.1:9" in line
    assert "vsetune tracking flush tiny" in line


def test_a_home_that_cannot_be_written_is_named_by_every_command_that_needs_it(vsetune, study, monkeypatch) -> None:
    monkeypatch.delenv("VSETUNE_HOME")
    monkeypatch.setenv("HOME", "/dev/null")
    file = str(study())
    for words in (
        ("study", "list"), ("leaderboard", "show", "x"), ("serve",), ("trial", "show", "x/y"),
        ("data", "make-scenes"), ("data", "verify", "data/scenes"), ("train", file), ("study", "run", file),
        ("study", "plan", file), ("tracking", "doctor"), ("tracking", "flush", file), ("nightly", "history", "x"),
    ):
        assert vsetune(*words).refused("set VSETUNE_HOME"), words


@pytest.mark.parametrize(("variable", "value", "said"), [
    ("VSETUNE_LOG", "nonsense", "NONSENSE"),
    ("VSETUNE_HOME", "gs://bucket/x", "gs://bucket/x"),
    ("VSETUNE_HOME", "s3:///x", "s3:///x"),
    ("VSETUNE_HOME", "s3://key:secret@bucket/x", "s3://key:***@bucket/x"),
    ("VSETUNE_HOME", "~nosuchuser/x", "~nosuchuser/x"),
    ("MLFLOW_TRACKING_URI", "http://host:port", ""),
])
def test_a_variable_that_makes_no_sense(variable, value, said, vsetune, monkeypatch) -> None:
    monkeypatch.setenv(variable, value)
    assert vsetune("trial", "model", "x/y").refused(f"{variable}: ", said)


@pytest.mark.parametrize(("words", "said"), [
    (("data", "show", "~nosuchuser/x"), ("~nosuchuser/x",)),
    (("data", "make-scenes", "--output", "s3://bucket/x"), ("VSE-X006", "--output: ", "s3://bucket/x")),
    (("data", "make-scenes", "--seed", str(10**22)), ("seed: ", "10000000000000000000000")),
    (("leaderboard", "show", "\udcff"), ("VSE-X003", "argument 3: ", "'\\udcff'")),
    (("trial", "model", "x/y", "--tracking-uri", "http://[::1"), ("--tracking-uri: uri: ",)),
    (("study", "validate", "/dev/zero"), ("/dev/zero: ",)),
    (("study", "validate", "a\nb.yaml"), (" a b.yaml: ",)),
    (("tracking", "import", "[/x] :warning: [red]y"), ("[/x] :warning: [red]y",)),
    (("study", "run"), ("VSE-X001", "vsetune study run: ", "'file'")),
    (("study", "rnu", "x"), ("VSE-X001", "vsetune study: ", "'rnu'", "'run'")),
    (("studdy",), ("VSE-X001", "vsetune: ", "'studdy'", "'study'")),
    (("study", "run", "x", "--resum"), ("VSE-X001", "vsetune study run: ", "--resum")),
    (("data", "verify", "a", "b"), ("VSE-X001", "vsetune data verify: ", "(b)")),
    (("data", "show", "x", "--count", "few"), ("VSE-X001", "vsetune data show: ", "'--count'")),
])
def test_a_command_line_that_makes_no_sense(words, said, vsetune) -> None:
    assert vsetune(*words).refused(*said)


@pytest.mark.parametrize("words", [(), ("study",)])
def test_a_group_alone_shows_its_help(words, vsetune) -> None:
    answer = vsetune(*words)
    assert (answer.code, answer.err) == (2, "")
    assert "Usage: vsetune" in answer.out[:400]
