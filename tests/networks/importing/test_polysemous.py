"""PVSE and PCME: the imported network encodes as the released modules do, item by item."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.testing import assert_close

WIDTH, WORDS, WORD_SIZE, SIZE = 6, 12, 6, 8


def attention(released: Callable[..., nn.Module], width: int, heads: int) -> nn.Module:
    return released(w_1=nn.Linear(width, width // 2, bias=False), w_2=nn.Linear(width // 2, heads, bias=False))


def head(released: Callable[..., nn.Module], width: int, heads: int) -> nn.Module:
    return released(
        attention=attention(released, width, heads), fc=nn.Linear(width, SIZE), layer_norm=nn.LayerNorm(SIZE)
    )


def gru() -> nn.GRU:
    return nn.GRU(WORD_SIZE, SIZE // 2, batch_first=True, bidirectional=True)


def model(released: Callable[..., nn.Module], heads: int, **more: dict[str, nn.Module]) -> Any:
    cnn = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2))
    return released(
        img_enc=released(
            cnn=cnn, fc=nn.Linear(WIDTH, SIZE), pie_net=head(released, WIDTH, heads), **more.get("image", {})
        ),
        txt_enc=released(
            embed=nn.Embedding(WORDS, WORD_SIZE), rnn=gru(), pie_net=head(released, WORD_SIZE, heads),
            **more.get("text", {}),
        ),
    )


def seen(attending: Any, items: Tensor) -> Tensor:
    """(heads, width) sums of the items."""
    return attending.w_2(attending.w_1(items).tanh()).softmax(dim=0).T @ items


def embedded(pie: Any, whole: Tensor, items: Tensor) -> Tensor:
    return normalize(pie.layer_norm(whole + pie.fc(seen(pie.attention, items)).sigmoid()), dim=-1)


def end_state(rnn: nn.GRU, words: Tensor, which: str) -> Tensor:
    states, final = rnn(words[None])
    return states[0, -1] if which == "legacy" else final[:, 0].flatten()


@torch.no_grad()
@pytest.mark.parametrize(("heads", "end"), [(1, "legacy"), (3, "final")])
def test_pvse_gives_the_embeddings_of_the_released_modules(
    heads: int, end: str, released: Any, bring: Any, encode: Any, features: Tensor, captions: list[Tensor],
    tmp_path: Path,
) -> None:
    pvse = model(released, heads)
    path = tmp_path / "coco_pvse.pth"
    state = nn.DataParallel(pvse).state_dict()
    torch.save(state if end == "legacy" else {"model": state, "args": {"legacy": False, "dropout": 0.1}}, path)
    imported, network = bring(path, "pvse")
    images, sentences = encode(network)
    image, text = pvse.img_enc, pvse.txt_enc
    expected = torch.stack([embedded(image.pie_net, image.fc(cells.mean(dim=0)), cells) for cells in features])
    assert_close(images.vectors.view(expected.shape), expected)
    expected = torch.stack([
        embedded(text.pie_net, end_state(text.rnn, text.embed(ids), end), text.embed(ids)) for ids in captions
    ])
    assert_close(sentences.vectors.view(expected.shape), expected)
    assert imported.assumed == (("dropout", "end_state") if end == "legacy" else ())
    assert {name.split(".")[1] for name in imported.unused} == {"cnn"}


@torch.no_grad()
def test_pcme_gives_the_gaussians_of_the_released_modules(
    released: Any, bring: Any, encode: Any, features: Tensor, captions: list[Tensor], tmp_path: Path
) -> None:
    spread = {"attention": attention(released, WIDTH, 1), "fc": nn.Linear(WIDTH, SIZE)}
    pcme = model(
        released, 1,
        image={"uncertain_net": released(**spread, fc2=nn.Linear(WIDTH, SIZE))},
        text={"uncertain_net": released(attention=attention(released, 6, 1), fc=nn.Linear(6, SIZE), rnn=gru())},
    )
    path = tmp_path / "model_last.pth"
    torch.save({
        "model": pcme.half().state_dict(), "word2idx": {"a": 4},
        "criterion": {"shift": torch.tensor([14.5]), "negative_scale": torch.tensor([13.5])},
        "config": {"model": {"n_samples_inference": 3}, "train": {"grad_clip": 2}},
    }, path)
    pcme = pcme.float()
    imported, network = bring(path, "pcme")
    images, sentences = encode(network)
    image, text = pcme.img_enc, pcme.txt_enc
    for row, cells in enumerate(features):
        pooled, unsure = cells.mean(dim=0), image.uncertain_net
        assert_close(images.vectors[row], embedded(image.pie_net, image.fc(pooled), cells)[0])
        log_scale = unsure.fc(seen(unsure.attention, cells))[0] + unsure.fc2(pooled)
        assert_close(images.log_scales[row], log_scale)
    for row, ids in enumerate(captions):
        words, unsure = text.embed(ids), text.uncertain_net
        assert_close(sentences.vectors[row], embedded(text.pie_net, end_state(text.rnn, words, "legacy"), words)[0])
        log_scale = unsure.fc(seen(unsure.attention, words))[0] + end_state(unsure.rnn, words, "legacy")
        assert_close(sentences.log_scales[row], log_scale)
    assert (float(network.match_scale), float(network.match_shift)) == (13.5, 14.5)
    assert imported.settings["samples"] == 3
