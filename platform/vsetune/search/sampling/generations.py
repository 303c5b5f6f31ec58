"""Generations of evolutionary samplers. The first draw of a generation stores which trials it was made from, so that a
resumed process makes the same generation from the same trials, however many have ended since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial

from vsetune.search.sampling.sampler import Notes
from vsetune.search.trial_history import NOTES, TrialHistory

_GENERATION, _TOLD = "generation", "told"


@dataclass(frozen=True)
class Generation:
    """number: from 0. told: numbers of the ended trials that it learnt from, each used by one generation only. is_new:
    the next draw is its first. members: its draws so far."""

    number: int
    told: tuple[int, ...]
    is_new: bool = False
    members: list[FrozenTrial] = field(default_factory=list)

    @property
    def notes(self) -> Notes:
        """Notes for the next draw."""
        return {_GENERATION: self.number} | ({_TOLD: list(self.told)} if self.is_new else {})


def generations_of(history: TrialHistory, *, size: int) -> list[Generation]:
    """All generations so far; the last one is that of the next draw. A generation ends when `size` of its trials have
    ended; trials that end later are not used. The first generation learns from all trials that had ended before it
    began.
    """
    found: list[Generation] = []
    for trial in history:
        notes = trial.user_attrs.get(NOTES, {})
        if _GENERATION not in notes:
            continue
        if _TOLD in notes:
            found.append(Generation(int(notes[_GENERATION]), tuple(notes[_TOLD])))
        if found:
            found[-1].members.append(trial)
    if not found:
        return [Generation(0, _ended(history), is_new=True)]
    ended = _ended(found[-1].members)
    if len(ended) >= size:
        found.append(Generation(found[-1].number + 1, ended, is_new=True))
    return found


def _ended(trials: Sequence[FrozenTrial]) -> tuple[int, ...]:
    return tuple(trial.number for trial in trials if trial.state.is_finished())
