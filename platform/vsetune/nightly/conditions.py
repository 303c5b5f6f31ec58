"""What the numbers of a night depend on besides the code. Nights under other conditions are not compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vsetune.files.hashes import fingerprint_of
from vsetune.jobs.preparation import PreparedStudy
from vsetune.nightly.measuring import conditions_of
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.records.attempts import AttemptRecord
from vsetune.training.environment import processor_name

_LONGEST = 60


def conditions_of_night(
    spec: NightlySpec, prepared: PreparedStudy, attempts: Sequence[AttemptRecord]
) -> dict[str, str]:
    """By name: `settings.KEY` of the file, `plugin.KEY`, `data`, `first_steps_on` (the processor here), and what the
    workers told of themselves. The code is not among them: what it changes is what a night looks for."""
    settings = {f"settings.{key}": _shown(value) for key, value in spec.settings().items()}
    plugins = {f"plugin.{plugin.key}": plugin.sha256[:16] for plugin in prepared.plugins}
    here = {"data": prepared.data_fingerprint, "first_steps_on": processor_name()}
    return dict(sorted((settings | plugins | here | conditions_of(attempts)).items()))


def _shown(value: Any) -> str:
    """Short settings as they are, so that a change can be read; long ones as their fingerprint."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONGEST else fingerprint_of({"value": value})
