"""Every card of a chaos run is played once."""

from __future__ import annotations

from dataclasses import replace

from chaos.disturbances import KINDS
from chaos.run import after_sweep
from chaos.schedule import Card, deck


def test_a_card_that_was_played_in_another_phase_is_not_played_again() -> None:
    cards = [Card(number, "driver_killed", "end", points=1, delay_s=0.0, lasts_s=0.0) for number in range(3)]
    hand = [cards[0], replace(cards[1], phase="closed")]
    assert after_sweep(cards, hand, left=[]) == [cards[2]]
    assert after_sweep(cards, hand, left=[hand[1]]) == [cards[2], hand[1]]


def test_no_process_of_a_trial_is_hit_when_the_last_one_is_gone() -> None:
    cards = [card for seed in range(20) for card in deck(list(KINDS), 60, seed=seed) if KINDS[card.kind].hits_worker]
    assert "closed" in {card.phase for card in cards}
    assert "end" not in {card.phase for card in cards}
