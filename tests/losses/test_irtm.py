"""IRTM: mean hinge over the h hardest negatives of each query."""

from __future__ import annotations

import pytest
import torch
from loss_values import candidates_of, gradient

from vsetune.losses.irtm.loss import mean_hardest_hinges
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.loss_building import build_loss


def plain_loss(spec: IrtmSpec, s: list[list[float]], ids: list[int]) -> float:
    size, total = len(ids), 0.0
    for i in range(size):
        others = [j for j in range(size) if j != i and (spec.variant == "diagonal" or ids[i] != ids[j])]
        for scores in ([s[i][j] for j in others], [s[j][i] for j in others]):
            hardest = sorted(scores, reverse=True)[: spec.hardest]
            if hardest:
                total += sum(max(0.0, spec.margin + score - s[i][i]) for score in hardest) / len(hardest)
    return total / size


def test_worked_pair_of_the_paper() -> None:
    # ITM(I, T) 0.90, T- 0.80, I- 0.65: 0.1 + 0
    scores = torch.tensor([[0.90, 0.80], [0.65, 0.95]], dtype=torch.float64)
    among = candidates_of(scores, ~torch.eye(2, dtype=torch.bool))
    terms = mean_hardest_hinges(among, scores.diagonal(), margin=0.2, hardest=1)
    assert terms.images[0].item() == pytest.approx(0.1)
    assert terms.captions[0].item() == 0.0


def test_matrix_e_by_hand(e, make_pairs) -> None:
    # one negative each is LMH / 3; both negatives each is LSH / 6
    assert build_loss(IrtmSpec(hardest=1))(make_pairs(e)).value.item() == pytest.approx(0.80 / 3)
    both = build_loss(IrtmSpec(hardest=2))(make_pairs(e)).value
    assert both.item() == pytest.approx(1.15 / 6)
    expected = torch.tensor([[-1, 2, 0], [1, -4, 2], [0, 1, -1]], dtype=torch.float64) / 6
    torch.testing.assert_close(gradient(both, e), expected)


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize("hardest", [1, 3, 31])
@pytest.mark.parametrize(("seed", "size"), [(0, 1), (1, 2), (2, 5), (3, 16)])
def test_value_equals_plain_loops(variant, hardest, seed, size, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, size)
    spec = IrtmSpec(hardest=hardest, variant=variant)
    value = build_loss(spec)(make_pairs(similarity, ids)).value
    assert value.item() == pytest.approx(plain_loss(spec, similarity.tolist(), ids.tolist()), abs=1e-9)
