"""The messages of `metrics`."""

from __future__ import annotations

from vsetune.errors import Message

NOT_FINITE = Message(
    "VSE-M001", "{where}: got {broken} of {count} {what} that are not finite, need all finite; the network has "
    "diverged, lower training.learning_rate",
)
VECTORS_NOT_FINITE = Message(
    "VSE-M002", "semantic vectors: got {broken} of {count} that are not finite, need all finite; encode the captions "
    "again",
)
OUTSIDE = Message("VSE-M003", "{where}: got {what} from {low} to {high}, need 0 to {most}")
NOTHING_TO_RANK = Message(
    "VSE-M007", "retrieval: got {images} images and {captions} captions, need at least one of each"
)
WITHOUT_CAPTION = Message(
    "VSE-M008", "retrieval: got {images} images without a caption, need at least one caption per image"
)
UNEQUAL_FOLDS = Message("VSE-M009", "retrieval: got {images} images for {folds} folds, need a multiple of {folds}")
IMAGES_OF_PROTOCOL = Message("VSE-M010", "{protocol}: got {images} images, need the {need} of the protocol")
TOO_MANY_PROPOSED = Message(
    "VSE-M011", "re-ranking: got top {top}, need 1 to the {images} images that are ranked; choose fewer"
)
SRD_SHAPES = Message("VSE-M012", "SRD: got network scores {network} and semantic scores {semantic}, need one shape")
SRD_CUTOFFS = Message("VSE-M013", "SRD: got k = {ks}, need numbers from 1 to the {images} images")
PROTOCOLS_DIFFER = Message(
    "VSE-M014", "protocol: {differences}; need curves taken under one protocol, run both in one study"
)
CADENCES_DIFFER = Message(
    "VSE-M015", "cadence: one curve was validated every {first:.6g} epochs, the other every {second:.6g}; need equal "
    "gaps, set the same training.validate_every_steps and batch_size",
)
OWNERS_NEEDED = Message(
    "VSE-M016", "retrieval: got {captions} captions for {images} images, need `image_ids`, the row of each one's image"
)
