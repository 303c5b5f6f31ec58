"""Batches of photographs: the same for any number of workers and after a resume, with their captions."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from equal_batches import assert_equal
from PIL import Image
from refusals import refused
from started_threads import StartedThreads

from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.data.batches.epoch_shards import steps_per_epoch
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.stored.vocabulary import PAD

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}
CROPPED = NetworkReads(pixels=PixelInput(size=6, crop_low=0.3))
FLIPPED = NetworkReads(pixels=PixelInput(size=4, crop="none", flip=0.5, swaps_sides=True))


def slope(index: int) -> bytes:
    """Red grows from left to right, green tells the image, blue its height of 9 + index % 3."""
    rows, columns = np.mgrid[: 9 + index % 3, :12]
    array = np.stack([20 * columns, np.full_like(rows, index), rows], axis=2).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    return buffer.getvalue()


def is_mirrored(pixels: torch.Tensor) -> bool:
    return bool(pixels[0, 0, 0, 0] > pixels[0, 0, 0, -1])


@pytest.fixture
def pictured(tiny):
    """pictured(captions or number of images, **options): with a slope of each image."""
    return lambda captions=23, **options: tiny(captions, photograph=slope, **options)


@pytest.mark.parametrize("unit", ["pairs", "images"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_no_pixel(pictured, unit, workers):
    options = {**OPTIONS, "batch_unit": unit, "reads": CROPPED}
    dataset = pictured(40, images_per_shard=10).write()
    assert_equal(
        training_batches(dataset, "train", **options), training_batches(dataset, "train", **options, workers=workers)
    )


def test_threads_change_no_pixel_of_evaluation(pictured):
    dataset, wanted = pictured().write(), NetworkReads(pixels=PixelInput(size=6, evaluation_crops=2))
    alone = evaluation_batches(dataset, "train", batch_size=5, reads=wanted)
    assert_equal(alone, evaluation_batches(dataset, "train", batch_size=5, reads=wanted, threads=2))


def pixels_of_captions(dataset, **changes) -> dict[int, bytes]:
    options = OPTIONS | {"reads": CROPPED} | changes
    return {
        caption: batch.images.pixels[row].numpy().tobytes()
        for batch in training_batches(dataset, "train", **options)
        for caption, row in zip(batch.caption_ids.tolist(), batch.caption_rows.tolist(), strict=True)
    }


def test_crops_depend_on_seed_epoch_and_caption_alone(pictured):
    dataset = pictured(40).write()
    first = pixels_of_captions(dataset)
    assert pixels_of_captions(dataset, shuffle_pairs=1000, batch_size=7) == first  # another order, the same crops
    for change in ({"seed": 2}, {"epoch": 1}):
        other = pixels_of_captions(dataset, **change)
        same = sum(first[caption] == other[caption] for caption in first)
        assert same < len(first) / 4  # few of the crops of so small an image coincide


def test_each_pair_of_an_image_has_a_crop_of_its_own_and_an_image_with_all_its_captions_one(pictured):
    dataset = pictured([[f"text {number}" for number in range(5)]] * 8).write()
    pairs = pixels_of_captions(dataset)
    assert any(pairs[0] != pairs[caption] for caption in range(1, 5))
    batches = list(training_batches(dataset, "train", **OPTIONS | {"batch_unit": "images"}, reads=CROPPED))
    assert all(len(batch.images.pixels) == len(batch.image_ids) == batch.pairs // 5 for batch in batches)


def test_a_batch_with_pixels_has_no_features_and_stays_uint8(pictured):
    damaged = pictured(edit=lambda index, members: members.update({"features.npy": b"damaged"}))
    for batch in training_batches(damaged.write(), "train", **OPTIONS, reads=replace(CROPPED, boxes=True)):
        assert batch.images.pixels.shape == (batch.pairs, 1, 3, 6, 6)
        assert batch.images.features.shape == (batch.pairs, 1, 0)
        assert batch.images.counts.tolist() == [1] * batch.pairs
        assert batch.images.boxes is None
        moved = batch.to("cpu")
        assert moved.images.pixels.dtype == torch.uint8
        assert torch.equal(moved.images.pixels, batch.images.pixels)
        green = batch.images.pixels[:, 0, 1].flatten(1)
        assert torch.equal(green[:, 0].long(), batch.image_ids)
        assert (green == green[:, :1]).all()


def test_photographs_that_nobody_asked_for_are_not_read(pictured):
    dataset = pictured(edit=lambda index, members: members.update({"png": b"no photograph"})).write()
    assert all(batch.images.pixels is None for batch in training_batches(dataset, "train", **OPTIONS))


def test_jpeg_photographs_are_read_as_well(pictured):
    def as_jpeg(index, members):
        buffer = io.BytesIO()
        Image.open(io.BytesIO(members.pop("png"))).save(buffer, format="JPEG", quality=95)
        members["jpg"] = buffer.getvalue()

    plain = NetworkReads(pixels=PixelInput(size=6, crop="none", flip=0.0))
    (png,) = evaluation_batches(pictured(8).write(), "train", batch_size=8, reads=plain)
    (jpg,) = evaluation_batches(pictured(8, edit=as_jpeg).write(), "train", batch_size=8, reads=plain)
    assert (png.images.pixels.int() - jpg.images.pixels.int()).abs().max() < 30


def test_evaluation_crops_are_the_same_every_time_and_of_each_image_its_own(pictured):
    dataset, wanted = pictured().write(), NetworkReads(pixels=PixelInput(size=6, crop_low=0.3, evaluation_crops=3))
    (once,) = evaluation_batches(dataset, "train", batch_size=100, reads=wanted)
    fours = evaluation_batches(dataset, "train", batch_size=4, reads=wanted)
    again = torch.cat([batch.images.pixels for batch in fours])
    assert once.images.pixels.shape == (23, 3, 3, 6, 6)
    assert torch.equal(once.images.pixels, again)
    red = [image.numpy().tobytes() for image in once.images.pixels[:, :, 0]]
    assert len(set(red)) > 20
    assert not any(is_mirrored(image) for image in once.images.pixels)


def test_the_global_random_numbers_are_left_alone(pictured):
    dataset = pictured().write()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    list(training_batches(dataset, "train", **OPTIONS, reads=CROPPED, workers=2))
    random_crops = NetworkReads(pixels=PixelInput(size=6, evaluation_crops=2))
    list(evaluation_batches(dataset, "train", batch_size=8, reads=random_crops))
    assert before[0] == random.getstate()
    assert before[1] == np.random.get_state()[1].tolist()
    assert torch.equal(before[2], torch.get_rng_state())


SIDES = [["a dog left of a cat", "a cat on the right", "no side"], ["left right left", "the dog", "left-handed"]]
MIRRORED = [["a dog right of a cat", "a cat on the left", "no side"], ["right left right", "the dog", "left-handed"]]


def sentences(dataset, batch) -> list[str]:
    words = dataset.vocabulary.words
    return [
        " ".join(words[number] for number in row[1 : length - 1])
        for row, length in zip(batch.captions.tokens.tolist(), batch.captions.lengths.tolist(), strict=True)
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("unit", ["pairs", "images"])
def test_captions_of_a_mirrored_image_have_left_and_right_exchanged(pictured, unit, workers):
    dataset = pictured(SIDES * 10).write()
    plain, turned = ([text for texts in each * 10 for text in texts] for each in (SIDES, MIRRORED))
    seen = set()
    vectors = np.arange(60, dtype=np.float32)[:, None]
    options = OPTIONS | {"batch_unit": unit, "semantics": vectors, "workers": workers}
    for batch in training_batches(dataset, "train", **options, reads=FLIPPED):
        assert batch.semantic_vectors[:, 0].tolist() == batch.caption_ids.tolist()
        for row, length in zip(batch.captions.tokens, batch.captions.lengths.tolist(), strict=True):
            assert (row[:length] != PAD).all()
            assert (row[length:] == PAD).all()
        rows = [is_mirrored(image) for image in batch.images.pixels]
        found = sentences(dataset, batch)
        for text, row, caption in zip(found, batch.caption_rows.tolist(), batch.caption_ids.tolist(), strict=True):
            assert text == (turned if rows[row] else plain)[caption]
            seen.add((rows[row], caption))
    assert {mirrored for mirrored, _ in seen} == {True, False}


def test_without_the_swap_a_mirrored_image_keeps_its_captions(pictured):
    dataset = pictured(SIDES * 10).write()
    plain = NetworkReads(pixels=PixelInput(size=4, crop="none", flip=1.0))
    texts = [text for texts in SIDES * 10 for text in texts]
    for batch in training_batches(dataset, "train", **OPTIONS, reads=plain):
        assert all(is_mirrored(image) for image in batch.images.pixels)
        assert sentences(dataset, batch) == [texts[caption] for caption in batch.caption_ids]


def test_a_word_that_only_the_mirrored_caption_has_may_be_unknown(pictured):
    """`right` is in no caption: the mirrored `left` reads as unknown, and an unknown word never becomes `left`."""
    dataset = pictured([["a dog left", "a cat"]] * 8).write()
    always = NetworkReads(pixels=PixelInput(size=4, crop="none", flip=1.0, swaps_sides=True))
    found = {text for batch in training_batches(dataset, "train", **OPTIONS, reads=always)
             for text in sentences(dataset, batch)}
    assert found == {"a dog <unknown>", "a cat"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_photograph_that_cannot_be_decoded_is_named_in_one_line(pictured, workers):
    def damage(index, members):
        if index == 7:
            members["png"] = b"no photograph"

    dataset = pictured(edit=damage).write()
    with refused("VSE-D029"):
        list(training_batches(dataset, "train", **OPTIONS, reads=CROPPED, workers=workers))
    with refused("VSE-D029"):
        list(evaluation_batches(dataset, "train", batch_size=3, reads=CROPPED, threads=workers))


def test_a_sample_without_its_photograph_is_damage(pictured):
    dataset = pictured(edit=lambda index, members: members.pop("png") if index == 3 else None).write()
    with refused("VSE-D026"):
        list(evaluation_batches(dataset, "train", batch_size=3, reads=CROPPED))


def test_a_data_set_without_photographs_is_refused_with_the_fix(tiny):
    dataset = tiny().write()
    for read in (
        lambda: training_batches(dataset, "train", **OPTIONS, reads=CROPPED),
        lambda: evaluation_batches(dataset, "train", batch_size=3, reads=CROPPED),
    ):
        with refused("VSE-D028"):
            read()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_short_last_batch_can_be_left_out(tiny, workers):
    dataset = tiny().write()  # 45 pairs
    whole = list(training_batches(dataset, "train", **OPTIONS))
    full = list(training_batches(dataset, "train", **OPTIONS, drop_last=True, workers=workers))
    assert (len(whole), len(full)) == (12, 11)
    assert_equal(whole[:11], full)
    assert_equal(full[4:], training_batches(dataset, "train", **OPTIONS, drop_last=True, skip_batches=4))
    count = {drop: steps_per_epoch(dataset, "train", batch_size=4, batch_unit="pairs", drop_last=drop)
             for drop in (False, True)}
    assert count == {False: 12, True: 11}
    assert steps_per_epoch(dataset, "train", batch_size=5, batch_unit="pairs", drop_last=True) == 9


def test_stopping_early_leaves_no_thread_that_decodes(pictured):
    dataset = pictured(60).write()
    decoders = StartedThreads("vsetune-decoder")
    batches = training_batches(dataset, "train", **OPTIONS, reads=CROPPED, workers=2)
    next(batches)
    assert decoders.alive()
    batches.close()
    assert decoders.all_end()
