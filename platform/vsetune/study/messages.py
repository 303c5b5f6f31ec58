"""Messages of the errors of this package, by subject."""

from vsetune.errors import Message

# Plugins of a study
PLUGIN_TWICE = Message(
    "VSE-S001", "plugins: {plugin} is in {first} and in {second}; bring the plugin's own folder back"
)
PLUGIN_CHANGES = Message(
    "VSE-S002", "plugins: {source}: changed while the study was made ready; start the command again"
)
PLUGIN_OTHER_IMPORTED = Message(
    "VSE-S003", "{where}: {plugin} needs the code in {folder}, and this process has imported other code of {module}; "
    "use one version in a process"
)
PLUGIN_COPY_DAMAGED = Message("VSE-S004", "{where}: {folder}: differs from what was copied there; bring the files back")
PLUGIN_COPY_MISSING = Message(
    "VSE-S005", "{where}: {kind} {name} is a plugin, and no copy of its code {sha256} is in {folder}; bring that "
    "folder back"
)
CODE_CHANGED = Message(
    "VSE-S006", "study {study}: {plugin}: {source}: {changes} since the study began; put the old code back (it is in "
    "{copy}), or give the study another name; --changed-plugins goes on with cells that have not begun"
)
CELL_OF_OTHER_CODE = Message(
    "VSE-S007", "cell {cell}: has begun with {code}; to finish it put that code back ({copies}), or give the study "
    "another name"
)
CELL_STAYS = Message("VSE-S008", "cell {cell}: has run with {code} and stays as it is")
TARGET_OF_OTHER_CODE = Message(
    "VSE-S009", "cell {cell}: its target is the best of {baseline}, which has begun with other code; put that code "
    "back, or give the study another name"
)
CELLS_OF_OTHER_CODE = Message("VSE-S010", "study {study}: {cells}{hint}")

# Fit of a study and its data set
TOO_LARGE = Message("VSE-S011", "{where}: {key}: got {got}, split {split} has {most} {unit}; use at most {most}")
PROTOCOL_IMAGES = Message(
    "VSE-S012", "{where}: evaluation.protocols: {protocol} needs {need} images, split {split} has {got}; leave it out"
)
WHOLE_SPLIT = Message(
    "VSE-S013", "{where}: evaluation.{key}: needs a whole split, and without a test split the best checkpoint is "
    "scored on {images} images of {split}; leave it out, or validation_images"
)
UNEVEN_REGIONS = Message(
    "VSE-S014", "{where}: network.image_input: flatten needs the same number of regions in every image, {dataset} has "
    "{fewest} to {most}; use mean, or ingest a fixed number of regions"
)
NO_BOXES = Message(
    "VSE-S015", "{where}: network {network} needs the boxes of regions, or a square grid of them; {dataset} has "
    "{fewest} to {most} regions without boxes; ingest it with boxes, or a grid"
)
LOSS_LEARNS_NOTHING = Message(
    "VSE-S016", "{where}: training.phases[{phase}].trains: got loss, but {loss} learns nothing; use all"
)
SCENES_REMOTE = Message(
    "VSE-S017", "{where}: data.scenes: can only be made in a local folder, got data.path {path}; remove scenes, or "
    "name a folder"
)
SCENES_OTHER_DATA = Message(
    "VSE-S018", "{where}: data.scenes: {path} holds other data than these sizes and this seed give; name another "
    "data.path, delete that folder, or remove scenes to use what is there"
)
SQLITE_SHARED = Message(
    "VSE-S019", "tracking.uri: got a SQLite file, and {home_variable} is {home}, which other machines use too; need an "
    "MLflow server or a database such as postgresql://, set {variable} or tracking.uri, or `none`"
)
READER_IS_PLUGIN = Message(
    "VSE-S020", "source.layout: {layout} is read by a plugin, whose code is on this machine only; ingest here, without "
    "--address"
)

