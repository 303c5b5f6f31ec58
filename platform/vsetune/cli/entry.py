"""The `vsetune` command: light, so that Ctrl-C while the rest is imported ends in one line too."""

from __future__ import annotations

import signal
import sys

from vsetune.jobs.stopping import forget_interruptions, interrupt


def run() -> None:
    """Imports the commands and runs one; leaves by SystemExit with the exit code that `vsetune.cli.main` documents.

    SIGTERM ends any command as Ctrl-C does.
    """
    forget_interruptions()
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        from vsetune.cli import main

        main.run()
    except KeyboardInterrupt:  # before the commands are there to catch it, or after they are done
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
