"""A study with somebody else's loss and network: checked, hashed, kept, and always run from the same code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from plugin_folders import LOSS, NEGATIVES, SPEC, write_files, write_loss, write_network
from refusals import fits, refused

from vsetune.config.component_specs import LOSSES
from vsetune.config.plugins import forget_plugins, known_plugins
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError, StudyConflict
from vsetune.records.events import AttemptStart
from vsetune.records.mlflow_descriptions import attempt_tags
from vsetune.records.writer import StudyWriter
from vsetune.study.kept_plugins import changed_since, keep_plugins, load_kept
from vsetune.study.preparation import PreparedStudy
from vsetune.study.study_file import load_study, used_plugins

ENTRY: dict[str, Any] = {"name": "half_hinge"}


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def write_study(folder: Path, **changed: Any) -> Path:
    plain = {
        "study": "mine", "data": {"path": "data/scenes"}, "plugins": ["half_hinge/"], "networks": [{"name": "vsepp"}],
        "losses": [ENTRY, {"name": "lmh"}], "training": {"epochs": 4},
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(plain | changed), encoding="utf-8")
    return path


def trials_of(study: StudySpec) -> dict[str, TrialSpec]:
    return {
        cell.loss_name: build_trial(study, cell, cell.defaults(), trial="t", seed=0)
        for cell in resolve_cells(study, where="study")
    }


def prepared(path: Path) -> PreparedStudy:
    study = load_study(path)
    return PreparedStudy(study, resolve_cells(study, where="study"), "data", used_plugins(study))


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        resolve_cells(load_study(path), where=str(path))
    return refused.value.problems


def test_a_plugin_is_searched_checked_and_hashed_like_ours(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    study = load_study(write_study(tmp_path))
    assert study.plugins == [str(tmp_path / "half_hinge")]
    cells = {cell.loss_name: cell for cell in resolve_cells(study, where="study")}
    assert list(cells["half_hinge"].domains) == ["loss.margin"]
    trials = trials_of(study)
    (plugin,) = known_plugins()
    assert trials["half_hinge"].plugins == {"loss.half_hinge": plugin.sha256}
    assert trials["lmh"].plugins == {}
    assert TrialSpec.model_validate(trials["half_hinge"].to_plain()) == trials["half_hinge"]


def test_a_trial_of_our_own_components_has_the_fingerprint_it_always_had(tmp_path: Path) -> None:
    trial = trials_of(load_study(write_study(tmp_path, plugins=[], losses=[{"name": "lmh"}])))["lmh"]
    assert "plugins" not in trial.to_plain()
    assert trial.fingerprint() == "45a34012630c770a"


def test_a_study_of_our_own_components_has_the_fingerprint_it_always_had(tmp_path: Path) -> None:
    """With the settings that were the defaults when it was taken."""
    older: dict[str, Any] = {"search": {"sampler": "tpe", "start": "random"}, "scheduler": {"kind": "asha"}}
    without = prepared(write_study(tmp_path, plugins=[], losses=[{"name": "lmh"}], **older)).record()
    write_loss(tmp_path / "half_hinge")
    named = prepared(write_study(tmp_path, losses=[{"name": "lmh"}], **older)).record()
    assert without.fingerprint == named.fingerprint == "0b4069f8214fef9f"


@pytest.mark.parametrize(("changes", "start"), [
    ({"losses": [{"name": "half_hing"}, {"name": "lmh"}]}, "losses[0].name: "),
    ({"losses": [ENTRY | {"fixed": {"margn": 1}}, {"name": "lmh"}]}, "cell vsepp.half_hinge: loss.margn: "),
    ({"losses": [ENTRY | {"fixed": {"margin": -1}}, {"name": "lmh"}]}, "cell vsepp.half_hinge: loss.margin: "),
    ({"plugins": ["nowhere/"]}, "plugins: "), ({"plugins": "half_hinge"}, "plugins: "),
])
def test_mistakes_are_found_as_those_with_our_own(tmp_path: Path, changes: dict[str, Any], start: str) -> None:
    write_loss(tmp_path / "half_hinge")
    path = write_study(tmp_path, **changes)
    assert any(line.startswith(f"{path}: {start}") for line in problems(path))


def test_code_that_cannot_be_imported_is_told_before_anything_runs(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge", loss=LOSS + "\nhardest(None)\n")
    path = write_study(tmp_path)
    (line,) = problems(path)
    assert line.startswith(f"{path}: plugins: {tmp_path}/half_hinge/negatives.py:8: TypeError: ")


def test_a_loss_that_does_not_fit_is_refused_by_its_own_declarations(tmp_path: Path) -> None:
    kinds = 'source: ClassVar[str] = "made for a test"\n    kinds = frozenset({"several_embeddings"})'
    write_loss(tmp_path / "half_hinge", spec=SPEC.replace('source: ClassVar[str] = "made for a test"', kinds))
    assert "half_hinge" in problems(write_study(tmp_path))[0]


def test_sums_and_phases_take_plugins(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    write_network(tmp_path / "bag")
    phases = [{"epochs": 1}, {"loss": {"half_hinge": {"margin": 0.3}}}]
    path = write_study(
        tmp_path, plugins=["half_hinge", "bag"], networks=[{"name": "bag"}],
        losses=[{"name": "lmh"}, {"loss": [ENTRY, {"name": "lmh"}], "training": {"phases": phases}}],
    )
    trials = trials_of(load_study(path))
    assert set(trials["half_hinge_lmh"].plugins) == {"network.bag", "loss.half_hinge"}
    assert set(trials["lmh"].plugins) == {"network.bag"}
    assert trials["half_hinge_lmh"].loss_in(1).to_plain()["parts"]["half_hinge"]["loss"]["margin"] == 0.3


def test_changed_code_is_another_trial_and_another_study(tmp_path: Path) -> None:
    folder, path = write_loss(tmp_path / "half_hinge"), write_study(tmp_path)
    first, trial = prepared(path), trials_of(load_study(path))["half_hinge"]
    write_loss(folder, negatives=NEGATIVES.replace("-1.0", "-2.0"))
    second = prepared(path)
    assert trials_of(second.spec)["half_hinge"].fingerprint() != trial.fingerprint()
    assert second.record().fingerprint != first.record().fingerprint
    writer = StudyWriter()
    writer.open_study(first.record(), resume=False)
    with pytest.raises(StudyConflict):
        writer.open_study(second.record(), resume=True)
    with pytest.raises(ValueError, match="the trial is of"):
        TrialSpec.model_validate(trial.to_plain())


def test_a_plugin_that_changed_is_named_with_its_copy(tmp_path: Path) -> None:
    folder, path = write_loss(tmp_path / "half_hinge"), write_study(tmp_path)
    study = prepared(path)
    (copy,) = keep_plugins(study.plugins, study.folder)
    assert changed_since("mine", study.folder, study.plugins) is None
    write_loss(folder, negatives=NEGATIVES.replace("-1.0", "-2.0"))
    change = changed_since("mine", study.folder, prepared(path).plugins)
    assert fits(change, "VSE-S006", study="mine", plugin="loss half_hinge", source=folder, copy=copy / "half_hinge")


def test_a_worker_runs_the_copy_whatever_became_of_the_folder(tmp_path: Path) -> None:
    folder, path = write_loss(tmp_path / "half_hinge"), write_study(tmp_path)
    study = prepared(path)
    trial = trials_of(study.spec)["half_hinge"]
    (copy,) = keep_plugins(study.plugins, study.folder)
    assert sorted(each.name for each in (copy / "half_hinge").iterdir()) == ["loss.py", "negatives.py", "spec.py"]
    assert keep_plugins(study.plugins, study.folder) == [copy]
    shutil.rmtree(folder)
    forget_plugins()
    for _ in range(2):  # a worker process runs one trial after another
        load_kept(trial.to_plain()["plugins"], study.folder, where="trial t")
        again = TrialSpec.model_validate(trial.to_plain())
        assert again.to_plain() == trial.to_plain()
        assert again.fingerprint() == trial.fingerprint()


def test_copies_that_ray_brought_are_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_loss(tmp_path / "half_hinge")
    study = prepared(write_study(tmp_path))
    (copy,) = keep_plugins(study.plugins, study.folder)
    shutil.copytree(copy, tmp_path / "brought" / copy.name)
    shutil.rmtree(study.folder)
    forget_plugins()
    wanted = {plugin.key: plugin.sha256 for plugin in study.plugins}
    with refused("VSE-S005", where="trial t", name="half_hinge"):
        load_kept(wanted, study.folder, where="trial t")
    monkeypatch.syspath_prepend(str(tmp_path / "brought"))
    load_kept(wanted, study.folder, where="trial t")
    assert "half_hinge" in LOSSES


def test_a_copy_that_somebody_edited_is_refused(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    study = prepared(write_study(tmp_path))
    (copy,) = keep_plugins(study.plugins, study.folder)
    (copy / "half_hinge" / "negatives.py").write_text("hardest = None", encoding="utf-8")
    forget_plugins()
    with refused("VSE-S004", folder=copy):
        load_kept({plugin.key: plugin.sha256 for plugin in study.plugins}, study.folder, where="trial t")


@pytest.mark.parametrize("note", [{"source": "../../half_hinge"}, {"source": 3}, {"keys": None}])
def test_the_note_of_a_copy_that_somebody_else_wrote_counts_as_none(tmp_path: Path, note: dict[str, object]) -> None:
    write_loss(tmp_path / "half_hinge")
    study = prepared(write_study(tmp_path))
    (copy,) = keep_plugins(study.plugins, study.folder)
    plain = json.loads((copy / "plugin.json").read_text())
    (copy / "plugin.json").write_text(json.dumps(plain | note))
    forget_plugins()
    with refused("VSE-S005"):
        load_kept({plugin.key: plugin.sha256 for plugin in study.plugins}, study.folder, where="trial t")


def test_a_study_goes_on_when_the_folder_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, path = write_loss(tmp_path / "half_hinge"), write_study(tmp_path)
    study = prepared(path)
    keep_plugins(study.plugins, study.folder)
    shutil.rmtree(folder)
    forget_plugins()
    again = prepared(path)
    assert again.record().fingerprint == study.record().fingerprint
    assert f"loss.half_hinge is gone from where the study names it; going on with the copy in {study.folder}" in (
        caplog.text
    )


def test_a_component_that_is_gone_does_not_bring_back_old_code_of_another(tmp_path: Path) -> None:
    loss, network = write_loss(tmp_path / "mine" / "half_hinge"), write_network(tmp_path / "mine" / "bag")
    path = write_study(tmp_path, plugins=["mine"], networks=[{"name": "bag"}])
    study = prepared(path)
    keep_plugins(study.plugins, study.folder)
    shutil.rmtree(network)
    write_loss(loss, negatives=NEGATIVES.replace("-1.0", "-2.0"))
    forget_plugins()
    again = prepared(path)
    before, after = ({plugin.key: plugin.sha256 for plugin in each.plugins} for each in (study, again))
    assert after["network.bag"] == before["network.bag"]
    assert after["loss.half_hinge"] != before["loss.half_hinge"]


def test_an_attempt_is_tagged_with_the_hash(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    study = prepared(write_study(tmp_path))
    trial = trials_of(study.spec)["half_hinge"]
    start = AttemptStart(
        study="mine", trial="t", cell=trial.cell, network="vsepp", loss="half_hinge", number=1, seed=0, phase="search",
        configuration={}, resolved=trial.to_plain(),
    )
    sha256 = study.plugins[0].sha256
    assert attempt_tags(start)["vsetune.plugin.loss.half_hinge"] == sha256
    assert study.record().tags["vsetune.plugin.loss.half_hinge"] == sha256


def install(site: Path, monkeypatch: pytest.MonkeyPatch, package: str, *, module: str) -> None:
    """A package beside its entry point, as a package manager leaves them."""
    write_files(site / package, {"__init__": ""})
    write_loss(site / package / "half")
    information = site / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[vsetune.losses]\nhalf_hinge = {module}\n")
    monkeypatch.syspath_prepend(str(site))


def test_what_an_installed_package_offers_needs_no_line_in_the_study_and_travels_like_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as only_here:
        install(tmp_path / "site", only_here, "sound_package", module="sound_package.half")
        study = prepared(write_study(tmp_path, plugins=[]))
        write_loss(tmp_path / "half_hinge", negatives=NEGATIVES.replace("-1.0", "-2.0"))
        assert "half_hinge" in problems(write_study(tmp_path))[0]
    (copy,) = keep_plugins(study.plugins, study.folder)
    forget_plugins()
    wanted = {plugin.key: plugin.sha256 for plugin in study.plugins}
    load_kept(wanted, study.folder, where="trial t")
    assert {plugin.key: plugin.sha256 for plugin in known_plugins()} == wanted
    assert known_plugins()[0].folder.is_relative_to(copy)


def test_a_broken_installed_package_stops_only_studies_that_name_its_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path / "site", monkeypatch, "broken_package", module="broken_package.whole")
    told = "(entry point half_hinge of vsetune.losses, package broken_package)"
    (line,) = problems(write_study(tmp_path, plugins=[]))
    assert line.endswith(told)
    load_study(write_study(tmp_path, plugins=[], losses=[{"name": "lmh"}]))
    assert told in caplog.text


def test_a_model_beside_the_study_file_is_found_as_a_plugin_is(tmp_path: Path) -> None:
    """And not below VSETUNE_HOME or the working directory; what does not lie there stays as it is written."""
    for place in ("towers/text", "encoder"):
        (tmp_path / place).mkdir(parents=True)
    write_loss(tmp_path / "half_hinge")
    network = {"name": "dual_encoder", "fixed": {"text_model": "towers/text", "image_model": "openai/clip"}}
    data = {"path": "data/scenes", "encoder": {"model": "./encoder"}}
    study = load_study(write_study(tmp_path, networks=[network], data=data))
    fixed = {"text_model": str(tmp_path / "towers" / "text"), "image_model": "openai/clip"}
    assert (study.networks[0].fixed, study.data.encoder.model) == (fixed, str(tmp_path / "encoder"))
