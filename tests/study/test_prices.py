from __future__ import annotations

import logging

import pytest

from vsetune.config.study.resources import Needs
from vsetune.study.node_types import share_of
from vsetune.study.trial_measures import price_of


def test_a_trial_pays_for_the_larger_of_its_shares_of_a_node() -> None:
    node = {"CPU": 8.0, "GPU": 2.0}
    assert share_of(node, Needs(cpus=2)) == 0.25
    assert share_of(node, Needs(cpus=1, gpus=1)) == 0.5
    assert share_of(node, Needs(cpus=64)) == 1.0
    assert share_of({"CPU": 4.0}, Needs(cpus=1, gpus=0)) == 0.25
    assert share_of({}, Needs()) == 1.0


def test_a_price_that_is_none_is_told_once_and_counts_as_no_price(caplog: pytest.LogCaptureFixture) -> None:
    assert price_of("a", {"vsetune.io/usd-per-hour": "2.5"}) == 2.5
    assert price_of("a", {}) is None
    with caplog.at_level(logging.WARNING):
        assert [price_of("node-with-words", {"vsetune.io/usd-per-hour": "cheap"}) for _ in range(3)] == [None] * 3
    assert len(caplog.messages) == 1
    assert "vsetune.io/usd-per-hour is cheap" in caplog.text
