"""`vsetune nightly install`: entries for cron, systemd, GitHub and Kubernetes; files of other programs stay."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from refusals import refused

from vsetune.errors import StorageError, VsetuneError
from vsetune.nightly import messages
from vsetune.nightly.installing.nightly_entry import daily_time, nightly_entry
from vsetune.nightly.installing.placing import Entry, EntryKind, entry_texts, install, remove, with_block
from vsetune.nightly.nightly_spec import load_nightly

Make = Callable[..., Entry]
FIELDS = Path(__file__).parents[1] / "cluster" / "kuberay_fields.yaml"
LABEL = "vsetune-nightly-tiny-one"
SWEEP: dict[str, Any] = {
    "nightly": "Tiny_one", "data": {"path": "data/tiny", "scenes": {"train": 20, "validation": 8, "test": 8}},
    "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}], "report": {"webhook": "SLACK_WEBHOOK"},
}
OTHERS = "MAILTO=ann@example.org\n5 4 * * * /usr/bin/backup --all\n"
FAKE_CRONTAB = """\
#!{python}
import pathlib, sys
table = pathlib.Path(__file__).with_name("table")
if sys.argv[1:] == ["-l"]:
    if not table.exists():
        sys.exit("no crontab for ann")
    sys.stdout.write(table.read_text())
