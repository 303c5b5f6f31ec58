"""The quality list every network of vsetune passes. Run it: pytest path/to/word_cnn"""

from __future__ import annotations

from pathlib import Path

import pytest

from vsetune.quality.checks import Check
from vsetune.quality.network_checks import NETWORK_CHECKS
from vsetune.quality.network_learning import NetworkSubject
from vsetune.quality.subjects import network_at

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("check", NETWORK_CHECKS, ids=str)
def test_the_quality_list(check: Check[NetworkSubject]) -> None:
    check.require(NetworkSubject(network_at(FOLDER)))
