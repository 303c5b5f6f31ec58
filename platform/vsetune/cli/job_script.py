"""Common code of the scripts in jobs/: each runs one command of `vsetune` as a job of a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from vsetune.cli.entry import run
from vsetune.cli.output import complain, results


def run_script(about: str, command: Sequence[str], *, then: Sequence[str] = ()) -> NoReturn:
    """Runs `vsetune COMMAND WORDS THEN`, where WORDS are the arguments of the script.

    about: the text for --help. Exits with the exit code of the command, and with 2 when the script has no arguments.
    """
    words = sys.argv[1:]
    if words in (["-h"], ["--help"]):
        results.out(about.strip(), highlight=False)
        sys.exit(0)
    if not words or words[0].startswith("-"):
        usage = next(line.strip() for line in about.splitlines() if "python jobs/" in line)
        got = " ".join(words) or "nothing"
        complain("error", f"{sys.argv[0]}: got {got}, need what follows the script in: {usage}")
        sys.exit(2)
    sys.argv = [sys.argv[0], *command, *words, *then]
    run()
    sys.exit(0)
