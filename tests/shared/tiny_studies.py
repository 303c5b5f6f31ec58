"""Studies of one network and few losses, as short as a study file can be."""

from __future__ import annotations

from typing import Any

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec


def tiny_study(*losses: dict[str, Any], **changes: Any) -> StudySpec:
    """losses: entries of the file; the first is the baseline. changes: of any other key."""
    first = losses[0] if losses else {"name": "lmh"}
    plain = {
        "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": list(losses) or [first],
        "baseline": first.get("label") or first.get("name") or "_".join(part["name"] for part in first["loss"]),
    }
    return parse_spec(plain | changes, StudySpec, where="test")


def tiny_cell(loss: str, space: Any = "default", **search: Any) -> tuple[StudySpec, Cell]:
    """A study of one loss, and its cell. space: what is searched of the loss. search: settings of the search."""
    study = tiny_study({"name": loss, "search": space}, search=search)
    return study, resolve_cells(study, where="test")[0]
