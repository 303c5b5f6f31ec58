"""A study file is read with all of its problems at once, each in one line that names the key and the fix."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.spec.base import Choices
from vsetune.config.spec.loading import dump_yaml, load_spec, parse_spec, specs_in
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError
from vsetune.storage.hashes import fingerprint_of
from vsetune.study.study_file import load_study

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("[!n]*.yaml"))
"""Without `nightly*.yaml`, which are no studies."""

MINIMAL: dict[str, Any] = {
    "study": "tiny", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "lseh"}],
}


_WRONG_BASELINE = (
    "f.yaml: baseline: lhm is not among the losses lmh, lseh; did you mean lmh? need one of them, such as baseline:"
)


def problems(changes: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve_cells(parse_spec(MINIMAL | changes, StudySpec, where="f.yaml"), where="f.yaml")
    assert all("\n" not in line for line in caught.value.problems)
    return caught.value.problems


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_shipped_study_is_valid(path: Path) -> None:
    study = load_study(path)
    found = len(resolve_cells(study, where=str(path)))
    assert found == (len(study.cells) if study.cells is not None else len(study.networks) * len(study.losses))


def test_the_shipped_studies_are_found() -> None:
    assert {path.stem for path in STUDIES} >= {"quickstart", "flickr8k", "lseh_table3"}


def test_an_unknown_key_is_named_with_the_closest_known_one() -> None:
    assert problems({"lossess": []}) == ["f.yaml: lossess: unknown key; did you mean losses?"]


def test_an_unknown_loss_is_named_with_the_closest_and_the_list() -> None:
    (line,) = problems({"losses": [{"name": "lshe"}], "baseline": "lshe"})
    assert line.startswith("f.yaml: losses[0].name: no loss is called lshe; did you mean lsh")
    assert "lseh" in line


def test_a_number_out_of_range_says_what_was_found_and_what_is_needed() -> None:
    assert problems({"training": {"epochs": -4}}) == ["f.yaml: training.epochs: got -4, need a number > 0"]


@pytest.mark.parametrize("gpus", [2, 1.5])
def test_more_than_one_gpu_a_trial_is_refused_while_nothing_would_use_it(gpus: float) -> None:
    needs = f"got {gpus:g}, need 0, a fraction of a GPU or 1: a trial trains on one GPU"
    assert problems({"resources": {"gpus": gpus}}) == [f"f.yaml: resources.gpus: {needs}"]
    assert problems({"resources": {"cells": {"vsepp.lmh": {"gpus": gpus}}}}) == [
        f"f.yaml: resources.cells.vsepp.lmh.gpus: {needs}"
    ]


@pytest.mark.parametrize("gpus", [0, 0.0625, 0.5, 1])
def test_a_gpu_and_fractions_of_one_are_taken(gpus: float) -> None:
    assert parse_spec(MINIMAL | {"resources": {"gpus": gpus}}, StudySpec, where="f.yaml").resources.gpus == gpus


def test_all_problems_are_reported_together() -> None:
    lines = problems({"training": {"epochs": -4, "batch_size": 1}, "studdy": "x", "seeds": []})
    assert [line.split(": ")[1] for line in lines] == ["training.epochs", "training.batch_size", "seeds", "studdy"]


def test_a_hyperparameter_out_of_range_is_reported_for_its_cell() -> None:
    (line,) = problems({"losses": [{"name": "lmh", "fixed": {"margin": -3}}]})
    assert line == "f.yaml: cell vsepp.lmh: loss.margin: got -3, need a number >= 0"


def test_a_search_range_that_leaves_the_allowed_values_is_refused() -> None:
    (line,) = problems({"losses": [{"name": "lmh", "search": {"margin": {"low": -0.5, "high": 0.3}}}]})
    assert "loss.margin: got -0.5" in line
    assert "end of its search range" in line


@pytest.mark.parametrize(("changes", "line"), [
    (
        {"networks": [{"name": "vsepp", "search": {"word_size": {"choices": [8, None]}}}]},
        "f.yaml: networks[0].search.word_size.choices[1]: got None, need a valid boolean, a valid integer, a valid "
        "number or a valid string",
    ),
    ({"search": {"target": [50]}}, "f.yaml: search.target: got [50], need a valid number or 'baseline'"),
])
def test_a_value_that_fits_no_branch_of_a_union_is_one_line(changes: dict[str, Any], line: str) -> None:
    assert problems(changes) == [line]


@pytest.mark.parametrize(("share", "got"), [
    (0, "0, need a number >= 1e-09"), (-1, "-1, need a number >= 1e-09"), (1e-320, "1e-320, need a number >= 1e-09"),
    (2, "2, need a number <= 1"), (float("nan"), "nan, need a finite number"), (None, "None, need a valid number"),
])
def test_a_share_of_the_time_that_is_none_is_told(share: Any, got: str) -> None:
    """The pause after a checkpoint is its inverse, which must be a number too."""
    assert problems({"resources": {"checkpoint_share": share}}) == [f"f.yaml: resources.checkpoint_share: got {got}"]


def test_all_contradictions_of_a_file_are_told_at_once() -> None:
    changes = {
        "networks": [{"name": "vsepp"}, {"name": "vsepp"}], "baseline": "lhm", "seeds": [1, 1],
        "cells": ["vsepp.lsehh"],
        "overrides": [{"network": "scan", "loss": "lmh"}], "scheduler": {"grace_epochs": 99},
        "search": {"warm_start": ["tiny"]}, "resources": {"cells": {"scan": {"cpus": 2}}},
    }
    assert problems(changes) == [
        "f.yaml: networks: vsepp is listed twice; give one of them a `label`",
        f"{_WRONG_BASELINE} lmh",
        "f.yaml: overrides: no cell scan.lmh in this study; need one of the networks vsepp, vsepp and the losses lmh, "
        "lseh",
        "f.yaml: cells: got vsepp.lsehh, need network.loss of the networks vsepp, vsepp and the losses lmh, lseh; did "
        "you mean vsepp.lseh?",
        "f.yaml: resources.cells: got scan, need a network (vsepp, vsepp) or network.loss",
        "f.yaml: seeds: got [1, 1], need different numbers",
        "f.yaml: search.warm_start: got tiny, which is this study; name others",
        "f.yaml: scheduler.grace_epochs: got 99, need at most training.epochs (30)",
    ]


@pytest.mark.parametrize(("changes", "keys"), [
    ({"training": {"epochs": -1}, "scheduler": {"grace_epochs": 99}}, ["training.epochs"]),
    ({"trainning": {}}, ["trainning"]),
    ({"study": "a b", "data": {}}, ["study", "data.path"]),
    ({"networks": [{"name": "vsep"}], "cells": ["vsepp.lmh"]}, ["networks[0].name"]),
    ({"networks": "vsepp"}, ["networks"]),
    ({"losses": ["lmh", {"name": "lseh"}]}, ["losses[0]"]),
    ({"losses": [{"name": "lmh", "fixd": {}}, {"name": "lseh"}]}, ["losses[0].fixd"]),
    ({"losses": [{"name": "xx", "label": "lmh"}, {"name": "lseh"}]}, ["losses[0].name"]),
    ({"seeds": [-1], "search": 3, "cells": 3, "overrides": 3, "resources": 3},
     ["cells", "overrides", "search", "seeds[0]", "resources"]),
])
def test_a_wrong_baseline_is_told_beside_what_is_wrong_elsewhere(changes: dict[str, Any], keys: list[str]) -> None:
    *others, last = problems(changes | {"baseline": "lhm"})
    assert last == f"{_WRONG_BASELINE} lmh"
    assert sorted(line.split(": ")[1] for line in others) == sorted(keys)


@pytest.mark.parametrize("changes", [
    {"losses": [{"name": "lshe"}, {"name": "lmh"}], "baseline": "lseh", "cells": ["vsepp.lseh"]},
    {"losses": [{"nam": "lseh"}], "baseline": "lseh"},
    {"losses": [], "baseline": "lseh"},
    {"losses": None, "baseline": "lseh"},
    {"losses": [{"loss": [{"name": "lshe"}]}], "baseline": "lseh"},
    {"networks": [{"name": "vsep"}], "overrides": [{"network": "vsepp", "loss": "lmh"}]},
    {"baseline": 3},
])
def test_what_follows_from_another_mistake_is_not_told_as_one(changes: dict[str, Any]) -> None:
    assert {line.split(": ")[1].partition("[")[0] for line in problems(changes)} == {next(iter(changes))}


_WRONG_MARGIN = {"name": "lmh", "fixed": {"margin": -3}}
_LONG_PHASE = {"name": "lmh", "training": {"phases": [{"epochs": 40}, {}]}}
_OF_ITS_CELL = "f.yaml: cell vsepp.lmh: loss.margin: got -3, need a number >= 0"


def problems_of_file(tmp_path: Path, changes: dict[str, Any]) -> list[str]:
    """As a command tells them that reads the file, with its path made short."""
    path = tmp_path / "f.yaml"
    path.write_text(dump_yaml(MINIMAL | changes))
    with pytest.raises(ConfigError) as caught:
        resolve_cells(load_study(path), where=str(path))
    return [line.replace(str(path), "f.yaml") for line in caught.value.problems]


@pytest.mark.parametrize(("changes", "keys"), [
    ({"baseline": "lhm"}, ["baseline"]),
    ({"seeds": [1, 1], "scheduler": {"grace_epochs": 99}}, ["seeds", "scheduler.grace_epochs"]),
    ({"seeds": [-1], "search": {"configurations": 0}}, ["search.configurations", "seeds[0]"]),
    ({"data": {}, "baseline": "lhm"}, ["data.path", "baseline"]),
    ({"cells": ["vsepp.lmh", "vsepp.lhm"]}, ["cells"]),
    ({"networks": [{"name": "vsepp"}, {"name": "scann"}]}, ["networks[1].name"]),
    ({"losses": [_WRONG_MARGIN, {"name": "lseh", "fixd": {}}]}, ["losses[1].fixd"]),
    ({"losses": [_WRONG_MARGIN, {"name": "lseh", "fixed": {"margin": -1}, "weight": 1}]}, ["losses[1].weight"]),
])
def test_what_is_wrong_with_a_cell_is_told_beside_what_is_wrong_elsewhere(
    tmp_path: Path, changes: dict[str, Any], keys: list[str]
) -> None:
    *others, last = problems_of_file(tmp_path, {"losses": [_WRONG_MARGIN, {"name": "lseh"}]} | changes)
    assert last == _OF_ITS_CELL
    assert [line.split(": ")[1] for line in others] == keys


@pytest.mark.parametrize("changes", [
    {"losses": [_LONG_PHASE], "training": {"epochs": 100, "batch_size": -1}},
    {"losses": [_LONG_PHASE], "trainig": {"epochs": 100}},
    {
        "losses": [_WRONG_MARGIN, {"name": "lseh"}],
        "overrides": [{"network": "vsepp", "loss": "lmh", "fixed": {"margin": 0.2}, "training": 3}],
    },
    {"losses": [_WRONG_MARGIN, {"name": "lseh"}], "cells": ["vsepp.lseh", 3]},
    {"losses": [_WRONG_MARGIN, {"name": "lseh"}], "cells": ["vsepp.lseh", "vsepp.lsh"]},
    {"losses": [{"name": "lmh", "seach": {}}], "networks": [{"name": "vsepp", "fixed": {"similarity": "order"}}]},
])
def test_no_cell_is_called_wrong_that_what_is_wrong_elsewhere_may_make_right(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert not [line for line in problems_of_file(tmp_path, changes) if line.startswith("f.yaml: cell ")]


@pytest.mark.parametrize(("changes", "line"), [
    ({"losses": ["lmh"]}, "losses[0]: got 'lmh', need a mapping of keys to values, such as {name: ...}"),
    (
        {"losses": [{"name": "lmh", "fixed": ["margin"]}]},
        "losses[0].fixed: got ['margin'], need a mapping of keys to values",
    ),
    (
        {"losses": [{"name": "lmh", "search": ["margin"]}]},
        "losses[0].search: got ['margin'], need a mapping of keys to values",
    ),
])
def test_a_word_or_a_list_in_place_of_a_mapping_is_told_with_what_is_needed(changes: dict[str, Any], line: str) -> None:
    assert problems(changes) == [f"f.yaml: {line}"]


@pytest.mark.parametrize(("changes", "keys"), [
    ({"training": {"epochs": True}}, ["training.epochs"]),
    ({"training": {"epochs": False, "batch_size": True}}, ["training.epochs", "training.batch_size"]),
    ({"seeds": [0, True]}, ["seeds[1]"]),
    ({"search": {"target": True}}, ["search.target"]),
    ({"losses": [{"name": "lmh", "search": {"margin": {"low": 0.1, "high": True}}}]}, ["losses[0].search.margin.high"]),
    ({"losses": [{"name": "lmh", "fixed": {"margin": True}}]}, ["cell vsepp.lmh: loss.margin"]),
    ({"networks": [{"name": "vsepp", "fixed": {"embedding_size": True}}]}, ["cell vsepp.lmh: network.embedding_size"]),
])
def test_a_truth_value_is_no_number(changes: dict[str, Any], keys: list[str]) -> None:
    lines = problems({"losses": [{"name": "lmh"}]} | changes)
    assert [line.partition(": got ")[0] for line in lines] == [f"f.yaml: {key}" for key in keys]
    assert all(line.endswith("as YAML also reads yes, no, on and off; need a number") for line in lines)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"baseline": "lsh"}, "baseline: lsh is not among the losses lmh, lseh"),
        ({"losses": [{"name": "lseh"}]}, "baseline: lmh, the default, is not among the losses lseh; need one"),
        ({"losses": [{"name": "lmh"}, {"name": "lmh"}]}, "lmh is listed twice; give one of them a `label`"),
        ({"seeds": [1, 1]}, "seeds: got [1, 1]"),
        ({"overrides": [{"network": "vsepp", "loss": "lsh"}]}, "no cell vsepp.lsh"),
        ({"training": {"epochs": 0.5}}, "scheduler.grace_epochs: got 1, need at most training.epochs (0.5)"),
        (
            {"losses": [{"name": "lmh", "fixed": {"margin": 0.1}, "search": {"margin": "default"}}]},
            "losses[0].search.margin: is also in `fixed`",
        ),
        ({"losses": [{"name": "lmh", "search": {"variant": "default"}}]}, "has no default range"),
        (
            {"losses": [{"name": "lmh", "search": {"marggin": "default"}}]},
            "losses[0].search: no hyperparameter is called marggin; did you mean margin?",
        ),
        ({"training": {"batch_unit": "images"}}, "which lseh does not define; use batch_unit pairs"),
        ({"losses": [{"name": "lmh", "search": {"margin": {"low": 0.4, "high": 0.3}}}]}, "low 0.4 is above high 0.3"),
        (
            {"training": {"linear_schedule": {"warmup_fraction": 0.1}, "learning_rate_step": 4}},
            "linear_schedule: learning_rate_step is 4, and both move the rate; set learning_rate_step: null beside it",
        ),
        (
            {"networks": [{"name": "vsepp", "training": {"linear_schedule": {"warmup_fraction": 0.1}}}]},
            "linear_schedule: learning_rate_step is 15, and both move the rate; set learning_rate_step: null",
        ),
        (
            {"training": {"linear_schedule": {"warmup_fraction": 0.1, "warmup_steps": 9}}},
            "got both of warmup_fraction and warmup_steps, need one",
        ),
        ({"training": {"linear_schedule": {}}}, "got neither of warmup_fraction and warmup_steps, need one"),
    ],
)
def test_a_contradiction_is_refused_with_its_fix(changes: dict[str, Any], expected: str) -> None:
    assert any(expected in line for line in problems(changes)), problems(changes)


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


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("study: a\nstudy: b\n")
    with pytest.raises(ConfigError, match="key study is written twice"):
        load_spec(path, StudySpec)


def test_exponents_without_a_point_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "study: a\ndata: {path: x}\nnetworks: [{name: vsepp}]\nlosses: [{name: lmh}]\ntraining: {learning_rate: 1e-3}\n"
    )
    assert load_spec(path, StudySpec).training.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "got nothing at the top level"), ("- 1", "got a list"),
        ("a: [", "not valid YAML: line 1, column 5: "), ("a: !!python/none", "not valid YAML"),
        ("a:\n\tb: 1\n", "line 2, column 1: found a tab, need spaces"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected) as caught:
        load_spec(path, StudySpec)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: no such file"):
        load_spec(tmp_path / "nothing.yaml", StudySpec)


def test_equal_studies_have_equal_fingerprints_and_different_ones_do_not() -> None:
    first = parse_spec(MINIMAL, StudySpec, where="f")
    again = parse_spec(dict(reversed(MINIMAL.items())), StudySpec, where="f")
    other = parse_spec(MINIMAL | {"seeds": [1]}, StudySpec, where="f")
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def said_of(tmp_path: Path, content: str | bytes) -> str:
    """The one line on a file with this content."""
    path = tmp_path / "s.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_spec(path, StudySpec)
    (line,) = caught.value.problems
    assert len(line.splitlines()) == 1
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: !!python/object/apply:os.system [ls]", "line 1, column 4: tag !!python/object/apply:os.system"),
        ("a: !!binary aGk=", "line 1, column 4: tag !!binary is not read"),
        ("a: b\n? [a]\n: c", "line 2, column 3: key a collection is no text"),
        ("1: a", "line 1, column 1: key 1 is no text, need a name; if it is one, put it in quotes"),
        ("a: b\nc: " + "9" * 5000, "line 2, column 4: 999"),
        ("a: 0x" + "f" * 5000, "line 1, column 4: 0xfff"),
        ("a: " + "[" * 1000, "more than 50 levels inside one another"),
        ("a: &a [*a]", "line 1, column 8: alias a stands inside of what it names"),
        ("a: &a [1, *b]", "line 1, column 11: found undefined alias 'b'"),
        ("a: !!int abc", "line 1, column 4: abc cannot be read as int"),
        ("a: b\x00", "line 1, column 5: character 0x0000 must not stand in a text file"),
        ('a: "\\U00110000"', "line 1, column 7: cannot be read"),
        ("%YAML 9" + "9" * 5000 + ".1\n---\na: b", "cannot be read"),
        ("study: a\n".encode("utf-16"), "byte 0 is not UTF-8; save the file as UTF-8 text"),
        ("a: b\n" + "#" * 300_000, "has more than 262,144 bytes"),
        ('study: "a\\0b"', "study: got 'a\\x00b' with a control character (U+0000) in it; remove it"),
        ('description: "\\uD800"', "description: got '\\ud800' with a surrogate (U+D800) in it; remove it"),
    ],
)
def test_yaml_that_is_no_plain_data_is_told_where_it_stands(
    tmp_path: Path, content: str | bytes, expected: str
) -> None:
    assert expected in said_of(tmp_path, content)


def test_aliases_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)]
    assert "more than 50,000 values with its aliases written out" in said_of(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = Path("/dev/zero")
    with pytest.raises(ConfigError, match=r"Is a directory|is a device or a pipe"):
        load_spec(path, StudySpec)


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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epochs": 3}, "epochs: unknown key here; it belongs at training.epochs"),
        ({"losses": [{"name": "lmh", "margin": 0.1}]},
         "losses[0].margin: unknown key here; it belongs at losses[0].fixed.margin"),
        ({"networks": [{"name": "vsepp", "batch_size": 8}]},
         "networks[0].batch_size: unknown key here; it belongs at networks[0].training.batch_size"),
        ({"seed": 3}, "seed: unknown key here; did you mean seeds, or search.seed?"),
        ({"Afeatures": 3}, "Afeatures: unknown key; remove it"),
        ({"Range": 3}, "Range: unknown key; remove it"),
        ({"losses": [{"name": "lmh", "training": {"phases": [{"learning_rate": 1}]}}]},
         "training.phases[0].learning_rate: unknown key here; it is a key of training"),
        ({"losses": [{"name": "lmh", "training": {"phases": 3}}]}, "training.phases: got 3, need a valid list"),
        ({"losses": [{"name": "lmh", "training": {"phases": [{"loss": 3}]}}]}, "training.phases[0].loss: got 3"),
        ({"losses": [{"name": "lmh", "fixed": {"name": "lsh"}}]}, "losses[0].fixed: name: must not stand here"),
        ({"seeds": [10**22]}, "seeds[0]: got 10000000000000000000000, need a number < 9223372036854775808"),
        ({"networks": [{"name": "vsepp", "fixed": {"embedding_size": 10**12}}]},
         "network.embedding_size: got 1000000000000, need a number <= 65536"),
        ({"data": {"path": "~nosuchuser/x"}}, "data.path: ~nosuchuser/x: no home folder of ~nosuchuser"),
        ({"tracking": {"uri": "http://[::1"}}, "tracking.uri: need a URI (Invalid IPv6 URL)"),
        ({"data": {"path": "x" * 300}}, "data.path: got a path of 300 characters"),
    ],
)
def test_what_would_fail_later_is_told_before(changes: dict[str, Any], expected: str) -> None:
    assert any(expected in line for line in problems({"losses": MINIMAL["losses"][:1], **changes})), problems(changes)


def test_no_line_repeats_the_password_of_a_url() -> None:
    (line,) = problems({"tracking": {"folder": ["postgresql://me:hunter2@host/db"]}})
    assert "hunter2" not in line


def test_a_sum_of_losses_written_out_is_read_again(tmp_path: Path) -> None:
    searched = {"name": "info_nce", "search": {"softmax_temperature": {"choices": ["1e-3", 0.1]}}}
    losses = [{"name": "lmh"}, {"loss": [{"name": "lmh"}, searched]}]
    study = parse_spec(MINIMAL | {"losses": losses}, StudySpec, where="f")
    path = tmp_path / "s.yaml"
    path.write_text(dump_yaml(study.to_plain()))
    assert load_spec(path, StudySpec) == study


CELLS = {"networks": [{"name": "vsepp"}, {"name": "scan"}]}


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


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (
            ["vsepp.lhm"],
            "cells: got vsepp.lhm, need network.loss of the networks vsepp, scan and the losses lmh, lseh; did you "
            "mean vsepp.lmh?",
        ),
        (["scan.lmh", "scan.lmh"], "cells: scan.lmh is listed twice; name each once"),
        ([], "cells: got [], need at least 1"),
    ],
)
def test_cells_that_are_not_there_are_told_with_what_is(cells: list[str], expected: str) -> None:
    assert problems(CELLS | {"cells": cells}) == [f"f.yaml: {expected}"]


def test_every_whole_number_has_an_upper_bound() -> None:
    for root in (StudySpec, TrialSpec, IngestRecipe, GallerySpec):
        pending, seen = [root], set()
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
    later = ("at_once", "objective", "target", "constraints", "warm_start", "points")
    for key in ("start", *later):
        del plain["search"][key]
    del plain["scheduler"]["patience_epochs"], plain["scheduler"]["fewest_trials"], plain["scheduler"]["least_chance"]
    assert study.fingerprint() == fingerprint_of(plain)
    now = parse_spec(MINIMAL, StudySpec, where="f")
    assert now.fingerprint() == fingerprint_of(now.to_plain() | {
        "search": {key: value for key, value in now.to_plain()["search"].items() if key not in later},
        "scheduler": {key: value for key, value in now.to_plain()["scheduler"].items() if key != "least_chance"},
    })
