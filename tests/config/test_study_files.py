"""A study file is read with all of its problems at once, each in one line that names the key and the fix."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from refusals import refused
from syrupy.assertion import SnapshotAssertion

from vsetune.config.sources.recipe import READERS, IngestRecipe
from vsetune.config.spec.base import Choices
from vsetune.config.spec.loading import dump_yaml, load_spec, parse_spec, specs_in
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError, Message, Problem
from vsetune.home.hashes import fingerprint_of
from vsetune.study.study_file import load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("[!n]*.yaml"))
"""Without `nightly*.yaml`, which are no studies."""

MINIMAL: dict[str, Any] = {
    "study": "tiny", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "lseh"}],
}
CELLS = {"networks": [{"name": "vsepp"}, {"name": "scan"}]}


def problems(changes: dict[str, Any]) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        resolve_cells(parse_spec(MINIMAL | changes, StudySpec, where="f.yaml"), where="f.yaml")
    assert all("\n" not in line and line.startswith("f.yaml: ") for line in caught.value.problems)
    return [line for line in caught.value.problems if isinstance(line, Problem)]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_shipped_study_is_valid(path: Path) -> None:
    study = load_study(path)
    found = len(resolve_cells(study, where=str(path)))
    assert found == (len(study.cells) if study.cells is not None else len(study.networks) * len(study.losses))


@pytest.mark.parametrize(("key", "typo"), [("losses", "lossses"), ("networks", "network_s")])
def test_a_misspelled_key_is_one_mistake(tmp_path: Path, key: str, typo: str) -> None:
    path = tmp_path / "f.yaml"
    shipped = (STUDIES[0].parent / "quickstart.yaml").read_text(encoding="utf-8")
    path.write_text(shipped.replace(f"\n{key}:", f"\n{typo}:"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    assert [(each.code, each.fields["key"]) for each in caught.value.problems] == [("VSE-C001", typo)]


def test_the_words_of_typical_problems(snapshot: SnapshotAssertion) -> None:
    wrong = {
        "studdy": "x", "study": "a b", "data": {}, "networks": [{"name": "vsepp", "epochs": 3}],
        "losses": ["lmh", {"name": "lmh", "search": {"margin": {"low": 0.4, "high": 0.3}}}],
        "training": {"epochs": -4, "batch_size": 1}, "search": {"target": [50]},
        "resources": {"gpus": 2.5}, "tracking": {"folder": 3, "uri": ["postgresql://me:hunter2@host/db"]},
    }
    contradicting = {
        "networks": [{"name": "vsepp"}, {"name": "vsepp"}], "baseline": "lhm", "seeds": [1, 1],
        "cells": ["vsepp.lsehh"],
        "overrides": [{"network": "scan", "loss": "lmh"}], "scheduler": {"kind": "patience", "grace_epochs": 99},
        "resources": {"cells": {"scan": {"cpus": 2}}},
    }
    of_cells = {
        "networks": [{"name": "scan"}, {"name": "vsepp", "fixed": {"embedding_size": "big"}}],
        "losses": [
            {"name": "lmh"}, {"name": "nt_xent"}, {"name": "lsh", "training": {"batch_size": 5}},
            {"loss": [{"name": "lmh", "fixed": {"margin": -3}}, {"name": "lsh", "fixed": {"marginn": 3}}]},
        ],
    }
    assert [[*map(str, problems(changes))] for changes in (wrong, contradicting, of_cells)] == snapshot


def test_defaults_of_the_papers_are_the_first_configuration() -> None:
    study = parse_spec(MINIMAL | {"search": {"training": {"learning_rate": "default"}}}, StudySpec, where="f")
    lseh = resolve_cells(study, where="f")[1]
    assert lseh.defaults() == {
        "loss.margin": 0.185, "loss.semantic_temperature": 0.025, "training.learning_rate": 2e-4,
    }


def test_overrides_win_over_entries_and_entries_over_the_study() -> None:
    study = parse_spec(
        MINIMAL | {
            "training": {"learning_rate": 1e-4, "epochs": 4},
            "networks": [{"name": "vsepp", "training": {"learning_rate": 2e-4, "batch_size": 32}}],
            "losses": [{"name": "lmh", "search": "none", "training": {"batch_size": 64}}],
            "overrides": [
                {"network": "vsepp", "loss": "lmh", "fixed": {"margin": 0.3}, "training": {"learning_rate": 5e-4}}
            ],
        },
        StudySpec, where="f",
    )
    (cell,) = resolve_cells(study, where="f")
    trial = build_trial(study, cell, {}, trial="t", seed=3)
    assert (trial.training.learning_rate, trial.training.batch_size, trial.training.epochs) == (5e-4, 64, 4)
    assert trial.loss.margin == 0.3
    assert cell.domains == {}


def file_with(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "s.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_exponents_without_a_point_are_numbers(tmp_path: Path) -> None:
    path = file_with(tmp_path, dump_yaml(MINIMAL) + "training: {learning_rate: 1e-3}\n")
    assert load_spec(path, StudySpec).training.learning_rate == 1e-3


@pytest.mark.parametrize(("content", "place", "expected"), [
    ("", "", "VSE-C025"), ("- 1", "", "VSE-C025"),
    ("a: [", "line 1, column 5", "VSE-C030"),
    ("a:\n\tb: 1\n", "line 2, column 1", "VSE-C032"),
    ("study: a\nstudy: b\n", "line 2, column 1", "VSE-C038"),
    ("a: !!python/object/apply:os.system [ls]", "line 1, column 4", "VSE-C039"),
    ("a: !!python/none", "line 1, column 4", "VSE-C039"),
    ("a: !!binary aGk=", "line 1, column 4", "VSE-C039"),
    ("a: b\n? [a]\n: c", "line 2, column 3", "VSE-C037"),
    ("1: a", "line 1, column 1", "VSE-C037"),
    ("a: b\nc: " + "9" * 5000, "line 2, column 4", "VSE-C036"),
    ("a: 0x" + "f" * 5000, "line 1, column 4", "VSE-C036"),
    ("a: !!int abc", "line 1, column 4", "VSE-C036"),
    ("a: " + "[" * 1000, "line 1, column 53", "VSE-C034"),
    ("a: &a [*a]", "line 1, column 8", "VSE-C033"),
    ("a: &a [1, *b]", "line 1, column 11", "VSE-C030"),
    ("a: b\x00", "line 1, column 5", "VSE-C031"),
    ('a: "\\U00110000"', "line 1, column 7", "VSE-C030"),
    ("%YAML 9" + "9" * 5000 + ".1\n---\na: b", "", "VSE-C030"),
    ("study: a\n".encode("utf-16"), "", "VSE-C023"),
    ("a: b\n" + "#" * 300_000, "", "VSE-C022"),
    ('study: "a\\0b"', "study", "VSE-C005"),
    ('description: "\\uD800"', "description", "VSE-C005"),
    # aliases that grow without end
    ("\n".join(["a: &a [x, x, x, x, x, x, x, x, x, x]", *(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )]), "line 5, ", "VSE-C035"),
])
def test_what_is_no_plain_data_is_refused_at_its_place(
    tmp_path: Path, content: str | bytes, place: str, expected: Message
) -> None:
    path = file_with(tmp_path, content)
    with refused(expected) as caught:
        load_spec(path, StudySpec)
    (line,) = caught.value.problems  # type: ignore[attr-defined]
    assert f": {place}" in line if place else line.startswith(f"{path}: ")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "nothing"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / "s.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    expected = {"folder": "VSE-C024", "nothing": "VSE-C020"}.get(kind, "VSE-C021")
    with refused(expected, path=path):
        load_spec(path, StudySpec)


def test_equal_studies_have_equal_fingerprints_and_different_ones_do_not() -> None:
    first = parse_spec(MINIMAL, StudySpec, where="f")
    again = parse_spec(dict(reversed(MINIMAL.items())), StudySpec, where="f")
    other = parse_spec(MINIMAL | {"seeds": [1]}, StudySpec, where="f")
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_merges_and_aliases_are_read_and_dates_and_times_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "study: a\ndescription: 2024-02-30\ndata: {path: 1:30}\n"
        "networks: [{name: vsepp, fixed: &small {word_size: 8}}]\n"
        "losses:\n  - {name: lmh}\n  - {name: lmh, label: again, network: {<<: *small, word_size: 16}}\n"
    )
    study = load_spec(path, StudySpec)
    assert (study.description, study.data.path) == ("2024-02-30", "1:30")
    assert study.losses[1].network == {"word_size": 16}


def test_a_sum_of_losses_written_out_is_read_again(tmp_path: Path) -> None:
    searched = {"name": "info_nce", "search": {"softmax_temperature": {"choices": ["1e-3", 0.1]}}}
    losses = [{"name": "lmh"}, {"loss": [{"name": "lmh"}, searched]}]
    study = parse_spec(MINIMAL | {"losses": losses}, StudySpec, where="f")
    path = tmp_path / "s.yaml"
    path.write_text(dump_yaml(study.to_plain()))
    assert load_spec(path, StudySpec) == study


def test_only_the_cells_that_are_named_are_resolved() -> None:
    study = parse_spec(MINIMAL | CELLS | {"cells": ["scan.lmh", "vsepp.lseh"]}, StudySpec, where="f.yaml")
    assert [cell.name for cell in resolve_cells(study, where="f.yaml")] == ["vsepp.lseh", "scan.lmh"]
    assert study.to_plain()["cells"] == ["scan.lmh", "vsepp.lseh"]


def test_a_study_that_names_no_cells_is_written_as_it_always_was() -> None:
    study = parse_spec(MINIMAL | CELLS, StudySpec, where="f.yaml")
    assert len(resolve_cells(study, where="f.yaml")) == 4
    assert "cells" not in study.to_plain()
    assert parse_spec(study.to_plain(), StudySpec, where="f.yaml") == study


def test_keys_that_a_training_got_later_are_written_where_they_say_something() -> None:
    training = {"linear_schedule": {"warmup_steps": 9}, "betas": [0.9, 0.98], "epsilon": 1e-6, "decay_vectors": False}
    study = parse_spec(MINIMAL | {"training": training}, StudySpec, where="f.yaml")
    assert study.training.learning_rate_step is None
    (trial, *_) = (build_trial(study, cell, {}, trial="t", seed=0) for cell in resolve_cells(study, where="f.yaml"))
    plain = trial.to_plain()["training"]
    assert {key: plain[key] for key in training} == {
        **training, "linear_schedule": {"warmup_fraction": None, "warmup_steps": 9, "over": "phase"},
    }
    assert TrialSpec.model_validate(trial.to_plain()) == trial
    bare = parse_spec(MINIMAL, StudySpec, where="f.yaml").to_plain()["training"]
    assert not bare.keys() & training.keys()


def test_every_whole_number_has_an_upper_bound() -> None:
    for root in (StudySpec, TrialSpec, IngestRecipe, GallerySpec):
        pending, seen = [root, *READERS.values()], set()
        while pending:
            spec = pending.pop()
            for name, field in spec.model_fields.items():
                pending += [each for each in specs_in(field.annotation) if each not in seen]
                seen.update(specs_in(field.annotation))
                if spec is not Choices and "int" in re.findall(r"\w+", str(field.annotation).replace("class ", "")):
                    limits = str(field.metadata) + str(field.annotation)
                    assert re.search(r"\bL[et]\(", limits), f"{spec.__name__}.{name} has no upper bound"


def test_a_study_from_before_keeps_its_fingerprint_where_its_file_says_how_it_searched() -> None:
    """Searches started at random, and trials were stopped by halving, when it was begun."""
    older = {"search": {"sampler": "tpe", "start": "random"}, "scheduler": {"kind": "asha"}}
    study = parse_spec(MINIMAL | older, StudySpec, where="f")
    plain = study.to_plain()
    assert parse_spec(plain, StudySpec, where="f") == study
    later = ("at_once", "objective", "target", "constraints", "points", "repeats")
    for key in ("start", *later):
        del plain["search"][key]
    del plain["scheduler"]["patience_epochs"], plain["scheduler"]["fewest_trials"]
    plain["scheduler"]["grace_epochs"] = 1.0
    assert study.fingerprint() == fingerprint_of(plain)
    now = parse_spec(MINIMAL | {"scheduler": {"kind": "patience"}}, StudySpec, where="f")
    assert now.fingerprint() == fingerprint_of(now.to_plain() | {
        "search": {key: value for key, value in now.to_plain()["search"].items() if key not in later},
    })


@pytest.mark.parametrize(("scheduler", "grace"), [
    ({"kind": "patience"}, 16.2), ({"kind": "median"}, 16.2), ({"kind": "asha"}, 1.0),
    ({"kind": "hyperband"}, 1.0), ({"kind": "median", "grace_epochs": 2}, 2.0),
    ({"kind": "asha", "grace_epochs": 3}, 3.0),
])
def test_no_trial_stops_before_a_share_of_its_training_and_halving_begins_after_an_epoch(
    scheduler: dict[str, Any], grace: float
) -> None:
    study = parse_spec(MINIMAL | {"scheduler": scheduler}, StudySpec, where="f")
    assert study.scheduler.grace_in(27.0) == pytest.approx(grace)


def test_a_study_that_began_with_patience_by_default_is_resumed_where_its_file_says_so() -> None:
    now = parse_spec(MINIMAL, StudySpec, where="f")
    then = parse_spec(MINIMAL | {"scheduler": {"kind": "patience", "grace_epochs": 1}}, StudySpec, where="f")
    assert then.fingerprint() != now.fingerprint()
    assert then.fingerprinted()["scheduler"] == {
        "kind": "patience", "grace_epochs": 1.0, "patience_epochs": 2.0, "fewest_trials": 4, "reduction_factor": 3.0,
    }
