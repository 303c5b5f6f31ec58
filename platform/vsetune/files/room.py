"""Full disks: the errors that mean one, and the advice for the message."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a write that more room would fix: no space, no quota, a file larger than is allowed."""
MAKE_ROOM = "free space there, or name another folder in TMPDIR"
"""Advice for a full temporary folder."""


def free_in(folder: Path) -> str:
    """`1,024 free`, in bytes, for people."""
    try:
        return f"{shutil.disk_usage(folder).free:,} free"
    except OSError:
        return "free space unknown"
