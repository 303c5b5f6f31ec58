"""The errors of nights that users see, by subject."""

from __future__ import annotations

from vsetune.errors import Message

# Options and settings
WRONG_OPTION = Message("VSE-G001", "{option}: got {got}, need {need}")
WRONG_VALUE = Message("VSE-G002", "got {got}, need {need}")
NOTHING_SEARCHED = Message("VSE-G003", "{key}.search: a nightly sweep searches nothing; remove it")
OPTION_MISSING = Message("VSE-G004", "{option}: missing, need {need}")

# The history
BUSY = Message("VSE-G010", "{what}: another process is at work on it; wait for it or stop it")
NOT_WRITABLE = Message("VSE-G011", "{folder}: cannot be written ({reason}); set {variable} to another folder")
COMPLETE = Message(
    "VSE-G012",
    "nightly {name}: the night of {date} is complete; --again replaces it, `vsetune nightly history` shows it",
)
UNREADABLE = Message("VSE-G013", "{file}: cannot read ({reason}); {remedy}")
WRONG_CONTENT = Message("VSE-G014", "{file}: is no {kind} of format {format} ({reason})")
NEWER_FORMAT = Message(
    "VSE-G015",
    "{file}: was written by a newer version of vsetune (format {got}, this one reads {need}); update vsetune to read "
    "it",
)
WRONG_DATE = Message("VSE-G016", "{file}: contains the night of {date}; two nights have one date")
FILE_STAYS = Message("VSE-G017", "{file}: cannot be renamed or removed ({reason}); fix the permissions of its folder")

# Accepted changes
NO_NIGHT_YET = Message("VSE-G020", "nightly {name}: has no night yet, so there is nothing to accept; run one first")
NO_SUCH_NIGHT = Message(
    "VSE-G021", "--date: nightly {name} has no night of {date}; need one of its nights, the newest is {newest}"
)
ACCEPTED_ALREADY = Message(
    "VSE-G022", "{date}: is accepted already ({measure}, {cell}: {reason}); there is nothing to accept"
)
NO_CHANGE = Message(
    "VSE-G023",
    "{date}: its report shows no change in {measure} of {cell}, so there is nothing to accept (changed: {changed})",
)

# Bisection
NO_GOOD_NIGHT = Message(
    "VSE-G030",
    "--good: missing, and the history has no quiet night of a committed revision before the change; name one with "
    "--good REVISION",
)
SAME_BITS = Message("VSE-G031", "first_losses: {good} and {bad} give the same bits ({cells})")
SAME_VALUES = Message(
    "VSE-G032",
    "{measure}: {good} and {bad} are the same in {pairs} pairs of runs ({values}); name others with --good and --bad, "
    "or another --cell",
)
TOO_NOISY = Message(
    "VSE-G033",
    "{measure}: {good} and {bad} are too noisy to distinguish in {pairs} pairs of runs ({values}); name others with "
    "--good and --bad, or another --cell",
)
NO_VALUE = Message("VSE-G034", "{revision}: gives no {measure} of {cell}")
NO_LOSSES = Message("VSE-G035", "{revision}: {cell}: {reason}")
NO_MODULE = Message("VSE-G036", "{revision}: has no {module} yet")
RAN_TOO_LONG = Message("VSE-G037", "{revision}: {command} ran longer than {hours} h")
COMMAND_FAILED = Message("VSE-G038", "{revision}: {command}: exit code {exit_code}: {reason}")
NO_JSON = Message("VSE-G039", "{revision}: {module} prints no JSON: {printed}")

LOSSES_MISSING = Message("VSE-G047", "gives no losses of {cell}")

# Git
NO_GIT = Message("VSE-G040", "git: not found on this machine, so no revisions can be compared; install it")
NOT_A_CLONE = Message(
    "VSE-G041",
    "{folder}: stands in no git repository, so there are no revisions to compare; run this from a clone (pip install "
    "--editable .)",
)
EDITED = Message(
    "VSE-G042",
    "{folder}: {files} differ from HEAD, and only commits are compared; commit or stash them, or name the newest "
    "commit with --bad",
)
NO_REVISION = Message("VSE-G043", "{named}: got {got}, which is no revision of {folder}; see: git log, or fetch it")
SAME_REVISION = Message(
    "VSE-G044", "--good and --bad: both are {revision}, so there is nothing between them; name others"
)
NOT_AN_ANCESTOR = Message(
    "VSE-G045",
    "--good: {good} is not an ancestor of {bad} (--bad), so no commit between them can be at fault; name an older one",
)
GIT_FAILED = Message("VSE-G046", "git {command}: {reason}")

# Delivery
NOT_SET = Message(
    "VSE-G050", "{where}: the environment lacks {variables}; export it, or take `{setting}` out of the file"
)
NO_ADDRESS = Message(
    "VSE-G051",
    "{where}: holds no address that can be used; need https://... without blanks, or an Apprise address such as "
    "discord://...",
)
NOT_DELIVERED = Message("VSE-G052", "{where}: not delivered ({reason})")
NOT_ENCRYPTED = Message("VSE-G053", "mail: {server} offers no STARTTLS, which {reason} needs; use another port")
