"""A study made ready to run: file checked, data present, folder and store chosen. Knows nothing of Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vsetune.config.base import fingerprint_of
from vsetune.config.cells import Cell, resolve_cells
from vsetune.config.data import IngestRecipe, PixelsSpec, ScenesSource
from vsetune.config.loading import load_spec
from vsetune.config.paths import home, under_home
from vsetune.config.study import ScenesSpec, StudySpec, TrackingSpec
from vsetune.data.dataset import Dataset
from vsetune.data.ingest import ingest
from vsetune.data.manifest import MANIFEST_FILE
from vsetune.data.progress import SilentProgress, terminal_progress
from vsetune.tracking.opening import open_store
from vsetune.tracking.records import StudyRecord
from vsetune.tracking.store import TrackingStore

_NOT_IN_FINGERPRINT = {"description", "resources", "tracking"}


@dataclass(frozen=True)
class PreparedStudy:
    """A study that can run: checked, its data present, its folder chosen."""

    spec: StudySpec
    cells: list[Cell]
    data_fingerprint: str

    @property
    def folder(self) -> Path:
        return study_folder(self.spec)

    def trial_folder(self, trial: str) -> Path:
        """Where a trial keeps its checkpoint; every node must see it."""
        return self.folder / "trials" / trial

    def record(self) -> StudyRecord:
        """The study for the store. Where and how fast it runs does not change what it is."""
        plain = {key: value for key, value in self.spec.to_plain().items() if key not in _NOT_IN_FINGERPRINT}
        plain["data"] = {**plain["data"], "path": None}
        fingerprint = fingerprint_of({**plain, "data_fingerprint": self.data_fingerprint})
        tags = {"data_fingerprint": self.data_fingerprint, "description": self.spec.description}
        return StudyRecord(self.spec.study, fingerprint, self.spec.to_plain(), tags)


def prepare_study(path: Path, console: Console) -> PreparedStudy:
    """Reads and checks a study file, makes the embedded data if it asks for them. Raises UsageError in one line."""
    spec = load_spec(path, StudySpec)
    resolve_cells(spec, where=str(path))
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"path": under_home(spec.data.path)})})
    if spec.data.scenes is not None:
        make_scenes(Path(spec.data.path), spec.data.scenes, console)
    dataset = Dataset.open(spec.data.path)
    for split in (spec.data.train_split, spec.data.validation_split):
        dataset.split(split)
    return PreparedStudy(spec, resolve_cells(spec, where=str(path)), dataset.fingerprint)


def make_scenes(folder: Path, sizes: ScenesSpec, console: Console) -> None:
    """Makes the embedded data set in `folder`, or finds it there. StudyConflict if it holds another data set."""
    recipe = IngestRecipe(
        name="scenes", output=str(folder), source=ScenesSource.model_validate(sizes.to_plain()), features=PixelsSpec(),
    )
    if (folder / MANIFEST_FILE).exists():
        ingest(recipe, progress=SilentProgress())
        return
    with terminal_progress(console) as progress:
        ingest(recipe, progress=progress)


def study_folder(spec: StudySpec) -> Path:
    """The folder of checkpoints and search state of a study."""
    return Path(under_home(spec.tracking.folder)) / spec.study


def tracking_store(tracking: TrackingSpec) -> TrackingStore:
    """The store that a study's tracking section names."""
    return open_store(tracking_uri(tracking), None)


def tracking_uri(tracking: TrackingSpec) -> str:
    """The MLflow tracking URI: as given, or the SQLite file under the home folder."""
    if tracking.uri is None:
        return f"sqlite:///{home() / 'mlflow.db'}"
    return tracking.uri
