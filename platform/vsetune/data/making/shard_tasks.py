"""Tasks for shards, run one after the other or wherever a runner places them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar


class ShardWork(Protocol):
    """A task for a shard: plain data. name: of the shard."""

    @property
    def name(self) -> str: ...


Task = TypeVar("Task", bound=ShardWork)
T = TypeVar("T")


class TaskRunner(Protocol):
    """Runs each task in some process. Results in order of completion; a task whose process was lost is run again."""

    def __call__(self, function: Callable[[Task], T], tasks: Sequence[Task], /) -> Iterator[tuple[Task, T]]: ...


def one_by_one(function: Callable[[Task], T], tasks: Sequence[Task]) -> Iterator[tuple[Task, T]]:
    """A `TaskRunner` in this process."""
    for task in tasks:
        yield task, function(task)
