"""Which disturbance comes when: a seeded deck of cards, dealt to the sweeps before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from chaos.disturbances import KINDS
from chaos.sweeps import Sweep
from chaos.watching import Sight

Phase = Literal["start", "opened", "validation", "checkpoint", "closed", "end"]
_WEIGHTS: dict[Phase, float] = {
    "start": 0.2, "opened": 0.15, "validation": 0.3, "checkpoint": 0.15, "closed": 0.1, "end": 0.1,
}
_PATIENCE_S: dict[Phase, tuple[float, float]] = {  # between what is waited for and the strike
    "start": (0.5, 12.0), "opened": (0.0, 1.0), "validation": (0.0, 0.4), "checkpoint": (0.0, 0.1),
    "closed": (0.0, 0.5), "end": (0.0, 2.0),
}
_STUDY_IS_LOADED_S = 2.0
"""A signal to Python before our code runs is Python's to answer."""


@dataclass(frozen=True)
class Card:
    """One disturbance. phase: what is waited for: `start` of the driver, an attempt `opened`, `points` further
    validations, the next `checkpoint`, a trial `closed`, the `end` of the last trial. delay_s: from there on.
    lasts_s: of an outage, else 0.
    """

    number: int
    kind: str
    phase: Phase
    points: int
    delay_s: float
    lasts_s: float

    def is_due(self, since: Sight, now: Sight, promised: int) -> bool:
        """Whether what the card waits for has happened between two looks. `start` cards are due at once."""
        happened: dict[Phase, bool] = {
            "start": True, "opened": now.attempts > since.attempts,
            "validation": now.points >= since.points + self.points,
            "checkpoint": now.checkpoint > since.checkpoint, "closed": now.closed > since.closed,
            "end": now.closed >= promised,
        }
        return happened[self.phase]


def deck(kinds: Sequence[str], count: int, *, seed: int) -> list[Card]:
    """`count` cards, every kind equally often (the first ones once more if it does not come out even), shuffled."""
    random = Random(seed)
    names = [kinds[number % len(kinds)] for number in range(count)]
    random.shuffle(names)
    return [_card(number, name, random) for number, name in enumerate(names)]


def fits(card: Card, sweep: Sweep) -> bool:
    """Whether the sweep has what the disturbance takes away."""
    needs = KINDS[card.kind].needs
    return needs in ("nothing", "small_disk") or needs == sweep.store


def deal(cards: Iterable[Card], sweeps: Sequence[Sweep]) -> dict[int, list[Card]]:
    """Every card to a sweep that it fits, by number of the sweep; hands as even as that allows."""
    hands: dict[int, list[Card]] = {sweep.number: [] for sweep in sweeps}
    picky_first = sorted(cards, key=lambda card: sum(fits(card, sweep) for sweep in sweeps))
    for card in picky_first:
        places = [sweep.number for sweep in sweeps if fits(card, sweep)]
        hands[min(places, key=lambda number: len(hands[number]))].append(card)
    return {number: _with_one_end(sorted(hand, key=lambda card: card.number)) for number, hand in hands.items()}


def _with_one_end(hand: list[Card]) -> list[Card]:
    """A sweep ends once: further cards for its end wait for a closed trial instead."""
    ends = [card for card in hand if card.phase == "end"][1:]
    return [replace(card, phase="closed") if card in ends else card for card in hand]


def _card(number: int, kind: str, random: Random) -> Card:
    phase = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    if phase == "end" and KINDS[kind].hits_worker:
        phase = "closed"  # workers are gone with the last trial
    low, high = _PATIENCE_S[phase]
    if phase == "start" and kind in ("driver_sigterm", "driver_sigint"):
        low = _STUDY_IS_LOADED_S
    lasts = KINDS[kind].lasts_s
    return Card(
        number, kind, phase, points=random.randint(1, 6), delay_s=random.uniform(low, high),
        lasts_s=random.triangular(*lasts, lasts[0]) if lasts is not None else 0.0,
    )
