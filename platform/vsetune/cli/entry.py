"""The `vsetune` command and the scripts in jobs/: a light module, so that Ctrl-C during the other imports also ends in
one line."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from vsetune.study.stopping import forget_interruptions, interrupt

GARBAGE_THRESHOLD = 100_000
"""New objects before Python looks for garbage, 700 by default. A board of 10,000 attempts is a million objects that
live to the end of the command; looking through them took a third of its time."""


def run() -> None:
    """Imports the commands and runs one; exits by SystemExit with the exit code that `vsetune.cli.main` documents.

    SIGTERM ends any command as Ctrl-C does.
    """
    gc.set_threshold(GARBAGE_THRESHOLD)
    atexit.register(_be_deaf)  # registered first, called last
    forget_interruptions()
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        from vsetune.cli import main

        main.run()
    except KeyboardInterrupt:  # before the commands are there to catch it, or after they are done
        sys.stderr.write("interrupted\n")
        _leave(130)
    except SystemExit as ending:
        if ending.code == 130:
            _leave(130)
        raise


def run_script(about: str, command: Sequence[str], *, then: Sequence[str] = ()) -> NoReturn:
    """Runs `vsetune COMMAND WORDS THEN` as a job of a Ray cluster, where WORDS are the arguments of the script.

    about: the text for --help. Exits with the exit code of the command, and with 2 when the script has no arguments.
    """
    from vsetune.cli.output import BAD_VALUE, complain, results

    words = sys.argv[1:]
    if words in (["-h"], ["--help"]):
        results.out(about.strip())
        sys.exit(0)
    if not words or words[0].startswith("-"):
        usage = next(line.strip() for line in about.splitlines() if "python jobs/" in line)
        got = " ".join(words) or "nothing"
        complain("error", BAD_VALUE(option=sys.argv[0], got=got, need=f"what follows it in: {usage}"))
        sys.exit(2)
    sys.argv = [sys.argv[0], *command, *words, *then]
    run()
    sys.exit(0)


def _be_deaf() -> None:
    """Ignore interrupts: the command has ended with its exit code, and Python is still cleaning up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _leave(code: int) -> NoReturn:
    """sys.exit with one difference: an interrupt inside `exec`, as in the creation of a dataclass, counts as unhandled.

    Python would then end itself by SIGINT after its work, instead of with the exit code.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
