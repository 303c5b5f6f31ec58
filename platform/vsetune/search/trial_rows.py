"""Writes whole trials into Optuna's tables, one transaction each.

Optuna's own calls write one value per transaction and read the study again for each; a trial with the points of its
curve took them longer than the draw. The rows are those that they would write.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.orm import Session


class TrialRows:
    """Of one database. Errors are those of SQLAlchemy; after one, nothing of the call has been written."""

    def __init__(self, backend: RDBStorage) -> None:
        self._backend = backend

    def add(self, study_id: int, trial: FrozenTrial) -> FrozenTrial:
        """The trial as the database has it now, with its number there."""
        with self._transaction() as session:
            models.StudyModel.find_or_raise_by_id(study_id, session, for_update=True)
            row = models.TrialModel(
                study_id=study_id, number=None, state=trial.state, datetime_start=trial.datetime_start,
                datetime_complete=trial.datetime_complete,
            )
            session.add(row)
            session.flush()
            number, trial_id = row.count_past_trials(session), row.trial_id
            row.number = number
            session.add_all(
                models.TrialParamModel(
                    trial_id=trial_id, param_name=name,
                    param_value=trial.distributions[name].to_internal_repr(value),
                    distribution_json=distribution_to_json(trial.distributions[name]),
                )
                for name, value in trial.params.items()
            )
            session.add_all(
                models.TrialUserAttributeModel(trial_id=trial_id, key=key, value_json=json.dumps(value))
                for key, value in trial.user_attrs.items()
            )
        return numbered(trial, number, trial_id)

    def end(self, trial: FrozenTrial) -> None:
        """Writes the state and value of a trial that is running in the database, and those of its points that it lacks
        there."""
        with self._transaction() as session:
            row = models.TrialModel.find_or_raise_by_id(trial._trial_id, session, for_update=True)
            there = {step for step, in session.query(models.TrialIntermediateValueModel.step).filter(
                models.TrialIntermediateValueModel.trial_id == trial._trial_id
            )}
            for step, value in trial.intermediate_values.items():
                if step not in there:
                    stored, kind = models.TrialIntermediateValueModel.intermediate_value_to_stored_repr(value)
                    session.add(models.TrialIntermediateValueModel(
                        trial_id=trial._trial_id, step=step, intermediate_value=stored, intermediate_value_type=kind,
                    ))
            for objective, value in enumerate(trial.values or []):
                stored, kind = models.TrialValueModel.value_to_stored_repr(value)
                session.add(models.TrialValueModel(
                    trial_id=trial._trial_id, objective=objective, value=stored, value_type=kind,
                ))
            row.state, row.datetime_complete = trial.state, trial.datetime_complete

    @contextmanager
    def _transaction(self) -> Iterator[Session]:
        session = self._backend.scoped_session()
        try:
            yield session
            session.commit()
        except BaseException:
            session.rollback()
            raise
        finally:
            session.close()


def numbered(trial: FrozenTrial, number: int, trial_id: int) -> FrozenTrial:
    """A copy with its number and its key in the storage."""
    stored = copy.copy(trial)
    stored.number, stored._trial_id = number, trial_id
    return stored


def ended(trial: FrozenTrial, state: TrialState, value: float | None, points: Mapping[int, float]) -> FrozenTrial:
    """A copy with its end, as `optuna.Study.tell` has it: a stopped trial has its last point for a value."""
    told = copy.copy(trial)
    told.intermediate_values = dict(sorted({**points, **trial.intermediate_values}.items()))
    last = next(reversed(told.intermediate_values.values()), math.nan)
    if value is None and state == TrialState.PRUNED and not math.isnan(last):
        value = last
    told.state, told.values = state, None if value is None else [float(value)]
    told.datetime_complete = datetime.datetime.now()
    return told
