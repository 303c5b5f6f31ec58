"""A study's home on object storage: machines that share no disk continue one another's work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from refusals import refused
from rich.console import Console
from s3_server import endpoint, machine, prefix

from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import ScenesSpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.banks import forget_banks
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, Overtaken, StorageError, StudyConflict
from vsetune.home import heartbeat, node_cache, s3
from vsetune.home.home_files import find_folder_in_home, names_in
from vsetune.home.paths import home, remote_home, remote_place, under_home
from vsetune.home.s3 import delete, find, listing, put_bytes
from vsetune.records.events import AttemptStart, Closed, StudyRecord
from vsetune.records.log import LogWriter
from vsetune.records.writer import StudyWriter
from vsetune.study import study_home
from vsetune.study.fitting import require_scenes
from vsetune.study.preparation import make_scenes, prepare_study, require_home
from vsetune.study.study_file import load_study
from vsetune.study.study_home import held_home
from vsetune.study.trainable import AttemptTrainable, report_of

__all__ = ["endpoint", "machine", "prefix"]
pytestmark = pytest.mark.filterwarnings("default")  # Ray and its dependencies warn about themselves
STUDY = {
    "study": "tiny", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}], "losses": [{"name": "lmh"}],
    "training": {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3},
}
TRIAL = "vsepp.lmh-c000-s0"
START = AttemptStart(study="tiny", trial=TRIAL, cell="vsepp.lmh", network="vsepp", loss="lmh", number=1, seed=0,
                     phase="search", configuration={}, resolved={}, environment={}, protocol={})


def study_file(folder: Path, **changes: Any) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(STUDY | changes))
    return path


def trial_of(folder: Path) -> TrialSpec:
    study = load_study(study_file(folder))
    study = study.model_copy(update={"data": study.data.model_copy(update={"path": under_home("data/scenes")})})
    (cell,) = resolve_cells(study, where="test")
    return build_trial(study, cell, {}, trial=TRIAL, seed=0)


SELDOM = 1e-9
"""Of the time: after the first checkpoint none is due."""


def worker(trial: TrialSpec, *, checkpoint_share: float = 1.0) -> AttemptTrainable:
    folder = f"runs/tiny/trials/{TRIAL}"
    return AttemptTrainable({
        "trial": trial.to_plain(), "home": remote_home(), "needs": {"cpus": 1}, "phase": "search",
        "reading": {"source": "auto", "bank_bytes": 10**9}, "checkpoint_share": checkpoint_share,
        "folder": folder if remote_home() else str(home() / folder),
    })


def reports(worker: AttemptTrainable, *, until: str = "done") -> Iterator[dict[str, Any]]:
    while True:
        report = report_of(worker.step())
        yield report
        if report.get("done") or report["event"] == until:
            return


def curve_of(found: list[dict[str, Any]]) -> list[tuple[int, float]]:
    points = [point for each in found for point in [*each.get("inherited", ()), each.get("point")] if point]
    return [(point["step"], point["m_recall"]) for point in points]


def learned_in(folder: Path) -> Any:
    return torch.load(folder / "checkpoint.pt", weights_only=True)["state"]["learner"]


def are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return bool(one == other)


def test_relative_places_are_under_the_prefix_and_in_a_folder_of_this_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", "s3://bucket/some/where/")
    assert remote_home() == "s3://bucket/some/where"
    assert home().parent == Path("~/.cache/vsetune").expanduser()
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path))
    assert home() == tmp_path
    assert under_home("data/x") == "s3://bucket/some/where/data/x"
    assert under_home("/data/x") == "/data/x"
    assert remote_place(tmp_path / "runs" / "quick") == "s3://bucket/some/where/runs/quick"
    with pytest.raises(ConfigError, match="/runs/quick"):
        remote_place(Path("/runs/quick"))


@pytest.mark.parametrize("ends", ["with every checkpoint", "stopped before one was due", "died before one was due"])
def test_a_trial_goes_on_bit_for_bit_on_a_node_that_has_never_seen_it(
    ends: str, machine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_scenes(under_home("data/scenes"), load_study(study_file(tmp_path)).data.scenes, Console(quiet=True))
    trial, share = trial_of(tmp_path), 1.0 if ends == "with every checkpoint" else SELDOM
    first = worker(trial, checkpoint_share=share)
    begun = list(reports(first, until="opened"))
    for _ in range(3):
        begun += reports(first, until="point")
    if ends.startswith("died"):
        assert first._files is not None
        first._files.settle(20.0)
        first._is_going_on = False  # nobody writes what is in its memory
    first.cleanup()
    machine("second")
    second = worker(trial, checkpoint_share=share)
    went_on = list(reports(second))
    second.cleanup()
    assert len(went_on[0]["inherited"]) == (1 if ends.startswith("died") else 3)
    assert not (tmp_path / "second/runs/tiny/trials" / TRIAL).exists(), "a node keeps nothing of what is on the server"
    machine("third")
    fetched = home() / "runs/tiny/trials" / TRIAL
    find_folder_in_home(fetched)
    assert (went_on[0]["number"], went_on[-1]["is_finished"]) == (2, True)
    assert went_on[-1]["artifacts"] == [f"runs/tiny/trials/{TRIAL}/best.safetensors"]
    assert curve_of(went_on)[: len(curve_of(begun))] == curve_of(begun)
    best = (fetched / "best.safetensors").read_bytes()
    assert names_in(fetched) == ["best.safetensors", "checkpoint.pt", "executions.json", "progress.json"]

    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "local"))
    make_scenes(under_home("data/scenes"), load_study(study_file(tmp_path)).data.scenes, Console(quiet=True))
    undisturbed = worker(trial_of(tmp_path))
    assert curve_of(list(reports(undisturbed))) == curve_of(went_on)
    undisturbed.cleanup()
    assert are_equal(learned_in(home() / "runs/tiny/trials" / TRIAL), learned_in(fetched))
    assert (home() / "runs/tiny/trials" / TRIAL / "best.safetensors").read_bytes() == best
    assert not list((tmp_path / "local").rglob(".versions.json"))


@pytest.mark.parametrize("goes", ["over to another trial", "away"])
def test_a_trial_that_was_stopped_leaves_its_best_weights_and_writes_no_checkpoint_any_more(
    goes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has removed the checkpoint of a trial that nobody will continue."""
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "local"))
    make_scenes(under_home("data/scenes"), load_study(study_file(tmp_path)).data.scenes, Console(quiet=True))
    trial, folder = trial_of(tmp_path), tmp_path / "local/runs/tiny/trials" / TRIAL
    at_work = worker(trial, checkpoint_share=SELDOM)
    list(reports(at_work, until="opened"))
    for _ in range(3):
        list(reports(at_work, until="point"))
    with study_home.held_home(tmp_path / "local/runs/tiny") as held:
        held.forget_checkpoint(folder, LogWriter(tmp_path / "local/runs/tiny"))
    if goes == "over to another trial":
        at_work.reset_config(at_work._wanted | {"folder": str(tmp_path / "another")})
    at_work.cleanup()
    assert {path.name for path in folder.iterdir()} == {"best.safetensors", "executions.json", "progress.json"}


