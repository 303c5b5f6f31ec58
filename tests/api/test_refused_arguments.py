"""What the losses and metrics of the Python interface refuse: in one line, and without a change of state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_values import LOSS_CLASSES, unit
from refusals import fits, problems_of, refused
from torch import Tensor

import vsetune
from vsetune.config.component_specs import LOSSES, MemorySpec, SumSpec
from vsetune.errors import ConfigError, DataError, UsageError
from vsetune.losses.plain_loss import PlainLoss

IMAGES, CAPTIONS, MEANING = (unit(6, size, seed=size, dtype=torch.float32) for size in (8, 8, 5))
SCORES, ROWS = IMAGES @ CAPTIONS.T, torch.arange(6)
SIZES = {"embedding_size": 8, "images": 100}
SUM = SumSpec.model_validate({"parts": {name: {"loss": {"name": name}} for name in ("lmh", "lseh", "clip")}})

TYPE, FLOATS, PRECISION, SHAPE, INTEGERS = (f"VSE-M40{number}" for number in range(5))
NUMBERS: list[tuple[str, Any, Any]] = [
    ("floats", ROWS.float(), INTEGERS), ("bools", ROWS > 2, INTEGERS), ("list", ROWS.tolist(), TYPE),
    ("numpy", ROWS.numpy(), TYPE), ("too few", ROWS[:5], SHAPE), ("two axes", ROWS[None], SHAPE),
    ("one number", torch.tensor(0), SHAPE),
]
"""Of a row or an id for each of six items."""
MATRIX: list[tuple[str, Any, Any]] = [
    ("list", SCORES.tolist(), TYPE), ("numpy", SCORES.numpy(), TYPE), ("integers", (9 * SCORES).long(), FLOATS),
    ("bools", SCORES > 0, FLOATS), ("complex", SCORES.to(torch.complex64), FLOATS), ("one axis", SCORES[0], SHAPE),
    ("three axes", SCORES[None], SHAPE), ("no images", SCORES[:0], SHAPE), ("no captions", SCORES[:, :0], SHAPE),
]
EMBEDDED: list[tuple[dict[str, Any], Any]] = [
    *(
        ({side: change(each)}, code)
        for side, each in (("images", IMAGES), ("captions", CAPTIONS))
        for change, code in (
            (Tensor.tolist, TYPE), (Tensor.numpy, TYPE), (Tensor.long, FLOATS), (Tensor.double, PRECISION),
            (lambda each: each[:, :7], SHAPE), (lambda each: each[0], SHAPE), (lambda each: each[:0], SHAPE),
            (lambda each: each[:, None, None], SHAPE), (lambda each: each[:, None], SHAPE),
            (lambda each: each[:, :0], SHAPE),
        )
    ),
    *(({"scores": value}, code) for _, value, code in MATRIX),
    ({"scores": SCORES.double()}, PRECISION), ({"scores": SCORES[:5]}, SHAPE), ({"scores": SCORES[:, :5]}, SHAPE),
    ({"images": None}, "VSE-L021"), ({"captions": None, "scores": SCORES}, "VSE-L021"),
    ({"images": None, "scores": SCORES}, "VSE-L021"), ({"images": None, "captions": None}, "VSE-L021"),
    *(({"semantic_vectors": value}, code) for value, code in (
        (MEANING[:5], SHAPE), (MEANING[:, 0], SHAPE), (MEANING[:, :0], SHAPE), (MEANING.tolist(), TYPE),
        (MEANING.numpy(), TYPE),
    )),
    *(({what: value}, code) for what in ("image_ids", "caption_rows") for _, value, code in NUMBERS),
    *(({what: torch.tensor([0, 1, 2, wrong, 4, 5])}, "VSE-M003") for what, wrong in (
        ("caption_rows", -1), ("caption_rows", 6), ("caption_rows", 9), ("image_ids", -1), ("image_ids", 100),
    )),
    ({"images": None, "captions": None, "scores": SCORES[:5], "image_ids": ROWS[:5]}, "VSE-L023"),
]
RANKED: list[tuple[dict[str, Any], Any]] = [
    *(({"scores": value}, code) for _, value, code in MATRIX),
    ({"scores": SCORES[:4]}, "VSE-M016"), ({"scores": SCORES[:, :4]}, "VSE-M016"),
    *(({"image_ids": value}, code) for _, value, code in NUMBERS),
    *(({"image_ids": torch.tensor([0, 1, 2, wrong, 4, 5])}, "VSE-M003") for wrong in (-1, 6, 9)),
    ({"image_ids": torch.tensor([0, 1, 2, 2, 4, 5])}, "VSE-M008"),
]


def loss_of(name: str, **settings: Any) -> PlainLoss:
    torch.manual_seed(0)
    loss: PlainLoss = PlainLoss(SUM, **SIZES) if name == "sum" else LOSS_CLASSES[name](**SIZES, **settings)
    return loss


def given(name: str, change: dict[str, Any]) -> dict[str, Any]:
    """Arguments that every loss takes, but for the change. Order embeddings need scores."""
    scores = {"scores": SCORES} if name == "order" and not {"images", "captions"} & change.keys() else {}
    return {
        "images": IMAGES, "captions": CAPTIONS, "image_ids": ROWS, "caption_rows": None, "semantic_vectors": MEANING,
    } | scores | change


def require_one_line(call: Callable[..., Any], arguments: dict[str, Any], code: Any, by: type[UsageError]) -> None:
    with pytest.raises(by) as caught:
        call(**arguments)
    (problem,) = problems_of(caught.value)
    assert fits(problem, code), problem
    assert "\n" not in problem


@pytest.mark.parametrize("name", [*LOSSES, "sum", "recall"])
def test_arguments_that_do_not_fit_are_refused_in_one_line(name: str) -> None:
    if name == "recall":
        for change, code in RANKED:
            require_one_line(vsetune.metrics.recall, {"scores": SCORES} | change, code, DataError)
        return
    loss = loss_of(name)
    before = copy.deepcopy(loss.state_dict())
    for change, code in EMBEDDED:
        require_one_line(loss, given(name, change), code, ConfigError)
    assert str(loss.state_dict()) == str(before)
    assert loss(**given(name, {})).isfinite()


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if "several_embeddings" not in spec.kinds])
def test_several_embeddings_an_item_need_a_loss_that_compares_them(name: str) -> None:
    several = {"images": IMAGES[:, None], "captions": CAPTIONS[:, None]}
    require_one_line(loss_of(name), given(name, several), SHAPE, ConfigError)


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if not spec.several_positives])
def test_two_captions_of_an_image_among_as_many_need_a_loss_that_takes_them(name: str) -> None:
    twice = {"caption_rows": torch.tensor([0, 0, 2, 3, 4, 5])}
    require_one_line(loss_of(name), given(name, twice), "VSE-L001", ConfigError)


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if spec().semantic_source])
def test_losses_that_read_meaning_need_vectors(name: str) -> None:
    require_one_line(loss_of(name), given(name, {"semantic_vectors": None}), "VSE-L002", ConfigError)


def test_a_memory_keeps_vectors_of_one_width() -> None:
    loss = loss_of("lseh", memory_size=12, memory_start_epoch=0)
    loss(**given("lseh", {}))
    loss.after_step()
    require_one_line(loss, given("lseh", {"semantic_vectors": MEANING[:, :3]}), "VSE-L400", ConfigError)


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if issubclass(spec, MemorySpec)])
def test_a_memory_refuses_what_a_loss_refuses(name: str) -> None:
    hardest = {"negatives": "hardest"} if name in {"adaptive_margin", "contrastive"} else {}
    loss = loss_of(name, memory_size=12, memory_start_epoch=0, **hardest)
    loss(**given(name, {}))
    loss.after_step()
    for change, code in EMBEDDED:
        require_one_line(loss, given(name, change), code, ConfigError)
    require_one_line(loss, {"scores": SCORES, "semantic_vectors": MEANING}, "VSE-L003", ConfigError)


def test_losses_without_sizes_or_with_settings_of_other_names() -> None:
    require_one_line(vsetune.losses.SemanticCenter, {}, "VSE-L005", ConfigError)
    require_one_line(vsetune.losses.LMH, {"memory_size": 4}, "VSE-L005", ConfigError)
    require_one_line(
        vsetune.losses.Order(), {"images": IMAGES, "captions": CAPTIONS}, "VSE-L022", ConfigError
    )
    with pytest.raises(ConfigError, match="vsetune.losses.LMH: margn"):
        vsetune.losses.LMH(margn=0.2)
    with pytest.raises(ConfigError, match=r"vsetune.losses.named\('lmh'\): margn"):
        vsetune.losses.named("lmh", margn=0.2)
    with refused("VSE-C004", name="lmg", kind="loss"):
        vsetune.losses.named("lmg")
    with refused("VSE-C004", name="vsep", kind="network"):
        vsetune.networks.named("vsep", width=8, vocabulary_size=9)
    with refused("VSE-N008", size="vocabulary_size"):
        vsetune.networks.VSEpp(width=8, vocabulary_size=0)


def test_wide_scores_say_how_they_are_read() -> None:
    require_one_line(vsetune.losses.LMH(), {"images": torch.zeros(4, 8)}, "VSE-L023", ConfigError)


def test_typical_refusals_in_words() -> None:
    lines = []
    for change in (
        {"images": IMAGES.tolist()}, {"captions": CAPTIONS.double()}, {"scores": SCORES[:5]},
        {"caption_rows": ROWS.float()}, {"caption_rows": ROWS - 1}, {"image_ids": ROWS + 99},
    ):
        with pytest.raises(ConfigError) as caught:
            loss_of("lmh")(**given("lmh", change))
        lines += caught.value.problems
    assert lines == [
        "loss lmh: images is of type list, need a tensor of torch (`torch.as_tensor`)",
        "loss lmh: captions is torch.float64 on cpu, but images is torch.float32 on cpu; need one precision and one "
        "device",
        "loss lmh: scores has shape (5, 6), need (6, 6), as the embeddings",
        "loss lmh: caption_rows has numbers of torch.float32, need integers (int64)",
        "loss lmh: got caption_rows from -1 to 4, need 0 to 5",
        "loss lmh: got image_ids from 99 to 104, need 0 to 99",
    ]
