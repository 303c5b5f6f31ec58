"""Which settings mattered, told from trials that came to their level; and when nothing can be told."""

from __future__ import annotations

import pytest

from vsetune.config.spec.base import Choices, Range
from vsetune.search import importances
from vsetune.search.importances import FANOVA, importances_of

DOMAINS = {
    "loss.margin": Range(low=0.0, high=1.0),
    "training.learning_rate": Range(low=1e-5, high=1e-1, log=True),
    "loss.decay": Choices(choices=["linear", "cosine"]),
}


def trials(count: int, **fixed: object) -> list[tuple[dict[str, object], float]]:
    """The margin decides almost alone: 10 points over its range, the rate 1, the decay nothing."""
    found = []
    for index in range(count):
        margin, power = (index * 7 % count) / count, (index * 3 % count) / count
        configuration = {
            "loss.margin": margin, "training.learning_rate": 10 ** (-5 + 4 * power),
            "loss.decay": ("linear", "cosine")[index % 2],
        } | fixed
        found.append((configuration, 50 + 10 * margin + power))
    return found


def test_the_setting_that_decides_has_the_largest_share_and_shares_add_up_to_one() -> None:
    found = importances_of(DOMAINS, trials(20))
    assert next(iter(found.shares)) == "loss.margin"
    assert found.shares["loss.margin"] > 0.8
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert (found.method, found.trials, found.remark) == (FANOVA, 20, "")
    assert importances_of(DOMAINS, trials(20)) == found


@pytest.mark.parametrize(("domains", "tried", "said"), [
    (DOMAINS, trials(9), "at least 10 trials that finished or levelled off, within the search ranges; there are 9"),
    (DOMAINS, trials(10)[:1], "there is 1."),
    (DOMAINS, [({**each, "loss.margin": 1.5}, value) for each, value in trials(12)], "there are 0"),
    (DOMAINS, [(each, 50.0) for each, _ in trials(10)], "All 10 trials reached the same M-Recall"),
    (DOMAINS, [(trials(1)[0][0], 50.0 + index) for index in range(10)], "have the same settings"),
    ({}, trials(10), "Nothing is searched"),
])
def test_where_nothing_can_be_told_a_sentence_says_why(domains, tried, said) -> None:
    found = importances_of(domains, tried)
    assert found.shares == {}
    assert said in found.remark


def test_settings_that_never_changed_or_that_some_trial_lacks_are_named_and_left_out() -> None:
    tried = trials(12, **{"loss.decay": "linear"})
    del tried[3][0]["training.learning_rate"]
    found = importances_of(DOMAINS, tried)
    assert dict(found.shares) == {"loss.margin": 1.0}
    assert found.remark.endswith("training.learning_rate, loss.decay.")


def test_of_many_trials_the_latest_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importances, "MOST", 40)
    tried = trials(40)
    assert importances_of(DOMAINS, [(tried[0][0], 0.0), *tried]) == importances_of(DOMAINS, tried)