def test_a_worker_whose_cache_takes_nothing_trains_all_the_same_and_its_driver_hears_why(
    machine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_scenes(under_home("data/scenes"), load_study(study_file(tmp_path)).data.scenes, Console(quiet=True))
    monkeypatch.setattr(node_cache, "_logged", set())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VSETUNE_NODE_CACHE", str(tmp_path / "file" / "cache"))
    forget_banks()
    trainable = worker(trial_of(tmp_path))
    found = list(reports(trainable))
    trainable.cleanup()
    assert found[-1]["is_finished"]
    warnings = [line for report in found for line in report.get("warnings", ())]
    assert warnings[0].startswith(f"{tmp_path}/file/cache: ")
    logging.getLogger("vsetune.data").warning("not heard: the worker is gone")
    assert trainable._warnings.take() == []


def test_a_checkpoint_damaged_on_the_server_is_told_and_the_trial_begins_anew(
    machine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_home, "_FETCH_PAUSE_S", 0.0)
    make_scenes(under_home("data/scenes"), load_study(study_file(tmp_path)).data.scenes, Console(quiet=True))
    first = worker(trial_of(tmp_path))
    list(reports(first, until="opened"))
    list(reports(first, until="point"))
    first.cleanup()
    place = f"{remote_home()}/runs/tiny/trials/{TRIAL}"
    damaged = f"{place}/checkpoint.pt"
    with monkeypatch.context() as wrong:
        wrong.setattr(s3, "sha256_hex", lambda content: "0" * 64)
        put_bytes(damaged, b"torn")
    machine("second")
    second = worker(trial_of(tmp_path))
    (told,) = reports(second)
    assert told["event"] == "interrupted"
    assert told["error"].startswith(f"storage: {damaged}")
    second.reset_config(second._wanted)
    anew = next(reports(second))
    assert (anew["event"], anew["number"], anew["inherited"]) == ("opened", 2, [])
    second.cleanup()


def test_a_trial_that_another_node_has_taken_over_is_interrupted(
    machine: Callable[[str], None], tmp_path: Path
) -> None:
    make_scenes(under_home("data/scenes"), load_study(study_file(tmp_path)).data.scenes, Console(quiet=True))
    trial = trial_of(tmp_path)
    first = worker(trial)
    list(reports(first, until="opened"))
    machine("second")
    second = worker(trial)
    list(reports(second, until="opened"))
    machine("first")
    *_, told = reports(first)
    assert told["event"] == "interrupted"
    first.cleanup()
    machine("second")
    assert list(reports(second))[-1]["is_finished"]
    second.cleanup()


def sent_by_a_worker(folder: Path, files: dict[str, bytes]) -> None:
    """What a trial's folder holds, here and in the home."""
    folder.mkdir(parents=True)
    sent = study_home.trial_files(folder) or pytest.fail("the home is not remote")
    sent.fetch()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sent.send()
    sent.settle(30)
    sent.close(0)


def test_a_driver_on_another_machine_goes_on_from_the_log_and_takes_ended_checkpoints_off_the_server(
    machine: Callable[[str], None]
) -> None:
    folder = home() / "runs" / "tiny"
    with held_home(folder) as held:
        log = LogWriter(folder, remote_place(folder), on_overtaken=held.on_lost)
        writer = StudyWriter(log)
        writer.open_study(StudyRecord("tiny", "f00d", {"study": "tiny"}, {}), resume=False)
        sent_by_a_worker(folder / "trials" / TRIAL,
                         {name: name.encode() * 1000 for name in ("best.safetensors", "checkpoint.pt")})
        name = f"trials/{TRIAL}/best.safetensors"
        attempt = writer.start_attempt(START)
        writer.finish_attempt(attempt, "finished", summary={"epochs": 2.0}, files=[name], error=None)
        log.close()  # and died before it could take the checkpoint off the server

    machine("second")
    folder = home() / "runs" / "tiny"
    with held_home(folder) as held:
        log = LogWriter(folder, remote_place(folder), on_overtaken=held.on_lost)
        (known,) = StudyWriter(log).attempts()
        assert known.status == "finished"
        held.forget_ended([folder / "trials" / TRIAL], log)
        log.append(Closed("finished", (), 1.0))
        log.close()
        best = held.file(name)
        assert best is not None
        assert best.read_bytes() == b"best.safetensors" * 1000
    assert names_in(folder / "trials" / TRIAL) == ["best.safetensors"]


def test_what_one_machine_trains_to_look_at_and_keeps_aside_stays_there(
    machine: Callable[[str], None], tmp_path: Path
) -> None:
    own = [Path("study.log.superseded-1"), Path("train/vsepp.lmh-defaults-s0/checkpoint.pt")]
    folder = home() / "runs" / "tiny"
    for name in own:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"of this machine")
    for name in ("first", "second", "first"):
        machine(name)
        with held_home(home() / "runs" / "tiny"):
            (home() / "runs" / "tiny" / "study.yaml").write_text(f"by {name}")
    assert [(folder / name).read_bytes() for name in own] == [b"of this machine"] * 2
    assert names_in(folder) == ["heartbeat.json", "study.yaml"]


