"""The curve that the tags of an attempt hold, with what may be wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from vsetune.tracking.encoding import CURVE, CurvePoint, curve_from_tags, to_json
from vsetune.tracking.pieces import from_pieces, in_pieces


class KeptCurve:
    """tags: of one run.

    Points that are added go into the tag `vsetune.curve`, which every version reads: the oldest have all points there,
    later ones keep theirs in tags of their own and read that one beside them.
    """

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._plain = [CurvePoint(*point) for point in json.loads(from_pieces(CURVE, tags) or "[]")]
        others = {key: text for key, text in tags.items() if key != CURVE and not key.startswith(f"{CURVE}.")}
        self._others = curve_from_tags(others)
        self._all = curve_from_tags(tags)
        self.curve = _in_order([*self._others, *self._plain])
        """Each step once, in the order of the training."""

    @property
    def doubled(self) -> int:
        """Points beyond the first of each step."""
        return len(self._all) - len(self.curve)

    @property
    def can_mend(self) -> bool:
        """Whether writing `with_points` takes the second ones away."""
        return len(_in_order(self._others)) == len(self._others)

    def with_points(self, points: Sequence[CurvePoint]) -> dict[str, str]:
        """Tags that make the curve whole: each step once, and these points in it."""
        elsewhere = {point.step for point in self._others}
        kept = [point for point in _in_order([*self._plain, *points]) if point.step not in elsewhere]
        return in_pieces(CURVE, to_json(kept))


def _in_order(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    first: dict[int, CurvePoint] = {}
    for point in curve:
        first.setdefault(point.step, point)
    return [first[step] for step in sorted(first)]
