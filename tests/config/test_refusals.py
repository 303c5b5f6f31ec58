"""Every refusal of a study file: each problem in one line, which opens with its place."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import fits, problems_of

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError

MINIMAL: dict[str, Any] = {
    "study": "tiny", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "lseh"}],
}
VALUE, UNKNOWN, TRUTH = "VSE-C003", "VSE-C001", "VSE-C007"
LMH: dict[str, Any] = {"losses": [{"name": "lmh"}]}
TAGS = LMH | {"networks": [{"name": "tags", "search": "none"}]}
TWO_NETWORKS = {"networks": [{"name": "vsepp"}, {"name": "scan"}]}
SUM = {"loss": [{"name": "lmh"}, {"name": "info_nce"}], "label": "both"}
QUANTISED = [{"epochs": 2, "loss": {"centers": "quantised", "quantised_centers": n}} for n in (20, 30)]


def alone(entry: dict[str, Any]) -> dict[str, Any]:
    """One loss, which is its own baseline."""
    return {"losses": [{"label": "own", **entry}], "baseline": "own"}


def phases(*each: dict[str, Any]) -> dict[str, Any]:
    return {"training": {"epochs": 4, "phases": [*each]}}


def adaptive(**search: Any) -> dict[str, Any]:
    """lmh, and adaptive_margin with these searched settings."""
    return {"losses": [{"name": "lmh", "search": "none"}, {"name": "adaptive_margin", "search": search}]}


def contradiction(values: str) -> dict[str, Any]:
    return {"cell vsepp.adaptive_margin": ("VSE-C050", {"values": values})}


def unknown(place: str, hint: str) -> dict[str, Any]:
    return {place: (UNKNOWN, {"hint": hint})}


REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # several at once
    ({"training": {"epochs": -4, "batch_size": 1}, "studdy": "x", "seeds": []},
     {"training.epochs": VALUE, "training.batch_size": VALUE, "seeds": VALUE, "studdy": UNKNOWN}),
    ({"study": "a b", "data": {}}, {"study": VALUE, "data.path": "VSE-C002"}),
    # unknown keys, with advice
    (LMH | {"lossess": []}, unknown("lossess", "did you mean losses?")),
    (LMH | {"epochs": 3}, unknown("epochs", "it belongs at training.epochs")),
    ({"losses": [{"name": "lmh", "margin": 0.1}]}, unknown("losses[0].margin", "it belongs at losses[0].fixed.margin")),
    (LMH | {"networks": [{"name": "vsepp", "batch_size": 8}]},
     unknown("networks[0].batch_size", "it belongs at networks[0].training.batch_size")),
    (LMH | {"seed": 3}, unknown("seed", "did you mean seeds, or search.seed?")),
    (LMH | {"step": 3}, unknown("step", "did you mean training.learning_rate_step?")),
    (LMH | {"training": {"step": 3}}, unknown("training.step", "did you mean learning_rate_step?")),
    ({"losses": [{"name": "lmh", "step": 3}]},
     unknown("losses[0].step", "did you mean losses[0].training.learning_rate_step?")),
    (LMH | {"search": {"learning_rate": [1e-3, 1e-2]}},
     unknown("search.learning_rate", "it belongs at search.training.learning_rate")),
    (LMH | {"Afeatures": 3}, unknown("Afeatures", "remove it")), (LMH | {"Range": 3}, unknown("Range", "remove it")),
    ({"losses": [{"name": "lmh", "training": {"phases": [{"learning_rate": 1}]}}]},
     unknown("cell vsepp.lmh: training.phases[0].learning_rate", "it belongs at training.learning_rate")),
    ({"losses": [{"name": "lmh", "fixed": {"marginn": 1}}]},
     unknown("cell vsepp.lmh: loss.marginn", "did you mean margin?")),
    ({"losses": [{"name": "order", "fixed": {"memory_size": 5}}], "baseline": "order"},
     unknown("cell vsepp.order: loss.memory_size", "remove it")),
    # values
    ({"resources": {"gpus": 1.5}}, {"resources.gpus": VALUE}),
    ({"resources": {"cells": {"vsepp.lmh": {"gpus": 2.5}}}}, {"resources.cells.vsepp.lmh.gpus": VALUE}),
    ({"networks": [{"name": "vsepp", "search": {"word_size": {"choices": [8, None]}}}]},
     {"networks[0].search.word_size.choices[1]": VALUE}),
    ({"search": {"target": [50]}}, {"search.target": VALUE}),
    *(({"resources": {"checkpoint_share": share}}, {"resources.checkpoint_share": VALUE})
      for share in (0, -1, 1e-320, 2, float("nan"), None)),  # its inverse must be a number too
    ({"losses": ["lmh"]}, {"losses[0]": VALUE}),
    ({"losses": [{"name": "lmh", "fixed": ["margin"]}]}, {"losses[0].fixed": VALUE}),
    ({"losses": [{"name": "lmh", "search": ["margin"]}]}, {"losses[0].search": VALUE}),
    ({"losses": [{"name": "lmh", "search": {"margin": {"low": 0.4, "high": 0.3}}}]},
     {"losses[0].search.margin": "VSE-C010"}),
    *(({"losses": [{"name": "lmh", "search": {"margin": margin}}]}, {"losses[0].search.margin": code})
      for margin, code in (
          ({"low": -1e308, "high": 1e308}, "VSE-C011"), ({"low": 0, "high": 1, "log": True}, "VSE-C012"),
      )),
    ({"seeds": [10**22]}, {"seeds[0]": VALUE}),
    ({"cells": []}, {"cells": VALUE}),
    ({"losses": [{"name": "lshe"}], "baseline": "lshe"}, {"losses[0].name": "VSE-C004"}),
    ({"losses": [{"name": "lmh", "fixed": {"name": "lsh"}}]}, {"losses[0].fixed": "VSE-C009"}),
    # true and false are no numbers
    ({"training": {"epochs": False, "batch_size": True}}, {"training.epochs": TRUTH, "training.batch_size": TRUTH}),
    ({"seeds": [0, True]}, {"seeds[1]": TRUTH}),
    ({"search": {"target": True}}, {"search.target": TRUTH}),
    ({"losses": [{"name": "lmh", "search": {"margin": {"low": 0.1, "high": True}}}]},
     {"losses[0].search.margin.high": TRUTH}),
    # found when cells are made
    (LMH | {"networks": [{"name": "vsepp", "fixed": {"embedding_size": True}}]},
     {"cell vsepp.lmh: network.embedding_size": TRUTH}),
    (LMH | {"networks": [{"name": "vsepp", "fixed": {"embedding_size": 10**12}}]},
     {"cell vsepp.lmh: network.embedding_size": VALUE}),
    ({"losses": [{"name": "lmh", "fixed": {"margin": -3}}]}, {"cell vsepp.lmh: loss.margin": VALUE}),
    ({"losses": [{"name": "lmh", "search": {"margin": {"low": -0.5, "high": 0.3}}}]},
     {"cell vsepp.lmh: loss.margin": VALUE}),
    ({"losses": [{"name": "lmh", "training": {"phases": 3}}]}, {"cell vsepp.lmh: training.phases": VALUE}),
    ({"losses": [{"name": "lmh", "training": {"phases": [{"loss": 3}]}}]},
     {"cell vsepp.lmh: training.phases[0].loss": VALUE}),
    # names
    ({"baseline": "lsh"}, {"baseline": "VSE-C044"}), ({"losses": [{"name": "lseh"}]}, {"baseline": "VSE-C044"}),
    ({"losses": [{"name": "lmh"}, {"name": "lmh"}]}, {"losses": "VSE-C008"}),
    ({"seeds": [1, 1]}, {"seeds": "VSE-C008"}),
    ({"overrides": [{"network": "vsepp", "loss": "lsh"}]}, {"overrides": "VSE-C045"}),
    (TWO_NETWORKS | {"cells": ["vsepp.lhm"]}, {"cells": "VSE-C045"}),
    (TWO_NETWORKS | {"cells": ["scan.lmh", "scan.lmh"]}, {"cells": "VSE-C008"}),
    ({"losses": [{"name": "lmh", "search": {"marggin": "default"}}]}, {"losses[0].search": "VSE-C004"}),
    ({"resources": {"cells": {"scan": {"cpus": 2}}}}, {"resources.cells": "VSE-C046"}),
    ({"cells": ["vsepp.lseh"], "search": {"objective": "epochs_to_target"}}, {"search.target": "VSE-C047"}),
    # paths and addresses
    ({"data": {"path": "~nosuchuser/x"}}, {"data.path": "VSE-O015"}),
    ({"data": {"path": "x" * 300}}, {"data.path": "VSE-O013"}),
    ({"tracking": {"uri": "http://[::1"}}, {"tracking.uri": "VSE-O017"}),
    # searched settings
    ({"losses": [{"name": "lmh", "fixed": {"margin": 0.1}, "search": {"margin": "default"}}]},
     {"losses[0].search.margin": "VSE-C014"}),
    ({"losses": [{"name": "lmh", "search": {"variant": "default"}}]}, {"losses[0].search.variant": "VSE-C016"}),
    (alone({"name": "lsh", "search": {"margin": "default"}})
     | phases({"epochs": 2, "loss": {"margin": 0.1}}, {"loss": {"margin": 0.2}}),
     {"losses[0].search.margin": "VSE-C015"}),
    ({"losses": [{"name": "lmh", "search": {"memory_size": {"low": 0.5, "high": 3, "log": True}}}]},
     {"losses[0].search.memory_size": "VSE-C013"}),
    ({"losses": [{"name": "lmh", "search": {"margin": {"low": 0.5, "high": 3, "log": True, "integer": True}}}]},
     {"losses[0].search.margin": "VSE-C013"}),
    ({"search": {"training": {"batch_size": {"choices": [32, 64]}}}}, {"search.training.batch_size": "VSE-C017"}),
    *((adaptive(cap={"choices": choices}), {"losses[1].search.cap: choices": ("VSE-C520", {"got": got})})
      for choices, got in (([0.1, "0.1", "1e-1"], "0.1 and '0.1' and '1e-1'"), ([0.5, 1, 1.0], "1 and 1.0"))),
    *(({"search": {"training": {name: {"choices": choices}}}},
       {f"search.training.{name}: choices": ("VSE-C520", {"got": got})})
      for name, choices, got in (
          ("learning_rate", ["1e-3", "2e-3", 0.001], "'1e-3' and 0.001"), ("weight_decay", [0, -0.0], "0 and -0.0"),
          ("shuffle_pairs", [16, 32, "16"], "16 and '16'"), ("decay_vectors", [True, "true"], "True and 'true'"),
          ("optimizer", ["adam", "adam"], "'adam' and 'adam'"),
      )),
    # settings that contradict each other at values of the search; each alone fits the defaults of the others
    (adaptive(margin={"low": 0.05, "high": 0.45}, cap={"low": 0.3, "high": 1.0}),
     contradiction("loss.margin 0.45 and loss.cap 0.3")),
    *((adaptive(margin={"choices": [0.2, 0.5]}, cap={"choices": [1.0, 0.4]}, growth={"choices": growth}),
       contradiction(values)) for growth, values in (
          ([1.1, 1.0], "loss.margin 0.5 and loss.cap 0.4"),
          ([1.0, 1.1], "loss.margin 0.5 and loss.cap 0.4 and loss.growth 1.1"),  # fine as long as nothing grows
      )),
    ({"networks": [{"name": "vsepp", "search": {"normalize_images": {"choices": [True, False]}}}],
      "losses": [{"name": "lmh", "search": {"memory_size": {"choices": [0, 64]}}}]},
     {"cell vsepp.lmh": ("VSE-C050", {"values": "network.normalize_images False and loss.memory_size 64"})}),
    # losses that would not compare with the baseline
    *(({"losses": [{"name": "info_nce", "training": {key: value}}, {"name": "lmh"}, {"name": "lsh"}]},
       {f"losses[0].training.{key}": ("VSE-C051", {"loss": "info_nce", "got": value, "other": f"training.{key}"})})
      for key, value in (
          ("batch_unit", "images"), ("batch_size", 64), ("validate_every_steps", 500), ("drop_last", True),
      )),
    ({"losses": [{"name": "lmh"}, {"name": "adaptive_margin"}],
      "networks": [{"name": "vsepp", "training": {"batch_size": 64}}],
      "overrides": [{"network": "vsepp", "loss": "lmh", "training": {"batch_size": 32}}]},
     {"networks[0].training.batch_size":
      ("VSE-C051", {"got": 64, "need": 32, "other": "overrides[0].training.batch_size"})}),
    # one setting under two names; 0.2 is the default
    *(({"losses": [{"name": "lmh", "search": "none"}, {"name": "lmh", "label": "other", "search": "none", **twin}]},
       {"cells": ("VSE-C521", {"names": "vsepp.lmh and vsepp.other"})})
      for twin in ({}, {"fixed": {"margin": 0.2}}, {"fixed": {"margin": "2e-1"}})),
    # losses and networks
    (alone({}), {"losses[0]": "VSE-C040"}),
    (alone({"name": "lmh", "loss": [{"name": "lsh"}]}), {"losses[0]": "VSE-C040"}),
    (alone({"loss": [{"name": "lmh"}, {"name": "lmh"}]}), {"losses[0]": "VSE-C008"}),
    (alone({"loss": [{"name": "lmh"}, {"name": "lsh"}], "fixed": {"margin": 0.1}}), {"losses[0]": "VSE-C041"}),
    ({"losses": [{"loss": [{"name": "lmh", "label": "a" * 60}, {"name": "lsh", "label": "b" * 60}]}]},
     {"losses[0]": "VSE-C042"}),
    ({"losses": [SUM], "baseline": "both", "overrides": [{"network": "vsepp", "loss": "both", "fixed": {"margin": 1}}]},
     {"overrides vsepp.both.fixed": ("VSE-C043", {"got": "margin", "parts": "lmh, info_nce"})}),
    (alone({"loss": [{"name": "lmh", "fixed": {"margin": -3}}, {"name": "lsh"}]}),
     {"cell vsepp.own: loss.lmh.margin": VALUE}),
    (alone({"loss": [{"name": "lseh"}, {"name": "many_to_many"}]}), {"cell vsepp.own: loss": "VSE-C052"}),
    (alone({"name": "nt_xent"}) | {"networks": [{"name": "vsepp", "fixed": {"normalize_images": False}}]},
     {"cell vsepp.own": "VSE-C062"}),
    ({"training": {"batch_unit": "images"}}, {"cell vsepp.lseh": "VSE-C065"}),
    (alone({"name": "order"}), {"cell vsepp.own": "VSE-C063"}),
    (alone({"name": "irtm", "fixed": {"drawn": 64}}), {"cell vsepp.own": "VSE-C060"}),
    (alone({"loss": [{"name": "irtm", "label": str(drawn), "fixed": {"drawn": drawn}} for drawn in (64, 80)]}),
     {"cell vsepp.own: loss": "VSE-C053"}),
    (LMH | {"evaluation": {"rerank": {"first": "study/trial"}}}, {"cell vsepp.lmh": "VSE-C070"}),
    # the training
    ({"training": {"epochs": 0.5}, "scheduler": {"kind": "asha"}}, {"scheduler.grace_epochs": "VSE-C049"}),
    ({"training": {"linear_schedule": {"warmup_fraction": 0.1}, "learning_rate_step": 4}}, {"training": "VSE-C066"}),
    ({"networks": [{"name": "vsepp", "training": {"linear_schedule": {"warmup_fraction": 0.1}}}]},
     {"cells vsepp.lmh, vsepp.lseh: training": "VSE-C066"}),
    ({"training": {"linear_schedule": {"warmup_fraction": 0.1, "warmup_steps": 9}}},
     {"training.linear_schedule": "VSE-C067"}),
    ({"training": {"linear_schedule": {}}}, {"training.linear_schedule": "VSE-C067"}),
    ({"training": {"drop_last": True, "batch_unit": "images"}}, {"training": "VSE-C068"}),
    # phases
    (LMH | phases({"epochs": 1}, {"epochs": 2}), {"training: phases": "VSE-C076"}),
    (LMH | phases({"epochs": 4}, {}), {"training: phases": "VSE-C076"}),
    (LMH | phases({}, {"epochs": 2}), {"training: phases[0].epochs": "VSE-C075"}),
    (LMH | phases({"epochs": 2}, {"loss": {"margin": -1}}), {"cell vsepp.lmh: training.phases[1].loss.margin": VALUE}),
    (LMH | phases({"loss": {"marginn": 1}}), {"cell vsepp.lmh: training.phases[0].loss.marginn": UNKNOWN}),
    ({"losses": [SUM], "baseline": "both"} | phases({"loss": {"lmh": {"marginn": 1}}}),
     {"cell vsepp.both: training.phases[0].loss.lmh.marginn": UNKNOWN}),
    (alone({"name": "semantic_center"}) | phases(*QUANTISED), {"cell vsepp.own: training.phases": "VSE-C080"}),
    (LMH | phases({"network": {"mlm_weight": 0}}),
     {"cell vsepp.lmh: training.phases[0].network.mlm_weight": "VSE-C078"}),
    (TAGS | phases({"network": {"layers": 3}}), {"cell tags.lmh: training.phases[0].network.layers": "VSE-C078"}),
    (LMH | {"networks": [{"name": "tags", "fixed": {"wod_weight": 0}, "search": "none"}]}
     | phases({"epochs": 1}, {"network": {"wod_weight": 0.1}}),
     {"cell tags.lmh: training.phases[1].network.wod_weight": "VSE-C079"}),
    (TAGS | phases({"network": {"wod_weight": -1}}), {"cell tags.lmh: training.phases[0].network.wod_weight": VALUE}),
    (TAGS | phases({"trains": "loss", "network": {"wod_weight": 0}}), {"training.phases[0]": "VSE-C077"}),
]


@pytest.mark.parametrize(("changes", "expected"), REFUSED)
def test_a_study_is_refused_with_all_its_problems_at_their_places(
    changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    """expected: by place, the code, alone or with some of its fields."""
    with pytest.raises(ConfigError) as caught:
        resolve_cells(parse_spec(MINIMAL | changes, StudySpec, where="f.yaml"), where="f.yaml")
    found = problems_of(caught.value)
    assert all("\n" not in line for line in found)
    assert len(found) == len(expected), found
    for place, code in expected.items():
        code, fields = (code, {}) if isinstance(code, str) else code
        at_place = [line for line in found if line.startswith(f"f.yaml: {place}: ")]
        assert [fits(line, code, **fields) for line in at_place] == [True], (place, code, fields, found)
