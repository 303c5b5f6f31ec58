"""The components of one kind by the name that study files use, and the class built from each spec."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import ValidationInfo, WrapValidator
from pydantic_core import PydanticCustomError

from vsetune.config.components.plugin_import import told_in_one_line
from vsetune.config.spec.base import Spec
from vsetune.errors import ConfigError

S = TypeVar("S", bound=Spec)

SPEC_FILE = "spec"

_code: dict[type[Spec], str] = {}


class Catalogue(Mapping[str, type[S]], Generic[S]):
    """Specs by name. Folders are read when the first name is requested."""

    def __init__(
        self, kind: str, base: type[S], package: str | None, *, key: str = "name", own: Sequence[type[S]] = ()
    ) -> None:
        """kind: the word for messages, e.g. `loss`. base: the base class of their specs. package: the package of their
        folders.

        key: the field by which a file selects one. own: specs without a folder of their own.
        """
        self.kind, self.base, self.key = kind, base, key
        self._package, self._own = package, own
        self._specs: dict[str, type[S]] | None = None

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

    def __getitem__(self, name: str) -> type[S]:
        return self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> dict[str, type[S]]:
        if self._specs is None:
            self._specs = {}
            found = specs_of_package(self._package, self.base) if self._package is not None else []
            for spec in (*self._own, *found):
                self.add(spec)
        return self._specs


def specs_of_package(package: str, base: type[S]) -> list[type[S]]:
    """The specs of the folders of a package, in alphabetical order of the folders."""
    folders = map(Path, importlib.import_module(package).__path__)
    names = sorted(file.parent.name for folder in folders for file in folder.glob(f"*/{SPEC_FILE}.py"))
    return [spec for name in names for spec in specs_of_folder(f"{package}.{name}", base)]


def specs_of_folder(package: str, base: type[S], key: str = "name") -> list[type[S]]:
    """The specs with a name, in the field `key`, that the folder's `spec.py` defines; none without such a file."""
    module_name = f"{package}.{SPEC_FILE}"
    if importlib.util.find_spec(module_name) is None:
        return []
    module = importlib.import_module(module_name)
    return [
        value for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module_name
        and isinstance(getattr(value.model_fields.get(key), "default", None), str)
    ]


def name_of(spec: type[Spec], key: str = "name") -> str:
    """The name in study files."""
    return str(spec.model_fields[key].default)


def mark_code(spec: type[Spec], sha256: str) -> None:
    """Note the hash of the code beside a spec of a plugin."""
    _code[spec] = sha256


def code_of(spec: type[Spec]) -> str | None:
    """The hash of the plugin code beside a spec; None for a built-in spec."""
    return _code.get(spec)


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
    return nullcontext() if is_ours else told_in_one_line(Path(str(file)).parent)


def selected_by_name(known: Callable[[], Mapping[str, type[Any]]]) -> Any:
    """For `Annotated[BaseSpec, ...]`: plain data becomes the spec that its `name` selects among the specs known now.

    A pydantic union would fix the choice when the class is made, before any plugin is known.
    """

    def select(value: Any, handler: Any, info: ValidationInfo) -> Any:
        specs = known()
        if isinstance(value, tuple(specs.values())):
            return value
        if not isinstance(value, Mapping):
            return handler(value)
        if "name" not in value:
            raise PydanticCustomError("union_tag_not_found", "missing name", {"discriminator": "'name'"})
        name = value["name"]
        if not isinstance(name, str) or name not in specs:
            tags = ", ".join(f"'{each}'" for each in specs)
            context = {"discriminator": "'name'", "tag": str(name), "expected_tags": tags}
            raise PydanticCustomError("union_tag_invalid", "unknown name", context)
        return specs[name].model_validate(value)

    return WrapValidator(select)


B = TypeVar("B")
C = TypeVar("C")


class Register(Generic[B]):
    """Classes of one kind, by the class of their spec."""

    def __init__(self, kind: str, file: str) -> None:
        """kind: the word for messages, e.g. `loss`. file: name of the file with the class, beside its spec, without
        `.py`."""
        self._kind, self._file = kind, file
        self._classes: dict[type[Spec], type[B]] = {}

    def add(self, spec: type[Spec]) -> Callable[[type[C]], type[C]]:
        """Class decorator: this class is built from that spec. ValueError if the spec already has one."""

        def register(built: type[C]) -> type[C]:
            if spec in self._classes:
                raise ValueError(f"{spec.__name__} is already registered")
            self._classes[spec] = built  # type: ignore[assignment]
            return built

        return register

    def class_of(self, spec: type[Spec]) -> type[B]:
        """The class built from this spec. ConfigError if there is none."""
        if spec not in self._classes:
            import_sibling(spec, self._file)  # registers it
        if spec not in self._classes:
            raise ConfigError(
                f"{self._kind}: got a {spec.__name__}, which no {self._kind} is built from; need a class with "
                f"@register({spec.__name__}) in {self._file}.py beside its spec"
            )
        return self._classes[spec]
