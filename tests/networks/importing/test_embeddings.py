"""VSE++, VSRN and VSE-infinity: the imported network gives what the released modules give, computed one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.testing import assert_close

from vsetune.cli.network_weights import _snippet
from vsetune.errors import DataError
from vsetune.networks.parts import text_transformer

WIDTH, WORDS, WORD_SIZE, SIZE, REGIONS = 6, 12, 5, 8, 4


def text_tower(released: Callable[..., nn.Module], **more: Any) -> nn.Module:
    both = bool(more)
    return released(
        embed=nn.Embedding(WORDS, WORD_SIZE), rnn=nn.GRU(WORD_SIZE, SIZE, batch_first=True, bidirectional=both), **more
    )


def last_states(text: Any, captions: list[Tensor]) -> Tensor:
    return torch.stack([normalize(text.rnn(text.embed(ids)[None])[1][-1, 0], dim=0) for ids in captions])


@torch.no_grad()
def test_vsepp_gives_the_similarities_of_the_released_modules(
    released: Any, checkpoint: Any, bring: Any, scores: Any, features: Tensor, captions: list[Tensor]
) -> None:
    image, text = released(fc=nn.Linear(WIDTH, SIZE)), text_tower(released)
    imported, network = bring(checkpoint(image, text, use_abs=False, no_imgnorm=False, measure="cosine"), "vsepp")
    vectors = normalize(image.fc(features.mean(dim=1)), dim=-1)
    assert_close(scores(network), vectors @ last_states(text, captions).T)
    assert (imported.width, imported.regions, imported.vocabulary_size) == (WIDTH, 1, WORDS)
    assert not imported.assumed


def test_vsepp_with_all_regions_in_a_row_knows_how_many_there_are(released: Any, checkpoint: Any, bring: Any) -> None:
    image, text = released(fc=nn.Linear(3 * 2048, SIZE)), text_tower(released)
    imported, _ = bring(checkpoint(image, text), "vsepp")
    assert imported.settings["image_input"] == "flatten"
    assert (imported.regions, imported.width) == (3, 2048)


def test_vsepp_takes_order_embeddings_from_the_settings(released: Any, checkpoint: Any, bring: Any) -> None:
    image, text = released(fc=nn.Linear(WIDTH, SIZE)), text_tower(released)
    imported, _ = bring(checkpoint(image, text, use_abs=True, no_imgnorm=False, measure="order"), "vsepp")
    assert imported.spec.score == "order"


def test_the_cnn_of_vsepp_is_listed_as_not_needed(released: Any, checkpoint: Any, bring: Any) -> None:
    cnn = released(features=nn.Sequential(nn.Conv2d(3, 2, 3)))
    image, text = released(fc=nn.Linear(WIDTH, SIZE), cnn=nn.DataParallel(cnn)), text_tower(released)
    imported, _ = bring(checkpoint(image, text), "vsepp")
    assert set(imported.unused) == {"img_enc.cnn.features.0.weight", "img_enc.cnn.features.0.bias"}


def reasoning_block(released: Callable[..., nn.Module]) -> nn.Module:
    return released(
        g=nn.Conv1d(SIZE, SIZE, 1), theta=nn.Conv1d(SIZE, SIZE, 1), phi=nn.Conv1d(SIZE, SIZE, 1),
        W=nn.Sequential(nn.Conv1d(SIZE, SIZE, 1), nn.BatchNorm1d(SIZE)),
    )


@torch.no_grad()
@pytest.mark.parametrize("mode", ["coco", "flickr30k"])
def test_vsrn_gives_the_similarities_of_the_released_modules(
    mode: str, released: Any, checkpoint: Any, bring: Any, scores: Any, features: Tensor, captions: list[Tensor]
) -> None:
    norm = {"bn": nn.BatchNorm1d(SIZE)} if mode == "flickr30k" else {}
    blocks = {f"Rs_GCN_{number}": reasoning_block(released) for number in (1, 2, 3, 4)}
    image = released(fc=nn.Linear(WIDTH, SIZE), img_rnn=nn.GRU(SIZE, SIZE, batch_first=True), **norm, **blocks)
    text = text_tower(released)
    imported, network = bring(checkpoint(image, text), "vsrn")
    channels = image.fc(features).mT  # (images, channels, regions)
    if mode == "coco":
        channels = normalize(channels, dim=-1)
    for block in blocks.values():
        affinity = block.theta(channels).mT @ block.phi(channels) / REGIONS
        channels = channels + block.W((affinity @ block.g(channels).mT).mT)
    state = image.img_rnn(normalize(channels, dim=-1).mT)[1][0]
    state = image.bn(state) if norm else state
    assert imported.settings["mode"] == mode
    assert_close(scores(network), normalize(state, dim=-1) @ last_states(text, captions).T)


def pooling(released: Callable[..., nn.Module]) -> nn.Module:
    return released(gru=nn.GRU(4, 4, batch_first=True, bidirectional=True), linear=nn.Linear(4, 1, bias=False))


def pooled(pool: Any, rows: Tensor) -> Tensor:
    """Of (n, D) rows: each dimension sorted, weighted by position."""
    place = torch.arange(len(rows))[:, None] / 10_000 ** (torch.arange(0, 4, 2) / 4)
    code = torch.stack((place.sin(), place.cos()), dim=-1).flatten(1)
    states = pool.gru(code[None])[0][0]
    theta = (pool.linear((states[:, :4] + states[:, 4:]) / 2) / 0.1).softmax(dim=0)
    return normalize((rows.sort(dim=0, descending=True).values * theta).sum(dim=0), dim=0)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["regions", "grid"])
def test_vse_infinity_gives_the_similarities_of_the_released_modules(
    mode: str, released: Any, checkpoint: Any, bring: Any, scores: Any, features: Tensor, captions: list[Tensor]
) -> None:
    hidden = SIZE // 2
    mlp = released(
        layers=nn.ModuleList([nn.Linear(WIDTH, hidden), nn.Linear(hidden, SIZE)]),
        bns=nn.ModuleList([nn.BatchNorm1d(hidden), nn.BatchNorm1d(SIZE)]),
    )
    tower = released(fc=nn.Linear(WIDTH, SIZE), gpool=pooling(released), **({"mlp": mlp} if mode == "regions" else {}))
    text = text_tower(released, gpool=pooling(released))
    image = tower
    if mode == "grid":
        image = nn.DataParallel(released(image_encoder=tower, backbone=nn.Conv2d(3, 2, 3)))
    imported, network = bring(checkpoint(image, text), "vse_infinity")
    images, sentences = [], []
    for rows in features:
        mapped = tower.fc(rows)
        if mode == "regions":
            mapped = mapped + mlp.layers[1](mlp.bns[0](mlp.layers[0](rows)).relu())
        images.append(pooled(tower.gpool, mapped))
    for ids in captions:
        states = text.rnn(text.embed(ids)[None])[0][0]
        sentences.append(pooled(text.gpool, (states[:, :SIZE] + states[:, SIZE:]) / 2))
    assert imported.settings["image_mlp"] is (mode == "regions")
    assert {"regions": 5, "grid": 2}[mode] == len(imported.unused)
    assert math.prod(imported.weights["words.weight"].shape) == WORDS * WORD_SIZE
    assert_close(scores(network), torch.stack(images) @ torch.stack(sentences).T)


@pytest.fixture
def tiny_bert(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The shapes of BERT base made tiny, and a released model of these shapes with BERT's pooler."""
    transformers = pytest.importorskip("transformers")
    tiny = {
        "vocab_size": WORDS, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 8, "max_position_embeddings": 9,
    }
    monkeypatch.setitem(text_transformer._KNOWN, "bert-base-uncased", tiny)
    monkeypatch.setattr(
        "vsetune.networks.parts.text_transformer.find_model", lambda *args, **keys: pytest.fail("asked the hub")
    )
    return transformers.BertModel(transformers.BertConfig(**tiny))