def test_two_drivers_on_two_machines_exclude_each_other_and_the_loser_stops(
    machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def log_of(held: study_home.StudyHome) -> LogWriter:
        return LogWriter(held.folder, remote_place(held.folder), on_overtaken=held.on_lost)

    lost: list[str] = []
    with held_home(home() / "runs" / "tiny", on_lost=lost.append) as first:
        log = log_of(first)
        machine("second")
        with (
            pytest.raises(StudyConflict), held_home(home() / "runs" / "tiny"),
        ):
            pass
        monkeypatch.setattr(heartbeat.Holder, "is_gone", lambda holder: True)
        with held_home(home() / "runs" / "tiny") as second:
            others = log_of(second)
            others.append(Closed("killed", (), 1.0))
            others.settle()
            log.append(Closed("finished", (), 1.0))
            with pytest.raises(Overtaken):
                log.settle()
            log.close()
            others.append(Closed("killed", (), 2.0))
            others.settle()
            others.close()
    assert len(lost) == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MLFLOW_TRACKING_URI": "sqlite:////tmp/x.db"}, r"^tracking\.uri: "),
        ({"VSETUNE_HOME": "s3://no-such"}, r"^VSETUNE_HOME: s3://no-such/probe-\w+: "),
    ],
    ids=["sqlite tracking", "no bucket"],
)
def test_a_home_that_does_not_fit_is_refused_before_anything_is_made(
    machine: Callable[[str], None], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ConfigError, StorageError), match=said) as caught:
        prepare_study(study_file(tmp_path), Console(quiet=True))
    assert "\n" not in str(caught.value)
    assert list(listing(prefix)) == []


