"""The problems that the command line finds itself; problems of other packages keep their own codes."""

from __future__ import annotations

from vsetune.errors import Message

# Arguments and variables
MISUSE = Message("VSE-X001", "{command}: {misuse}; {command} --help shows what it takes.")
BAD_VALUE = Message("VSE-X002", "{option}: got {got}, need {need}.")
NOT_UTF8 = Message("VSE-X003", "argument {number}: got {got}, need UTF-8; rename it.")
OPTION_ALONE = Message("VSE-X004", "{command}: {option} has an effect only with {other}; add {other}.")
REMOTE_PLACE = Message("VSE-X006", "{option}: got {got}, need a place on this machine; write it there, then copy it.")

# Files and places
EXISTS = Message("VSE-X010", "{place}: exists already; choose another {option}, or remove it.")
NO_FILE = Message("VSE-X011", "{place}: no such file; name a study file, or a study that has begun.")
PLACE_REFUSED = Message("VSE-X012", "{place}: {reason}; free space, check the rights, or set {variable} elsewhere.")
NAME_REFUSED = Message("VSE-X013", "{place}: {reason}; name another file or folder.")

# Failures of the program and its surroundings
OUT_OF_MEMORY = Message("VSE-X020", "out of memory ({reason}); use smaller sizes, or more memory.")
SYSTEM_FAILURE = Message("VSE-X021", "{kind}: {reason}; VSETUNE_LOG=DEBUG shows where it arose.")
PLUGIN_FAULT = Message(
    "VSE-X022", "{place}: {kind}: {reason}; fix the plugin, VSETUNE_LOG=DEBUG shows the whole traceback."
)
BUG = Message(
    "VSE-X023",
    "{kind} at {place}: {reason}; this is a bug of vsetune, please report it; VSETUNE_LOG=DEBUG shows the whole "
    "traceback.",
)
JOB_LOST = Message(
    "VSE-X024",
    "job {job}: not followed to its end ({reason}); when the head is up, submit the study again: that follows the job "
    "if it still runs, else it continues from the checkpoints.",
)

# Studies, boards and tables
NO_ATTEMPTS = Message("VSE-X030", "{studies}: no attempts yet; start a study, or wait for its first validation.")
BASELINE_NOT_RUN = Message("VSE-X031", "leaderboard: baseline {baseline} was not run; name one of {losses}.")
NOTHING_TO_REPEAT = Message("VSE-X032", "{row}: has no trial with a usable validation, so there is nothing to repeat.")
NOT_IN_MLFLOW = Message(
    "VSE-X035", "{count} events are not in MLflow yet ({reason}); export them with: vsetune tracking flush {study}"
)
STILL_RUNNING = Message(
    "VSE-X036", "study {study}: is running, and the export has it as it was; export it again when it has ended."
)
NO_MLFLOW = Message("VSE-X037", "{command}: no MLflow to log to; give --tracking-uri, or set MLFLOW_TRACKING_URI.")

# Single trials and weights
OTHER_DATA = Message(
    "VSE-X040",
    "{command}: {first} was trained on {first_data}, {second} on {second_data}; need trials of the same data set.",
)
SAME_RUN = Message("VSE-X041", "trial ensemble: {run} is named twice, which changes only its weight; name it once.")
OTHER_SPLITS = Message(
    "VSE-X042", "trial ensemble: members are evaluated on different splits ({splits}); choose one by --split."
)
OTHER_SCORES = Message(
    "VSE-X043",
    "trial ensemble: scores have different ranges ({scores}), so their mean would follow the widest; need members with "
    "scores of one kind.",
)
NO_COMMON_RANGE = Message(
    "VSE-X044", "scores of {networks} have no common range; the one with the widest spread counts most."
)
WRONG_STAGE = Message(
    "VSE-X045", "trial rerank: {run} is of network {network}, which {does}; need a {stage} stage such as {example}."
)
OTHER_FEATURES = Message(
    "VSE-X046", "{difference}; recalls mean something only where these are the same features."
)
NO_MODEL_THERE = Message(
    "VSE-X047", "{place}: no model in this folder (model.json); name one of vsetune trial model, or STUDY/TRIAL."
)

# Nightly sweeps
FILE_NEEDED = Message("VSE-X050", "{name}: got the name of a sweep, need its nightly file with VSETUNE_HOME={home}.")
NO_HISTORY = Message(
    "VSE-X051", "{name}: no nightly sweep has a history in {home}; give its file, or run a night first."
)
NO_EMBEDDINGS = Message(
    "VSE-X052", "{run}: network {network} scores pairs and has no embedding of one item; name a trial of a network "
    "that embeds."
)
CAPTION_IDS_NEEDED = Message(
    "VSE-X141", "--eccv-caption, --cxc: they name captions by ids of MS-COCO; also give --coco-captions FILE, "
    "Karpathy's dataset_coco.json"
)
FOLDER_NEEDED = Message("VSE-X140", "--transformers writes a folder; also give --output FOLDER")

# MLflow's UI
NOT_EXPORTED = Message(
    "VSE-X060",
    "studies of this home are not exported to MLflow (MLFLOW_TRACKING_URI is none, or the home is on S3); need "
    "--tracking-uri URI of the database that has them.",
)
MLFLOW_RUNS = Message("VSE-X061", "the MLflow server at {address} has the studies: open it in a browser.")
NO_MLFLOW_YET = Message("VSE-X062", "{file}: no MLflow database yet; run a study first, such as vsetune quickstart.")
NOT_LISTENING = Message("VSE-X063", "--port: cannot listen on {host}:{port} ({reason}); try --port {other}.")
