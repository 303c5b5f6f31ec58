"""Components of other people: loaded like ours, refused in one line each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from plugin_folders import LOSS, NEGATIVES, SPEC, write_loss, write_network
from refusals import fits, refused

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.plugin_import import read_source
from vsetune.config.plugins import forget_plugins, known_plugins, load_plugin, load_plugins, plugin_of
from vsetune.errors import ConfigError, MissingPlugin, Problem
from vsetune.losses.loss_base import LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.network_building import build_network

IMPORT = "from vsetune.config.component_specs"
CLASS = "class HalfHingeSpec(LossSpec)"


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def problem(reference: str, base: Path) -> Problem:
    """The one problem that a reference is refused with."""
    with pytest.raises(ConfigError) as caught:
        load_plugin(reference, base=base)
    (found,) = caught.value.problems
    assert isinstance(found, Problem)
    assert "\n" not in found
    assert found.startswith("plugins: ")
    return found


def batch(n: int = 4) -> LossInputs:
    ids = torch.arange(n)
    return LossInputs(torch.rand(n, n, generator=torch.manual_seed(0), requires_grad=True), ids, ids, ids)


def test_a_folder_is_known_by_its_name_and_builds(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    (plugin,) = load_plugin("half_hinge/", base=tmp_path)
    assert (plugin.kind, plugin.name, plugin.folder) == ("loss", "half_hinge", tmp_path / "half_hinge")
    assert plugin.key == "loss.half_hinge"
    spec = LOSSES["half_hinge"].model_validate({"name": "half_hinge", "margin": 0.3})
    assert plugin_of(type(spec)) == plugin
    output = build_loss(spec)(batch())
    output.value.backward()
    assert set(output.parts) == {"active"}
    assert type(spec).__module__ == f"{plugin.package}.spec"


def test_a_folder_of_folders_brings_all_of_them(tmp_path: Path) -> None:
    write_loss(tmp_path / "mine" / "half_hinge")
    write_network(tmp_path / "mine" / "bag")
    (tmp_path / "mine" / "notes").mkdir()
    plugins = load_plugin("mine", base=tmp_path)
    assert [plugin.key for plugin in plugins] == ["network.bag", "loss.half_hinge"]
    assert {plugin.key for plugin in known_plugins()} == {"network.bag", "loss.half_hinge"}
    network = build_network(NETWORKS["bag"](), regions=3, width=5, vocabulary_size=7)
    assert network.embedding_size == 16


def test_the_same_code_is_the_same_package_wherever_it_lies(tmp_path: Path) -> None:
    (first,) = load_plugin(str(write_loss(tmp_path / "a" / "half_hinge")), base=tmp_path)
    spec = LOSSES["half_hinge"]
    (again,) = load_plugin(str(write_loss(tmp_path / "b" / "half_hinge")), base=tmp_path)
    assert (again.package, again.sha256) == (first.package, first.sha256)
    assert LOSSES["half_hinge"] is spec


def test_changed_code_takes_the_place_of_the_old_and_never_mixes_with_it(tmp_path: Path) -> None:
    folder = write_loss(tmp_path / "half_hinge")
    (before,) = load_plugin("half_hinge", base=tmp_path)
    old = LOSSES["half_hinge"]()
    write_loss(folder, negatives=NEGATIVES.replace("-1.0", "-2.0"))  # as long as before, in the same second
    (after,) = load_plugin("half_hinge", base=tmp_path)
    assert before.sha256 != after.sha256
    assert before.package != after.package
    assert LOSSES["half_hinge"] is not type(old)
    build_loss(old)
    build_loss(LOSSES["half_hinge"]())
    assert sys.modules[f"{before.package}.negatives"].hardest(torch.zeros(1, 1)).item() == -1
    assert sys.modules[f"{after.package}.negatives"].hardest(torch.zeros(1, 1)).item() == -2


def test_the_hash_is_of_paths_and_contents_of_what_runs(tmp_path: Path) -> None:
    folder = write_loss(tmp_path / "half_hinge")
    before = read_source(folder).sha256
    (folder / "__pycache__").mkdir()
    for ignored in ("__pycache__/loss.pyc", ".hidden", "test_loss.py", "README.md"):
        (folder / ignored).write_text("x", encoding="utf-8")
    assert read_source(folder).sha256 == before
    (folder / "words.json").write_text("[]", encoding="utf-8")
    with_data = read_source(folder).sha256
    assert with_data != before
    (folder / "words.json").rename(folder / "other.json")
    assert read_source(folder).sha256 not in (before, with_data)


def test_what_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one.py").touch()
    for reference, message, is_missing in (
        ("no_such/", "VSE-C100", True), ("no_such.module", "VSE-C100", True), ("empty", "VSE-C101", True),
        ("one.py", "VSE-C102", False), ("s3://bucket/x", "VSE-C102", False),
    ):
        with refused(message, by=ConfigError) as caught:
            load_plugin(reference, base=tmp_path)
        assert isinstance(caught.value, MissingPlugin) == is_missing, reference


RAISED = "VSE-C111"


@pytest.mark.parametrize(("old", "new", "place", "message", "fields"), [
    ('"half_hinge"] = "half_hinge"', '"lmh"] = "lmh"', "", "VSE-C121", {"name": "lmh"}),
    ('Literal["half_hinge"] =', "str =", "", "VSE-C128", {"field": "name"}),
    ('"half_hinge"] = "half_hinge"', '"half hinge"] = "half hinge"', "", "VSE-C127", {}),
    ('"half_hinge"] = "half_hinge"', '"sum"] = "sum"', "", "VSE-C127", {"name": "sum"}),
    ('"made for a test"', '""', "", "VSE-C124", {"fact": "source"}),
    ('    equation: ClassVar[str] = "', '    other: ClassVar[str] = "', "", "VSE-C124", {"fact": "equation"}),
    ("tunable(0.2,", "tunable(-0.2,", "", "VSE-C126", {"field": "margin"}),
    ("Range, tunable", "Rang, tunable", ":5", RAISED, {"fix": "fix this line"}),
    (IMPORT, f"import no_such_library\n{IMPORT}", ":6", RAISED,
     {"fix": "install no_such_library where trials run, or put the module into the folder and import it with a dot"}),
    (IMPORT, f"from vsetune.losses.loss_spec import LossSpec\n{IMPORT}", ":6", RAISED,
     {"fix": "this version has no such module; see the imports of a new draft: vsetune losses new NAME"}),
    (IMPORT, f"from negatives import hardest\n{IMPORT}", ":6", RAISED,
     {"fix": "write `from .negatives import ...`, with the dot: the folder is a package of its own"}),
    (IMPORT, f"from ..other import hardest\n{IMPORT}", ":6", RAISED,
     {"fix": "a component sees its own folder only; copy the module into it"}),
    (f"{CLASS}:", CLASS, ":9", RAISED, {"reason": "SyntaxError: expected ':'"}),
    (CLASS, f"raise SystemExit\n{CLASS}", ":9", RAISED, {"reason": "SystemExit"}),
    ("(LossSpec)", "", "", "VSE-C120", {}),
])
def test_a_wrong_spec_is_refused_with_its_file(
    tmp_path: Path, old: str, new: str, place: str, message: str, fields: dict[str, Any]
) -> None:
    assert old in SPEC
    write_loss(tmp_path / "half_hinge", spec=SPEC.replace(old, new))
    found = problem("half_hinge", tmp_path)
    assert fits(found, message, **fields), (found, found.fields)
    assert f"spec.py{place}: " in found
    assert "half_hinge" not in LOSSES


def test_code_that_only_fails_when_it_is_built(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge", loss=LOSS.replace("from .spec", "from .specs"))
    load_plugin("half_hinge", base=tmp_path)
    place, reason = tmp_path / "half_hinge" / "loss.py:7", "ModuleNotFoundError: No module named '.specs'"
    with refused(RAISED, place=place, reason=reason):
        build_loss(LOSSES["half_hinge"]())


def test_a_loss_without_its_file(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    (tmp_path / "half_hinge" / "loss.py").unlink()
    assert fits(problem("half_hinge", tmp_path), "VSE-C122", kind="loss")


def test_two_folders_with_one_name(tmp_path: Path) -> None:
    write_loss(tmp_path / "a")
    write_loss(tmp_path / "b")
    with refused("VSE-C105", folder=tmp_path / "b", name="half_hinge", other=tmp_path / "a"):
        load_plugins(["a", "b"], base=tmp_path)


def test_all_problems_of_several_references(tmp_path: Path) -> None:
    write_loss(tmp_path / "a", spec=SPEC.replace('"made for a test"', '""').replace("tunable(0.2,", "tunable(-0.2,"))
    with pytest.raises(ConfigError) as caught:
        load_plugins(["a", "nowhere/", "a"], base=tmp_path)
    assert len(caught.value.problems) == 3


def test_too_much_to_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vsetune.config.plugin_import.MOST_BYTES", 100)
    write_loss(tmp_path / "half_hinge")
    assert fits(problem("half_hinge", tmp_path), "VSE-C107")


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    os.mkfifo(tmp_path / "half_hinge" / "words.txt")
    expected = tmp_path / "half_hinge" / "words.txt"
    assert fits(problem("half_hinge", tmp_path), "VSE-C109", path=expected)


