"""User-facing errors of boards, their server and tables of papers, by code."""

from __future__ import annotations

from vsetune.errors import Message

# boards
NO_ATTEMPTS = Message("VSE-B001", "leaderboard: {where} has no attempts yet; wait for its first validation")
BASELINE_NOT_RUN = Message("VSE-B002", "leaderboard: baseline {baseline} was not run; need one of {losses}")

# serving
STUDY_GONE = Message("VSE-B003", "study {study}: not in this store any more")
PORT_TAKEN = Message(
    "VSE-B004", "serve: port {port} of {host} is taken; choose another with --port, or --port 0 for any "
    "that is free",
)
PORT_RESERVED = Message(
    "VSE-B005", "serve: port {port} of {host} is reserved for administrators; choose one above 1023 with "
    "--port",
)
CANNOT_LISTEN = Message(
    "VSE-B006", "serve: cannot listen on {host}, {why}; need an address of this machine (--host) and a "
    "port from 0 to 65535 (--port)",
)
UPLOAD_TOO_LARGE = Message("VSE-B020", "photograph: got {got} MB, need at most {most} MB")
NO_FORM = Message("VSE-B021", "search: got no form, need multipart/form-data with a photograph")
NO_PHOTOGRAPH = Message("VSE-B022", "search: no photograph was chosen; choose or drop one")
TOP_OUT_OF_RANGE = Message("VSE-B023", "search: top: got {got}, need 1 to {most}")

UNTRAINED_BASELINE = Message(
    "VSE-B024", "baseline: {baseline} is trained for 0 epochs, so nothing can be compared with it; name a loss that is "
    "trained"
)

# tables of papers
UNKNOWN_NAME = Message("VSE-B007", "leaderboard table: no {kind} is called {name}; {hint}need one of {known}")
NAME_WITHOUT_LETTERS = Message("VSE-B008", "leaderboard table: --as {word}={name}: need a name with letters or digits")

# intervals over images
SCORED_OTHERWISE = Message(
    "VSE-B025", "{trial}: its best weights have M-Recall {got:.6f} here, {recorded:.6f} is recorded: another device "
    "rounds otherwise, and moves single hits"
)
OTHER_BEST_WEIGHTS = Message(
    "VSE-B026", "{trial}: its best weights have M-Recall {got:.6f} here, {recorded:.6f} is recorded: they are not "
    "those of its best validation, so its row has no interval over images; put that file back, or train the trial again"
)
