"""Sentence-based semantic loss: the worked numbers and their alternatives, plain loops, logarithms near zero."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vsetune.losses.loss_building import build_loss
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.many_to_many.loss import anchor_terms, log_levels, sentence_similarity
from vsetune.losses.many_to_many.spec import ManyToManySpec

SETTINGS = {"threshold": 0.75, "margin": 0.1, "lowest": "network", "direction": "own_anchor"}
Q = torch.tensor([[1, 0.8, 0.2], [0.8, 1, 0.5], [0.2, 0.5, 1]], dtype=torch.float64)


@pytest.fixture
def s() -> Tensor:
    rows = [[0.80, 0.60, 0.58], [0.50, 0.70, 0.45], [0.35, 0.65, 0.90]]
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


def directions(s: Tensor, q: Tensor, **changes: object) -> list[Tensor]:
    """(B, B) terms of image anchors and of caption anchors, a row for each anchor."""
    images, captions = anchor_terms(s, q, **(SETTINGS | changes))
    return [images.log_ratios + images.hinges, (captions.log_ratios + captions.hinges).T]


def total(s: Tensor, q: Tensor, **changes: object) -> Tensor:
    images, captions = directions(s, q, **changes)
    return images.sum() + captions.sum()


def plain_direction(s: list[list[float]], q: list[list[float]], threshold: float, margin: float, lowest: str) -> float:
    """Eq. 7-8, anchor by anchor."""
    value = 0.0
    for n in range(len(s)):
        similar = [m for m in range(len(s)) if q[n][m] >= threshold]
        level = min((s if lowest == "network" else q)[n][m] for m in similar)
        for m in range(len(s)):
            if m in similar:
                ratio = max(s[n][m], 1e-6) / max(s[n][n], 1e-6)
                value += math.log(ratio / max(q[n][m], 1e-6)) ** 2
            else:
                value += max(0.0, margin - level + s[n][m])
    return value


def plain_as_printed(s: list[list[float]], q: list[list[float]], threshold: float, margin: float) -> float:
    """Eq. 9 read literally, with h_n of image anchors: log terms of (n, m), hinges on s_mn."""
    value = 0.0
    for n in range(len(s)):
        similar = [m for m in range(len(s)) if q[n][m] >= threshold]
        level = min(s[n][m] for m in similar)
        for m in range(len(s)):
            if m in similar:
                value += math.log(s[n][m] / s[n][n] / q[n][m]) ** 2
            else:
                value += max(0.0, margin - level + s[m][n])
    return value


def random_case(seed: int, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(size, size, generator=generator, dtype=torch.float64)
    q = torch.rand(size, size, generator=generator, dtype=torch.float64)
    return s.requires_grad_(), ((q + q.T) / 2).fill_diagonal_(1.0)


def test_log_ratio_of_the_worked_numbers_and_of_equal_ratios() -> None:
    numbers = [torch.tensor(value, dtype=torch.float64) for value in (0.8, 1.6, 0.5, 2.0)]
    i, j, of_i, of_j = numbers
    assert (log_levels(i, of_i) - log_levels(j, of_j)).square().item() == pytest.approx(0.480453, abs=1e-6)
    assert (log_levels(i, of_i) - log_levels(j, 2 * of_i)).item() == pytest.approx(0, abs=1e-12)
    assert log_levels(torch.zeros(2), torch.ones(2)).isfinite().all()
    assert log_levels(torch.ones(2), torch.zeros(2)).isfinite().all()


def test_terms_of_the_worked_example(s) -> None:
    i2t, t2i = directions(s, Q)
    expected_i2t = [[0, 0.004165, 0.08], [0.012843, 0, 0.05], [0, 0, 0]]
    expected_t2i = [[0, 0.060940, 0], [0.004760, 0, 0.15], [0, 0, 0]]
    torch.testing.assert_close(i2t, torch.tensor(expected_i2t, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(t2i, torch.tensor(expected_t2i, dtype=torch.float64), atol=1e-6, rtol=0)
    assert i2t.sum().item() == pytest.approx(0.147009, abs=1e-6)
    assert t2i.sum().item() == pytest.approx(0.215700, abs=1e-6)
    assert total(s, Q).item() == pytest.approx(0.362709, abs=1e-6)


def test_other_readings_of_the_worked_example(s) -> None:
    assert total(s, Q, lowest="semantic").item() == pytest.approx(0.082709, abs=1e-6)
    images, captions = directions(s, Q, direction="as_printed")
    assert images.sum().item() == pytest.approx(0.147009, abs=1e-6)
    assert captions.sum().item() == pytest.approx(0.267009, abs=1e-6)
    _, captions = directions(s, Q, direction="as_printed", lowest="semantic")
    assert captions.sum().item() == pytest.approx(0.017009, abs=1e-6)


def test_threshold_zero_leaves_no_hinge_and_threshold_one_is_lsh(s, make_pairs) -> None:
    i2t, t2i = directions(s, Q, threshold=0.0)
    assert [i2t.sum().item(), t2i.sum().item()] == pytest.approx([2.316151, 2.430688], abs=1e-6)
    assert not any(anchors.hinges.any() for anchors in anchor_terms(s, Q, **(SETTINGS | {"threshold": 0.0})))
    i2t, t2i = directions(s, Q, threshold=1.0)
    assert [i2t.sum().item(), t2i.sum().item()] == pytest.approx([0, 0.05], abs=1e-6)
    random_s, random_q = random_case(3)
    lsh = build_loss(LshSpec(margin=0.1))(make_pairs(random_s)).value
    assert total(random_s, random_q, threshold=1.0).item() == pytest.approx(lsh.item(), abs=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.75, 1.0])
@pytest.mark.parametrize("lowest", ["network", "semantic"])
@pytest.mark.parametrize("seed", range(2))
def test_terms_equal_plain_loops(threshold, lowest, seed) -> None:
    s, q = random_case(seed)
    images, captions = directions(s, q, threshold=threshold, lowest=lowest)
    assert images.sum().item() == pytest.approx(
        plain_direction(s.tolist(), q.tolist(), threshold, 0.1, lowest), abs=1e-9
    )
    assert captions.sum().item() == pytest.approx(
        plain_direction(s.T.tolist(), q.T.tolist(), threshold, 0.1, lowest), abs=1e-9
    )
    _, printed = directions(s, q, threshold=threshold, direction="as_printed")
    assert printed.sum().item() == pytest.approx(plain_as_printed(s.tolist(), q.tolist(), threshold, 0.1), abs=1e-9)


@pytest.mark.parametrize("rescale", ["both", "network"])
@pytest.mark.parametrize("similarity_range", ["cosine", "unit"])
@pytest.mark.parametrize("seed", range(2))
def test_the_loss_equals_plain_loops_from_vectors_on(rescale, similarity_range, seed, random_pairs, make_pairs) -> None:
    similarity, ids, vectors = random_pairs(seed, 9)
    vectors[1] = 2 * vectors[0] + 0.1  # one pair of captions that are certainly similar
    if similarity_range == "unit":
        similarity = (similarity.detach() / 2 + 0.5).requires_grad_()
    spec = ManyToManySpec(
        threshold=0.6, margin=0.15, log_weight=0.7, rescale=rescale, similarity_range=similarity_range,
    )
    output = build_loss(spec)(make_pairs(similarity, ids, vectors))
    s = [[value if similarity_range == "unit" else (1 + value) / 2 for value in row] for row in similarity.tolist()]
    q = []
    for i, x in enumerate(vectors.tolist()):
        row = []
        for j, y in enumerate(vectors.tolist()):
            norms = math.hypot(*x) * math.hypot(*y)
            cosine = sum(a * b for a, b in zip(x, y, strict=True)) / norms if norms else 0.0
            row.append(1.0 if i == j else (1 + cosine) / 2 if rescale == "both" else cosine)
        q.append(row)
    logs = hinges = 0.0
    for grid, sentences in ((s, q), (list(zip(*s)), list(zip(*q)))):  # noqa: B905
        everything = plain_direction(grid, sentences, 0.6, 0.15, "network")
        only_logs = sum(
            math.log(max(grid[n][m], 1e-6) / max(grid[n][n], 1e-6) / sentences[n][m]) ** 2
            for n in range(9) for m in range(9) if sentences[n][m] >= 0.6
        )
        logs, hinges = logs + only_logs, hinges + everything - only_logs
    assert output.value.item() == pytest.approx(0.7 * logs + hinges, abs=1e-9)
    assert output.parts["log_ratio"].item() == pytest.approx(logs, abs=1e-9)
    assert output.parts["hinge"].item() == pytest.approx(hinges, abs=1e-9)
    assert output.parts["similar_size"].item() == pytest.approx(
        sum(value >= 0.6 for row in q for value in row) / 9, abs=1e-6
    )


def test_a_caption_without_words_is_similar_to_itself_alone() -> None:
    vectors = torch.tensor([[0.0, 0.0], [3.0, 0.0], [1.0, 1.0]])
    both = sentence_similarity(vectors, rescale="both")
    assert both[0].tolist() == [1.0, 0.5, 0.5]
    assert both.diagonal().tolist() == [1.0, 1.0, 1.0]
    assert both[1, 2].item() == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert sentence_similarity(vectors, rescale="network")[0].tolist() == [1.0, 0.0, 0.0]


def test_warmup_is_the_sum_of_hinges_on_rescaled_similarities(e, make_pairs) -> None:
    warm = build_loss(ManyToManySpec(margin=0.1, warmup_epochs=1))
    value = warm(make_pairs(e)).value.item()
    doubled = build_loss(LshSpec(margin=0.2))(make_pairs(e)).value.item()
    assert value == pytest.approx(doubled / 2, abs=1e-12)
    distinct = torch.eye(3, dtype=torch.float64)
    at_one = build_loss(ManyToManySpec(margin=0.1, threshold=1.0))(make_pairs(e, None, distinct)).value.item()
    assert value == pytest.approx(at_one, abs=1e-12)
    warm.start_epoch(1)
    assert warm(make_pairs(e, None, distinct)).parts["similar_size"].item() == 1


def test_the_range_of_similarities_decides_which_networks_fit() -> None:
    assert ManyToManySpec().needed_scores == {"cosine"}
    assert ManyToManySpec(similarity_range="unit").needed_scores == {"probability"}
