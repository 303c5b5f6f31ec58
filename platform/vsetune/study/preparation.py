"""Preparation of a study: the file is checked, the data are made, folder and store are chosen. Does not use Ray."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vsetune.config.plugins import Plugin
from vsetune.config.sources.index_recipe import IndexRecipe, IndexSpec
from vsetune.config.study.cells import Cell, build_trial, candidates, repeated_cells, resolve_cells
from vsetune.config.study.study_spec import ScenesSpec, StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions.parses import lacks_phrases, phrase_codes
from vsetune.data.captions.semantic_sources import semantic_vectors_of
from vsetune.data.making.index import index, indexed
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset, evaluated_split, further_tests
from vsetune.data.stored.manifest import MANIFEST_FILE
from vsetune.data.stored.storage import exists
from vsetune.data.terminal_progress import terminal_progress
from vsetune.errors import ConfigError, DataError, Problem, StorageError, StudyConflict
from vsetune.home.addresses import join, shown_plain
from vsetune.home.hashes import fingerprint_of
from vsetune.home.home_files import require_usable
from vsetune.home.paths import HOME_VARIABLE, home, home_variable, remote_home, remote_place, under_home
from vsetune.records.events import FIRST_REPEATS, PLUGIN_TAG, StudyRecord
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import first_repeats
from vsetune.study.first_stages import StageSearch, with_first_stage
from vsetune.study.fitting import require_fit, require_scenes, scenes_recipe
from vsetune.study.observed import PROMISED, promised_trials
from vsetune.study.places import TRACKING_VARIABLE, tracking_uri
from vsetune.study.study_file import load_study, used_plugins
from vsetune.study.study_home import TRIALS_FOLDER

_NOT_IN_FINGERPRINT = {"description", "plugins", "resources", "tracking"}


@dataclass(frozen=True)
class PreparedStudy:
    """A study that can run: checked, its data present, its folder chosen. plugins: third-party code that it uses.

    calibrates: its workers also report times in calibration products. It does not enter the study's fingerprint.
    """

    spec: StudySpec
    cells: list[Cell]
    data_fingerprint: str
    plugins: Sequence[Plugin] = ()
    calibrates: bool = False

    @property
    def folder(self) -> Path:
        return folder_of_study(self.spec.study)

    def trial_folder(self, trial: str) -> Path:
        """The folder of a trial's checkpoint. With a local home, every node must have access to it."""
        return self.folder / TRIALS_FOLDER / trial

    def worker_folder(self, trial: str) -> str:
        """The same for a worker. With a remote home the path is relative, to the home folder of the worker's node."""
        folder = self.trial_folder(trial)
        return str(folder if remote_home() is None else folder.relative_to(home()))

    def record(self, *, known: StudyRecord | None = None) -> StudyRecord:
        """The study for the store, without passwords. Its fingerprint does not depend on where and how fast it runs.

        known: the study as it began or was resumed. It may go on with more searches of each loss: they are cells of
        their own, with seeds of their own, so they change nothing of the first ones. The fingerprint still counts only
        the searches that it began with.
        """
        first = self.spec.search.repeats if known is None else min(self.spec.search.repeats, first_repeats(known))
        began = self.spec.model_copy(update={"search": self.spec.search.model_copy(update={"repeats": first})})
        plain = {key: value for key, value in began.fingerprinted().items() if key not in _NOT_IN_FINGERPRINT}
        plain["data"] = {**plain["data"], "path": None}
        plain["data"].pop("index", None)  # the data set's own fingerprint covers it
        plain["search"] = {**plain["search"], "storage": None}  # a setting of earlier versions
        code = {plugin.key: plugin.sha256 for plugin in self.plugins}
        plain |= {"plugins": code} if code else {}
        fingerprint = fingerprint_of({**plain, "data_fingerprint": self.data_fingerprint})
        tags = {"data_fingerprint": self.data_fingerprint, "description": self.spec.description}
        tags[PROMISED] = str(promised_trials(self.spec, self.cells))
        tags |= {f"{PLUGIN_TAG}{key}": sha256 for key, sha256 in code.items()}
        tags |= {FIRST_REPEATS: str(first)} if first < self.spec.search.repeats else {}
        return StudyRecord(self.spec.study, fingerprint, shown_plain(self.spec.to_plain()), tags)


def prepare_study(path: Path, console: Console) -> PreparedStudy:
    """Reads and checks a study file; generates data if it asks for them. UsageError of one line."""
    return prepare_spec(load_study(path), console, where=str(path))


def prepare_spec(spec: StudySpec, console: Console, *, where: str) -> PreparedStudy:
    """The same for a study that was read already. where: the file to correct; every message begins with it."""
    cells = resolve_cells(spec, where=where)
    require_home(spec)
    tests = {
        name: test if test.path is None else test.model_copy(update={"path": under_home(test.path)})
        for name, test in spec.data.tests.items()
    }
    at_home = {"path": under_home(spec.data.path), "tests": tests}
    spec = spec.model_copy(update={"data": spec.data.model_copy(update=at_home)})
    if spec.data.scenes is not None:
        _make_scenes_of(spec, console, where=where)
    if spec.data.index is not None:
        _make_index_of(spec, spec.data.index, console, where=where)
    dataset = Dataset.open(spec.data.path)
    require_fit(spec, cells, dataset, where=where)
    spec = with_first_stage(stage_search(spec, dataset, where=where))
    with console.status("checking the shards"):
        dataset.require_unchanged([name for name in _splits(spec) if name in dataset.manifest.splits])
        for other, split in further_tests(spec.data, dataset).values():
            other.require_unchanged([split])
    trials = _trials_at_the_ends(spec, cells)
    _report_lacking_phrases(trials, dataset, console)
    _make_semantics(spec, trials, dataset, console)
    return PreparedStudy(spec, repeated_cells(spec, cells), dataset.fingerprint, used_plugins(spec))


