import random
from dataclasses import fields

import numpy as np
import pytest

from vsetune.config.sources.recipe import PixelsSpec, ScenesSource
from vsetune.data.making.pixel_features import PixelExtractor, cell_statistics
from vsetune.data.making.raw import RawDataset, decode_image
from vsetune.data.making.scenes import COLOURS, FAMILY, Scene, SceneImage, Things, describe, family_of, read_scenes

SMALL = ScenesSource(train=24, validation=8, test=8, seed=1, image_size=48)


def scenes_of(raw: RawDataset, split: str) -> list[Scene]:
    return [image.source.scene for image in raw.splits[split].images if isinstance(image.source, SceneImage)]


def pixels_of(raw: RawDataset, split: str) -> list[bytes]:
    return [image.source.read() for image in raw.splits[split].images if image.source is not None]


def attributes(scene: Scene) -> dict[str, object]:
    flat: dict[str, object] = {"background": scene.background, "relation": scene.relation}
    for place, things in (("first", scene.first), ("second", scene.second)):
        if things is not None:
            flat |= {f"{place}.{field.name}": getattr(things, field.name) for field in fields(things)}
    return flat


def test_the_same_seed_gives_the_same_captions_and_pictures() -> None:
    one, two = read_scenes(SMALL), read_scenes(SMALL)
    assert one.digest() == two.digest()
    assert pixels_of(one, "train") == pixels_of(two, "train")


def test_another_seed_gives_other_scenes() -> None:
    other = read_scenes(SMALL.model_copy(update={"seed": 2}))
    assert other.digest() != read_scenes(SMALL).digest()


def test_a_longer_split_begins_with_the_shorter_one() -> None:
    longer = read_scenes(SMALL.model_copy(update={"train": 40}))
    assert scenes_of(longer, "train")[:24] == scenes_of(read_scenes(SMALL), "train")


def test_siblings_differ_from_the_first_of_their_family_in_exactly_one_attribute() -> None:
    for seed in range(200):
        first, *siblings = family_of(str(seed))
        assert len(siblings) == FAMILY - 1
        assert len({repr(scene) for scene in (first, *siblings)}) == FAMILY
        for sibling in siblings:
            base, changed = attributes(first), attributes(sibling)
            assert base.keys() == changed.keys()
            assert sum(base[name] != changed[name] for name in base) == 1


def test_things_in_a_relation_have_different_colours() -> None:
    for seed in range(200):
        for scene in family_of(str(seed)):
            assert scene.second is None or scene.first.colour != scene.second.colour


def test_every_image_has_five_different_captions() -> None:
    for split in read_scenes(SMALL).splits.values():
        for image in split.images:
            assert len(set(image.captions)) == 5


def test_captions_name_only_colours_that_are_in_the_scene() -> None:
    words = {colour: {colour} for colour in COLOURS}
    words["red"] |= {"crimson"}
    words["yellow"] |= {"golden"}
    words["purple"] |= {"violet"}
    words["black"] |= {"dark"}
    for seed in range(50):
        scene = family_of(str(seed))[0]
        present = {scene.first.colour, scene.second.colour if scene.second else scene.first.colour}
        absent = set().union(*(words[colour] for colour in COLOURS if colour not in present))
        for caption in describe(scene, random.Random(seed), count=20):
            assert not absent & set(caption.split())


def test_a_caption_told_from_the_other_side_turns_the_relation_round() -> None:
    star, ring = Things("star", "red", "small", "plain", 1), Things("ring", "blue", "large", "plain", 1)
    scene = Scene("grey", star, "left", ring)
    captions = describe(scene, random.Random(0), count=300)
    for caption in captions:
        first = min((caption.find(word) for word in ("red", "crimson", "star") if word in caption), default=-1)
        second = min((caption.find(word) for word in ("blue", "ring", "hoop") if word in caption), default=-1)
        if " left " in caption and second >= 0:
            assert first < second
        if " right " in caption and first >= 0:
            assert second < first


def test_a_split_of_no_images_is_left_out() -> None:
    assert set(read_scenes(SMALL.model_copy(update={"test": 0})).splits) == {"train", "validation"}


@pytest.mark.parametrize(("relation", "first_is_larger"), [("left", False), ("right", True)])
def test_things_stand_on_the_side_the_relation_tells(relation: str, first_is_larger: bool) -> None:
    red_square, blue_square = (Things("square", colour, "large", "plain", 1) for colour in ("red", "blue"))
    image = SceneImage("x", Scene("grey", red_square, relation, blue_square), "7", 64)
    pixels = np.asarray(decode_image(image.read(), place="x")).astype(int)
    red = np.argwhere(pixels[..., 0] - pixels[..., 2] > 90)[:, 1].mean()
    blue = np.argwhere(pixels[..., 2] - pixels[..., 0] > 90)[:, 1].mean()
    assert (red > blue) == first_is_larger


def test_colour_shares_of_a_cell_are_counted_by_hand() -> None:
    # 2 x 2 cells of 2 x 2 pixels; the upper left cell holds three black pixels and a white one.
    pixels = np.zeros((1, 4, 4, 3), dtype=np.uint8)
    pixels[0, 0, 0] = 255
    cells = cell_statistics(pixels, grid=2)
    black, white = 0, 63
    assert cells.shape == (1, 4, 64 + 8 + 1 + 4)
    assert cells[0, 0, black] == pytest.approx(0.75**0.5)
    assert cells[0, 0, white] == pytest.approx(0.25**0.5)
    assert cells[0, 3, black] == pytest.approx(1.0)
    # Position: one-hot row, then one-hot column, in raster order.
    assert cells[0, :, -4:].tolist() == [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]


def test_a_vertical_edge_has_the_orientation_of_its_gradient() -> None:
    pixels = np.zeros((1, 8, 8, 3), dtype=np.uint8)
    pixels[0, :, 4:] = 255
    edges = cell_statistics(pixels, grid=1)[0, 0, 64:72]
    assert edges[0] > 0
    assert edges[1:].max() == 0


def test_colours_and_their_side_can_be_read_linearly_from_the_mean_cell() -> None:
    raw = read_scenes(ScenesSource(train=600, validation=200, test=0, seed=0))
    extractor = PixelExtractor(PixelsSpec())

    def table(split: str) -> tuple[np.ndarray, np.ndarray]:
        images = [decode_image(content, place="scene") for content in pixels_of(raw, split)]
        cells = np.concatenate([extractor.extract(images[i : i + 64]) for i in range(0, len(images), 64)])
        labels = [[c in (s.first.colour, s.second and s.second.colour) for c in COLOURS] for s in scenes_of(raw, split)]
        return np.c_[cells.mean(axis=1), np.ones(len(images))], np.array(labels, dtype=float)

    (inputs, labels), (unseen, truth) = table("train"), table("validation")
    ridge = np.linalg.solve(inputs.T @ inputs + 20 * np.eye(inputs.shape[1]), inputs.T @ labels)
    scores = unseen @ ridge
    for colour in range(len(COLOURS)):
        with_it, without = scores[truth[:, colour] == 1, colour], scores[truth[:, colour] == 0, colour]
        assert (with_it[:, None] > without[None, :]).mean() > 0.9
