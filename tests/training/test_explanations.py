"""What queries retrieve, hardest negatives and heat maps, against plain loops and worked cases."""

from __future__ import annotations

import io
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_dual_encoders import SIZE, save_tiny
from trained_here import CPU, fresh_network

from vsetune.board.gallery import gallery_page
from vsetune.board.gallery.gallery import Gallery, make_gallery
from vsetune.board.gallery.gallery_page import About
from vsetune.board.gallery.heat_maps import CENTRE, caption_pairs, encoded_caption, gradient_map, heat_maps
from vsetune.board.gallery.rankings import caption_rankings, hardest_negatives, image_rankings
from vsetune.config.component_specs import NETWORKS, NetworkSpec
from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.looking.show import read_pictures
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError, NumericError
from vsetune.metrics.score_blocks import MatrixScores
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, evaluating
from vsetune.training.trained import TrainedTrial
from vsetune.training.validation import EncodedSplit, encode_split, split_scores

ATTENDING = ("scan", "sgraf_saf", "sgraf_sgr", "gsmn")

# three images, owners 0 0 1 2 2: rows are images, columns captions
SCORES = torch.tensor([
    [0.9, 0.2, 0.8, 0.1, 0.0],
    [0.3, 0.6, 0.5, 0.7, 0.1],
    [0.4, 0.1, 0.5, 0.6, 0.3],
])
OWNER = torch.tensor([0, 0, 1, 2, 2])


def test_a_caption_ranks_images_and_a_wrong_one_of_the_same_score_stands_before_the_true_one() -> None:
    first, tied = caption_rankings(MatrixScores(SCORES), OWNER, [0, 2], top=2)
    assert [(item.index, item.rank, item.is_true) for item in first.top] == [(0, 1, True), (2, 2, False)]
    assert first.hardest_negative == first.top[1]
    # caption 2: image 0 at 0.8, then images 1 (true) and 2 at 0.5
    assert [(item.index, item.is_true) for item in tied.top] == [(0, False), (2, False)]
    assert (tied.best_true.index, tied.best_true.rank) == (1, 3)
    assert tied.hardest_negative.index == 0


def test_an_image_ranks_captions_with_all_of_its_own_marked() -> None:
    (ranking,) = image_rankings(MatrixScores(SCORES), OWNER, [2], top=5)
    assert [item.index for item in ranking.top] == [3, 2, 0, 4, 1]
    assert [item.is_true for item in ranking.top] == [True, False, False, True, False]
    assert ranking.top[1].score == pytest.approx(0.5)
    assert (ranking.best_true.rank, ranking.hardest_negative.index) == (1, 2)


def test_the_hardest_negatives_are_the_widest_gaps_between_wrong_and_right() -> None:
    captions, images = hardest_negatives(MatrixScores(SCORES), OWNER, most=10)
    # captions: 1 (0.6 against 0.2), 2 (0.8 against 0.5), 3 (0.7 against 0.6); 0 and 4 are right
    assert [(each.query, each.true, each.wrong) for each in captions] == [(1, 0, 1), (2, 1, 0), (3, 2, 1)]
    assert [each.gap for each in captions] == pytest.approx([0.4, 0.3, 0.1])
    # image 1: caption 3 at 0.7 against its own 0.5
    assert [(each.query, each.true, each.wrong) for each in images] == [(1, 2, 3)]
    assert hardest_negatives(MatrixScores(SCORES), OWNER, most=1)[0] == captions[:1]


