"""A study in Python: from a file, a mapping or keywords; checked, planned, run."""

from __future__ import annotations

import copy
import html
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vsetune.api.notebook_classes import plugin_of_class
from vsetune.config.component_specs import LossSpec, NetworkSpec
from vsetune.config.spec.loading import dump_yaml
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError
from vsetune.home.whole_files import write_text
from vsetune.study.study_file import load_study, parse_sweep, study_folder

if TYPE_CHECKING:
    import pandas

    from vsetune.api.recorded import RecordedStudy
    from vsetune.study.planning.planned_study import StudyPlan
    from vsetune.study.preparation import PreparedStudy


class Study:
    """A comparison of losses and networks on one data set: what a study file says, with the same keys.

    content, keys: the keys of a study file (docs/studies.md), as one mapping, as keywords or both. In `networks` and
    `losses` an entry may be a name, a mapping as in a file, or a class of this notebook, which is then pickled
    into a plugin folder (`vsetune.train` says how); `name` of a mapping may be a class as well. A study that has begun
    goes on with the class that it began with.

    spec: the checked settings. ConfigError lists every problem.

    Example:

        study = vsetune.Study(
            study="margins", data={"path": "data/scenes", "scenes": {"train": 500}}, networks=["vsepp"],
            losses=["lmh", "info_nce"], baseline="lmh", training={"epochs": 4, "batch_size": 50}, seeds=[0, 1, 2],
        )
        study.run().board
    """

    def __init__(self, content: Mapping[str, Any] | None = None, /, **keys: Any) -> None:
        plain = with_plugins({**copy.copy(dict(content or {})), **keys})
        self.where = f"study {plain.get('study', '')}".strip()
        self.spec: StudySpec = parse_sweep(plain, StudySpec, where=self.where, base=Path.cwd())

    @classmethod
    def from_file(cls, path: str | Path) -> Study:
        """The study of a YAML file. Errors as of `vsetune study validate`, each with the file and the key."""
        return cls.of(load_study(Path(path)), where=str(path))

    @classmethod
    def of(cls, spec: StudySpec, *, where: str) -> Study:
        """A study that was read already. where: opens messages."""
        study = cls.__new__(cls)
        study.spec, study.where = spec, where
        return study

    @property
    def name(self) -> str:
        """Its name among the studies of the home."""
        return self.spec.study

    @property
    def cells(self) -> list[str]:
        """`network.loss` of every comparison, networks outermost. ConfigError lists all that do not fit."""
        return [cell.name for cell in self._resolved()]

    def validate(self) -> pandas.DataFrame:
        """Checks everything that can be known without the data: one row per cell, with `cell`, `epochs`, `searched`.

        ConfigError lists every problem at once.
        """
        import pandas

        from vsetune.study.cell_budget import epochs_of_cell

        return pandas.DataFrame([
            {"cell": cell.name, "epochs": epochs_of_cell(self.spec, cell), "searched": list(cell.domains)}
            for cell in self._resolved()
        ])

    def plan(self, *, seconds_per_cell: float = 10.0, workers: int | None = None) -> StudyPlan:
        """Hours, epochs, memory and money that the study takes, from a few real steps of every cell on this machine.

        seconds_per_cell: of the steps that are timed. workers: trials at a time; None: as many as this
        machine, or the cluster of $VSETUNE_CLUSTER, has room for. Scenes are generated if they are missing. Errors as
        of `vsetune study plan`. `plan.hours`, `plan.cells`: see `StudyPlan`.
        """
        from vsetune.study.planning.planned_study import plan_study

        return plan_study(self._prepared(), where=self.where, seconds_per_cell=seconds_per_cell, workers=workers)

    def run(self, *, address: str | None = None, progress: bool = True) -> RecordedStudy:
        """Runs every trial to its end and returns the recorded study, with its board.

        address: of a running Ray cluster; None: this machine. progress: a table of what runs, in the terminal or below
        the cell. Ctrl-C (Interrupt of a notebook) stops the trials with a checkpoint and raises KeyboardInterrupt in
        the cell; `resume` goes on. The process's own signal handlers are as before afterwards, and SIGTERM stays with
        it. Errors as of `vsetune study run`: StudyConflict if a study of this name has begun, ConfigError, DataError.
        """
        return self._run(resume=False, retry_failed=False, address=address, progress=progress)

    def resume(
        self, *, retry_failed: bool = False, address: str | None = None, progress: bool = True
    ) -> RecordedStudy:
        """Goes on where a run of this study ended; begins it if none has. retry_failed: runs failed trials again. The
        rest as in `run`."""
        return self._run(resume=True, retry_failed=retry_failed, address=address, progress=progress)

    def save(self, path: str | Path) -> Path:
        """Writes the study file, all defaults included, for `vsetune study run`. Returns its path."""
        write_text(Path(path), dump_yaml(self.spec.to_plain()))
        return Path(path)

    def __repr__(self) -> str:
        return f"Study({self.name!r}: {len(self.spec.networks)} networks x {len(self.spec.losses)} losses)"

    def _repr_html_(self) -> str:
        return f"<b>{html.escape(repr(self))}</b>{self.validate().to_html(index=False)}"

    def _resolved(self) -> list[Cell]:
        return resolve_cells(self.spec, where=self.where)

    def _prepared(self, console: Console | None = None) -> PreparedStudy:
        from vsetune.study.preparation import prepare_spec

        return prepare_spec(self.spec, console or Console(stderr=True), where=self.where)

    def _run(self, *, resume: bool, retry_failed: bool, address: str | None, progress: bool) -> RecordedStudy:
        from vsetune.api.recorded import open_study
        from vsetune.study.run import run_study

        console = Console(stderr=True, quiet=not progress)
        outcome = run_study(
            self._prepared(console), resume=resume, retry_failed=retry_failed, address=address, console=console,
            signals=[signal.SIGINT],
        )
        for trouble in outcome.troubles:
            console.print(f"{trouble.trial}: {trouble.reason}", markup=False, highlight=False, soft_wrap=True)
        if outcome.was_interrupted:
            why = f" by {outcome.stopped_by}" if outcome.stopped_by else ""
            raise KeyboardInterrupt(f"study {self.name} interrupted{why}; nothing finished is lost, resume() goes on")
        return open_study(self.name)