def stage_search(spec: StudySpec, dataset: Dataset, *, where: str) -> StageSearch:
    """Search for the first stage of a study that re-ranks: in its tracking store, unless the home has it already."""
    return StageSearch(spec, dataset, folder_of_study(spec.study), Studies, where)


def _trials_at_the_ends(spec: StudySpec, cells: list[Cell]) -> list[TrialSpec]:
    """The trials that cover all demands on the data set: every cell at its defaults and at the ends of its ranges."""
    return [
        build_trial(spec, cell, candidate, trial="prepared", seed=spec.seeds[0])
        for cell in cells for candidate in candidates(cell)
    ]


def _report_lacking_phrases(trials: list[TrialSpec], dataset: Dataset, console: Console) -> None:
    """Prints that single words are masked because the data set lacks phrases. Workers write it to their own logs; here
    it is printed once for the study."""
    splits = {trial.data.train_split for trial in trials if trial.network.reads.phrases}
    if any(phrase_codes(dataset, split) is None for split in splits):
        console.print(lacks_phrases(dataset.path), markup=False, highlight=False, soft_wrap=True)


def _make_semantics(spec: StudySpec, trials: list[TrialSpec], dataset: Dataset, console: Console) -> None:
    """Computes the semantic vectors that trials will need, with a progress bar. Trials then read the stored vectors."""
    wanted = {(trial.semantic_source, spec.data.train_split) for trial in trials if trial.semantic_source is not None}
    if spec.evaluation.srd_at:
        wanted.add(("encoder", evaluated_split(spec.data, dataset)))
    for source, split in sorted(wanted):
        with terminal_progress(console) as progress:
            semantic_vectors_of(dataset, spec.data, source, split=split, progress=progress)


def _splits(spec: StudySpec) -> list[str]:
    data = spec.data
    return [name for name in (data.train_split, data.validation_split, data.test_split) if name is not None]


def _make_scenes_of(spec: StudySpec, console: Console, *, where: str) -> None:
    """Makes the data set that `data.scenes` asks for. Errors name the fields of the study file."""
    assert spec.data.scenes is not None
    require_scenes(spec, where=where)
    try:
        make_scenes(spec.data.path, spec.data.scenes, console)
    except StudyConflict as error:
        raise StudyConflict(
            "VSE-S018", "{where}: data.scenes: {path} holds other data than these sizes and this seed give; name "
            "another data.path, delete that folder, or remove scenes to use what is there", where=where,
            path=spec.data.path,
        ) from error
    except StorageError as error:
        problem = error.problem.worded(f"{where}: data.scenes: {str(error).removeprefix('output: ').rstrip('.')}")
        is_busy = isinstance(error.__cause__, BlockingIOError)
        hint = "" if is_busy else f": set {home_variable()}, or data.path"
        raise StorageError(problem.worded(f"{problem}{hint}")) from error


def _make_index_of(spec: StudySpec, shards: IndexSpec, console: Console, *, where: str) -> None:
    """Indexes the shards of `data.index`, unless that was done. Errors name the study file."""
    recipe = IndexRecipe.of(shards, spec.data.path)
    try:
        is_there = indexed(recipe, spec.data.path) is not None
        with nullcontext(SilentProgress()) if is_there else terminal_progress(console) as progress:
            manifest = index(recipe, progress=progress)
    except ConfigError as error:
        problems = [line if isinstance(line, Problem) else Problem(line) for line in error.problems]
        raise ConfigError([problem.at(f"{where}: data.index") for problem in problems]) from error
    except (DataError, StudyConflict) as error:
        raise type(error)(error.problem.at(f"{where}: data.index")) from error
    for note in () if is_there else manifest.notes:
        console.print(f"{spec.data.path}: {note}", markup=False, highlight=False, soft_wrap=True)


def make_scenes(place: str | Path, sizes: ScenesSpec, console: Console) -> None:
    """Generates the data set unless it is there already. place: a folder, or a prefix under the remote home.

    StudyConflict if another data set is there."""
    recipe = scenes_recipe(str(place).removeprefix(f"{remote_home()}/"), sizes)
    if exists(join(str(place), MANIFEST_FILE)):
        ingest(recipe, progress=SilentProgress())
        return
    with terminal_progress(console) as progress:
        made = ingest(recipe, progress=progress)
    for note in made.notes:
        console.print(f"{place}: {note}", markup=False, highlight=False, soft_wrap=True)


def require_home(spec: StudySpec) -> None:
    """Checks that a remote home can be used for this study. Does nothing with a local home.

    ConfigError: tracking and folders do not fit several machines. StorageError: the home cannot be written.
    """
    remote = remote_home()
    if remote is None:
        return
    if (tracking_uri(spec.tracking) or "").startswith("sqlite"):
        raise ConfigError(
            "VSE-S019", "tracking.uri: got a SQLite file, and {home_variable} is {home}, which other machines use too; "
            "need an MLflow server or a database such as postgresql://, set {variable} or tracking.uri, or `none`",
            home_variable=HOME_VARIABLE, home=remote, variable=TRACKING_VARIABLE,
        )
    remote_place(folder_of_study(spec.study))
    require_usable(remote, named=HOME_VARIABLE)