@pytest.mark.parametrize("block_shape", [(1, 1), (2, 3), (100, 100)])
def test_hardest_negatives_equal_plain_loops_whatever_the_blocks(block_shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(7, 20, generator=generator)
    owner = torch.randint(0, 7, (20,), generator=generator)
    owner[:7] = torch.arange(7)
    found = hardest_negatives(MatrixScores(scores), owner, most=20, block_shape=block_shape)
    rows = scores.tolist()
    of_captions = []
    for caption, own in enumerate(owner.tolist()):
        wrong = max((row for row in range(7) if row != own), key=lambda row: rows[row][caption])
        of_captions.append((rows[wrong][caption] - rows[own][caption], caption, own, wrong))
    of_images = []
    for image in range(7):
        mine = [caption for caption in range(20) if owner[caption] == image]
        best = max(mine, key=lambda caption: rows[image][caption])
        wrong = max((caption for caption in range(20) if caption not in mine), key=lambda caption: rows[image][caption])
        of_images.append((rows[image][wrong] - rows[image][best], image, best, wrong))
    for hard, expected in zip(found, (of_captions, of_images), strict=True):
        right = sorted([each for each in expected if each[0] >= 0], reverse=True)
        assert [(each.query, each.true, each.wrong) for each in hard] == [each[1:] for each in right]
        assert [each.gap for each in hard] == pytest.approx([each[0] for each in right])


def test_perfect_scores_have_no_hardest_negatives_and_a_nan_is_refused() -> None:
    perfect = (torch.arange(3)[:, None] == OWNER).float()
    assert hardest_negatives(MatrixScores(perfect), OWNER, most=5) == ([], [])
    with pytest.raises(NumericError, match="not finite"):
        hardest_negatives(MatrixScores(SCORES.index_fill(0, torch.tensor([1]), torch.nan)), OWNER, most=5)


def test_a_split_of_one_image_has_no_negatives() -> None:
    (ranking,) = caption_rankings(MatrixScores(torch.ones(1, 2)), torch.tensor([0, 0]), [1], top=5)
    assert ranking.hardest_negative is None
    assert hardest_negatives(MatrixScores(torch.ones(1, 2)), torch.tensor([0, 0]), most=5) == ([], [])


def trained(trial: Any) -> TrainedTrial:
    network, dataset = fresh_network(trial)
    return TrainedTrial(trial, dataset, network.eval(), CPU)


def encoded(each: TrainedTrial, split: str = "test") -> EncodedSplit:
    with evaluating(each.network):
        return encode_split(each.network, each.dataset, split, trial=each.trial, device=CPU)


@pytest.mark.parametrize("name", ATTENDING)
def test_the_heat_of_a_network_with_attention_is_the_attention_of_the_pair(
    name: str, make_trial: Any, small: Any
) -> None:
    each = trained(make_trial(network=small(name)))
    items = encoded(each)
    found = heat_maps(
        each.network, each.dataset, "test", caption_pairs(items, [3, 8]), images=items.images, trial=each.trial,
        device=CPU,
    )
    for caption, heat in found.items():
        assert heat.basis == "attention"
        words = encoded_caption(items, caption)
        assert heat.words.shape == (int(words.lengths), 4)
        np.testing.assert_allclose(heat.words.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(heat.regions, heat.words.mean(axis=0))
        expected = each.network.attention(items.images[caption // 2 : caption // 2 + 1], words)
        np.testing.assert_allclose(heat.words, expected[0, 0, : int(words.lengths)].detach().numpy())


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ATTENDING])
def test_every_other_network_has_the_gradient_of_the_pair_as_heat(name: str, make_trial: Any, small: Any) -> None:
    each = trained(make_trial(network=small(name)))
    items = encoded(each)
    captions = list(range(0, 24, 3))
    found = heat_maps(
        each.network, each.dataset, "test", caption_pairs(items, captions), images=items.images, trial=each.trial,
        device=CPU,
    )
    assert set(found) == set(captions)
    assert {heat.basis for heat in found.values()} == {"gradient"}
    assert all(heat.words is None and (heat.regions >= 0).all() for heat in found.values())
    assert any(heat.regions.max() > 0 for heat in found.values())
    assert all(parameter.grad is None for parameter in each.network.parameters())


def test_the_gradient_of_a_region_is_what_the_score_loses_without_its_features(make_trial: Any, small: Any) -> None:
    each = trained(make_trial(network=small("vse_infinity")))
    items = encoded(each)
    network = each.network.double()
    with closing(evaluation_batches(each.dataset, "test", batch_size=12)) as batches:
        inputs = next(iter(batches)).to(CPU).images
    one = replace(inputs, features=inputs.features[:1].double(), counts=inputs.counts[:1])
    words = encoded_caption(items, 1).to(torch.float64)
    heat = gradient_map(network, one, words, pixels=None)

    def score(features: torch.Tensor) -> float:
        return float(network.similarity(network.encode_images(replace(one, features=features)), words).detach())

    step = 1e-5
    for region in range(4):
        less = one.features.clone()
        less[:, region] *= 1 - step
        loss = (score(one.features) - score(less)) / step
        assert heat.regions[region] == pytest.approx(max(0.0, loss), rel=1e-3, abs=1e-7)


BACKBONE = {"model": "random", "depths": [1, 1], "widths": [6, 8]}
READING = {
    "vse_infinity": ({"image_mlp": False, "pooling_size": 4, "augment": False}, None),
    "mse": ({}, CENTRE), "malali_keller": ({"evaluation_crops": 3}, CENTRE),
}


@pytest.mark.parametrize("name", READING)
def test_a_network_that_reads_photographs_has_heat_over_the_cells_of_its_cnn(name: str, make_trial: Any) -> None:
    more, centre = READING[name]
    pixels = {"image_input": "pixels", "image_size": 32, "backbone": BACKBONE}
    each = trained(make_trial(network={"name": name, "embedding_size": 8, "word_size": 6, **pixels, **more}))
    each.network.requires_grad_(False)
    captions = list(range(0, 24, 5))
    items = encoded(each)
    found = heat_maps(
        each.network, each.dataset, "test", caption_pairs(items, captions), images=items.images, trial=each.trial,
        device=CPU,
    )
    assert set(found) == set(captions)
    for heat in found.values():
        assert heat.basis == "gradient"
        assert heat.centre == centre
        assert len(heat.regions) == int(len(heat.regions) ** 0.5) ** 2 > 1
    assert any(heat.regions.max() > 0 for heat in found.values())
    gallery = make_gallery(each, "test", GallerySpec(captions=2))
    assert set(gallery.heat) == {ranking.query for ranking in gallery.captions}


ABOUT = About("tiny", "a network", "lmh", "shapes", [])


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_a_gallery_page(name: str, make_trial: Any, small: Any) -> None:
    gallery = make_gallery(trained(make_trial(network=small(name))), "test", GallerySpec(captions=2, images=2))
    assert gallery_page.to_html(gallery, ABOUT).count('aria-label="heat map over image') == 2


@pytest.mark.parametrize("towers", [
    {"model": "clip"}, {"model": "siglip", "image_layers": 0}, {"image_model": "vit", "heads": 2, "layers": 1},
    {"image_model": "resnet", "image_layers": 0, "heads": 2, "layers": 1},
], ids=lambda towers: " ".join(towers))
def test_a_photograph_of_a_single_vector_has_a_gallery_without_heat(
    towers: dict[str, Any], make_trial: Any, tmp_path: Path
) -> None:
    kind = towers.get("model") or towers["image_model"]
    save_tiny(kind, tmp_path / kind)
    models = {key: str(tmp_path / kind) if key.endswith("model") else value for key, value in towers.items()}
    text = {} if "model" in towers else {"embedding_size": 8, "word_size": 6}
    each = trained(make_trial(network={"name": "dual_encoder", "image_size": SIZE, **text, **models}))
    gallery = make_gallery(each, "test", GallerySpec(captions=3))
    assert gallery.heat == {}
    assert "No heat maps: " in gallery_page.to_html(gallery, ABOUT)


class _Tiles(Network):
    """A user's network of photographs without a CNN of ours: means of the colours."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__(spec)
        self.scale = torch.nn.Parameter(torch.ones(3))

    def encode_images(self, images: ImageInputs) -> Encoded:
        return Encoded(self.scale * images.pixels[:, 0].float().mean(dim=(2, 3)))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        return Encoded(captions.tokens[:, :3].float())


def test_a_network_whose_score_does_not_depend_on_regions_has_no_heat() -> None:
    network = _Tiles(NETWORKS["vsepp"].model_validate({}))
    counts, pixels = torch.ones(1, dtype=torch.int64), torch.ones(1, 1, 3, 8, 8, dtype=torch.uint8)
    words = Encoded(torch.ones(1, 3))
    inputs = ImageInputs(torch.zeros(1, 1, 4), counts, pixels=pixels)
    assert gradient_map(network, inputs, words, pixels=PixelInput(size=8)) is None
    assert gradient_map(network, inputs, words, pixels=None) is None
    assert gradient_map(network.requires_grad_(False), inputs, words, pixels=None) is None


def test_one_caption_of_a_split_is_found_among_the_groups(make_trial: Any, small: Any) -> None:
    for name in ("scan", "vsepp"):
        each = trained(make_trial(network=small(name)))
        items = encoded(each)
        scores = split_scores(each.network, items, trial=each.trial).block(slice(None), slice(None))
        for caption in (0, 7, 23):
            alone = each.network.similarity(items.images, encoded_caption(items, caption))
            torch.testing.assert_close(alone[:, 0], scores[:, caption], rtol=1e-5, atol=1e-6)


def test_a_gallery_is_drawn_by_its_seed_and_holds_every_picture_it_names(make_trial: Any) -> None:
    each = trained(make_trial())
    wanted = GallerySpec(captions=4, images=3, top=2, hardest=3, seed=1)
    found, again = (make_gallery(each, "test", wanted) for _ in range(2))
    assert [ranking.query for ranking in found.captions] == [ranking.query for ranking in again.captions]
    other = make_gallery(each, "test", wanted.model_copy(update={"seed": 2}))
    assert [ranking.query for ranking in found.captions] != [ranking.query for ranking in other.captions]
    assert (len(found.captions), len(found.images)) == (4, 3)
    for ranking in found.captions:
        assert found.caption(ranking.query).startswith("a ")
        assert len(found.words(ranking.query)) == len(found.caption(ranking.query).split()) + 2
        assert {item.index for item in ranking.top} <= set(found.pictures)
    for ranking in found.images:
        assert all(found.caption(item.index) for item in ranking.top)
    everything = make_gallery(each, "test", GallerySpec(captions=200, images=200))
    assert (len(everything.captions), len(everything.images)) == (24, 12)


def test_the_gallery_tells_the_recalls_of_the_evaluation(make_trial: Any, small: Any) -> None:
    each = trained(make_trial(network=small("scan")))
    told: list[tuple[int, int]] = []
    found = make_gallery(each, "test", GallerySpec(captions=1), report=lambda done, total: told.append((done, total)))
    assert told[-1] == (288, 288)  # every pair once
    ranks = [ranking.best_true.rank for ranking in make_gallery(each, "test", GallerySpec(captions=24)).captions]
    assert found.scores.t2i_r5 == pytest.approx(100 * sum(rank <= 5 for rank in ranks) / 24)


def test_pictures_are_read_by_index_and_missing_ones_named(data_path: str) -> None:
    dataset = Dataset.open(data_path)
    found = read_pictures(dataset, "train", {0, 8, 9, 20}, size=64)  # in three shards
    assert sorted(found) == [0, 8, 9, 20]
    assert (found[9].name, found[9].first_caption) == ("image-9", 18)
    assert found[9].words[0] == found[9].captions[0].split()
    small = found[9].thumbnail
    assert small is not None
    assert Image.open(io.BytesIO(small.jpeg)).size == (small.width, small.height)
    assert max(small.width, small.height) <= 64
    with pytest.raises(DataError, match="split train has no image 21"):
        read_pictures(dataset, "train", {21}, size=64)


def test_the_draw_of_captions_does_not_depend_on_how_many_images_are_asked_for(make_trial: Any) -> None:
    each = trained(make_trial())

    def drawn(**numbers: int) -> list[int]:
        found: Gallery = make_gallery(each, "test", GallerySpec(**numbers))
        return [ranking.query for ranking in found.captions]

    assert drawn(captions=5, images=2) == drawn(captions=5, images=7)
    assert drawn(captions=5) == sorted(random.Random("captions/0").sample(range(24), 5))
