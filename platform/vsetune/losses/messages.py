"""The wording of every error of losses that a user meets."""

from __future__ import annotations

from vsetune.errors import Message

PAIRS_NEEDED = Message(
    "VSE-L001",
    "loss {loss}: got {images} images x {captions} captions, need one caption per image; set training.batch_unit to "
    "pairs (in your own training loop repeat the images), or use {fitting}",
)
NO_SEMANTICS = Message(
    "VSE-L002",
    "loss {loss}: got a batch without semantic vectors, need one per caption; in your own training loop give "
    "semantic_vectors=, in code of vsetune read the training split with data.semantics or data.encoder",
)
NO_EMBEDDINGS = Message(
    "VSE-L003",
    "loss {loss}: got a batch without embeddings, need those of images and captions; use a network that embeds both",
)
EMBEDDING_SHAPE = Message(
    "VSE-L004",
    "loss {loss}: got embeddings of shape {shape}, need one of size {size} per item; use a network of kind embedding",
)
NO_SIZES = Message(
    "VSE-L005",
    "loss {loss}: needs the embedding size and the number of training images; in your own training loop make it with "
    "embedding_size= and images=",
)
NO_DRAWN = Message(
    "VSE-L006",
    "loss {loss}: got a batch without drawn negatives, need {drawn} images of the data set; give the step those of "
    "`TrainingBatches.drawn`, or set drawn to 0",
)

# what the code of a loss may return
NO_OUTPUT = Message("VSE-L020", "forward returned a {got}, need `LossOutput(value=...)`")
OUTPUT_TYPE = Message("VSE-L007", "{what} is of type {got}, need {need}")
OUTPUT_SHAPE = Message("VSE-L008", "{what} has shape {got}, need {need}")
VALUE_DTYPE = Message(
    "VSE-L009", "value is of {got}, need float32 or wider; begin with `at_least_float32(inputs.similarity)`"
)
VALUE_CONSTANT = Message(
    "VSE-L010", "value has no gradient; compute it from inputs.similarity or the embeddings, without `.detach()`"
)
PART_GRADIENT = Message(
    "VSE-L011", "part {part} has a gradient, which holds the whole batch in memory; add `.detach()`"
)

# settings that contradict each other
MARGIN_ABOVE_CAP = Message("VSE-L012", "margin {margin:g} is above cap {cap:g}; raise cap or lower margin")
RANDOM_WITH_MEMORY = Message(
    "VSE-L013",
    "memory_size {memory_size}: negatives random come from the batch alone, never from the memory; use negatives "
    "{others}, or memory_size 0",
)
RELEASED_WITH_MEMORY = Message(
    "VSE-L014",
    "memory_size {memory_size}: variant released divides by the largest product of a batch, which a memory does not "
    "have; use variant decided or diagonal",
)
DRAWN_WITH_MEMORY = Message(
    "VSE-L015",
    "drawn {drawn}: negatives are drawn for networks that score pairs, memory_size {memory_size} keeps those of "
    "networks that embed; set one of them to 0",
)
DRAWN_WITH_WARMUP = Message(
    "VSE-L016",
    "drawn {drawn}: in its {warmup_epochs} warmup_epochs the sum of hinges reads the batch alone; set "
    "warmup_epochs to 0, or drawn to 0 until a later phase of the training",
)

# centres of semantic_center
TOO_MANY_CENTERS = Message(
    "VSE-L017",
    "loss.quantised_centers: got {centers} centres for {images} training images, need at most one per image; set it "
    "to {images} or less",
)
CENTERS_CHANGED = Message(
    "VSE-L018",
    "loss.quantised_centers: got {centers} after a phase with {before}, need the same number in every quantised phase",
)
TOO_FEW_MET = Message(
    "VSE-L019",
    "loss.quantised_centers: got {centers} centres, but the phase before met only {met} training images; train it for "
    "a whole epoch, or set quantised_start to random",
)

# what a batch from somebody else's training loop may lack
NO_BATCH = Message(
    "VSE-L021", "loss {loss}: got {got}, need embeddings of both images and captions, or "
    "scores (images, captions) alone"
)
SCORES_NEEDED = Message(
    "VSE-L022", "loss {loss}: got embeddings, which are compared by cosine, need `scores=` of kind {scores}"
)
ROWS_NEEDED = Message(
    "VSE-L023", "loss {loss}: got {images} images x {captions} captions, need `caption_rows=`, the row of each "
    "caption's image (one tensor alone is read as a matrix of scores: for embeddings give images and captions)",
)
