"""A home for what is made once for a file of tests, before its tests have theirs: import `home_of_a_module`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def home_of_a_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VSETUNE_HOME", str(tmp_path_factory.mktemp("home")))
        yield
