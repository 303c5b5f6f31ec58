"""Dual encoders leave as folders of `transformers` that give the same embeddings there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from tiny_dual_encoders import SIZE, save_tiny
from tokenizers import normalizers

from vsetune.data.batches.image_processors import save_processor
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.networks.dual_encoder.network import DualEncoder
from vsetune.networks.dual_encoder.spec import DualEncoderSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.text_transformer import architecture_of

TOKENS = torch.tensor([[24, 2, 4, 26, 0], [24, 7, 8, 9, 26]])
LENGTHS = torch.tensor([4, 5])


def trained(folder: Path, **settings: Any) -> DualEncoder:
    """A network of the model in the folder, away from its start."""
    spec = DualEncoderSpec(model=str(folder), image_size=SIZE, **settings)
    torch.manual_seed(1)
    network = build_network(spec, regions=1, width=4, vocabulary_size=30)
    assert isinstance(network, DualEncoder)
    with torch.no_grad():
        for group in network.parameter_groups():
            for parameter in group.parameters if group.start_epoch == 0 else ():
                parameter.add_(0.1 * torch.randn_like(parameter))
    network.take_loss_parameters({"logit_scale": torch.tensor(2.5), "logit_bias": torch.tensor(-1.5)})
    return network.eval()


def inputs(size: int = SIZE) -> tuple[ImageInputs, CaptionInputs]:
    pixels = torch.randint(256, (2, 1, 3, size, size), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return ImageInputs(torch.zeros(2, 1, 0), torch.ones(2).long(), pixels=pixels), CaptionInputs(TOKENS, LENGTHS)


def same_as_library(network: DualEncoder, folder: Path, *, has_mask: bool) -> None:
    model = transformers.AutoModel.from_pretrained(folder)
    images, captions = inputs()
    mean, deviation = network.towers.colour_mean, network.towers.colour_deviation
    pixels = (images.pixels[:, 0] / 255 - mean[:, None, None]) / deviation[:, None, None]
    ids = torch.where(TOKENS > 0, TOKENS - 1, model.config.text_config.pad_token_id)
    mask = {"attention_mask": (TOKENS > 0).long()} if has_mask else {}
    with torch.no_grad():
        found = model(input_ids=ids, pixel_values=pixels.float(), **mask)
        torch.testing.assert_close(network.encode_images(images).vectors, found.image_embeds, atol=1e-6, rtol=0)
        torch.testing.assert_close(network.encode_captions(captions).vectors, found.text_embeds, atol=1e-6, rtol=0)
    assert model.logit_scale.item() == 2.5
    if hasattr(model, "logit_bias"):
        assert model.logit_bias.item() == -1.5


TEXTS = ["a Red dog", "two birds on the GRASS !", "star " * 30]


def with_capitals(folder: Path) -> None:
    """Have the tokeniser of a model tell capitals from small letters, as SigLIP 2's does."""
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    tokeniser.backend_tokenizer.normalizer = normalizers.NFC()
    tokeniser.save_pretrained(folder)


@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip with capitals", "altclip"])
@pytest.mark.parametrize("by", ["tokenizer", "processor"])
def test_captions_have_equal_embeddings_by_the_saved_tokeniser_as_the_pages_of_the_library_call_it(kind, by, tmp_path):
    save_tiny(kind.split()[0], tmp_path / "start")
    if kind != kind.split()[0]:
        with_capitals(tmp_path / "start")
    network, folder = trained(tmp_path / "start"), tmp_path / "end"
    pieces = WordPieces(network._spec.reads.word_pieces)
    rows = [torch.tensor(row) for row in pieces.encode(TEXTS)]
    ids, lengths = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])
    folder.mkdir()
    pieces.save(folder)
    save_processor(network._spec.reads.pixels.processor, folder)
    network.save_model(folder, longest=pieces.limit)
    model = transformers.AutoModel.from_pretrained(folder)
    if by == "tokenizer":
        call = transformers.AutoTokenizer.from_pretrained(folder)
    else:
        processor = transformers.AutoProcessor.from_pretrained(folder, backend="pil")
        call = partial(processor, images=Image.new("RGB", (40, 30)))
    ways: list[dict[str, Any]] = [{"padding": "max_length", "truncation": True}]
    if "siglip" not in kind:
        ways.append({"padding": True, "truncation": True})
    elif by == "processor":
        ways.append({})
    pixels = {} if by == "processor" else {"pixel_values": torch.zeros(1, 3, SIZE, SIZE)}
    with torch.no_grad():
        expected = network.encode_captions(CaptionInputs(ids, lengths)).vectors
        for way in ways:
            for some in (slice(3), slice(0, 1), slice(1, 2)):
                found = model(**call(text=TEXTS[some], return_tensors="pt", **way), **pixels).text_embeds
                torch.testing.assert_close(found, expected[some], atol=1e-6, rtol=0)
    assert ('`padding=True` gives other vectors' in (folder / "README.md").read_text()) == ("siglip" in kind)


@pytest.mark.parametrize("kind", ["clip", "siglip", "altclip"])
def test_a_saved_model_gives_equal_embeddings_in_the_library(kind, tmp_path) -> None:
    save_tiny(kind, tmp_path / "start").half().save_pretrained(tmp_path / "start")  # trained weights need float32
    network = trained(tmp_path / "start")
    network.save_model(tmp_path / "end", longest=12)
    before, after = (transformers.AutoModel.from_pretrained(tmp_path / name).state_dict() for name in ("start", "end"))
    assert before.keys() == after.keys()
    assert any("vision_model" in name and not torch.equal(value.float(), after[name]) for name, value in before.items())
    same_as_library(network, tmp_path / "end", has_mask=kind != "siglip")


def test_low_rank_updates_are_added_to_the_weights(tmp_path) -> None:
    pytest.importorskip("peft", reason="the extra `lora` is not installed")
    save_tiny("clip", tmp_path / "start")
    network = trained(tmp_path / "start", lora_rank=2)
    assert any("lora_A" in name for name in network.state_dict())
    network.save_model(tmp_path / "end", longest=12)
    same_as_library(network, tmp_path / "end", has_mask=True)


def test_low_rank_updates_start_at_zero(tmp_path) -> None:
    pytest.importorskip("peft", reason="the extra `lora` is not installed")
    save_tiny("clip", tmp_path)
    both = [
        build_network(DualEncoderSpec(model=str(tmp_path), image_size=SIZE, lora_rank=rank),
                      regions=1, width=4, vocabulary_size=30).eval()
        for rank in (0, 2)
    ]
    vectors = [network.encode_images(inputs()[0]).vectors for network in both]
    assert torch.equal(*vectors)


@pytest.mark.parametrize("settings", [{"model": "clip"}, {"image_model": "vit", "text_model": "bert"}], ids=str)
def test_a_network_is_built_again_without_the_files_of_its_models(settings, tmp_path) -> None:
    for kind in settings.values():
        save_tiny(kind, tmp_path / kind)
    spec = DualEncoderSpec(image_size=SIZE, **{key: str(tmp_path / kind) for key, kind in settings.items()})
    sizes = {"regions": 1, "width": 4, "vocabulary_size": 30}
    network = build_network(spec, **sizes).eval()
    for kind in settings.values():
        (tmp_path / kind).rename(tmp_path / f"{kind} gone")
    again = build_network(spec, **sizes, pretrained=False, architecture=architecture_of(network)).eval()
    again.load_state_dict(network.state_dict())
    for encoder, some in zip(("encode_images", "encode_captions"), inputs(), strict=True):
        assert torch.equal(getattr(network, encoder)(some).vectors, getattr(again, encoder)(some).vectors)