def with_plugins(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a study file, where names and classes of networks and losses became entries, and classes plugins.
    """
    folders: list[str] = []

    def entry(given: Any, key: str, kind: str) -> Any:
        if isinstance(given, str):
            return {"name": given}
        given = getattr(given, "spec", given)  # of a loss
        if isinstance(given, LossSpec | NetworkSpec):
            settings = given.model_dump(mode="json", exclude_unset=True, exclude={"name"})
            return {"name": given.name, "fixed": settings}
        if isinstance(given, type) and hasattr(given, "component"):  # one of `vsetune.losses`
            return {"name": given.component}
        if isinstance(given, type):
            plugin = plugin_of_class(given, kind, study_folder(plain))
            folders.append(str(plugin.folder))
            return {"name": plugin.name}
        if isinstance(given, Mapping):
            return {**given, **(entry(given["name"], key, kind) if isinstance(given.get("name"), type) else {})}
        need = f"a name, a mapping or a class of a {kind}"
        raise ConfigError("VSE-A004", "{key}: got {got}, need {need}", key=key, got=type(given).__name__, need=need)

    changed = dict(plain)
    for key, kind in (("networks", "network"), ("losses", "loss")):
        if isinstance(plain.get(key), list | tuple):
            changed[key] = [entry(each, f"{key}[{place}]", kind) for place, each in enumerate(plain[key])]
    if folders:
        changed["plugins"] = [*changed.get("plugins", []), *dict.fromkeys(folders)]
    return changed
