"""LSH, LMH and LSEH: worked numbers, plain loops, gradients, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import candidates_of, close, gradient
from torch import Tensor

from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lseh.loss import lifted_similarity, semantic_cosine, semantic_row_maximum, without_margin
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.parts.pairing import QueryTerms, hardest_hinges, summed_hinges
from vsetune.losses.pvse.spec import PvseSpec
from vsetune.losses.top_f.spec import TopFSpec

OFF = ~torch.eye(3, dtype=torch.bool)
SPECS = [
    LshSpec(), LshSpec(variant="diagonal"), LmhSpec(), LmhSpec(variant="diagonal"),
    LsehSpec(), LsehSpec(variant="diagonal"), LsehSpec(variant="released"),
]


def max_of_hinges(scores: Tensor, matched: Tensor, negatives: Tensor, *, margin: float = 0.2) -> QueryTerms:
    return hardest_hinges(candidates_of(scores, negatives), matched, margin=margin)


def plain_cosine(first: list[float], second: list[float]) -> float:
    lengths = math.sqrt(sum(a * a for a in first)) * math.sqrt(sum(b * b for b in second))
    return sum(a * b for a, b in zip(first, second, strict=True)) / lengths if lengths else 0.0


def plain_margins(spec: LshSpec | LmhSpec | LsehSpec, ids: list[int], vectors: list[list[float]]) -> list[list[float]]:
    """Margin of every pair (i, j), entry by entry."""
    size = len(ids)
    if not isinstance(spec, LsehSpec):
        return [[spec.margin] * size for _ in range(size)]
    margins = []
    for i in range(size):
        products = [sum(a * b for a, b in zip(vectors[i], vectors[j], strict=True)) for j in range(size)]
        largest = max(products) or 1.0
        row = []
        for j in range(size):
            if spec.variant == "released":
                semantic = products[j] / largest
                row.append(0.0 if ids[i] == ids[j] else spec.margin + spec.semantic_temperature * semantic)
            else:
                row.append(spec.margin + spec.semantic_temperature * plain_cosine(vectors[i], vectors[j]))
        margins.append(row)
    return margins


def plain_loss(spec: LshSpec | LmhSpec | LsehSpec, s: list[list[float]], ids: list[int], m: list[list[float]]) -> float:
    """The equations, one query at a time."""
    size, total = len(ids), 0.0
    combine = sum if isinstance(spec, LshSpec) else max
    for i in range(size):
        others = [j for j in range(size) if j != i and (spec.variant != "decided" or ids[i] != ids[j])]
        if others:
            total += combine([max(0.0, m[i][j] + s[i][j] - s[i][i]) for j in others])
            total += combine([max(0.0, m[j][i] + s[j][i] - s[i][i]) for j in others])
    return total


def test_lsh_of_e_adds_every_violation(e: Tensor) -> None:
    terms = summed_hinges(candidates_of(e, OFF), e.diagonal(), margin=0.2)
    close(terms.images.sum(), 0.55)
    close(terms.captions.sum(), 0.60)
    close(terms.total(), 1.15)
    close(gradient(terms.total(), e), [[-1, 2, 0], [1, -4, 2], [0, 1, -1]])


def test_lmh_of_e_takes_the_hardest_negative_of_each_query(e: Tensor) -> None:
    terms = max_of_hinges(e, e.diagonal(), OFF)
    close(terms.images, [0.1, 0.35, 0])
    close(terms.captions, [0, 0.3, 0.05])
    close(terms.total(), 0.80)
    close(gradient(terms.total(), e), [[-1, 2, 0], [0, -2, 2], [0, 0, -1]])


def test_a_caption_without_known_words_has_similarity_zero_with_everything() -> None:
    zero_row = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    assert semantic_cosine(zero_row).tolist() == [[0, 0], [0, pytest.approx(1)]]
    assert semantic_row_maximum(zero_row).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_caption_of_rounding_noise_alone_is_as_similar_as_nothing_not_a_trillion(dtype: torch.dtype) -> None:
    """Words that no direction of the decomposition knows leave 1e-26 in every entry, whose squares float32 drops."""
    noise = torch.finfo(dtype).tiny * 1e12 if dtype == torch.float32 else 1e-170
    vectors = torch.tensor([[noise, -noise], [3.0, 4.0]], dtype=dtype)
    assert float(semantic_cosine(vectors).abs().max()) <= 1 + 1e-6
    assert float(semantic_cosine(vectors)[0].abs().max()) < 1e-5


def test_lseh_of_e_with_cosine(e: Tensor, vectors: Tensor, make_pairs) -> None:
    lifted = lifted_similarity(e, semantic_cosine(vectors), semantic_temperature=0.025)
    terms = max_of_hinges(lifted, e.diagonal(), OFF, margin=0.185)
    close(terms.images, [0.108041, 0.352117, 0])
    close(terms.captions, [0, 0.308041, 0.052117])
    output = build_loss(LsehSpec())(make_pairs(e, vectors=vectors))
    close(output.value, 0.820316)
    close(gradient(output.value, e), [[-1, 2, 0], [0, -2, 2], [0, 0, -1]])


def test_lseh_of_e_as_released(e: Tensor, vectors: Tensor, make_pairs) -> None:
    lifted = lifted_similarity(e, semantic_row_maximum(vectors), semantic_temperature=0.025)
    terms = max_of_hinges(lifted, e.diagonal(), OFF, margin=0.185)
    close(terms.images, [0.098971, 0.355395, 0])
    close(terms.captions, [0, 0.298971, 0.055395])
    loss = build_loss(LsehSpec(variant="released"))
    close(loss(make_pairs(e, vectors=vectors)).value, 0.808731)
    close(loss(make_pairs(e, [0, 0, 1], vectors)).value, 0.655241)


def test_a_caption_of_the_same_image_can_be_kept_lose_its_margin_or_be_ignored(e, vectors, make_pairs) -> None:
    with torch.no_grad():
        e[2, 1] = 0.20
    same = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    lifted = lifted_similarity(e, semantic_cosine(vectors), semantic_temperature=0.025)
    keep = max_of_hinges(lifted, e.diagonal(), OFF, margin=0.185)
    zero = max_of_hinges(without_margin(lifted, e, same, margin=0.185), e.diagonal(), OFF, margin=0.185)
    ignore = max_of_hinges(lifted, e.diagonal(), OFF & ~same, margin=0.185)
    close(torch.stack([keep.total(), zero.total(), ignore.total()]), [0.820316, 0.504234, 0.406351])
    close(zero.captions[1], 0.1)
    inputs = make_pairs(e, [7, 7, 3], vectors)
    close(build_loss(LsehSpec(variant="diagonal"))(inputs).value, 0.820316)
    close(build_loss(LsehSpec())(inputs).value, 0.406351)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
@pytest.mark.parametrize(("seed", "size"), [(0, 2), (2, 9)])
def test_value_equals_plain_loops_on_batches_with_duplicate_images(spec, seed, size, random_pairs, make_pairs) -> None:
    similarity, ids, vectors = random_pairs(seed, size)
    value = build_loss(spec)(make_pairs(similarity, ids, vectors)).value
    margins = plain_margins(spec, ids.tolist(), vectors.tolist())
    close(value, plain_loss(spec, similarity.tolist(), ids.tolist(), margins), 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_semantic_temperature_zero_is_lmh_bit_for_bit(dtype, random_pairs, make_pairs) -> None:
    similarity, ids, vectors = random_pairs(7, 32)
    similarity = similarity.detach().to(dtype).requires_grad_()
    inputs = make_pairs(similarity, ids, vectors.to(dtype))
    lseh = build_loss(LsehSpec(semantic_temperature=0.0, margin=0.16))(inputs).value
    lmh = build_loss(LmhSpec(margin=0.16))(inputs).value
    assert torch.equal(lseh, lmh)
    assert torch.equal(gradient(lseh, similarity), gradient(lmh, similarity))


def test_a_tie_gives_the_gradient_to_exactly_one_negative(make_pairs) -> None:
    similarity = torch.tensor([[0.5, 0.45, 0.45], [-1, 0.9, -1], [-1, -1, 0.9]], requires_grad=True)
    row = gradient(build_loss(LmhSpec())(make_pairs(similarity)).value, similarity)[0]
    assert row[0] == -1
    assert sorted(row[1:].tolist()) == [0, 1]


@pytest.mark.parametrize(
    "spec", [LmhSpec(), LuwmSpec(), IrtmSpec(hardest=1), PvseSpec(margin=0.2), TopFSpec(decay_steps=1)], ids=repr
)
def test_queries_with_a_positive_hinge_are_the_active_ones(spec, e, make_pairs) -> None:
    loss = build_loss(spec)
    loss.after_step()  # top-f reaches the fraction of one negative
    output = loss(make_pairs(e))
    assert not output.selection.is_proxy
    assert output.selection.active_images.tolist() == [True, True, False]
    assert output.selection.active_captions.tolist() == [False, True, True]
    close(output.parts.get("active_share", 4 / 6), 4 / 6)


def test_lseh_reports_the_lifted_similarity_that_it_mines_with(e, vectors, make_pairs) -> None:
    selection = build_loss(LsehSpec())(make_pairs(e, vectors=vectors)).selection
    close(selection.scores, e + 0.025 * semantic_cosine(vectors), 1e-12)
