"""Checks of a log from another home before any of it is stored: only lines that this version could have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from vsetune.errors import DataError, VsetuneError, one_line
from vsetune.records import messages
from vsetune.records.events import Event, Opened, StudyRecord
from vsetune.records.log import LOG_FILE, lines_of
from vsetune.records.study_history import StudyHistory

_LONGEST_LINE = 1 << 26
_CHECKS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in get_args(Event)}


def require_sound_log(log: Path, study: str, *, where: str) -> None:
    """Read all of a log. DataError, with the line, for content that this version could not have written for this study.
    """
    history, number = StudyHistory(), -1
    place = f"{one_line(where, most=400)}: {LOG_FILE}"
    _require_short_lines(log, place)
    try:
        for line in lines_of(log, number=0, strict=True):
            number = line.number
            event = line.event()
            _CHECKS[type(event)].validate_python(event)
            _require_of_study(event, study, history.record)
            history.add(event)
    except DataError as error:
        raise DataError(messages.LINE_NOT_SOUND(log=place, line=number + 1, reason="is damaged")) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        got = one_line(repr(first["input"]), most=60)
        raise DataError(
            messages.VALUE_NOT_SOUND(log=place, line=number, key=one_line(key), reason=one_line(first["msg"]), got=got)
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, VsetuneError) as error:
        raise DataError(messages.LINE_NOT_SOUND(log=place, line=max(number, 0), reason=one_line(error))) from error
    if number < 0:
        raise DataError(messages.LOG_NOT_SOUND(log=place, reason="is empty"))


def _require_short_lines(log: Path, place: str) -> None:
    """DataError for a line that is too long to be read at once."""
    with log.open("rb") as stream:
        while part := stream.readline(_LONGEST_LINE):
            if len(part) == _LONGEST_LINE:
                reason = f"has a line of more than {_LONGEST_LINE:,} bytes"
                raise DataError(messages.LOG_NOT_SOUND(log=place, reason=reason))


def _require_of_study(event: Event, study: str, known: StudyRecord | None) -> None:
    """ValueError for an event that does not belong to the study. known: its record in earlier lines."""
    if not isinstance(event, Opened):
        if known is None:
            raise ValueError("comes before the study was opened")
        return
    if event.record.name != study:
        raise ValueError(f"record.name: got {event.record.name}, need {study}")
    if known is not None and known.fingerprint != event.record.fingerprint:
        raise ValueError(f"record.fingerprint: got {event.record.fingerprint}, need {known.fingerprint}")
