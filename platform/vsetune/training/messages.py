"""The wording of the errors of this package, by subject."""

from __future__ import annotations

from vsetune.errors import Message

# The training
FINISHED = Message("VSE-T001", "{where}: already trained to its {epochs:g} epochs.")
LEAVES = Message("VSE-T002", "{where} step {step}: its process will be ended; another one continues the trial.")
NOT_FINITE = Message("VSE-T003",
    "{where} step {step}: loss {loss} is {value:g} with gradient norm {norm:g} at learning rate {rate:g}, need finite "
    "numbers; lower training.learning_rate or training.gradient_clip.")
OUT_OF_MEMORY = Message("VSE-T004",
    "{where} step {step}: {reason} Set training.chunk_size, or lower training.batch_size or resources per GPU.")
THREADS = Message("VSE-T005", "threads: got {threads}, need at least 1.")
TOO_FEW_ITEMS = Message("VSE-T006",
    "{key}: got {got}, split {split} of {data} has {available} {unit}; use at most {available}.")
SPLIT_ENDED = Message("VSE-T007",
    "{data}: split {split} ended before step {step}, expected {batches} batches in every round; its manifest does not "
    "fit its shards, ingest it again.")
WARMUP_TOO_LONG = Message("VSE-T008",
    "training.linear_schedule.warmup_steps: got {got}, {part} has {steps:g} steps; need fewer, or use warmup_fraction")
NOTHING_TO_TRAIN = Message("VSE-T009",
    "training.phases: `trains: loss` with a loss that learns nothing; use `trains: all`")

BATCH_STATISTICS = Message("VSE-T029",
    "{key}: network {network} normalises over the batch ({module}), and parts of a batch have other statistics; leave "
    "{key} out")
OWN_LOSS = Message("VSE-T030",
    "{key}: network {network} has a loss of its own over the whole batch; set network.{weight} to 0, or leave {key} "
    "out")
DRAWN_ITEMS = Message("VSE-T031",
    "{key}: loss {loss} samples images beside the batch, which are encoded at once; leave `drawn` of the loss out, or "
    "{key}")

PROCESS_GONE = Message("VSE-T032", "a process of the trial is gone ({reason}); the trial goes on from its checkpoint")

# Checkpoints
DAMAGED = Message("VSE-T010", "{file}: damaged ({reason}); remove {folder} to start the trial again.")
MISFIT = Message("VSE-T011",
    "{file}: does not fit this trial ({reason}), so another version of vsetune wrote it; use that version, or remove "
    "{folder} to start the trial again.")
OTHER_TRIAL = Message("VSE-T012",
    "{file}: its {what} is {got}, this one is {need}; use another folder, or remove this one to start the trial again.")
CANNOT_SET_ASIDE = Message("VSE-T013", "{file}: cannot be set aside ({reason}); move it by hand.")
CANNOT_TIDY = Message("VSE-T014", "{folder}: cannot be tidied ({reason}); check its rights.")

# Validation and scores
TOO_MANY_IMAGES = Message("VSE-T015",
    "evaluation.validation_images: got {got}, need 1 to the {images} images of the split")
NEEDS_WHOLE_SPLIT = Message("VSE-T016", "evaluation.{score}: needs the whole split {split}, got {images} of its images")
FIRST_STAGE_MISSING = Message("VSE-T017",
    "{where}: the files of {first} were not given; run it as a study, which brings them")
FIRST_STAGE_SCORES = Message("VSE-T018",
    "{where} is of network {network}, which scores pairs; need a first stage that embeds, such as vse_infinity")
INDEX_DAMAGED = Message("VSE-T019", "{file}: damaged ({reason}); log the model again")

# Weights to start from
START_NOT_HERE = Message("VSE-T020",
    "{key}: got {place}, need a file of this machine; copy it to every machine that trains")
START_OF_OTHER_NETWORK = Message("VSE-T021", "{file}: holds {got}, need {need}; name weights of this network")
START_MISFIT = Message("VSE-T022",
    "{file}: does not fit network {network} on these data: {differences}; need weights of the same network with the "
    "same sizes, and features of the same width")
WORDS_MISSING = Message("VSE-T023",
    "{file}: {rows} word vectors, and no words to them; import the weights again with --words VOCABULARY")
OTHER_WORD_COUNT = Message("VSE-T024",
    "{file}: weights of a trial whose data set had {got} words, this one has {need}; need a trial on the same "
    "vocabulary")
OTHER_WORDS = Message("VSE-T025",
    "{file}: weights of a trial whose data set had other words, or the same in another order; need a trial on the same "
    "vocabulary")

# Trained networks
DATA_CHANGED = Message("VSE-T026",
    "{where}: {data} is not the data set of its training any more (features, captions or vocabulary differ: "
    "fingerprint {then} then, {now} now); bring the data set back from its recipe, or train again.")
WEIGHTS_UNUSABLE = Message("VSE-T027",
    "{where}: {file} does not fit network {network} on {data}: it is damaged, or its tensors differ ({reason}), as of "
    "another version or other data; train again.")
OTHER_FEATURES = Message("VSE-T028",
    "{file}: reads {reads}, {data} has {has}; ingest the features that the weights were trained with.")
EMBEDDINGS_UNWRITABLE = Message("VSE-T040", "{file}: cannot write ({reason}); free space, or choose another --output.")