# First stages
STAGE_OTHER_WEIGHTS = Message(
    "VSE-S021", "{where}: {first} is {got} now, the file says content {need}; bring those weights back, or remove "
    "content"
)
STAGE_NOT_PREPARED = Message(
    "VSE-S022", "{where}: content is missing, the study was not made ready; start it by `vsetune study run`"
)
STAGE_MISSING = Message("VSE-S023", "{where}: is not in {folder}; start the study again, which puts it there")
STAGE_OTHER_CODE = Message("VSE-S024", "{where}: {first} is of other code of {plugin} than this study; use one version")
STAGE_OTHER_DATA = Message(
    "VSE-S025", "{where}: {first} was trained on other data ({path}, fingerprint {got}), {dataset} has {need}; need a "
    "first stage of the same data set"
)
STAGE_DAMAGED = Message(
    "VSE-S026", "{where}: {folder}: differs from what was stored there; remove it, and start the study again"
)
NOT_WRITTEN = Message("VSE-S027", "{path}: cannot be written ({reason}); free space, then repeat the command")

# Run of a study
SEARCH_NOT_OVER = Message(
    "VSE-S028", "study {study}: its search is not over in {cells}; finish it first: vsetune study run FILE --resume"
)
NOT_SAMPLED = Message(
    "VSE-S029", "study {study}: its log does not contain what was sampled for trials of its search ({lost} of {all} "
    "attempts, the first of {first}), so the search cannot go on; give the study "
    "another name"
)
NOT_EXPORTED = Message("VSE-S030", "study {study}: is not exported; give --tracking-uri, or set MLFLOW_TRACKING_URI")
MLFLOW_ADDRESS = Message(
    "VSE-S031", "--mlflow: got {got}, need an address that begins with http:// or https://, such as "
    "http://127.0.0.1:5000"
)
NO_ROOM = Message("VSE-S032", "{where}: one trial asks for {needs}; {hint}")
NO_GPU_HERE = Message(
    "VSE-S033", "Ray gives the trial a GPU of node {node}, and PyTorch finds none there; look at its driver "
    "(nvidia-smi) and its PyTorch, or set resources.gpus to 0"
)
SHARD_LOST = Message(
    "VSE-S034", "shard {shard}: its process was lost again and again ({reason}); repeat the command, with more memory "
    "per node or smaller shards if it happens again"
)

# Ray and clusters
DASHBOARD_ADDRESS = Message(
    "VSE-S035", "{where}: got {got}, the address of a dashboard; need that of the cluster, HOST:6379 or auto, on one "
    "of its nodes; from elsewhere send it with `vsetune job submit`"
)
RAY_NOT_STARTED = Message("VSE-S036", "ray: did not start here ({reason}); repeat with --resume")
RAY_UNREACHABLE = Message(
    "VSE-S037", "ray: cannot reach {address} ({reason}); start it with `ray start --head`, and set RAY_AUTH_MODE=token "
    "in both shells"
)
QUANTITY = Message("VSE-S038", "got {got!r}, need an amount such as 4, \"500m\" or \"16Gi\"")
NO_NODE_TYPES = Message(
    "VSE-S039", "{file}: names no node types; need `available_node_types` of Ray's launcher, or the `spec` of a "
    "RayCluster with worker groups"
)
NO_NODE_HERE = Message("VSE-S040", "{address}: need one worker node of this cluster on this machine, found: {nodes}")
NOT_DRAINED = Message(
    "VSE-S041", "{address}: did not let this node go ({reason}); its trials end with it, and resume elsewhere"
)
LEAVING_USAGE = Message("VSE-S042", "got {got}, need `spot HEAD:PORT` or `now HEAD:PORT SECONDS`")

