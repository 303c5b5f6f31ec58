"""The wording of the errors of this package, by subject."""

from __future__ import annotations

from vsetune.errors import Message

# The log of a study
LOG_DAMAGED = Message("VSE-R001",
    "{log}: damaged at byte {byte:,}; put back a copy of the study's folder, or bring the lines from its MLflow "
    "(vsetune tracking import --tracking-uri URI {study})")
LINE_DAMAGED = Message("VSE-R480",
    "the log's line {line} is not as vsetune wrote it ({reason}); put back a copy of the study's folder, or bring the "
    "lines from its MLflow (vsetune tracking import --tracking-uri URI STUDY)")
LOG_OF_NEWER_VERSION = Message("VSE-R002",
    "the log has format {got}, this vsetune reads {known}; install the version that wrote it, or a later one")
EVENT_OF_NEWER_VERSION = Message("VSE-R003",
    "the log's line {line} ({kind}) is of a newer vsetune; install that version or a later one")
LOG_OVERTAKEN = Message("VSE-R004", "{log}: another driver has added to the log of this study; this process stops")
LOG_NOT_SENT = Message("VSE-R005", "{log}: the server took nothing for {seconds:g} s; check the server")
OBJECT_REMOVED = Message("VSE-R006", "{object}: was removed while it was read; put it back, or restore the bucket")
CANNOT_WRITE = Message("VSE-R007",
    "{file}: cannot be written ({reason}); free space, correct its rights, or set {variable} to another folder")

# Studies and attempts of a home
STUDY_UNKNOWN = Message("VSE-R008",
    "study {study}: not in {home}, which has: {known}; {hint}check the name and VSETUNE_HOME")
ATTEMPT_UNKNOWN = Message("VSE-R009", "attempt {attempt}: has not begun")
STUDY_RUNS = Message("VSE-R010", "study {study}: another process is running it; wait for it or stop it")
STUDY_EXISTS = Message("VSE-R011", "study {study}: exists already with this file; continue it with --resume")
STUDY_CHANGED = Message("VSE-R012",
    "study {study}: exists with another configuration ({changes}); give the changed study another name, or undo the "
    "change")
STUDY_FORKED = Message("VSE-R013",
    "study {study}: this home has another study of this name, or one that has gone on at both places; move {folder} "
    "away, then import again")

# Exports of other homes
NO_EXPORT = Message("VSE-R014",
    "{place}: no export of a study ({file}: {reason}); name a file that `vsetune tracking export` wrote")
EXPORT_OF_OTHER_FORMAT = Message("VSE-R015",
    "{place}: has format {got}, this vsetune reads {known}; import studies of earlier versions from their MLflow store "
    "(vsetune tracking import --tracking-uri URI STUDY)")
EXPORT_DAMAGED = Message("VSE-R016", "{place}: {file}: {reason}; export the study again")
EXPORT_TOO_LARGE = Message("VSE-R017",
    "{place}: has {size:,} bytes and unpacks to {unpacked:,}; export the study again")
NO_SPACE = Message("VSE-R018", "{place}: needs {need:,} bytes, {folder} has {free:,} free; free space")
PLACE_TAKEN = Message("VSE-R019", "{place}: exists already; name another place, or remove it")
LOG_NOT_SOUND = Message("VSE-R020", "{log}: {reason}; export the study again")
LINE_NOT_SOUND = Message("VSE-R021", "{log}: line {line}: {reason}; export the study again")
VALUE_NOT_SOUND = Message("VSE-R022", "{log}: line {line}: {key}: {reason} (got {got}); export the study again")
NO_FILE_INSIDE = Message("VSE-R023", "need the name of a file below the study's folder")
NO_FILE_OF_A_STUDY = Message("VSE-R024", "need the name of a file that exports contain")
INTEGER_TOO_LARGE = Message("VSE-R025", "need an integer of at most 63 bits")
NO_HASH = Message("VSE-R026", "{tag}: need a hash in hexadecimal digits")

# MLflow
STORE_AWAY = Message("VSE-R027",
    "tracking store {store}: cannot {doing} ({reason}); check free space{also}, permissions and the server, then "
    "repeat")
STORE_REFUSES = Message("VSE-R028",
    "tracking store {store}: cannot {doing}: refused ({reason}); look at it in the MLflow UI")
STORE_UNREACHABLE = Message("VSE-R029",
    "tracking uri {uri}: cannot reach {host}:{port} ({reason}); start the MLflow server there, or set tracking.uri")
STORE_FORBIDS = Message("VSE-R030", "tracking uri {uri}: forbidden ({reason}); check user, password and database")
STORE_UNUSABLE = Message("VSE-R031", "tracking uri {uri}: opens no store ({reason})")
NO_TRACKING_URI = Message("VSE-R032",
    "tracking uri {uri}: not a URI (plain folders are MLflow's deprecated file store); use {instead} or the address of "
    "an MLflow server")
SQLITE_OPTIONS = Message("VSE-R033", "tracking uri {uri}: options of SQLite files are not taken; remove ?...")
DRIVER_MISSING = Message("VSE-R034",
    "tracking uri {uri}: needs the package {package}, which is not installed; {install}")
NOT_IN_STORE = Message("VSE-R035", "study {study}: is not in {store}; check the name and --tracking-uri")
STUDY_RUN_MISSING = Message("VSE-R036", "study {study}: has no run of its own in {store}")
RUN_MISSING = Message("VSE-R037", "attempt {attempt}: has no run in MLflow; was it deleted there?")
RUN_NOT_EXPORTED = Message("VSE-R038",
    "attempt {attempt}: MLflow does not have it yet; export its study with vsetune tracking flush {study}")
TRIAL_NAME = Message("VSE-R039", "run {run}: trial: got {got}, need the name of a trial")
EXPERIMENT_DELETED = Message("VSE-R041",
    "{store}: the experiment {experiment} is deleted; remove it with `mlflow gc`, or restore it with `mlflow "
    "experiments restore --experiment-id {number}`")
STORE_COPIED = Message("VSE-R043",
    "study {study}: {store} is a copy, whose files are in {folder}; remove it, and make it anew with vsetune tracking "
    "flush {study}")
