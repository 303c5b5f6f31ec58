"""Which class is built from which spec. The class is in a file beside the spec, which is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from vsetune.config.components.catalogue import import_sibling
from vsetune.config.spec.base import Spec
from vsetune.errors import ConfigError

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
