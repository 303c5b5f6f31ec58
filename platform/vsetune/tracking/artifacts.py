"""Files that MLflow keeps with a run. What we need of its client, so that MLflow itself is imported elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from vsetune.errors import StorageError
from vsetune.files.room import MAKE_ROOM, free_in
from vsetune.tracking.plots import curves_picture
from vsetune.tracking.records import ValidationPoint
from vsetune.tracking.store import require_files


class ArtifactClient(Protocol):
    """The part of `mlflow.MlflowClient` that moves files."""

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        """Copy a file to a run, under its own name in the folder `artifact_path`."""

    def list_artifacts(self, run_id: str, path: str | None = None) -> list[Any]:
        """What a folder of a run holds; each has a `path`."""

    def download_artifacts(self, run_id: str, path: str, dst_path: str | None = None) -> str:
        """Copy a file of a run into a local folder."""


def keep(client: ArtifactClient, run_id: str, artifacts: Sequence[Path], folder: str | None = None) -> None:
    """Copy files to a run. StorageError for one that is not there."""
    require_files(run_id, artifacts)
    for artifact in artifacts:
        client.log_artifact(run_id, str(artifact), folder)


def holds(client: ArtifactClient, run_id: str, name: str) -> bool:
    """Whether a run has a file of this name (with its folder)."""
    parent, _, _ = name.rpartition("/")
    return name in {found.path for found in client.list_artifacts(run_id, parent or None)}


def files_in_reach(uri: str, run: Any) -> bool:
    """Whether the files of an MLflow run can be asked for through this tracking URI; those that a server keeps only
    through the server."""
    return uri.startswith(("http:", "https:")) or not str(run.info.artifact_uri).startswith("mlflow-artifacts:")


def fetch(client: ArtifactClient, run_id: str, name: str, into: Path) -> Path | None:
    """A copy in a local folder, or None where the run has no such file. StorageError as of `download`."""
    return download(client, run_id, name, into) if holds(client, run_id, name) else None


def download(client: ArtifactClient, run_id: str, name: str, into: Path) -> Path:
    """A copy of a file that a run holds in a temporary folder. StorageError where it does not arrive."""
    try:
        return Path(client.download_artifacts(run_id, name, str(into)))
    except Exception as error:  # MLflow keeps the cause to itself: whatever it was, it calls the path wrong
        raise StorageError(
            f"run {run_id}: {name} is there and cannot be copied to {into} ({free_in(into)}); check the place "
            f"of the store's artifacts; {MAKE_ROOM}, then repeat"
        ) from error


def draw_curves(client: ArtifactClient, run_id: str, points: Sequence[ValidationPoint]) -> None:
    """Keep a picture of the curves. points: at least one."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "curves.svg"
        picture.write_text(curves_picture(points))
        client.log_artifact(run_id, str(picture))
