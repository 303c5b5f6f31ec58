from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _made_once(extractors_made_once: None) -> None:
    """Studies here make tiny data sets."""
