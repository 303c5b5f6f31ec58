"""Ingest and index on a Ray cluster: shards are made and read on its nodes, one task each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from rich.console import Console

from vsetune.config.plugin_import import code_of
from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.index import index
from vsetune.data.making.ingest import ingest
from vsetune.data.making.shard_tasks import ShardWork, T, Task
from vsetune.data.stored.manifest import Manifest
from vsetune.data.terminal_progress import terminal_progress
from vsetune.errors import ConfigError, StorageError, VsetuneError
from vsetune.home.addresses import mask_output
from vsetune.study.cluster import ray_cluster
from vsetune.study.stopping import StopRequest, sigterm_like_ctrl_c

_WAITING = 1000
"""Tasks submitted to Ray at a time: enough to trigger any autoscaler, and to keep as many CPUs busy."""
_LOST = 20
"""Retries of a shard whose process or node was lost; losing a spot node is not a failure."""
_LOOK_EVERY_S = 1.0


def ingest_on_cluster(
    recipe: IngestRecipe, *, address: str | None, console: Console, cpus_per_shard: int = 1
) -> Manifest:
    """The data set of a recipe, its shards made in parallel on the nodes of a cluster; its bytes equal those of
    `ingest`.

    address: of a running Ray cluster, or `auto`; None starts Ray on this machine unless RAY_ADDRESS is set.
    After a kill or a loss of nodes, the same call continues and does not repeat finished shards. The call may come from
    another machine if the data set is written to a bucket. An extractor on `cuda` asks for a GPU per shard.
    Raises the errors of `ingest`, ConfigError for a plugin's reader, and KeyboardInterrupt after Ctrl-C,
    SIGTERM or the death of Ray.
    """
    if code_of(type(recipe.source)) is not None:
        raise ConfigError(
            "VSE-S020", "source.layout: {layout} is read by a plugin, whose code is on this machine only; ingest here, "
            "without --address", layout=recipe.source.layout,
        )
    stop = StopRequest()
    gpus = 1 if str(getattr(recipe.features, "device", "cpu")).startswith("cuda") else 0
    placed = partial(_placed, stop, {"num_cpus": cpus_per_shard, "num_gpus": gpus})
    farewell = "shards that are finished stay, the same command goes on"
    with (
        sigterm_like_ctrl_c(), ray_cluster(address, stop, farewell=farewell),
        terminal_progress(console) as progress,
    ):
        return ingest(recipe, progress=progress, run_tasks=placed)


def index_on_cluster(recipe: IndexRecipe, *, address: str | None, console: Console) -> Manifest:
    """The index of a recipe, its shards read in parallel on the nodes of a cluster; equal to that of `index`.

    Every node must reach the shards and the output. address, kills and losses: as in `ingest_on_cluster`.
    """
    stop = StopRequest()
    farewell = "shards that were read are not read again, the same command goes on"
    with (
        sigterm_like_ctrl_c(), ray_cluster(address, stop, farewell=farewell),
        terminal_progress(console) as progress,
    ):
        return index(recipe, progress=progress, run_tasks=partial(_placed, stop, {"num_cpus": 1, "num_gpus": 0}))


def _placed(
    stop: StopRequest, resources: dict[str, int], function: Callable[[Task], T], tasks: Sequence[Task], /
) -> Iterator[tuple[Task, T]]:
    """A `TaskRunner` that runs Ray tasks. The first error of a task ends all."""
    run = partial(ray.remote(max_retries=_LOST, **resources)(_run).remote, Path.cwd(), function)
    coming = iter(tasks)
    waiting = {run(task): task for task in islice(coming, _WAITING)}
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=_LOOK_EVERY_S)
            if stop.is_requested:
                raise KeyboardInterrupt
            for reference in done:
                task = waiting.pop(reference)
                yield task, _result(reference, task)
                waiting |= {run(following): following for following in islice(coming, 1)}
    finally:
        with suppress(RayError, RuntimeError):  # of a Ray that has died
            for reference in waiting:
                ray.cancel(reference)


def _run(folder: Path, function: Callable[[Task], Any], task: Task) -> Any:
    """Runs a task in a worker. Returns the result, or a VsetuneError, whose message Ray would hide in a traceback.

    folder: the driver's, which relative paths of a recipe are under; workers start in another one.
    """
    mask_output()
    try:
        with chdir(folder if folder.is_dir() else Path.cwd()):
            return function(task)
    except VsetuneError as error:
        return error


def _result(reference: Any, task: ShardWork) -> Any:
    try:
        found = ray.get(reference)
    except RayError as error:
        if getattr(error, "cause", None) is not None:  # a bug in our code: keep its traceback
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise StorageError(
            "VSE-S034", "shard {shard}: its process was lost again and again ({reason}); repeat the command, with more "
            "memory per node or smaller shards if it happens again", shard=task.name, reason=reason,
        ) from error
    if isinstance(found, VsetuneError):
        raise found
    return found
