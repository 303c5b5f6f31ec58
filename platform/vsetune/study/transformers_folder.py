"""The best network of a trial as a folder of `transformers`: weights, configuration, tokeniser, preprocessor."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from vsetune.data.batches.image_processors import save_processor
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.errors import UsageError
from vsetune.home.whole_files import make_folder
from vsetune.networks.dual_encoder.network import DualEncoder
from vsetune.networks.dual_encoder.saved_towers import TEXT, VISION, lacks_class
from vsetune.networks.dual_encoder.spec import DualEncoderSpec
from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.stored import StoredWeights
from vsetune.records.studies import Studies
from vsetune.study.model_files import require_new_folder
from vsetune.study.recorded import RecordedAttempt, require_best_weights
from vsetune.training.trained import described_by


def write_transformers_folder(store: Studies, attempt: RecordedAttempt, folder: Path) -> None:
    """Write a new folder for `AutoModel`, `AutoTokenizer` and `AutoImageProcessor`; of joined towers one folder for
    each, with their projections and a README of the lines that use them.

    UsageError where the folder has files, and for a network or a tower that the library has no class for.
    """
    require_new_folder(folder)
    spec = attempt.trial().network
    if not isinstance(spec, DualEncoderSpec):
        raise UsageError(
            "VSE-S140", "{where}: `transformers` has no class for network {network}; need a dual_encoder, leave out "
            "--transformers to write the model as it is", where=attempt.where, network=spec.name,
        )
    with TemporaryDirectory() as into:
        weights = require_best_weights(store, attempt, Path(into))
        held = described_by(weights, attempt.trial()) or StoredWeights.open(weights).described()
        network = network_of(weights, described=held)
    assert isinstance(network, DualEncoder)
    is_joined = spec.model is None
    if is_joined:
        _require_classes(network, spec, where=attempt.where)
    reads = spec.reads
    assert reads.pixels is not None
    assert reads.pixels.processor is not None
    assert reads.word_pieces is not None
    of_images, of_captions = (folder / VISION, folder / TEXT) if is_joined else (folder, folder)
    make_folder(of_images)
    make_folder(of_captions)
    pieces = WordPieces(reads.word_pieces)
    pieces.save(of_captions)
    save_processor(reads.pixels.processor, of_images)
    network.save_model(folder, longest=pieces.limit)


def _require_classes(network: DualEncoder, spec: DualEncoderSpec, *, where: str) -> None:
    towers = network.towers
    for setting, tower, name in (
        ("image_model", towers.image, "stored features"), ("text_model", towers.text, spec.text_model)
    ):
        if lacks_class(tower):
            kind = getattr(getattr(tower, "config", None), "model_type", name)
            raise UsageError(
                "VSE-S195", "{where}: network.{setting}: `transformers` has no model for {got}; need a dual_encoder "
                "with `model`, or with an image_model and a text_model of `transformers`, leave out --transformers to "
                "write the model as it is", where=where, setting=setting, got=kind,
            )
