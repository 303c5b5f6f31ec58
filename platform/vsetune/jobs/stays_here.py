"""Base class of objects that Tune pickles but that are never read back."""

from __future__ import annotations

from typing import Any


class StaysHere:
    """An object that pickles as empty. Tune pickles its callbacks to restore them in another process; vsetune rebuilds
    them from the store instead."""

    def __getstate__(self) -> dict[str, Any]:
        return {}
