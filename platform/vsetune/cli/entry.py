"""The `vsetune` command: light, so that Ctrl-C while the rest is imported ends in one line too."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def run() -> None:
    """Imports the commands and runs one; leaves by SystemExit with the exit code that `vsetune.cli.main` documents.

    SIGTERM ends any command as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from vsetune.cli import main

        main.run()
    except KeyboardInterrupt:  # before the commands are there to catch it, or after they are done
        sys.stderr.write("interrupted\n")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    run()
