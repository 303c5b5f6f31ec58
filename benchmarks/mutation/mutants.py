"""Every small change that can be made to a source file. How to change a node is mutmut's; where is ours.

mutmut itself leaves decorated functions (so every property) and the top of a module alone, because of how it switches
mutants on. We write whole changed files instead, so those are mutated too.

Not mutated: docstrings and other strings, f-strings, `raise` and `assert` statements, logging, annotations, decorators,
imports, type aliases, `__all__`, `strict=` of zip, and the arguments of `len` and `isinstance`.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

_OPERATORS = [
    (node_type, operator) for node_type, operator in mutators.mutation_operators
    if operator is not mutators.operator_string
]
_UNTOUCHED_STATEMENTS = (
    libcst.Annotation, libcst.Decorator, libcst.Raise, libcst.Assert, libcst.Import, libcst.ImportFrom,
    libcst.FormattedString,
)
_UNTOUCHED_CALLS = {"len", "isinstance", "cast", "warn", "getLogger", "debug", "info", "warning", "error", "exception"}
_UNTOUCHED_ARGUMENTS = {"strict", "description"}


@dataclass(frozen=True)
class Mutant:
    """One changed file. file: relative to the root. line: of the change, from 1. diff: the changed lines, - and +."""

    file: Path
    line: int
    function: str
    kind: str
    diff: str
    code: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines move."""
        return self.file.as_posix(), self.function, self.diff


@dataclass(frozen=True)
class _Site:
    file: Path
    line: int
    function: str
    kind: str
    original: libcst.CSTNode
    changed: libcst.CSTNode
    module: libcst.Module

    def mutant(self) -> Mutant | None:
        """None where the changed text means the same, is no Python or lacks an argument that is not mutated."""
        if not _untouched_arguments(self.original) <= _untouched_arguments(self.changed):
            return None
        before = self.module.code
        after = self.module.code_for_node(self.module.deep_replace(self.original, self.changed))
        try:
            same = ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))
        except SyntaxError:
            return None
        if same:
            return None
        lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
        diff = "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if not line.startswith("@@"))
        return Mutant(self.file, self.line, self.function, self.kind, diff, after)


class _Sites(libcst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, file: Path, module: libcst.Module) -> None:
        super().__init__()
        self.found: list[_Site] = []
        self._file, self._module = file, module
        self._scope: list[str] = []
        self._line = 1

    def on_visit(self, node: libcst.CSTNode) -> bool:
        position = self.get_metadata(PositionProvider, node, None)  # some nodes have none
        self._line = position.start.line if position else self._line
        if _is_untouched(node, at_top=not self._scope):
            return False
        if isinstance(node, libcst.FunctionDef | libcst.ClassDef):
            self._scope.append(node.name.value)
        for node_type, operator in _OPERATORS:
            if isinstance(node, node_type):
                for changed in operator(node):
                    self._add(operator, node, changed)
        return True

    def on_leave(self, original_node: libcst.CSTNode) -> None:
        if isinstance(original_node, libcst.FunctionDef | libcst.ClassDef):
            self._scope.pop()

    def _add(self, operator: Callable[..., object], node: libcst.CSTNode, changed: libcst.CSTNode) -> None:
        kind = operator.__name__.removeprefix("operator_").replace("_", " ")
        self.found.append(_Site(self._file, self._line, ".".join(self._scope), kind, node, changed, self._module))


def deal(root: Path, files: Sequence[Path], *, count: int, seed: int) -> list[Mutant]:
    """So many mutants of these files, drawn without replacement, the kinds of change in turns.

    Calls have most of the possible changes, and most of those end every test with a TypeError; in turns a comparison
    or a number is as likely as a dropped argument.
    """
    by_kind: dict[str, list[_Site]] = defaultdict(list)
    for file in files:
        for site in _sites(root, file):
            by_kind[site.kind].append(site)
    chance = random.Random(seed)
    for _, sites in sorted(by_kind.items()):
        chance.shuffle(sites)
    dealt: dict[tuple[str, str, str], Mutant] = {}
    while len(dealt) < count and any(by_kind.values()):
        for _, sites in sorted(by_kind.items()):
            mutant = sites.pop().mutant() if sites and len(dealt) < count else None
            if mutant is not None:
                dealt.setdefault(mutant.key, mutant)
    return list(dealt.values())


def _sites(root: Path, file: Path) -> list[_Site]:
    wrapper = MetadataWrapper(libcst.parse_module((root / file).read_text(encoding="utf-8")))
    visitor = _Sites(file, wrapper.module)
    wrapper.visit(visitor)
    return visitor.found


def _is_untouched(node: libcst.CSTNode, *, at_top: bool) -> bool:
    if isinstance(node, _UNTOUCHED_STATEMENTS):
        return True
    if isinstance(node, libcst.Call):
        name = node.func.attr if isinstance(node.func, libcst.Attribute) else node.func
        return isinstance(name, libcst.Name) and name.value in _UNTOUCHED_CALLS
    if isinstance(node, libcst.Arg):
        return node.keyword is not None and node.keyword.value in _UNTOUCHED_ARGUMENTS
    if isinstance(node, libcst.Assign) and at_top:
        target = node.targets[0].target
        return isinstance(target, libcst.Name) and (target.value in ("__all__", "logger") or _is_type(target.value))
    return False


def _untouched_arguments(node: libcst.CSTNode) -> set[str]:
    """Of a call, as text; a call's own arguments are dropped at the call."""
    if not isinstance(node, libcst.Call):
        return set()
    code = libcst.Module([]).code_for_node
    return {
        f"{argument.keyword.value}={code(argument.value)}" for argument in node.args
        if argument.keyword is not None and argument.keyword.value in _UNTOUCHED_ARGUMENTS
    }


def _is_type(name: str) -> bool:
    """Whether a name at the top of a module is that of a type alias: written like a class."""
    return name.strip("_")[:1].isupper() and not name.isupper()
