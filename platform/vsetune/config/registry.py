"""Losses, networks, readers: the specs of each kind by the name that files use, and the class built from each."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import ValidationError, WrapValidator
from pydantic_core import InitErrorDetails, PydanticKnownError

from vsetune.config.plugin_import import SPEC_FILE, reported_in_one_line
from vsetune.config.spec.base import Spec, unknown_name
from vsetune.errors import ConfigError

S = TypeVar("S", bound=Spec)
C = TypeVar("C")


class Registry(Mapping[str, type[S]], Generic[S]):
    """The specs of one kind of component by name. Folders are read when the first name is requested."""

    def __init__(
        self, kind: str, base: type[S], *, package: str | None = None, key: str = "name", own: Sequence[type[S]] = (),
        facts: Sequence[str] = (),
    ) -> None:
        """kind: `loss`; for messages, and the name of the file with the class, beside its spec. base: the base class of
        the specs. package: of their folders; the group of entry points of installed plugins has its name.

        key: the field by which a file selects one. own: specs without a folder of their own. facts: class attributes
        that specs must have, such as `equation`.
        """
        self.kind, self.base, self.key, self.facts = kind, base, key, facts
        self.group = package or f"vsetune.{kind}s"
        self._package, self._own, self._word = package, own, kind if key == "name" else key
        self._specs: dict[str, type[S]] | None = None
        self._classes: dict[type[Spec], type[Any]] = {}

    def add(self, spec: type[S]) -> None:
        """Register a spec under its name. ValueError if another spec has that name."""
        name = name_of(spec, self.key)
        other = self._known().get(name)
        if other is not None and other is not spec:
            raise ValueError(f"{self.kind} {name} is in {other.__module__} and in {spec.__module__}; rename one")
        self._known()[name] = spec

    def remove(self, spec: type[S]) -> None:
        """Unregister a spec, if it is the one registered under its name."""
        if self._known().get(name_of(spec, self.key)) is spec:
            del self._known()[name_of(spec, self.key)]

    def builds(self, spec: type[Spec]) -> Callable[[type[C]], type[C]]:
        """Class decorator: this class is built from that spec. ValueError if the spec already has one."""

        def register(built: type[C]) -> type[C]:
            if spec in self._classes:
                raise ValueError(f"{spec.__name__} is already registered")
            self._classes[spec] = built
            return built

        return register

    def class_of(self, spec: type[Spec]) -> type[Any]:
        """The class built from this spec. ConfigError if there is none."""
        if spec not in self._classes:
            import_sibling(spec, self.kind)  # registers it
        if spec not in self._classes:
            raise ConfigError(
                "VSE-C112", "{kind}: got a {spec}, which no {kind} is built from; need a class with @register({spec}) "
                "in {kind}.py beside its spec", kind=self.kind, spec=spec.__name__,
            )
        return self._classes[spec]

    def selected(self, *others: type[S]) -> Any:
        """For `Annotated[BaseSpec, ...]`: plain data becomes the spec that its key selects among those known now, and
        the others. A pydantic union would fix the choice when the class is made, before any plugin is known.
        """

        def select(value: Any, handler: Any) -> Any:
            specs = {**self, **{name_of(each, self.key): each for each in others}}
            if isinstance(value, tuple(specs.values())):
                return value
            if not isinstance(value, Mapping):
                raise PydanticKnownError("model_type", {"class_name": self.base.__name__})
            name, loc = value.get(self.key), (self.key,)
            if isinstance(name, str) and name in specs:
                return specs[name].model_validate(value)
            wrong = InitErrorDetails(type="missing", loc=loc, input=value)
            if self.key in value:
                error = ValueError(unknown_name(str(name), sorted(specs), kind=self._word))
                wrong = InitErrorDetails(type="value_error", loc=loc, input=name, ctx={"error": error})
            raise ValidationError.from_exception_data(self.base.__name__, [wrong])

        return WrapValidator(select)

    def __getitem__(self, name: str) -> type[S]:
        return self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> dict[str, type[S]]:
        if self._specs is None:
            self._specs = {}
            found = self._of_package(self._package) if self._package is not None else []
            for spec in (*self._own, *found):
                self.add(spec)
        return self._specs

    def _of_package(self, package: str) -> list[type[S]]:
        """The specs of the folders of a package, in alphabetical order of the folders."""
        folders = map(Path, importlib.import_module(package).__path__)
        names = sorted(file.parent.name for folder in folders for file in folder.glob(f"*/{SPEC_FILE}.py"))
        return [spec for name in names for spec in self.of_folder(f"{package}.{name}")]

    def of_folder(self, package: str) -> list[type[S]]:
        """The specs with a name that the folder's `spec.py` defines; none without such a file."""
        module_name = f"{package}.{SPEC_FILE}"
        if importlib.util.find_spec(module_name) is None:
            return []
        return [
            value for value in vars(importlib.import_module(module_name)).values()
            if isinstance(value, type) and issubclass(value, self.base) and value.__module__ == module_name
            and isinstance(getattr(value.model_fields.get(self.key), "default", None), str)
        ]


def name_of(spec: type[Spec], key: str = "name") -> str:
    """The name in study files."""
    return str(spec.model_fields[key].default)


def import_sibling(spec: type[Spec], file: str) -> ModuleType | None:
    """Import the module `file` of the folder that a spec is in. None if there is no such module.

    ConfigError in one line for exceptions from a plugin's code.
    """
    package = spec.__module__.rpartition(".")[0]
    with guarded(spec):
        if importlib.util.find_spec(f"{package}.{file}") is None:
            return None
        return importlib.import_module(f"{package}.{file}")


def guarded(spec: type[Spec]) -> AbstractContextManager[None]:
    """A context in which exceptions from a plugin's code beside a spec become a ConfigError in one line."""
    file = getattr(sys.modules.get(spec.__module__), "__file__", None)
    is_ours = spec.__module__.startswith("vsetune.") or file is None
    return nullcontext() if is_ours else reported_in_one_line(Path(str(file)).parent)
