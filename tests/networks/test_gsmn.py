"""What must hold for GSMN beside test_every_network.py; its formulas stand in test_gsmn_loops.py."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from vsetune.errors import DataError
from vsetune.networks.encoded import joined
from vsetune.networks.gsmn import network as module
from vsetune.networks.gsmn.matching import matches
from vsetune.networks.gsmn.network import Gsmn, grid_centres
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs

WIDTH, VOCABULARY, REGIONS, WORDS = 7, 30, 4, 9
SMALL = {"embedding_size": 12, "word_size": 5, "blocks": 3, "kernels": 2, "hidden_size": 4, "attention_scale": 4.0}
VARIANTS = [
    {"text_graph": graph, "propagation": propagation}
    for graph in ("dense", "sparse")
    for propagation in ("paper", "released")
] + [{"kernel_normalization": "neighbours"}]
ELSEWHERE_UNTESTED = VARIANTS[-2:]
"""test_every_network.py has the others."""


def make(*, seed=0, **options):
    torch.manual_seed(seed)
    return Gsmn(GsmnSpec(**(SMALL | options)), width=WIDTH, vocabulary_size=VOCABULARY).double().eval()


def draw_images(number=4, *, counts=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor([4, 1, 3, 2][:number] if counts is None else counts)
    is_real = (torch.arange(REGIONS) < counts[:, None])[..., None]
    features = torch.randn(number, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    corners = torch.rand(number, REGIONS, 2, 2, generator=generator, dtype=torch.float64).sort(dim=2).values
    return ImageInputs(features * is_real, counts, corners.flatten(2) * is_real)


def draw_captions(number=4, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([5, 1, 9, 3, 2, 7][:number])
    is_real = torch.arange(WORDS) < lengths[:, None]
    tokens = torch.randint(1, VOCABULARY, (number, WORDS), generator=generator) * is_real
    edges = (torch.rand(number, WORDS, WORDS, generator=generator) < 0.3).triu(diagonal=1)
    edges = (edges | edges.transpose(1, 2)) & is_real[:, None] & is_real[..., None]
    return CaptionInputs(tokens, lengths, edges)


def scores_of(built, images, captions):
    return built.similarity(built.encode_images(images), built.encode_captions(captions))


@pytest.mark.parametrize("options", VARIANTS)
def test_tiles_steps_and_what_is_kept_change_neither_scores_nor_gradients(options, monkeypatch):
    built = make(**options)
    images, captions = draw_images(), draw_captions(6)

    def run():
        scores = scores_of(built, images, captions)
        return scores, torch.autograd.grad(scores.square().sum(), list(built.parameters()), materialize_grads=True)

    whole = run()
    monkeypatch.setattr(module, "_MOST_IMAGES", 3)
    monkeypatch.setattr(module, "_MOST_CAPTIONS", 4)
    monkeypatch.setattr(module, "_NUMBERS_PER_STEP", 3 * REGIONS * 3 * 8)
    monkeypatch.setattr(module, "_NUMBERS_KEPT", 0)
    again = run()
    torch.testing.assert_close(again[0], whole[0], rtol=0, atol=1e-12)
    for one, other in zip(again[1], whole[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_steps_keep_their_size_and_are_cut_to_their_longest_caption(monkeypatch):
    assert module._step_sizes([9, 7, 2, 2, 1], module._NUMBERS_PER_STEP // 14) == [1, 2, 2]
    seen, built = [], make()

    def watched(images, captions, *settings, **kept):
        seen.extend(side.mask.shape for side in captions)
        return matches(images, captions, *settings, **kept)

    monkeypatch.setattr(module, "matches", watched)
    monkeypatch.setattr(module, "_NUMBERS_PER_STEP", 4 * REGIONS * 3 * 9)
    scores_of(built, draw_images(), draw_captions(6))
    assert seen == [(9, 1), (7, 1), (5, 1), (3, 3)]


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("options", VARIANTS)
def test_an_image_with_one_region_or_none_and_a_caption_of_one_id_give_finite_values_and_gradients(options, count):
    built = make(**options)
    captions = CaptionInputs(torch.tensor([[7]]), torch.tensor([1]), torch.zeros(1, 1, 1, dtype=torch.bool))
    score = scores_of(built, draw_images(1, counts=[count]), captions)
    score.sum().backward()
    assert torch.isfinite(score).all()
    assert all(torch.isfinite(value.grad).all() for value in built.parameters() if value.grad is not None)


def test_regions_and_words_have_unit_length_and_padding_is_zero():
    built, images, captions = make(), draw_images(), draw_captions()
    for encoded in (built.encode_images(images), built.encode_captions(captions)):
        is_real = torch.arange(encoded.vectors.shape[1]) < encoded.lengths[:, None]
        torch.testing.assert_close(encoded.vectors.norm(dim=-1), is_real.double())


@pytest.mark.parametrize("options", ELSEWHERE_UNTESTED)
def test_padding_changes_nothing(options):
    built = make(**options)
    images, captions = draw_images(), draw_captions()
    features, boxes = pad(images.features, (0, 0, 0, 7)).clone(), pad(images.boxes, (0, 0, 0, 7)).clone()
    for row, count in enumerate(images.counts.tolist()):
        features[row, count:], boxes[row, count:] = 1e3, 0.7
    edges = pad(captions.dependencies, (0, 7, 0, 7), value=True)
    longer = CaptionInputs(pad(captions.tokens, (0, 7), value=3), captions.lengths, edges)
    plain = scores_of(built, images, captions)
    padded = scores_of(built, ImageInputs(features, images.counts, boxes), longer)
    torch.testing.assert_close(padded, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", ELSEWHERE_UNTESTED)
def test_a_score_does_not_depend_on_other_pairs(options):
    built = make(**options)
    images, captions = draw_images(), draw_captions(3)
    encoded = built.encode_images(images), built.encode_captions(captions)
    whole = built.similarity(*encoded)
    assert whole.shape == (4, 3)
    for row in range(4):
        for column in range(3):
            alone = scores_of(
                built,
                ImageInputs(images.features[[row]], images.counts[[row]], images.boxes[[row]]),
                CaptionInputs(captions.tokens[[column]], captions.lengths[[column]], captions.dependencies[[column]]),
            )
            torch.testing.assert_close(alone[0, 0], whole[row, column], rtol=0, atol=1e-12)
    order = torch.tensor([2, 0, 3, 1])
    turned = built.similarity(encoded[0][order], encoded[1][order[order < 3]])
    torch.testing.assert_close(turned, whole[order][:, order[order < 3]], rtol=0, atol=1e-12)


def test_groups_joined_for_evaluation_score_as_one():
    built = make()
    images, captions = draw_images(), draw_captions()
    parts = [
        built.encode_captions(CaptionInputs(captions.tokens[rows, :most], captions.lengths[rows]))
        for rows, most in (([0, 1], 5), ([2, 3], 9))
    ]
    encoded = built.encode_images(images)
    split = joined([encoded[:1], encoded[1:]])
    torch.testing.assert_close(
        built.similarity(split, joined(parts)), scores_of(built, images, captions), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("options", VARIANTS)
def test_regions_and_their_boxes_may_be_permuted_and_all_boxes_moved(options):
    built = make(**options)
    images, captions = draw_images(counts=[4, 4, 4, 4]), draw_captions()
    plain = scores_of(built, images, captions)
    order = torch.tensor([2, 0, 3, 1])
    turned = ImageInputs(images.features[:, order], images.counts, images.boxes[:, order])
    torch.testing.assert_close(scores_of(built, turned, captions), plain, rtol=0, atol=1e-12)
    moved = ImageInputs(images.features, images.counts, images.boxes + torch.tensor([0.1, -0.2, 0.1, -0.2]))
    torch.testing.assert_close(scores_of(built, moved, captions), plain, rtol=0, atol=1e-9)
    shrunk = ImageInputs(images.features, images.counts, images.boxes * 0.5)
    assert not torch.allclose(scores_of(built, shrunk, captions), plain)


def test_one_edge_changes_sparse_scores_in_paper_mode_and_none_in_released_mode():
    images, captions = draw_images(), draw_captions()
    edges = captions.dependencies.clone()
    edges[2, 1, 6] = edges[2, 6, 1] = ~edges[2, 1, 6]
    changed = CaptionInputs(captions.tokens, captions.lengths, edges)
    paper, released = (make(text_graph="sparse", propagation=name) for name in ("paper", "released"))
    before, after = scores_of(paper, images, captions), scores_of(paper, images, changed)
    is_same = torch.tensor([True, True, False, True])
    assert torch.equal(before[:, is_same], after[:, is_same])
    assert not torch.isclose(before[:, 2], after[:, 2]).any()
    assert torch.equal(scores_of(released, images, captions), scores_of(released, images, changed))


def test_dense_is_sparse_with_all_edges_and_in_released_mode_always():
    images, captions = draw_images(), draw_captions()
    all_edges = CaptionInputs(captions.tokens, captions.lengths, torch.ones_like(captions.dependencies))
    dense, sparse = make(), make(text_graph="sparse")
    expected = scores_of(dense, images, captions)
    torch.testing.assert_close(scores_of(sparse, images, all_edges), expected, rtol=0, atol=1e-12)
    assert not torch.allclose(scores_of(sparse, images, captions), expected)
    dense, sparse = (make(text_graph=name, propagation="released") for name in ("dense", "sparse"))
    assert torch.equal(scores_of(dense, images, captions), scores_of(sparse, images, captions))


def test_sparse_refuses_captions_without_parses_and_dense_does_not():
    captions = draw_captions()
    bare = CaptionInputs(captions.tokens, captions.lengths)
    with pytest.raises(DataError) as caught:
        make(text_graph="sparse").encode_captions(bare)
    assert str(caught.value) == (
        "network.text_graph: sparse needs the dependency parse of every caption, the data set has none; ingest it with "
        "parses, or use dense."
    )
    assert len(make().encode_captions(bare)) == 4


def test_cells_of_a_grid_stand_for_boxes():
    # 2 x 2 cells, row by row: centres at 1/4 and 3/4
    expected = torch.tensor([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(grid_centres(4), expected)
    built, captions = make(), draw_captions()
    images = draw_images(counts=[4, 4, 4, 4])
    boxes = torch.tensor([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]).double()
    grid = ImageInputs(images.features, images.counts)
    same = ImageInputs(images.features, images.counts, boxes.expand(4, -1, -1))
    torch.testing.assert_close(scores_of(built, grid, captions), scores_of(built, same, captions), rtol=0, atol=1e-12)


def test_regions_without_boxes_must_be_a_square_grid():
    images = ImageInputs(torch.zeros(2, 5, WIDTH, dtype=torch.float64), torch.tensor([5, 5]))
    with pytest.raises(DataError) as caught:
        make().encode_images(images)
    assert str(caught.value) == (
        "network gsmn: 5 regions without boxes are no square grid; ingest features with boxes, or a grid such as 6 x 6."
    )


@pytest.mark.parametrize(("sizes", "message"), [
    ({"embedding_size": 10, "blocks": 4}, "embedding_size 10 does not divide into 4 blocks"),
    ({"hidden_size": 10, "kernels": 4}, "hidden_size 10 does not divide into 4 kernels"),
])
def test_sizes_that_do_not_divide_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        GsmnSpec(**(SMALL | sizes))
