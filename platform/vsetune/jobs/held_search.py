"""The search of a study as its driver holds it. Apart from `study_home`, whose readers, the workers, need no search."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.config.study.study_spec import SearchSpec
from vsetune.search.configurations import ConfigurationSearch, Lesson, Outcome, Refusal, Suggestion


class HeldSearch(ConfigurationSearch):
    """A search that only the holder of the study writes to. check: raises StorageError when that may be another.

    The check comes first, so that most drivers hear early that they were taken over. What keeps a write of one from
    counting is that the database knows the last driver (`TrialRows.take`).
    """

    def __init__(
        self, study: str, cells: list[Cell], spec: SearchSpec, *, storage: str, refuses: Refusal | None,
        check: Callable[[], None],
    ) -> None:
        super().__init__(study, cells, spec, storage=storage, refuses=refuses, driver=uuid.uuid4().hex)
        self._check = check

    def ask(self, cell: str) -> Suggestion | None:
        self._check()
        return super().ask(cell)

    def forget(self, cell: str) -> None:
        self._check()
        super().forget(cell)

    def restore(self, cell: str, recorded: Sequence[Suggestion]) -> int:
        self._check()
        return super().restore(cell, recorded)

    def teach(self, cell: str, lessons: Sequence[Lesson], starts: Sequence[Mapping[str, Value]] = ()) -> None:
        self._check()
        super().teach(cell, lessons, starts)

    def tell(self, cell: str, number: int, outcome: Outcome, *, curve: Sequence[tuple[float, float]]) -> None:
        self._check()
        super().tell(cell, number, outcome, curve=curve)