def test_a_home_that_fits_leaves_nothing_of_its_trial(
    machine: Callable[[str], None], prefix: str, tmp_path: Path
) -> None:
    require_home(load_study(study_file(tmp_path)))
    assert list(listing(prefix)) == []


@pytest.mark.parametrize("variable", ["VSETUNE_NODE_FOLDER", "VSETUNE_HOME"])
def test_a_folder_of_this_machine_that_cannot_be_written_is_told_with_the_variable_that_sets_it(
    machine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    with (
        pytest.raises(StorageError, match=rf"runs/tiny: .*{variable}"), held_home(home() / "runs" / "tiny"),
    ):
        pass


def stored_under(prefix: str) -> dict[str, Any]:
    """Content and age of every object, without the time of the answer."""
    found = {url: find(url, most=2**24) for url in listing(prefix)}
    return {url: (each[0], each[1].modified) for url, each in found.items() if each is not None}


def test_embedded_data_deleted_from_the_home_can_be_made_with_other_sizes(
    machine: Callable[[str], None], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = under_home("data/scenes")
    make_scenes(place, ScenesSpec(train=24, validation=8, test=8), Console(quiet=True))
    assert not list((tmp_path / "first").rglob("*.tar")), "a node keeps nothing of what is on the server"
    delete(list(listing(f"{prefix}/")))
    make_scenes(place, ScenesSpec(train=25, validation=8, test=8), Console(quiet=True))
    assert Dataset.open(place).manifest.splits["train"].images == 25


def test_embedded_data_are_made_in_the_home_once_for_all_machines(
    machine: Callable[[str], None], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    prepared = prepare_study(study_file(tmp_path), Console(quiet=True))
    made = stored_under(f"{prefix}/data/scenes/")
    assert f"{prefix}/data/scenes/manifest.json" in made

    machine("second")
    require_scenes(prepared.spec, where="tiny.yaml")
    again = prepare_study(study_file(tmp_path), Console(quiet=True))
    assert again.data_fingerprint == prepared.data_fingerprint
    assert stored_under(f"{prefix}/data/scenes/") == made
    larger = {"path": "data/scenes", "scenes": {"train": 49, "validation": 16, "test": 16}}
    with refused("VSE-S018", by=StudyConflict, path=f"{prefix}/data/scenes"):
        prepare_study(study_file(tmp_path, data=larger), Console(quiet=True))
