"""A whole study on a real local Ray and a real MLflow: everything promised is there, also after a worker was killed."""

from __future__ import annotations

import io
import os
import platform
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import ray
import torch
import yaml
from plugin_folders import NEGATIVES, SPEC, write_loss, write_network
from refusals import refused
from rich.console import Console

from chaos.logged import export_problems, read_log, twice
from vsetune.config.plugins import forget_plugins
from vsetune.errors import StudyConflict, UnusableStore, UsageError
from vsetune.records.events import AttemptRecord
from vsetune.records.studies import Studies
from vsetune.report.board_notes import notes
from vsetune.report.building import build
from vsetune.study.confirmations import Confirming
from vsetune.study.ledger import StudyLedger
from vsetune.study.preparation import prepare_study
from vsetune.study.recorded import find_attempt, load_recorded
from vsetune.study.run import StudyOutcome, run_study
from vsetune.study.stopping import StopRequest

pytestmark = pytest.mark.filterwarnings("default")  # Ray and its dependencies warn about themselves

ONE_WORKER = {"cpus": 2}
"""For studies that do not need two at once: each worker process imports torch first."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for all tests of this file."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def write_study(folder: Path, changes: dict[str, Any]) -> Path:
    plain = {
        "study": "tiny",
        "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}],
        "training": {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3},
        "search": {"configurations": 2}, "scheduler": {"kind": "none"}, "seeds": [0, 1],
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(plain | changes))
    return path


def run(path: Path, *, resume: bool = False) -> tuple[dict[str, int], str]:
    outcome, shown = run_to_its_end(path, resume=resume)
    return dict(outcome.counts), shown


def run_to_its_end(
    path: Path, *, resume: bool = False, changed_plugins: bool = False
) -> tuple[StudyOutcome, str]:
    console = Console(file=io.StringIO(), width=200)
    prepared = prepare_study(path, console)
    outcome = run_study(
        prepared, resume=resume, retry_failed=False, address=None, console=console, changed_plugins=changed_plugins
    )
    return outcome, console.file.getvalue()  # type: ignore[attr-defined]


def attempts() -> list[AttemptRecord]:
    return Studies().attempts("tiny")


@ray.remote
def system_name() -> str:
    return platform.system()


def test_the_standard_platform_module_works_here_and_inside_a_ray_task() -> None:
    assert platform.system() == ray.get(system_name.remote())


class Finished(NamedTuple):
    home: Path
    path: Path
    counts: dict[str, int]
    shown: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Finished:
    """A study that was run to its end and exported: its home, its file, the counts and what was shown."""
    home = tmp_path_factory.mktemp("finished")
    shutil.copy(empty_store, home / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        path = write_study(home, {})
        return Finished(home, path, *run(path))


@pytest.fixture
def study_file(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of that study, at home where it was run."""
    monkeypatch.setenv("VSETUNE_HOME", str(finished.home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    return finished.path


@pytest.mark.usefixtures("study_file")
def test_a_study_finishes_every_promised_trial_and_fills_the_leaderboard(finished: Finished) -> None:
    assert finished.counts == {"finished": 6}
    assert "[6/6]" in finished.shown
    recorded = attempts()
    assert len({each.start.trial for each in recorded}) == len(recorded) == 6
    for each in recorded:
        epochs = [epoch for epoch, _ in each.curve]
        assert epochs == sorted(set(epochs))
        assert epochs[-1] == 2.0
        assert {"test_m_recall", "best_m_recall", "device_seconds", "seconds_per_epoch"} <= set(each.summary)
        assert each.start.environment["data_fingerprint"]
    trials = Path(os.environ["VSETUNE_HOME"]) / "runs" / "tiny" / "trials"
    assert len(list(trials.glob("*/best.safetensors"))) == 6
    assert not list(trials.glob("*/checkpoint.pt")), "recorded trials need no checkpoint to continue from"
    board = build(recorded, baseline="lmh")
    assert [row.loss for row in board.rows] == ["lmh", "lseh"]
    assert all(len(row.seeds) == 2 and row.trials == 3 for row in board.rows)


def test_a_finished_study_resumes_to_nothing_left_to_do(study_file: Path) -> None:
    before = attempts()
    counts, _ = run(study_file, resume=True)
    assert counts == {"finished": 6}
    assert attempts() == before


@pytest.mark.usefixtures("study_file")
def test_mlflow_has_every_number_of_every_attempt(finished: Finished) -> None:
    logged = read_log(finished.home / "runs" / "tiny")
    assert logged.problems + twice(logged) == []
    assert len(logged.attempts) == 6
    assert export_problems(f"sqlite:///{finished.home / 'mlflow.db'}", "tiny", logged) == []


def kill_worker_after_first_checkpoint(trial: Path) -> None:
    deadline = time.monotonic() + 120
    while not (trial / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        if "Trainable" in process.name() or "Trainable" in " ".join(process.cmdline()):
            process.kill()


def test_a_tracking_store_that_cannot_be_used_leaves_no_study_behind_so_that_the_corrected_file_is_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    with pytest.raises(UnusableStore):
        run(write_study(tmp_path, {"tracking": {"uri": f"sqlite:///{tmp_path / 'mlflow.db'}?mode=ro"}}))
    assert Studies().studies() == []


ONE_TRIAL = {"losses": [{"name": "lmh"}], "search": {"configurations": 1}, "seeds": [0]}


def test_a_study_that_the_cluster_has_no_room_for_leaves_nothing_behind_so_that_the_corrected_file_is_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    write_loss(tmp_path / "half_hinge")
    losses = [{"name": "lmh"}, {"name": "half_hinge"}]
    too_large = {"plugins": ["half_hinge/"], "losses": losses, "resources": {"cpus": 64}}
    with refused("VSE-S032", where="resources"):
        run(write_study(tmp_path, ONE_TRIAL | too_large))
    forget_plugins()
    assert Studies().studies() == []
    assert not (tmp_path / "runs").exists()
    monkeypatch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
    assert run_to_its_end(write_study(tmp_path, ONE_TRIAL))[0].was_interrupted


def unreachable(*_: object, **__: object) -> None:
    raise UsageError("ray: cannot reach it")


def test_a_study_that_was_begun_and_whose_cluster_cannot_be_reached_is_not_shown_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    path = write_study(tmp_path, ONE_TRIAL)
    with monkeypatch.context() as patch:
        patch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
        run(path)
    monkeypatch.setattr("vsetune.study.run.ray_cluster", unreachable)
    with pytest.raises(UsageError, match="cannot reach it"):
        run(path, resume=True)
    assert Studies().state("tiny").status == "killed"
    assert (tmp_path / "runs" / "tiny" / "study.log").exists()


@pytest.mark.parametrize("place", ["keep_plugins", "ray_cluster", "require_places"])
def test_a_study_that_is_broken_off_before_it_is_begun_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.setattr(f"vsetune.study.run.{place}", broken_off)
    with pytest.raises(KeyboardInterrupt):
        run(write_study(tmp_path, ONE_TRIAL))
    assert Studies().studies() == []


def broken_off(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["keep_plugins", "StudyLedger", "ray_cluster", "write_results"])
def test_a_study_that_is_broken_off_before_trials_run_or_after_is_not_shown_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
    path = write_study(tmp_path, ONE_TRIAL)
    run(path)
    monkeypatch.setattr(f"vsetune.study.run.{place}", broken_off)
    with pytest.raises(KeyboardInterrupt):
        run(path, resume=True)
    assert Studies().state("tiny").status == "killed"


def test_a_request_to_stop_is_heard_while_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.setattr("vsetune.study.run.place_trials", lambda *_, **__: None)
    path = write_study(tmp_path, ONE_TRIAL)
    run(path)
    states, heard = Studies(), []

    def starting(address: str | None, stop: StopRequest, **_: object) -> None:
        assert states.state("tiny").status == "running"
        states.ask_to_stop("tiny", "now by somebody")
        for _look in range(600):
            if stop.is_requested:
                break
            time.sleep(0.05)
        heard.append(stop.reason)
        raise KeyboardInterrupt

    monkeypatch.setattr("vsetune.study.run.ray_cluster", starting)
    with pytest.raises(KeyboardInterrupt):
        run(path, resume=True)
    assert heard == ["a request in its folder (now by somebody)"]


def test_a_study_that_has_finished_stays_so_when_its_confirming_cannot_reach_a_cluster(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", shutil.copytree(finished.home, tmp_path / "home").as_posix())
    monkeypatch.setattr("vsetune.study.run.ray_cluster", unreachable)
    console = Console(file=io.StringIO())
    prepared = prepare_study(finished.path, console)
    with pytest.raises(UsageError, match="cannot reach it"):
        run_study(prepared, resume=True, retry_failed=False, address=None, console=console,
                  confirming=Confirming(2, contenders=True))
    assert Studies().state("tiny").status == "finished"


def test_successive_halving_stops_trials_and_counts_them_as_pruned(tmp_path: Path) -> None:
    path = write_study(tmp_path, {
        "losses": [{"name": "lmh", "search": {"margin": "default"}}], "seeds": [0],
        "search": {
            "configurations": 4, "sampler": "random",
            "training": {"learning_rate": {"low": 1e-6, "high": 1e-2, "log": True}},
        },
        "training": {"epochs": 6, "batch_size": 40, "learning_rate": 1e-2},
        "scheduler": {"kind": "asha", "grace_epochs": 1, "reduction_factor": 2}, "resources": ONE_WORKER,
    })
    counts, _ = run(path)
    pruned = [each for each in attempts() if each.status == "pruned"]
    assert len(pruned) == counts["pruned"] >= 1
    assert sum(counts.values()) > 4, "what they left over went to further configurations"
    assert abs(sum(each.curve[-1][0] for each in attempts()) - 4 * 6) <= 3
    assert all(each.curve[-1][0] < 6 and (each.error or "").startswith("asha: ") for each in pruned)


REFUSES_FRACTIONS = SPEC.replace(
    "from vsetune.config.spec", "from pydantic import field_validator\n\nfrom vsetune.config.spec", 1
) + '''
    ramp_steps: float = tunable(200.0, Range(low=50, high=400), ge=1, description="steps of the ramp")

    @field_validator("ramp_steps")
    @classmethod
    def _whole(cls, steps: float) -> float:
        if not steps.is_integer():
            raise ValueError("need whole steps")
        return steps
'''
TROUBLED = {
    "losses": [
        {"name": "lmh", "search": "none", "training": {"epochs": 20}},
        {"name": "lsh", "search": "none", "training": {"learning_rate": 3e36, "gradient_clip": None}},
        {"name": "lseh", "search": "none"}, {"name": "info_nce", "search": "none"}, {"name": "half_hinge"},
    ],
    "plugins": ["half_hinge/"], "baseline": "lmh", "seeds": [0], "resources": {**ONE_WORKER, "retries": 1},
}
"""Trouble of its cells, in order: a killed worker, numbers that are not finite, a damaged checkpoint, storage that
refuses, a space without another valid configuration."""


class Troubled(NamedTuple):
    home: Path
    path: Path
    outcome: StudyOutcome
    shown: str


@pytest.fixture(scope="module")
def run_troubled(tmp_path_factory: pytest.TempPathFactory) -> Troubled:
    """A study in which every cell meets trouble of its own."""
    home = tmp_path_factory.mktemp("troubled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", "none")
        write_loss(home / "half_hinge", spec=REFUSES_FRACTIONS)
        path = write_study(home, TROUBLED)
        trial_folder(home, "lseh").mkdir(parents=True)
        (trial_folder(home, "lseh") / "checkpoint.pt").write_bytes(b"torn")
        trial_folder(home, "info_nce").write_text("a file stands where the trial wants its folder")
        killer = threading.Thread(target=kill_worker_after_first_checkpoint, args=(trial_folder(home, "lmh"),))
        killer.start()
        try:
            return Troubled(home, path, *run_to_its_end(path))
        finally:
            killer.join()
            forget_plugins()


@pytest.fixture
def troubled(run_troubled: Troubled, monkeypatch: pytest.MonkeyPatch) -> Iterator[Troubled]:
    """That study, at its home."""
    monkeypatch.setenv("VSETUNE_HOME", str(run_troubled.home))
    yield run_troubled
    forget_plugins()


def trial_folder(home: Path, loss: str) -> Path:
    return home / "runs" / "tiny" / "trials" / f"vsepp.{loss}-c000-s0"


def test_a_worker_killed_in_the_middle_costs_an_attempt_and_no_trial(troubled: Troubled) -> None:
    assert "died" in troubled.shown
    first, second = (each for each in attempts() if each.start.loss == "lmh")
    assert (first.status, second.status) == ("killed", "finished")
    assert (first.start.number, second.start.number) == (1, 2)
    epochs = [epoch for epoch, _ in second.curve]
    assert epochs == sorted(set(epochs))
    assert epochs[-1] == 20.0
    assert second.curve[: len(first.curve)] == first.curve


def test_a_diverging_trial_fails_alone(troubled: Troubled) -> None:
    assert troubled.outcome.counts == {"finished": 3, "failed": 2, "open": 1}
    failed, _ = (each for each in attempts() if each.status == "failed")
    assert failed.start.loss == "lsh"
    assert failed.error is not None
    assert failed.error.startswith("numeric:")
    assert "failed   vsepp.lsh" in troubled.shown


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_starts_again(troubled: Troubled) -> None:
    assert "interrupted vsepp.lseh-c000-s0: storage: " in troubled.shown
    assert (trial_folder(troubled.home, "lseh") / "checkpoint.pt.damaged-1").read_bytes() == b"torn"


def test_storage_that_refuses_leaves_a_trial_open_and_resuming_finishes_it(troubled: Troubled) -> None:
    assert troubled.outcome.ending == "interrupted"
    assert "goes on from its checkpoint in 2 s" in troubled.shown
    assert "left open for --resume" in troubled.shown
    (trouble,) = [each for each in troubled.outcome.troubles if each.is_open]
    assert trouble.trial == "vsepp.info_nce-c000-s0"
    assert trouble.reason.startswith("storage: ")
    trial_folder(troubled.home, "info_nce").unlink()
    resumed, shown = run_to_its_end(troubled.path, resume=True)
    assert "tiny: goes on; 5 of 6 trials have ended" in shown
    assert (dict(resumed.counts), resumed.ending) == ({"finished": 4, "failed": 2}, "partly failed")


def test_a_cell_that_cannot_sample_fails_alone_with_a_board_and_stays_so_when_resumed(troubled: Troubled) -> None:
    outcome, before = troubled.outcome, attempts()
    (trouble,) = [each for each in outcome.troubles if "refused" in each.trial]
    for words in ("for cell vsepp.half_hinge: 100 draws in a row", "loss.ramp_steps", "need whole steps"):
        assert words in trouble.reason
    assert outcome.board is not None
    assert [row.loss for row in outcome.board.rows if "cannot_draw" in row.flags] == ["half_hinge"]
    assert outcome.page is not None
    assert "need whole steps" in outcome.page.read_text(encoding="utf-8")
    again, _ = run_to_its_end(troubled.path, resume=True)
    assert [each for each in again.troubles if "refused" in each.trial] == [trouble]
    assert attempts() == before


def test_cells_that_have_not_begun_go_on_with_changed_plugins_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two of four cells run; then the loss changes, which one of each pair has."""
    loss = write_loss(tmp_path / "half_hinge")
    network = {"embedding_size": 16, "word_size": 8}
    path = write_study(tmp_path, {
        "plugins": ["half_hinge/"], "baseline": "lmh", "losses": [{"name": "half_hinge"}, {"name": "lmh"}],
        "networks": [
            {"name": "vsepp", "fixed": network},
            {"name": "vsepp", "label": "second", "fixed": network | {"word_size": 10}},
        ],
        "seeds": [0], "search": {"configurations": 1}, "resources": ONE_WORKER,
    })
    ask, asked = StudyLedger.next, []

    def two_trials(ledger: StudyLedger, cells: Any = None) -> Any:
        answer = "done" if len(asked) == 2 else ask(ledger, cells)
        asked.extend([] if isinstance(answer, str) else [answer])
        return answer

    try:
        with monkeypatch.context() as broken_off:
            broken_off.setattr(StudyLedger, "next", two_trials)
            assert run(path)[0] == {"finished": 2}
        first = {each.start.cell: each.start.resolved.get("plugins") for each in attempts()}
        assert first.keys() == {"vsepp.half_hinge", "vsepp.lmh"}
        changed = NEGATIVES.replace("-1.0", "-2.0")
        write_loss(loss, negatives=changed)
        forget_plugins()
        with refused("VSE-S006", by=StudyConflict, study="tiny", plugin="loss half_hinge"):
            run(path, resume=True)
        for resumes in range(2):  # the second finds nothing left to do
            outcome, shown = run_to_its_end(path, resume=True, changed_plugins=True)
            assert (outcome.ending, dict(outcome.counts)) == ("finished", {"finished": 3}), resumes
            assert "cell vsepp.half_hinge: has run with loss half_hinge " in shown
        assert len(attempts()) == 4
        versions = {each.start.cell: each.start.resolved.get("plugins") for each in attempts()}
        assert {cell: versions[cell] for cell in first} == first
        old, new = (versions[f"{name}.half_hinge"]["loss.half_hinge"][:12] for name in ("vsepp", "second"))
        assert old != new
        assert outcome.page is not None
        page = outcome.page.read_text(encoding="utf-8")
        (note,) = (note for note in notes(outcome.board) if note.startswith("Plugin code: 2 versions"))
        for words in (f"loss half_hinge {new} in second half_hinge", f"loss half_hinge {old} in vsepp half_hinge"):
            assert words in note
            assert words in page
        write_loss(loss)
        forget_plugins()
        with refused("VSE-S010", by=StudyConflict, study="tiny") as caught:
            run(path, resume=True)
        assert re.search(rf"cell second.half_hinge: has run .*{new}.*--changed", str(caught.value))
        assert Studies().state("tiny").status != "running"
    finally:
        forget_plugins()


def test_a_study_of_plugins_runs_resumes_and_is_read_from_its_own_copy(tmp_path: Path) -> None:
    """Other people's loss and network: searched, summed, tagged; afterwards their folders may change or vanish."""
    loss, network = write_loss(tmp_path / "half_hinge"), write_network(tmp_path / "mine" / "bag")
    path = write_study(tmp_path, {
        "plugins": ["half_hinge/", "mine/"], "networks": [{"name": "bag"}], "baseline": "half_hinge",
        "losses": [{"name": "half_hinge"}, {"loss": [{"name": "half_hinge"}, {"name": "lmh"}]}],
        "seeds": [0], "search": {"configurations": 1}, "resources": ONE_WORKER,
    })
    try:
        assert run(path)[0] == {"finished": 2}
        for each in attempts():
            assert set(each.start.resolved["plugins"]) == {"loss.half_hinge", "network.bag"}
        write_loss(loss, negatives=NEGATIVES.replace("-1.0", "-2.0"))
        with refused("VSE-S006", study="tiny", changes="negatives.py changed"):
            run(path, resume=True)
        shutil.rmtree(loss)
        shutil.rmtree(network)
        forget_plugins()
        assert run(path, resume=True)[0] == {"finished": 2}
        forget_plugins()
        store = Studies()
        attempt = find_attempt(store, "tiny/bag.half_hinge-c000-s0", finished=True)
        trained = load_recorded(store, attempt, device=torch.device("cpu"), into=tmp_path)
        assert type(trained.network).__name__ == "Bag"
        assert type(trained.network).__module__.startswith("vsetune_plugins.bag_")
    finally:
        forget_plugins()