# Jobs
CLUSTER_SILENT = Message(
    "VSE-S043", "cluster {cluster}: nothing answers there ({reason}); start it (`ray up cluster.yaml`, `ray start "
    "--head`), open a tunnel to it (`ray dashboard cluster.yaml`), or name it with --address"
)
NO_DASHBOARD = Message(
    "VSE-S044", "cluster {cluster}: does not answer as a Ray dashboard does ({reason}); check the address, and whether "
    "the head node is up"
)
OTHER_VERSIONS = Message(
    "VSE-S045", "cluster {cluster}: runs Ray {ray_there} on Python {python_there}, here are Ray {ray_here} on Python "
    "{python_here}; install the same on both sides (constraints.txt pins Ray), or submit from the head node"
)
NO_TOKEN = Message(
    "VSE-S046", "cluster {cluster}: needs a token and none was found here; copy the cluster's into ~/.ray/auth_token, "
    "or name its file in RAY_AUTH_TOKEN_PATH"
)
NO_TOKEN_FILE = Message(
    "VSE-S047", "cluster {cluster}: needs a token, and RAY_AUTH_TOKEN_PATH names {file}, which cannot be read or is "
    "empty; put the cluster's token there"
)
NO_TOKEN_SENT = Message(
    "VSE-S048", "cluster {cluster}: needs a token, and RAY_AUTH_MODE is {mode!r} here, so that none was sent; set it "
    "to token"
)
TOKEN_REFUSED = Message(
    "VSE-S049", "cluster {cluster}: refuses the token found here (RAY_AUTH_TOKEN, else the file of "
    "RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token); copy the cluster's"
)
CLUSTER_STARTS = Message("VSE-S050", "cluster {cluster}: has only just started and takes no jobs; repeat in a minute")
NO_JOB_CLIENT = Message(
    "VSE-S051", "cluster {cluster}: cannot be asked from here: Ray's client for jobs is missing; pip install "
    "'vsetune[jobs]'"
)
CONNECTION_BROKE = Message("VSE-S052", "cluster {cluster}: the connection broke ({reason})")
CLUSTER_REFUSES = Message("VSE-S053", "cluster {cluster}: refused ({reason})")
JOB_ADDRESS = Message("VSE-S054", "{where}: got {got!r}, need the address of the dashboard, as in {example}")
ADDRESS_PASSWORD = Message(
    "VSE-S055", "{where}: contains a user or password; Ray takes a token instead, see ~/.ray/auth_token"
)
JOB_UNKNOWN = Message("VSE-S056", "job {job}: not on cluster {cluster}, which has: {known}; see `vsetune job list`")
JOB_TOO_LARGE = Message("VSE-S057", "job: too large to send ({reason}); list files that it does not need in .rayignore")
JOB_NOT_PACKED = Message("VSE-S058", "job: cannot be packed in {folder} ({reason}; {free}); {hint}, then repeat")
PLUGIN_OUTSIDE = Message(
    "VSE-S059", "{file}: plugins: {plugin} does not lie below the folder of the study file, so a job cannot take it "
    "along; move it there and name it relative to the file, or install it on the nodes as a package"
)
PASSWORD_IN_VARIABLE = Message(
    "VSE-S060", "{variable}: contains a password, and anyone who lists jobs could read it; write ${{VARIABLE}} in its "
    "place and set that variable on the nodes"
)

# Recorded attempts
ATTEMPT_NAME = Message(
    "VSE-S061", "{got}: need STUDY/TRIAL, such as quickstart/vsepp.lmh-c000-s0, STUDY/TRIAL/NUMBER for one of its "
    "attempts, or STUDY/CELL for the pick of a cell; `vsetune study show STUDY --all` lists trials"
)
NOT_FINISHED = Message("VSE-S062", "{trial}: no attempt has finished; name one of its runs instead: {attempts}")
OTHER_VERSION = Message(
    "VSE-S063", "{problem}; recorded by another version of vsetune, read it with that one or train again"
)
CHECKPOINT_DAMAGED = Message(
    "VSE-S064", "{where}: {file} is damaged ({reason}); put back a copy, such as the run's artifact in MLflow, or "
    "train the trial again"
)
NO_CHECKPOINT = Message(
    "VSE-S065", "{where}: no checkpoint left, {file} is not in {folder}; put it back, or train the trial again"
)
NOTHING_TO_REPEAT = Message("VSE-S066", "{cell}: has no usable trial, so there is nothing to repeat")
REPEATS_DIFFER = Message(
    "VSE-S067", "{cell}: {setting} was {got} in {trial} and would be {new}; recorded by another version of vsetune, "
    "repeat it with that one"
)

