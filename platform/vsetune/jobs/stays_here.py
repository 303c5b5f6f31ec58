"""What Tune is given and pickles, though nobody will read it."""

from __future__ import annotations

from typing import Any


class StaysHere:
    """Tune pickles all it is given, to restore it in another process. We rebuild from the store instead, so nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}
