"""Whatever is typed and whatever the named files hold: an exit code, and one line a problem; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spoiled_files import LONGEST_LINE, seeded, spoiled

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.spec.loading import load_spec
from vsetune.errors import ConfigError

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "studies").glob("[!n]*.yaml"))
"""Without `nightly*.yaml`, which are no studies."""
TINY = {
    "name": "tiny", "output": "data/tiny", "source": {"layout": "scenes", "train": 3, "validation": 2, "test": 2},
    "features": {"extractor": "pixels", "grid": 2, "width": 8}, "shard": {"max_images": 2},
}
WORDS = [
    "", " ", "x", "tiny", "tiny/x", "tiny/", "/", "/tiny", "a/b/c", "tiny/vsepp.lmh-c000-s0", "\udcff", "a\nb",
    "\x1b[31m",
    "~nosuchuser/x", "~", ".", "..", "/dev/zero", "/dev/null", "/proc/self/mem", "data/scenes", "data/none", "x" * 300,
    "y/" * 3000, "-1", "0", "3", str(10**22), "nan", "1e3", "é\u2028", "--json", "--help", "-x", "--", "lmh",
    "vsepp", "train",
    "cpu", "cuda:99", "%s", "{}", "[bold]", "';drop table runs;--", "file:///dev/zero", "s3:/", "study.yaml",
]
URIS = [
    "http://[::1", "http://127.0.0.1:9", "http://a:b", "sqlite:///", "sqlite:////dev/null", "sqlite:////", "foo://x",
    "x",
]
COMMANDS: list[tuple[str, ...]] = [
    ("leaderboard", "show"), ("leaderboard", "export"), ("leaderboard", "table"), ("leaderboard", "show", "--all"),
    ("leaderboard", "table", "lseh_table3", "--as"), ("trial", "show"), ("trial", "gallery"), ("trial", "ensemble"),
    ("data", "show"), ("data", "verify"), ("data", "parse"), ("losses", "show"), ("networks", "show"),
    ("losses", "list"),
    ("networks", "import", "--from"), ("networks", "evaluate"), ("study", "validate"), ("study", "schema"),
    ("study",), (),
    ("data", "ingest"), ("leaderboard", "show", "tiny", "--baseline"), ("trial", "model"), ("tracking", "flush"),
    ("tracking", "import"), ("tracking", "export"), ("tracking", "export", "tiny", "--to"), ("tracking", "doctor"),
    ("tracking", "import", "tiny", "--tracking-uri"), ("data", "show", "data/scenes", "--split"),
    ("data", "show", "data/scenes", "--count"),
]


@pytest.fixture
def run(vsetune: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command and holds it to its promises; a home with a small data set, nothing of the user's in reach."""
    monkeypatch.setenv("HOME", str(home / "user"))
    monkeypatch.setenv("VSETUNE_HOME", str(home / "some" / "where"))
    monkeypatch.chdir(home)
    assert vsetune("data", "make-scenes", "--train", "24", "--validation", "8", "--test", "8").code == 0

    def checked(*words: str) -> Any:
        said = vsetune(*words)
        assert_kept_its_promises(said.code, said.out, said.err)
        return said

    return checked


def assert_kept_its_promises(code: int, out: str, err: str) -> None:
    assert code in (0, 1, 2, 130), err
    assert "Traceback" not in err
    assert "VSE-X023" not in err
    lines = [line for line in err.splitlines() if line.strip()]
    if code == 2 and "╭─ Error" not in err:  # typer frames what is wrong with options
        assert lines or out.strip()  # `verify` and the help of a group go to stdout
        for line in lines:
            assert line.startswith("error "), err
            assert len(line) < LONGEST_LINE


@st.composite
def files(draw: st.DrawFn, recipe: Path) -> tuple[tuple[str, ...], bytes]:
    """(command before the file, content of the file)."""
    command = draw(st.sampled_from([("study", "validate"), ("study", "run", "--dry-run"), ("data", "ingest")]))
    return command, draw(spoiled([recipe] if command[-1] == "ingest" else STUDIES))


@st.composite
def typed(draw: st.DrawFn) -> list[str]:
    words = draw(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=3))
    tracking = ["--tracking-uri", draw(st.sampled_from(URIS))] if draw(st.integers(0, 9)) == 0 else []
    return [*draw(st.sampled_from(COMMANDS)), *words, *tracking]


def recipe_in(folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


def is_small(recipe: Path) -> bool:
    """Whether an ingest of it takes no longer than a moment, and asks nobody else."""
    try:
        spec = load_spec(recipe, IngestRecipe)
    except ConfigError:
        return True
    plain = spec.to_plain()
    sizes = [plain["source"].get(name, 0) for name in ("train", "validation", "test", "image_size")]
    sizes += [plain["features"].get(name, 0) for name in ("grid", "width")]
    return max(sizes) <= 64 and spec.upload is None and spec.parses is None


def run_on_a_file(run: Callable[..., Any], command: tuple[str, ...], content: bytes, folder: Path) -> None:
    path = folder / "input.yaml"
    path.write_bytes(content)
    assume(command[-1] != "ingest" or is_small(path))
    run(*command, str(path))


@settings(seeded, max_examples=40)
@given(data=st.data())
def test_commands_on_spoiled_files(data, run, tmp_path) -> None:
    run_on_a_file(run, *data.draw(files(recipe_in(tmp_path))), tmp_path)


@settings(seeded, max_examples=40)
@given(words=typed())
def test_commands_of_any_words(words, run) -> None:
    run(*words)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(seeded, max_examples=2000)
@given(data=st.data())
def test_two_thousand_commands_on_spoiled_files(data, run, tmp_path) -> None:
    run_on_a_file(run, *data.draw(files(recipe_in(tmp_path))), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_thousand_commands_of_any_words(run, record) -> None:
    record()

    @settings(seeded, max_examples=2000)
    @given(words=typed())
    def run_them(words: list[str]) -> None:
        run(*words)

    run_them()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: !!python/object/apply:os.system [ls]", ("study", "validate")), ("? [a]\n: b", ("study", "validate")),
        ("a: 2024-02-30", ("study", "run", "--dry-run")), ("a: " + "9" * 5000, ("study", "run", "--dry-run")),
        ("a: " + "[" * 1000, ("study", "run")), ("a: &a [*a]", ("train",)), ("\x00", ("study", "run")),
        ("", ("train",)),
        ("output: ~nosuchuser/x", ("data", "ingest")), ("{}", ("data", "ingest")), ("study: \udcff", ("study", "run")),
        ("study: a\nlosses: 3", ("study", "validate", "--json")),
    ],
)
def test_the_command_itself_refuses_in_lines(content, words, tmp_path) -> None:
    path = tmp_path / "input.yaml"
    path.write_bytes(content.encode(errors="surrogateescape"))
    done = subprocess.run(
        [sys.executable, "-m", "vsetune.cli.entry", *words, str(path)], capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT / "platform"), "COLUMNS": "200"},
    )
    assert done.returncode == 2
    assert_kept_its_promises(done.returncode, done.stdout, done.stderr)