@torch.no_grad()
@pytest.mark.parametrize("mode", ["regions", "grid"])
def test_vse_infinity_with_bert_gives_the_captions_of_the_released_modules(
    mode: str, tiny_bert: Any, released: Any, checkpoint: Any, bring: Any, encode: Any, captions: list[Tensor]
) -> None:
    hidden = SIZE // 2
    mlp = released(
        layers=nn.ModuleList([nn.Linear(WIDTH, hidden), nn.Linear(hidden, SIZE)]),
        bns=nn.ModuleList([nn.BatchNorm1d(hidden), nn.BatchNorm1d(SIZE)]),
    )
    image = released(fc=nn.Linear(WIDTH, SIZE), gpool=pooling(released), **({"mlp": mlp} if mode == "regions" else {}))
    if mode == "grid":
        image = released(image_encoder=image, backbone=nn.Conv2d(3, 2, 3))
    text = released(bert=tiny_bert, linear=nn.Linear(6, SIZE), gpool=pooling(released))
    imported, network = bring(checkpoint(image, text), "vse_infinity")
    expected = [pooled(text.gpool, text.linear(text.bert(ids[None])[0][0])) for ids in captions]
    assert str(imported.spec.reads.word_pieces) == "bert-base-uncased"
    assert imported.settings["image_mlp"] is (mode == "regions")
    assert "word_size" not in imported.settings
    assert imported.vocabulary_size == WORDS
    assert {name for name in imported.unused if name.startswith("txt_enc")} == {
        "txt_enc.bert.pooler.dense.weight", "txt_enc.bert.pooler.dense.bias"
    }
    assert_close(encode(network)[1].vectors, torch.stack(expected))
    assert "word pieces of bert-base-uncased" in _snippet(Path("best.pth"), imported, Path("/w.safetensors"))
    assert imported.study_entry(Path("/w.safetensors"))["fixed"]["start_from"] == "/w.safetensors"


@pytest.mark.parametrize(("change", "named"), [
    ("missing", "missing: txt_enc.bert.encoder.layer.1.output.dense.weight"),
    ("unexpected", "unexpected: txt_enc.bert.encoder.layer.2.output.dense.weight"),
    ("other size", "of another shape: txt_enc.linear.weight is (8, 5), need (8, 6)"),
])
def test_a_partial_or_other_bert_is_refused_with_the_names(
    change: str, named: str, tiny_bert: Any, released: Any, checkpoint: Any, bring: Any
) -> None:
    text = released(bert=tiny_bert, linear=nn.Linear(5 if change == "other size" else 6, SIZE), gpool=pooling(released))
    layers = tiny_bert.encoder.layer
    if change == "missing":
        del layers[1].output.dense.weight
    elif change == "unexpected":
        layers.append(released(output=released(dense=nn.Linear(2, 2, bias=False))))
    tower = released(fc=nn.Linear(WIDTH, SIZE), gpool=pooling(released))
    path: Path = checkpoint(released(image_encoder=tower, backbone=nn.Conv2d(3, 2, 3)), text)
    with pytest.raises(DataError) as refused:
        bring(path, "vse_infinity")
    assert named in str(refused.value).splitlines()