else:
    table.write_text(sys.stdin.read())
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that git knows, with a blank and a percent sign in its name; nothing of this machine's settings."""
    root = tmp_path / "a 100% repository"
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("PYTHONPATH", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def entry(repository: Path) -> Make:
    """entry(kind, **of Entry): for a sweep in studies/ of the repository, at 02:30."""

    def make(kind: str, zone: str | None = "UTC", home: str | None = None, **of_entry: Any) -> Entry:
        file = repository / "studies" / "nightly.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(SWEEP))
        zone = None if kind == "cron" else zone
        content = nightly_entry(load_nightly(file), file, daily_time("02:30", zone), home)
        return Entry(EntryKind(kind), content, **of_entry)

    return make


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the user's table, which a program `crontab` reads and writes."""
    program = tmp_path / "bin" / "crontab"
    program.parent.mkdir()
    program.write_text(FAKE_CRONTAB.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return program.with_name("table")


def run_line(line: str) -> tuple[str, str]:
    """(five fields, command) of a crontab's line, as cron reads it."""
    fields = line.split(maxsplit=5)
    return " ".join(fields[:5]), fields[5].replace(r"\%", "%")


def test_cron_gets_one_line_between_markers_and_every_other_line_stays(entry: Make, table: Path) -> None:
    table.write_text(OTHERS)
    for _ in range(2):
        install(entry("cron"))
        before, begin, line, end = table.read_text().rpartition("# BEGIN")[0], *table.read_text().splitlines()[-3:]
        assert before == OTHERS
        assert (begin.split(",")[0], end) == ("# BEGIN vsetune nightly Tiny_one", "# END vsetune nightly Tiny_one")
    time, command = run_line(line)
    words = shlex.split(command)
    assert time == "30 2 * * *"
    assert [words[-9], words[-6:-3]] == [sys.executable, ["nightly", "run", str(entry("cron").content.file)]]
    assert f"VSETUNE_HOME={os.environ['VSETUNE_HOME']}" in words
    assert words[-1] == "2>&1"
    assert Path(words[-2]).parent.is_dir()
    assert remove(entry("cron")) == ["crontab: Tiny_one is removed"]
    assert table.read_text() == OTHERS
    assert "nothing to remove" in remove(entry("cron"))[0]


def test_an_entry_of_this_machine_works_in_the_folders_of_this_machine(
    entry: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"VSETUNE_NODE_FOLDER": "node", "VSETUNE_NODE_CACHE": str(tmp_path / "cache"), "VSETUNE_NODE_CACHE_GB": "5"}
    for name, value in {"VSETUNE_HOME": "s3://bucket/home", **given}.items():
        monkeypatch.setenv(name, value)
    wanted = given | {"VSETUNE_NODE_FOLDER": str(tmp_path / "node"), "VSETUNE_HOME": "s3://bucket/home"}
    words = shlex.split(run_line(entry_texts(entry("cron"))["crontab"].splitlines()[1])[1])
    assert {f"{name}={value}" for name, value in wanted.items()} <= set(words)
    (workflow,) = entry_texts(entry("github")).values()
    assert "NODE" not in workflow


def test_the_line_of_cron_runs_in_a_shell(entry: Make, tmp_path: Path) -> None:
    """With `false` in place of Python: the folder is found, the log is written, the exit code comes through."""
    made = entry("cron")
    made.content.log.parent.mkdir(parents=True)
    command = run_line(entry_texts(made)["crontab"].splitlines()[1])[1].replace(sys.executable, "false")
    done = subprocess.run(["sh", "-c", command], env={"HOME": str(tmp_path)}, check=False)
    assert (done.returncode, made.content.log.exists()) == (1, True)


def test_a_sweep_whose_name_begins_like_another_has_a_block_of_its_own() -> None:
    long = "# BEGIN vsetune nightly a-b, x\nlong\n# END vsetune nightly a-b\n"
    short = "# BEGIN vsetune nightly a, x\nshort\n# END vsetune nightly a\n"
    both = with_block(long, "a", short)
    assert (both, with_block(both, "a", None), with_block(both, "a-b", None)) == (long + short, long, short)
    with refused(messages.BROKEN_BLOCK, begins=1, ends=0):
        with_block("# BEGIN vsetune nightly a, x\nline\n", "a", "new\n")


def test_a_machine_without_cron_or_with_a_cron_that_refuses(
    entry: Make, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.with_name("crontab").write_text("#!/bin/sh\necho you are not allowed >&2\nexit 1\n")
    with refused(messages.CRONTAB_FAILED, words="-l", reason="you are not allowed"):
        install(entry("cron"))
    monkeypatch.setenv("PATH", "/nowhere")
    with refused(messages.NO_CRONTAB):
        install(entry("cron"))
    with refused(messages.LONG_LINE, longest=990):
        entry_texts(entry("cron", home="/" + "long/" * 200))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd to ask")
def test_systemd_takes_the_units_and_the_calendar(entry: Make, tmp_path: Path) -> None:
    install(entry("systemd", zone="Europe/Berlin", output=tmp_path / "units"))
    service, timer = sorted((tmp_path / "units").iterdir())
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--user", service, timer], capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    calendar = next(line for line in timer.read_text().splitlines() if line.startswith("OnCalendar="))
    subprocess.run(["systemd-analyze", "calendar", calendar.partition("=")[2]], check=True, capture_output=True)


def test_systemd_starts_the_same_command_and_catches_up_a_missed_night(entry: Make) -> None:
    texts = entry_texts(entry("systemd"))
    assert {"Persistent=true", "OnCalendar=*-*-* 02:30:00 UTC"} <= set(texts[f"{LABEL}.timer"].splitlines())
    (command,) = [line for line in texts[f"{LABEL}.service"].splitlines() if line.startswith("ExecStart=")]
    assert shlex.split(command.partition("=")[2].replace("%%", "%")) == [*entry("systemd").content.command]


def test_without_systemd_the_units_are_written_and_removed_all_the_same(
    entry: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    units = tmp_path / "config" / "systemd" / "user"
    command = f"systemctl --user daemon-reload && systemctl --user enable --now {LABEL}.timer"
    with refused(messages.NO_SYSTEMCTL, command=command):
        install(entry("systemd"))
    assert {unit.name for unit in units.iterdir()} == {f"{LABEL}.service", f"{LABEL}.timer"}
    with pytest.raises(VsetuneError, match="its files are removed"):
        remove(entry("systemd"))
    assert list(units.iterdir()) == []


def test_github_gets_a_workflow_with_schedule_button_history_and_summary(entry: Make, repository: Path) -> None:
    lines = install(entry("github", zone="Europe/Berlin"))
    workflow = yaml.safe_load((repository / ".github" / "workflows" / f"{LABEL}.yml").read_text())
    assert workflow["on"] == {"schedule": [{"cron": "30 1 * * *"}], "workflow_dispatch": None}
    assert workflow["concurrency"] == {"group": LABEL, "cancel-in-progress": False}
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert job["env"] == {"SLACK_WEBHOOK": "${{ secrets.SLACK_WEBHOOK }}"}
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert runs[1] == "vsetune nightly run studies/nightly.yaml"
    assert '"$GITHUB_STEP_SUMMARY"' in runs[2]
    restore, save = (step for step in job["steps"] if "cache/" in step.get("uses", ""))
    assert (restore["with"]["path"], restore["with"]["key"]) == (save["with"]["path"], save["with"]["key"])
    assert restore["with"]["key"].startswith(restore["with"]["restore-keys"].strip())
    assert save["if"] == "${{ always() }}"
    assert any("the secrets SLACK_WEBHOOK" in line for line in lines)
    assert any("does not exist on" in line for line in lines)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_kuberay_takes_the_raycronjob(entry: Make, zone: str) -> None:
    manifest = yaml.safe_load(entry_texts(entry("kubernetes", zone=zone))[f"{LABEL}.yaml"])
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCronJob")
    fields = yaml.safe_load(FIELDS.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator({**fields, "$ref": "#/$defs/RayCronJob"}).validate(manifest["spec"])
    assert manifest["spec"].get("timeZone") == (None if zone == "UTC" else zone)
    job = manifest["spec"]["jobTemplate"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": job["submitterPodTemplate"]["spec"]}
    kubernetes_validate.validate(pod, "1.33", strict=True)
    run = "cd /home/ray/vsetune && exec python jobs/nightly.py studies/nightly.yaml"
    assert shlex.split(job["entrypoint"]) == ["sh", "-c", run]


def test_kubernetes_takes_the_plain_cronjob_which_never_runs_twice_at_once(entry: Make) -> None:
    text = entry_texts(entry("kubernetes", with_raycronjob=False))[f"{LABEL}.yaml"]
    manifest = yaml.safe_load(text)
    kubernetes_validate.validate(manifest, "1.33", strict=True)
    assert (manifest["spec"]["concurrencyPolicy"], manifest["spec"]["timeZone"]) == ("Forbid", "Etc/UTC")
    (container,) = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["ray", "job", "submit"]
    assert {each["name"]: set(each) - {"name"} for each in container["env"]} == {
        "RAY_AUTH_MODE": {"value"}, "RAY_AUTH_TOKEN": {"valueFrom"},
    }
    assert "#   - name: SLACK_WEBHOOK" in text.splitlines()


@pytest.mark.parametrize("kind", list(EntryKind))
def test_no_entry_contains_a_secret(entry: Make, kind: EntryKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_WEBHOOK", "https://hooks.example.org/s3cret")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://ann:${PG_PASSWORD}@db/vsetune")
    monkeypatch.setenv("PG_PASSWORD", "s3cret")
    made = entry(str(kind))
    assert "s3cret" not in "".join(entry_texts(made).values())
    assert made.content.secrets == ["PG_PASSWORD", "SLACK_WEBHOOK"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://ann:s3cret@db/vsetune")
    with refused(messages.PASSWORD_IN_VARIABLE, variable="MLFLOW_TRACKING_URI") as error:
        entry(str(kind))
    assert "s3cret" not in str(error.value)
    with refused(messages.KEYS_IN_ADDRESS) as error:
        entry(str(kind), home="s3://key:s3cret@bucket/x")
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("kind", ["github", "kubernetes", "systemd"])
def test_a_foreign_file_is_neither_overwritten_nor_removed(entry: Make, kind: str, tmp_path: Path) -> None:
    made = entry(kind, output=tmp_path)
    theirs = tmp_path / next(iter(entry_texts(made)))
    theirs.write_text("mine\n")
    for work in (install, remove):
        with refused(messages.NOT_OURS, file=theirs):
            work(made)
    assert theirs.read_text() == "mine\n"


def test_a_folder_that_cannot_be_written_and_a_sweep_outside_of_a_repository(
    entry: Make, tmp_path: Path, repository: Path
) -> None:
    (tmp_path / "file").write_text("")
    made = entry("kubernetes", output=tmp_path / "file" / "below")
    with pytest.raises(StorageError):
        install(made)
    (repository / ".git").rmdir()
    with refused(messages.NO_REPOSITORY, file=made.content.file):
        install(made)
