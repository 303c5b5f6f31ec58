"""Has MLflow keep the files of an experiment beside its SQLite file, where a copied home noted another place."""

from __future__ import annotations

import shutil
from pathlib import Path

from mlflow.store.tracking.dbmodels import models
from sqlalchemy import Engine, select, update

from vsetune.files.whole_files import whole_file
from vsetune.tracking.artifact_place import OtherPlace
from vsetune.tracking.mlflow_sqlite import services

_EXPERIMENTS, _RUNS = models.SqlExperiment.__table__, models.SqlRun.__table__
_MODELS = models.SqlLoggedModel.__table__
_PLACES = ((_RUNS, _RUNS.c.run_uuid, _RUNS.c.artifact_uri), (_MODELS, _MODELS.c.model_id, _MODELS.c.artifact_location))


def keep_here(engine: Engine, experiment_id: str, other: OtherPlace) -> None:
    """Files that are there and not here are copied; then experiment, runs and models are told of the new place.

    Runs that this store does not know are left there, and so is the old folder. OSError, errors of SQLAlchemy; after
    one, the same call goes on.
    """
    new = other.here.as_uri()
    moved: list[tuple[int, str, str]] = []
    with engine.connect() as connection:
        for number, (table, key, place) in enumerate(_PLACES):
            of_experiment = select(key, place).where(table.c.experiment_id == experiment_id)
            for name, location in connection.execute(of_experiment):
                inside = str(location or "").removeprefix(other.location.rstrip("/") + "/")
                if inside and inside != location:
                    moved.append((number, name, inside))
    for _, _, inside in moved:
        _copy_missing(other.there / inside, other.here / inside)
    other.here.mkdir(parents=True, exist_ok=True)
    with engine.begin() as connection:
        for number, name, inside in moved:
            table, key, place = _PLACES[number]
            connection.execute(update(table).where(key == name).values({place: f"{new}/{inside}"}))
        mine = _EXPERIMENTS.c.experiment_id == experiment_id
        connection.execute(update(_EXPERIMENTS).where(mine).values(artifact_location=new))
    for _, name, _ in moved:
        services._artifact_repos_cache.pop(name, None)  # where MLflow has them, for as long as this process lives


def _copy_missing(there: Path, here: Path) -> None:
    for file in sorted(there.rglob("*")) if there.is_dir() else []:
        copy = here / file.relative_to(there)
        if not file.is_file() or copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source, whole_file(copy, durable=False) as target:
            shutil.copyfileobj(source, target)
