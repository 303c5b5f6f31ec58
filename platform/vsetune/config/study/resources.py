"""Resources of a trial on a cluster. How fast and where a study runs does not change its identity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from vsetune.config.sources.trial_inputs import Reading, ReadingSource
from vsetune.config.spec.base import Spec
from vsetune.errors import Problem

_MOST_CPUS, _MOST_GIB = 4096, 1_000_000
_SHARE_OF_GPU = 0.4
"""Of the memory of the GPU, or the fraction of one, that a trial occupies: the share for its arrays."""


def _a_share_or_whole(gpus: float) -> float:
    if gpus > 1 and not gpus.is_integer():
        need = "0, a fraction of a GPU, or a whole number: a process trains on one GPU"
        raise ValueError(Problem.of("VSE-C003", "got {got}, need {need}", got=f"{gpus:g}", need=need))
    return gpus


Gpus = Annotated[float, Field(ge=0, le=1024), AfterValidator(_a_share_or_whole)]


@dataclass(frozen=True, order=True)
class Needs:
    """Resources that one trial requests, with all its processes. memory_gib: 0 is not counted. accelerator: a type in
    Ray's notation, `H100`. workers: processes that train the trial, each on any node."""

    cpus: int = 1
    gpus: float = 0.0
    memory_gib: float = 0.0
    accelerator: str = ""
    workers: int = 1

    @property
    def threads(self) -> int:
        """Of one process."""
        return max(1, self.cpus // self.workers)

    @property
    def of_process(self) -> Needs:
        """The resources of one process, all of one node."""
        if self.workers == 1:
            return self
        gpus, memory = self.gpus / self.workers, self.memory_gib / self.workers
        return Needs(self.threads, gpus, memory, self.accelerator)

    def __str__(self) -> str:
        words = [f"{self.cpus} CPUs", f"{self.gpus:g} GPUs"]
        words += [f"{self.memory_gib:g} GiB memory"] if self.memory_gib else []
        words += [f"accelerator {self.accelerator}"] if self.accelerator else []
        words += [f"{self.workers} processes"] if self.workers > 1 else []
        return ", ".join(words)


class CellResources(Spec):
    """What trials of one network or cell occupy instead; what is left out stays as `resources` has it."""

    cpus: int | None = Field(None, ge=1, le=_MOST_CPUS, description="cores, and threads of each process of a trial")
    gpus: Gpus | None = Field(None, description="0, a fraction of a GPU, or several: a process trains on each")
    workers: int | None = Field(
        None, ge=1, le=1024, description="processes that train a trial together, each with its share of every batch; "
        "with GPUs as many as these",
    )
    memory_gib: float | None = Field(
        None, gt=0, le=_MOST_GIB, description="memory of a trial, counted when trials are placed",
    )
    accelerator: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60, description="type of GPU as Ray names it: H100",
    )


class ResourceSpec(CellResources):
    """What one trial occupies. By default one process, or one on each GPU; memory that is not counted; any GPU."""

    cpus: int = Field(1, ge=1, le=_MOST_CPUS, description="cores, and threads of each process of the trial")
    gpus: Gpus = Field(0.0, description="0, a fraction of a GPU, or several: a process trains on each")
    cells: dict[str, CellResources] = Field(
        default_factory=dict, max_length=10_000,
        description="other resources for a network (`gsmn`) or one cell (`gsmn.lmh`, which wins over its network)",
    )
    concurrent_trials: int | None = Field(
        None, ge=1, le=1_000_000, description="null: as many as the cluster has room for, while it grows and shrinks",
    )
    retries: int = Field(
        6, ge=0, le=1000, description="new attempts of a trial that was interrupted (process died, storage, network, "
        "device or memory) without a new validation in between; they start after 2, 4, 8, ... s, at most 60 s",
    )
    silence_timeout_s: float = Field(
        900.0, gt=0, le=1e6,
        description="seconds without a sign of life after which a trial's worker is ended and tried again",
    )
    checkpoint_share: float = Field(
        0.02, ge=1e-9, le=1, description="of a trial's time that may go into checkpoints: after one of 0.4 s the next "
        "is due 20 s later, with a validation, and what a killed process has trained since is trained again; 1: one "
        "with every validation",
    )
    reading: ReadingSource = Field(
        "auto", description="`bank`: batches come from arrays that each node makes of the shards once, for all its "
        "trials; `stream`: from the shards; `auto`: from arrays where they are small enough. The batches are the same",
    )
    bank_gib: float = Field(
        50.0, ge=0, le=_MOST_GIB, description="most that such arrays take on a node's disk, all data sets together",
    )

    def needs_of(self, network: str, loss: str) -> Needs:
        """Resources of a trial of this cell. network, loss: their names in the study."""
        given = self.to_plain()
        for name in (network, f"{network}.{loss}"):
            if name in self.cells:
                given |= {key: value for key, value in self.cells[name].to_plain().items() if value is not None}
        workers = given["workers"] or max(1, int(given["gpus"]))
        return Needs(
            given["cpus"] * workers, given["gpus"], given["memory_gib"] or 0.0, given["accelerator"] or "", workers
        )

    @model_validator(mode="after")
    def _every_process_has_a_gpu(self) -> ResourceSpec:
        """A process trains on one GPU: more would stand idle, fewer would be shared."""
        for name in ("", *self.cells):
            own = self.cells[name] if name else CellResources()
            gpus = self.gpus if own.gpus is None else own.gpus
            workers = self.workers if own.workers is None else own.workers
            if gpus and workers is not None and workers != max(1, int(gpus)):
                where = f"cells.{name}." if name else ""
                raise ValueError(Problem.of(
                    "VSE-C084", "{key}: got {got} with {gpus} GPUs, need one process on each GPU; leave it out",
                    key=f"{where}workers", got=workers, gpus=f"{gpus:g}",
                ))
        return self

    def reading_of(self, needs: Needs) -> Reading:
        """The source of batches for a trial with these needs."""
        return Reading(self.reading, round(self.bank_gib * 2**30), _SHARE_OF_GPU * needs.gpus)

    def unknown_cells(self, networks: Iterable[str], losses: Iterable[str]) -> list[str]:
        """Names under `cells` that are neither a network nor a cell of the study."""
        losses = list(losses)
        known = {name for network in networks for name in (network, *(f"{network}.{loss}" for loss in losses))}
        return sorted(set(self.cells) - known)


def trials_that_fit(nodes: Iterable[Mapping[str, float]], needs: Needs) -> int:
    """How many trials with these needs fit on empty nodes together."""
    return sum(copies_that_fit(node, needs.of_process) for node in nodes) // needs.workers


def copies_that_fit(node: Mapping[str, float], needs: Needs) -> int:
    """How many trials of one process, with these needs, fit on an empty node. node: amounts under Ray's names (`CPU`,
    `memory`)."""
    asked = {
        "CPU": float(needs.cpus), "GPU": needs.gpus, "memory": needs.memory_gib * 2**30,
        **({f"accelerator_type:{needs.accelerator}": 0.0} if needs.accelerator else {}),
    }
    if needs.accelerator and not node.get(f"accelerator_type:{needs.accelerator}"):
        return 0
    shares = [node.get(name, 0.0) / amount for name, amount in asked.items() if amount]
    return math.floor(min(shares) + 1e-9)
