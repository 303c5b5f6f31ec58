"""A method of a component of one's own takes what vsetune calls it with; else the class is refused where it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from refusals import refused

from vsetune.config.spec.overriding import require_callable_overrides


class Base:
    def forward(self, inputs: Any, *, seed: int) -> None:
        """Called by place, its seed by name."""

    def whole(self, most: int = 1) -> None:
        """Called without arguments."""


def made(method: Callable[..., Any]) -> type:
    return type("Mine", (Base,), {method.__name__: method})


def forward(self: Any, images: Any, captions: Any, *, seed: int) -> None:
    """One argument too many."""


def whole(self: Any, least: int) -> None:
    """Its argument has no default."""


@pytest.mark.parametrize(("method", "got", "need"), [
    (forward, "self, images, captions, seed", "self, inputs, seed"), (whole, "self, least", "self, most"),
])
def test_a_method_that_cannot_be_called_is_named_with_its_place(method, got, need) -> None:
    place = f"{__file__}:{method.__code__.co_firstlineno}"
    with refused("VSE-C113", place=place, cls="Mine", method=method.__name__, got=got, need=need):
        require_callable_overrides(made(method), Base)


def test_further_arguments_with_defaults_and_methods_of_ones_own_are_free() -> None:
    def forward(self: Any, *inputs: Any, **named: Any) -> None: ...
    def whole(self: Any, most: int = 1, least: int = 0) -> None: ...
    def own(self: Any, more: int) -> None: ...

    for method in (forward, whole, own):
        require_callable_overrides(made(method), Base)
