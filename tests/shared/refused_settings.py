"""Settings that contradict each other, as pydantic reports them: compared by their code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError
from refusals import fits


@contextmanager
def refused_settings(code: str, /, **fields: Any) -> Iterator[None]:
    """A spec made inside is refused with this code. fields: those that the test is about; compared as text."""
    with pytest.raises(ValidationError) as caught:
        yield
    found = [each["ctx"]["error"].args[0] for each in caught.value.errors() if each["type"] == "value_error"]
    assert any(fits(each, code, **fields) for each in found), (code, fields, found)