# Models
NOT_FOR_TRANSFORMERS = Message(
    "VSE-S140",
    "{where}: `transformers` has no class for network {network}; need a dual_encoder, leave out "
    "--transformers to write the model as it is"
)
TOWER_NOT_FOR_TRANSFORMERS = Message(
    "VSE-S195",
    "{where}: network.{setting}: `transformers` has no model for {got}; need a dual_encoder with `model`, or with an "
    "image_model and a text_model of `transformers`, leave out --transformers to write the model as it is"
)
MODEL_OTHER_VERSION = Message(
    "VSE-S068", "{model}: no model of this version of vsetune; log it again with vsetune trial model"
)
MODEL_CHANGED = Message("VSE-S069", "{file}: differs from the logged file (SHA-256); log it again")
MODEL_DATA_GONE = Message(
    "VSE-S070", "{model}: the model has {index}, and the data set of its training is not here ({path}); log it with an "
    "index (vsetune trial model {model} --index SPLIT), or ask for embeddings (answer: embeddings)"
)
MODEL_DATA_CHANGED = Message(
    "VSE-S071", "{model}: the model has {index}, and the data set of its training has changed since ({path}); log it "
    "with an index (vsetune trial model {model} --index SPLIT), or ask for embeddings (answer: embeddings)"
)
QUERY_INPUT = Message(
    "VSE-S072", "got {got}; need a sentence, a list of sentences, or columns caption (sentences) and image_features "
    "(regions of an image, each a list of numbers)"
)
QUERY_ROW = Message("VSE-S073", "row {row}: got {got} of caption and image_features, need one of them")
QUERY_OPTION = Message("VSE-S074", "{option}: got {got!r}, need {need}")
QUERY_CAPTION = Message("VSE-S075", "caption {row}: got {got!r}, need a sentence")
QUERY_FEATURES = Message(
    "VSE-S076", "image {row}: got {got}, need (regions, {width}) numbers with 1 to {regions} regions, as {model} was "
    "trained with"
)
QUERY_READS = Message(
    "VSE-S077", "network {network} reads {reads}: as a model it is asked with {asked} alone; vsetune trial gallery "
    "takes {others} from the data set"
)
NO_EMBEDDING = Message(
    "VSE-S078", "network {network} scores pairs and has no embedding of one item; ask for items (answer: items)"
)
SCORES_NOT_FINITE = Message("VSE-S079", "the network gives scores that are not finite for this query")
NOTHING_TO_SEARCH = Message("VSE-S080", "the index is empty, there is nothing to search in")
MODEL_FOLDER_TAKEN = Message("VSE-S190", "{folder}: has files already, need a new or an empty folder")
NO_BASELINE = Message(
    "VSE-S192", "study {study}: its record names no baseline; name the loss to compare with by --baseline"
)
PHOTOGRAPH_FEATURES = Message(
    "VSE-S191", "network {network} reads features made elsewhere ({extractor}), which cannot be made of a photograph "
    "here; ask it with a sentence"
)

# Simulations
OTHER_TEST_FEATURES = Message(
    "VSE-S088", "{where}: data set {data} has features of {got}, need {need}, as the data set of the study; ingest it "
    "with the same features"
)
NO_SPREAD = Message(
    "VSE-S085", "study {study}: no tuned loss has two searches with confirming seeds, so it shows no deviation between "
    "searches; name a study with search.repeats of 2 or more"
)
SEEDS_CONFIRMED = Message(
    "VSE-S086", "study {study}: search.repeats: {repeats} would give further searches the seeds {seeds}, which study "
    "confirm has used; give the changed study another name"
)

# Intervals over images
NO_UNITS = Message(
    "VSE-S193", "study {study}: no loss has an interval over seeds or searches, so none has one over images too; need "
    "two seeds that finished and did not choose, or three searches: vsetune study confirm {study} --seeds 3"
)
