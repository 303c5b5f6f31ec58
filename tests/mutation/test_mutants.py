"""The mutation run's own parts: what is changed, what never, how it is drawn, and that the tests run on the change."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from mutation.areas import AREAS, nearest_first
from mutation.judged import Judgement, read_judged
from mutation.mutants import Mutant, deal
from mutation.report import Result, shares
from mutation.testing import Examined, Tree

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''"""A docstring with 1 number."""
from __future__ import annotations
import logging
logger = logging.getLogger(__name__)
__all__ = ["Ratio"]
Number = dict[str, int]
LIMIT = 4


class Ratio:
    """Another 2."""

    @property
    def half(self) -> float | None:
        if LIMIT < 3:
            raise ValueError(f"got {LIMIT + 1}" + str(5))
        logger.warning("%d", 6)
        return 7 / 8
'''


def mutants_of(folder: Path, source: str = SOURCE, *, count: int = 1000, seed: int = 0) -> list[Mutant]:
    (folder / "module.py").write_text(source)
    return deal(folder, [Path("module.py")], count=count, seed=seed)


def test_only_what_computes_is_changed_and_only_one_line_of_it(tmp_path: Path) -> None:
    found = mutants_of(tmp_path)
    assert {(mutant.line, mutant.function) for mutant in found} == {
        (7, ""), (15, "Ratio.half"), (18, "Ratio.half"),
    }
    assert {mutant.diff for mutant in found if mutant.line == 18} == {
        "- return 7 / 8\n+ return 7 * 8", "- return 7 / 8\n+ return 8 / 8", "- return 7 / 8\n+ return 7 / 9",
    }
    assert all(len(set(mutant.code.splitlines()) ^ set(SOURCE.splitlines())) == 2 for mutant in found)


def test_no_mutant_is_the_code_itself_or_no_code(tmp_path: Path) -> None:
    source = "def ratio(a, b):\n    if a:\n        return max(a, b)\n    return -(b) ** 2 if (a) else not b\n"
    for mutant in mutants_of(tmp_path, source):
        assert ast.dump(ast.parse(mutant.code)) != ast.dump(ast.parse(source))


def test_a_strict_zip_stays_strict(tmp_path: Path) -> None:
    found = mutants_of(tmp_path, "def pairs(a, b):\n    return zip(a, b, strict=True)\n")
    assert found
    assert all("strict=True" in mutant.diff.splitlines()[1] for mutant in found)


def test_a_seed_gives_the_same_mutants_and_another_one_others(tmp_path: Path) -> None:
    first, again, other = (mutants_of(tmp_path, count=4, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert [mutant.key for mutant in first] != [mutant.key for mutant in other]


def test_kinds_of_change_take_turns(tmp_path: Path) -> None:
    source = "def ratio(a, b):\n    c = f(a, b, a, b, a, b)\n    return (c < 1) + (c > 2)\n"
    kinds = Counter(mutant.kind for mutant in mutants_of(tmp_path, source, count=5))
    assert kinds == {"arg removal": 2, "assignment": 1, "number": 1, "swap op": 1}


def test_a_judgement_holds_when_lines_move_and_not_when_they_change(tmp_path: Path) -> None:
    before = mutants_of(tmp_path)[0]
    after = {mutant.key: mutant for mutant in mutants_of(tmp_path, SOURCE.replace("LIMIT = 4", "\n\nLIMIT = 4"))}
    assert after[before.key].line == before.line + 2
    assert before.key not in {mutant.key for mutant in mutants_of(tmp_path, SOURCE.replace("LIMIT", "BOUND"))}


def test_areas_find_their_files_by_walking_and_have_quick_tests() -> None:
    for area in AREAS.values():
        assert area.source_files(ROOT), area.name
        assert area.test_files(ROOT), area.name
        assert not {"__init__.py", "spec.py"} & {file.name for file in area.source_files(ROOT)}


def test_tests_of_the_module_itself_come_first(tmp_path: Path) -> None:
    texts = {"test_a.py": "", "test_b.py": "import vsetune.losses", "test_c.py": "from vsetune.losses.lseh import f"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    groups = nearest_first([Path(name) for name in texts], Path("platform/vsetune/losses/lseh.py"), tmp_path)
    assert [[test.name for test in group] for group in groups] == [["test_c.py"], ["test_b.py"], ["test_a.py"]]


def test_judged_survivors_are_read_by_what_they_change(tmp_path: Path) -> None:
    entry = '[[mutant]]\nfile = "a.py"\nfunction = "f"\ndiff = """\n- 1\n+ 2"""\nverdict = "{}"\nreason = "none"\n'
    (tmp_path / "judged.toml").write_text(entry.format("equivalent"))
    assert read_judged(tmp_path / "judged.toml") == {("a.py", "f", "- 1\n+ 2"): Judgement("equivalent", "none")}
    (tmp_path / "judged.toml").write_text(entry.format("fine"))
    with pytest.raises(ValueError, match="got verdict 'fine', need equivalent or accepted"):
        read_judged(tmp_path / "judged.toml")


def test_only_equivalent_mutants_leave_the_judged_share(tmp_path: Path) -> None:
    mutant = mutants_of(tmp_path)[0]
    outcomes = [("killed", None), ("timed out", None), ("survived", None), ("survived", "accepted"),
                ("survived", "equivalent")]
    results = [
        Result("metrics", mutant, Examined(outcome, 1.0, ""), Judgement(verdict, "") if verdict else None)  # type: ignore[arg-type]
        for outcome, verdict in outcomes
    ]
    assert shares(results).raw == pytest.approx(2 / 5)
    assert shares(results).judged == pytest.approx(2 / 4)


def test_every_judged_mutant_can_still_be_made() -> None:
    for file, function, diff in read_judged():
        where = f"judged.toml: {file} {function}"
        assert (ROOT / file).is_file(), f"{where}: no such file; the entry moves with the code"
        lines = {line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()}
        removed = {line[2:] for line in diff.splitlines() if line.startswith("- ")}
        assert removed, f"{where}: no line starts with '- '"
        assert removed <= lines, f"{where}: {removed - lines} is gone; judge it anew or drop the entry"


@pytest.mark.slow
def test_a_mutant_is_tested_on_a_copy_and_leaves_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "root"
    module = Path("platform") / "ratios.py"
    for folder in ("benchmarks", "platform", "tests", "studies"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["platform"]\n')
    (root / module).write_text("LIMIT = 1\n")
    test = Path("tests") / "test_ratios.py"
    (root / "tests" / "test_nothing.py").write_text("def test_it():\n    pass\n")
    groups = [[Path("tests") / "test_nothing.py"], [test]]
    (root / test).write_text(
        "import os, time\n\nimport pytest\nfrom ratios import LIMIT\n\n\ndef test_it():\n"
        "    time.sleep(600 * (LIMIT == 3))\n"
        "    if LIMIT == 5:\n        pytest.exit('no test failed', returncode=3)\n"
        "    if LIMIT == 6:\n        os.kill(os.getpid(), 11)\n"
        "    assert LIMIT in (1, 4)\n"
    )
    tree = Tree(root, tmp_path / "copy")
    usual_s = tree.unchanged(groups)
    outcomes = [
        tree.test(module, f"LIMIT = {limit}\n", groups, limit_s=usual_s + 10).outcome for limit in (2, 3, 4, 5, 6)
    ]
    assert outcomes == ["killed", "timed out", "survived", "survived", "killed"]
    assert (root / module).read_text() == (tmp_path / "copy" / "tree" / module).read_text() == "LIMIT = 1\n"
