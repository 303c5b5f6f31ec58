"""Dual encoders give what `transformers` gives: pixels, ids, embeddings, logits, losses."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tiny_dual_encoders import DEVIATION, MEAN, SIZE, save_tiny
from torch import Tensor

from vsetune.config.sources.trial_inputs import TextModel
from vsetune.data.batches.image_processors import save_processor
from vsetune.data.batches.pixels import evaluation_pixels
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.data.stored.shards import Photograph
from vsetune.losses.clip.spec import ClipSpec
from vsetune.losses.loss_base import LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.siglip.spec import SiglipSpec
from vsetune.networks.dual_encoder.network import DualEncoder
from vsetune.networks.dual_encoder.spec import DualEncoderSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network

TEXTS = ["a red dog", "two birds runs on the grass ! a a a a a a a a", "the man", "! small car"]
SHAPES = [(50, 37), (33, 60), (32, 32), (90, 41)]


def photographs() -> list[Image.Image]:
    noise = np.random.default_rng(0)
    return [Image.fromarray(noise.integers(0, 256, (*shape, 3), dtype=np.uint8)) for shape in SHAPES]


def stored(image: Image.Image) -> Photograph:
    content = io.BytesIO()
    image.save(content, "PNG")
    return Photograph(content.getvalue(), "here")


def inputs_of(spec: DualEncoderSpec) -> tuple[ImageInputs, CaptionInputs]:
    """The photographs and texts as a batch has them."""
    reads = spec.reads
    assert reads.pixels is not None
    assert reads.word_pieces is not None
    pixels = np.stack([evaluation_pixels(stored(image), reads.pixels, Random(0)) for image in photographs()])
    ids = WordPieces(reads.word_pieces).encode(TEXTS)
    tokens = torch.zeros(len(ids), max(map(len, ids)), dtype=torch.int64)
    for place, row in zip(tokens, ids, strict=True):
        place[: len(row)] = torch.tensor(row)
    images = ImageInputs(torch.zeros(len(pixels), 1, 0), torch.ones(len(pixels)).long(), pixels=torch.tensor(pixels))
    return images, CaptionInputs(tokens, torch.tensor([len(row) for row in ids]))


def built(spec: DualEncoderSpec) -> DualEncoder:
    network = build_network(spec, regions=1, width=4, vocabulary_size=30)
    assert isinstance(network, DualEncoder)
    return network.eval()


def theirs(folder: Path, model: Any, *, dtype: torch.dtype) -> Any:
    """The output of the library for the same photographs and texts."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    if dtype == torch.float64:  # the library itself normalises in float32
        whole = torch.tensor(np.stack([
            processor(images=image, do_rescale=False, do_normalize=False)["pixel_values"][0] for image in photographs()
        ]))
        mean, deviation = (torch.tensor(each, dtype=dtype)[:, None, None] for each in (MEAN, DEVIATION))
        pixels = (whole.to(dtype) / 255 - mean) / deviation
    else:
        pixels = processor(images=photographs(), return_tensors="pt")["pixel_values"]
    is_siglip = model.config.model_type == "siglip"
    padding = "max_length" if is_siglip else True
    text = tokeniser(TEXTS, padding=padding, truncation=True, max_length=12, return_tensors="pt")
    mask = {} if is_siglip else {"attention_mask": text["attention_mask"]}
    with torch.no_grad():
        return model.to(dtype)(input_ids=text["input_ids"], pixel_values=pixels, return_loss=True, **mask)


@pytest.mark.parametrize("kind", ["clip", "siglip", "altclip", "vit", "dinov2", "resnet", "convnext"])
def test_pixels_equal_those_of_the_librarys_own_preprocessor(kind, tmp_path) -> None:
    save_tiny(kind, tmp_path)
    name = {"model": str(tmp_path)} if "clip" in kind or kind == "siglip" else {"image_model": str(tmp_path)}
    wanted = DualEncoderSpec(**name, image_size=SIZE).reads.pixels
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    for image in photographs():
        found = evaluation_pixels(stored(image), wanted, Random(0))[0]
        expected = processor(images=image, do_rescale=False, do_normalize=False)["pixel_values"][0]
        assert np.array_equal(found, expected)
        assert found.shape == (3, SIZE, SIZE)


@pytest.mark.parametrize("kind", ["clip", "siglip", "altclip", "bert", "modernbert"])
def test_ids_are_those_of_the_librarys_tokeniser_raised_by_one(kind, tmp_path) -> None:
    save_tiny(kind, tmp_path)
    tokeniser = transformers.AutoTokenizer.from_pretrained(tmp_path)
    padding = "max_length" if kind == "siglip" else False
    expected = tokeniser(TEXTS, truncation=True, max_length=12, padding=padding)["input_ids"]
    found = WordPieces(TextModel(str(tmp_path), ids="raised")).encode(TEXTS)
    assert found == [[number + 1 for number in row] for row in expected]
    if kind == "siglip":  # trained on lower case, which the tokeniser of SigLIP 2 leaves to the caller
        assert WordPieces(TextModel(str(tmp_path), ids="raised")).encode([text.upper() for text in TEXTS]) == found
    assert min(min(row) for row in found) >= 1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
