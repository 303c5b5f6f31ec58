"""The state of studies in MLflow: tags of the run that stands for a study, and of the runs of its attempts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from mlflow.entities import Run

from vsetune.tracking import encoding
from vsetune.tracking.artifact_place import require_own_place
from vsetune.tracking.mlflow_errors import in_one_line, opening
from vsetune.tracking.mlflow_opening import client_of
from vsetune.tracking.mlflow_runs import runs_in
from vsetune.tracking.store import unknown_study
from vsetune.tracking.study_state import StudyState, StudyStates

STOP = "vsetune.stop"
"""Tag of a study: the last request to stop."""


class MlflowStudyStates(StudyStates):
    """Made by `study_state.open_states`, which has checked that the URI answers.

    Reads with one request for the study and one per page of its attempts.
    """

    def __init__(self, uri: str, *, shown_uri: str) -> None:
        self._uri, self._shown_uri = uri, shown_uri
        with opening(shown_uri):
            self._client = client_of(uri)
        self._parents: dict[str, str] = {}

    def state(self, study: str) -> StudyState:
        with self._reading(study):
            parent = self._client.get_run(self._parent_of(study))
            seen = {run.info.run_id: _seen(run) for run in self._attempts(parent.info.experiment_id)}
        tags = parent.data.tags
        return StudyState(
            tags[encoding.STATUS], max([_seen(parent), *seen.values()]), seen, tags.get(STOP)  # type: ignore[arg-type]
        )

    def stop_asked(self, study: str) -> str | None:
        with self._reading(study):
            asked = self._client.get_run(self._parent_of(study)).data.tags.get(STOP)
        return None if asked is None else str(asked)

    def ask_to_stop(self, study: str, request: str) -> None:
        with in_one_line(f"tracking store {self._shown_uri}: cannot ask study {study} to stop", then="repeat"):
            self._client.set_tag(self._parent_of(study), STOP, request[: encoding.PIECE])

    def keep_page(self, study: str, name: str, page: str) -> None:
        require_own_place(self._uri, study)
        with in_one_line(f"tracking store {self._shown_uri}: cannot keep {name} of study {study}", then="repeat"):
            self._client.log_text(self._parent_of(study), page, name)

    def _parent_of(self, study: str) -> str:
        if study not in self._parents:
            experiment = self._client.get_experiment_by_name(study)
            ids = [experiment.experiment_id] if experiment is not None else []
            found = self._client.search_runs(ids, f"tags.`{encoding.KIND}` = 'study'", max_results=1) if ids else []
            if not found:
                mine = f"tags.`{encoding.KIND}` = 'study'"
                raise unknown_study(study, [each.name for each in self._client.search_experiments(filter_string=mine)])
            self._parents[study] = found[0].info.run_id
        return self._parents[study]

    def _attempts(self, experiment_id: str) -> Iterator[Run]:
        return runs_in(self._client, [experiment_id], f"tags.`{encoding.KIND}` = 'attempt'")

    def _reading(self, study: str) -> AbstractContextManager[None]:
        return in_one_line(f"tracking store {self._shown_uri}: cannot read study {study}", then="repeat")


def _seen(run: Run) -> float:
    """Our own sign of life, else what MLflow knows."""
    known = [(run.info.end_time or 0) / 1000, (run.info.start_time or 0) / 1000]
    return max([*known, float(run.data.tags.get(encoding.SEEN, 0.0))])
