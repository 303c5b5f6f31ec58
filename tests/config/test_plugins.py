"""Components of other people: loaded like ours, refused in one line each."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from plugin_folders import LOSS, NEGATIVES, SPEC, write_files, write_loss, write_network

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.components.plugin_import import read_source
from vsetune.config.plugins import Plugin, forget_plugins, known_plugins, load_plugin, load_plugins, plugin_of
from vsetune.errors import ConfigError, MissingPlugin
from vsetune.losses.loss_base import LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.network_building import build_network

TUNABLE = 'tunable(0.2, Range(low=0.1, high=0.4), ge=0, description="alpha, in units of similarity")'
IMPORT = "from vsetune.config.component_specs"
CLASS = "class HalfHingeSpec(LossSpec)"


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def problem(reference: str, base: Path) -> str:
    """The one line that a reference is refused with."""
    with pytest.raises(ConfigError) as refused:
        load_plugin(reference, base=base)
    assert len(refused.value.problems) == 1
    assert "\n" not in refused.value.problems[0]
    return refused.value.problems[0]


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


def test_a_module_that_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "their_package"
    write_files(package, {"__init__": "", "hinges": NEGATIVES})
    absolute = LOSS.replace("from .negatives", "from their_package.hinges")
    absolute = absolute.replace("from .spec", "from their_package.half.spec")
    write_loss(package / "half", loss=absolute)
    monkeypatch.syspath_prepend(str(tmp_path))
    (plugin,) = load_plugin("their_package.half", base=tmp_path / "elsewhere")
    assert (plugin.package, plugin.folder, plugin.source) == ("their_package.half", package / "half", package)
    build_loss(LOSSES["half_hinge"]())
    assert load_plugin("their_package", base=tmp_path / "elsewhere") == (plugin,)
    assert load_plugin("their_package.half.loss", base=tmp_path / "elsewhere") == (plugin,)
    write_files(package, {"hinges": "changed = True"})
    assert "changed since this process imported it; start the command again" in problem("their_package", tmp_path / "e")


def test_what_leads_nowhere(tmp_path: Path) -> None:
    with pytest.raises(MissingPlugin, match=r"no_such/: no such folder|no_such: no such folder"):
        load_plugin("no_such/", base=tmp_path)
    with pytest.raises(MissingPlugin, match="no such folder, and no module of this name is installed"):
        load_plugin("no_such.module", base=tmp_path)
    (tmp_path / "empty").mkdir()
    assert "no spec.py in it or in a folder of it" in problem("empty", tmp_path)
    (tmp_path / "one.py").touch()
    assert "is a file, need the folder of a component" in problem("one.py", tmp_path)
    assert "need a folder or a module" in problem("s3://bucket/x", tmp_path)
    assert "is vsetune itself" in problem("vsetune.losses.lmh", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"half_hinge"] = "half_hinge"', '"lmh"] = "lmh"', r"spec.py:9: loss lmh is one of vsetune's own"),
        ('Literal["half_hinge"] =', "str =", r"spec.py:15: `name` takes other values than its own; write `name: Lit"),
        ('"half_hinge"] = "half_hinge"', '"half hinge"] = "half hinge"', "spec.py:15: got the name 'half hinge', need"),
        ('    """Half of the hinges: only images look for captions."""\n', "", "spec.py:9: HalfHingeSpec has no docst"),
        ('"made for a test"', '""', r"spec.py:9: HalfHingeSpec declares no source; write `source: ClassVar\[str\]"),
        ('    equation: ClassVar[str] = "', '    other: ClassVar[str] = "', "spec.py:9: .* declares no equation"),
        (TUNABLE, "0.2", r"spec.py:16: margin is a number without a range; declare it with `tunable\(default, Range"),
        (TUNABLE, "Field(0.2, ge=0)", "spec.py:17: margin has no description"),
        ("tunable(0.2,", "tunable(-0.2,", r"spec.py:16: HalfHingeSpec\(\) is not valid \(margin: .*greater than or"),
        ("Range, tunable", "Rang, tunable", r"spec.py:5: ImportError: cannot import name 'Rang' .*; fix this line"),
        (IMPORT, f"import no_such_library\n{IMPORT}",
         r"spec.py:6: ModuleNotFoundError: No module named 'no_such_library'; install no_such_library where trials"),
        (IMPORT, f"from vsetune.losses.loss_spec import LossSpec\n{IMPORT}",
         r"spec.py:6: ModuleNotFoundError: .*; this version has no such module; see the imports of a new draft"),
        (IMPORT, f"from negatives import hardest\n{IMPORT}",
         r"spec.py:6: ModuleNotFoundError: .*; write `from .negatives import ...`, with the dot"),
        (IMPORT, f"from ..other import hardest\n{IMPORT}", "spec.py:6: .*; a component sees its own folder only"),
        (f"{CLASS}:", CLASS, "spec.py:9: SyntaxError: expected ':'; fix this line"),
        (CLASS, f"raise SystemExit\n{CLASS}", "spec.py:9: SystemExit; fix this line"),
        ("(LossSpec)", "", "spec.py: defines no component; need a class derived from LossSpec or NetworkSpec"),
    ],
)
def test_one_line_with_file_and_fix(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in SPEC
    spec = SPEC.replace(old, new)
    if "Field(" in new:
        spec = spec.replace("from vsetune.config", "from pydantic import Field\nfrom vsetune.config", 1)
    write_loss(tmp_path / "half_hinge", spec=spec)
    found = problem("half_hinge", tmp_path)
    assert found.startswith("plugins: /")
    assert re.search(told, found), found
    assert "half_hinge" not in LOSSES


def test_code_that_only_fails_when_it_is_built(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge", loss=LOSS.replace("from .spec", "from .specs"))
    load_plugin("half_hinge", base=tmp_path)
    told = r"half_hinge/loss.py:7: ModuleNotFoundError: No module named '.specs'; fix this line$"
    with pytest.raises(ConfigError, match=told):
        build_loss(LOSSES["half_hinge"]())


def test_a_loss_without_its_file(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    (tmp_path / "half_hinge" / "loss.py").unlink()
    assert problem("half_hinge", tmp_path).endswith(
        "no loss.py in it; need a class with @register(HalfHingeSpec) there"
    )


def test_two_folders_with_one_name(tmp_path: Path) -> None:
    write_loss(tmp_path / "a")
    write_loss(tmp_path / "b")
    with pytest.raises(ConfigError, match=r"b: loss half_hinge is also in .*/a; rename one"):
        load_plugins(["a", "b"], base=tmp_path)


def test_all_problems_of_several_references(tmp_path: Path) -> None:
    write_loss(tmp_path / "a", spec=SPEC.replace('"made for a test"', '""').replace(TUNABLE, "0.2"))
    with pytest.raises(ConfigError) as refused:
        load_plugins(["a", "nowhere/", "a"], base=tmp_path)
    assert len(refused.value.problems) == 3


def test_too_much_to_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vsetune.config.components.plugin_import.MOST_BYTES", 100)
    write_loss(tmp_path / "half_hinge")
    assert "MiB of files" in problem("half_hinge", tmp_path)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    os.mkfifo(tmp_path / "half_hinge" / "words.txt")
    assert "words.txt: need a regular file" in problem("half_hinge", tmp_path)


def test_plugins_are_plain_values(tmp_path: Path) -> None:
    write_loss(tmp_path / "half_hinge")
    (plugin,) = load_plugin("half_hinge", base=tmp_path)
    assert plugin == Plugin("loss", "half_hinge", plugin.folder, plugin.package, plugin.sha256, plugin.folder)