@pytest.mark.parametrize("kind", ["clip", "siglip", "altclip"])
def test_embeddings_logits_and_losses_equal_those_of_the_library(kind, dtype, tolerance, tmp_path) -> None:
    model = save_tiny(kind, tmp_path)
    spec = DualEncoderSpec(model=str(tmp_path), image_size=SIZE)
    network, expected = built(spec).to(dtype), theirs(tmp_path, model, dtype=dtype)
    images, captions = inputs_of(spec)
    with torch.no_grad():
        both = network.encode_images(images), network.encode_captions(captions)
        similarity = network.similarity(*both)
    assert network.embedding_size == both[0].vectors.shape[1]
    torch.testing.assert_close(both[0].vectors, expected.image_embeds, atol=tolerance, rtol=0)
    torch.testing.assert_close(both[1].vectors, expected.text_embeds, atol=tolerance, rtol=0)
    scales = network.loss_parameters()
    logits = similarity * scales["logit_scale"].exp() + scales.get("logit_bias", 0)
    scale = float(scales["logit_scale"].exp())
    torch.testing.assert_close(logits, expected.logits_per_image, atol=tolerance * scale, rtol=0)
    made = {"siglip": SiglipSpec}.get(kind, ClipSpec)(variant="diagonal", start="network")
    loss = build_loss(made).to(dtype)
    loss.take_network_parameters(scales)
    rows = torch.arange(len(TEXTS))
    value = loss(LossInputs(similarity, rows, rows, rows)).value
    assert value.dtype == dtype
    torch.testing.assert_close(value.detach(), expected.loss, atol=tolerance * scale, rtol=0)


def image_vectors_of(model: Any, pixels: Tensor) -> Tensor:
    output = model(pixel_values=pixels)
    if model.config.model_type == "vit":  # its pooler stands behind a classifier's layer, which is not used
        return output.last_hidden_state[:, 0]
    return output.pooler_output.flatten(1)


@pytest.mark.parametrize("text", ["bert", "modernbert"])
@pytest.mark.parametrize("image", ["vit", "dinov2", "resnet", "convnext"])
def test_joined_towers_are_those_of_the_library_before_their_projections(image, text, tmp_path) -> None:
    made = {side: save_tiny(side, tmp_path / side) for side in (image, text)}
    spec = DualEncoderSpec(
        image_model=str(tmp_path / image), text_model=str(tmp_path / text), image_size=SIZE, embedding_size=6
    )
    network, (images, captions) = built(spec), inputs_of(spec)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / image, backend="pil")
    pixels = processor(images=photographs(), return_tensors="pt")["pixel_values"]
    tokeniser = transformers.AutoTokenizer.from_pretrained(tmp_path / text)
    words = tokeniser(TEXTS, padding=True, truncation=True, max_length=12, return_tensors="pt")
    with torch.no_grad():
        found = network.towers.image_vectors(images)
        torch.testing.assert_close(found, image_vectors_of(made[image], pixels), atol=1e-5, rtol=1e-5)
        states = made[text](
            input_ids=words["input_ids"], attention_mask=words["attention_mask"]
        ).last_hidden_state
        mask = words["attention_mask"][..., None]
        pooled = (states * mask).sum(dim=1) / mask.sum(dim=1)
        found = network.towers.caption_vectors(captions.tokens, captions.lengths)
        torch.testing.assert_close(found, pooled, atol=1e-5, rtol=1e-5)
        projected = network.encode_images(images).vectors
        expected = torch.nn.functional.normalize(network.towers.image_map(image_vectors_of(made[image], pixels)))
        torch.testing.assert_close(projected, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("image", "text", "settings"), [
    ("vit", "bert", {"text_pooling": "mean"}),
    ("dinov2", "modernbert", {"text_pooling": "first"}),
    ("resnet", "clip", {"text_pooling": "mean"}),
    ("convnext", "bert", {"text_pooling": "first"}),
    ("clip", "modernbert", {"text_pooling": "mean"}),
    ("vit", "bert", {"lora_rank": 2}),
], ids=str)
def test_the_lines_saved_beside_joined_towers_give_equal_vectors(image, text, settings, tmp_path, monkeypatch) -> None:
    if "lora_rank" in settings:
        pytest.importorskip("peft", reason="the extra `lora` is not installed")
    for side in (image, text):
        save_tiny(side, tmp_path / side)
    spec = DualEncoderSpec(
        image_model=str(tmp_path / image), text_model=str(tmp_path / text), image_size=SIZE, embedding_size=6,
        **settings,
    )
    network = built(spec)
    with torch.no_grad():
        for parameter in network.parameters():  # as after a training
            parameter.add_(0.1 * torch.randn_like(parameter))
    out, pieces = tmp_path / "out", WordPieces(spec.reads.word_pieces)
    pieces.save(out / "text")
    save_processor(spec.reads.pixels.processor, out / "vision")
    network.save_model(out, longest=pieces.limit)
    lines = (out / "README.md").read_text().partition("```python")[2].partition("```")[0]
    monkeypatch.chdir(out)
    found: dict[str, Any] = {"images": photographs(), "texts": TEXTS}
    with torch.no_grad():
        exec(lines, found)
        images, captions = inputs_of(spec)
        expected = {"image_vectors": network.encode_images(images), "text_vectors": network.encode_captions(captions)}
    for name, encoded in expected.items():
        torch.testing.assert_close(found[name], encoded.vectors, atol=1e-6, rtol=0)
        assert (found[name][0] - found[name][1]).abs().max() > 0.01
