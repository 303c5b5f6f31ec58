from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from equal_batches import assert_equal
from refusals import refused
from started_threads import StartedThreads

from vsetune.data.batches.epoch_shards import steps_per_epoch
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.stored.vocabulary import END, PAD, START

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}


def caption_ids(batches) -> list[int]:
    return [int(number) for batch in batches for number in batch.caption_ids]


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (4, 0), (7, 0), (1000, 0), (4, 2)])
def test_an_epoch_has_every_pair_exactly_once_and_keeps_the_short_tail(tiny, batch_size, workers):
    dataset = tiny().write()
    pairs = dataset.split("train").captions
    batches = list(training_batches(dataset, "train", **{**OPTIONS, "batch_size": batch_size}, workers=workers))
    assert sorted(caption_ids(batches)) == list(range(pairs))
    assert len(batches) == math.ceil(pairs / batch_size)
    assert len(batches) == steps_per_epoch(dataset, "train", batch_size=batch_size, batch_unit="pairs")
    assert [batch.pairs for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_the_number_of_workers_does_not_change_a_single_batch(tiny, workers):
    dataset = tiny(60, images_per_shard=20).write()
    alone = training_batches(dataset, "train", **OPTIONS)
    assert_equal(alone, training_batches(dataset, "train", **OPTIONS, workers=workers))


def test_the_order_repeats_for_equal_seed_and_epoch_and_differs_otherwise(tiny):
    dataset = tiny(40).write()
    first = caption_ids(training_batches(dataset, "train", **OPTIONS))
    assert caption_ids(training_batches(dataset, "train", **OPTIONS)) == first
    assert caption_ids(training_batches(dataset, "train", **{**OPTIONS, "epoch": 1})) != first
    assert caption_ids(training_batches(dataset, "train", **{**OPTIONS, "seed": 2})) != first


def test_shards_come_in_another_order_each_epoch(tiny):
    dataset = tiny(40, images_per_shard=1).write()
    orders = {
        tuple(caption_ids(training_batches(dataset, "train", **{**OPTIONS, "epoch": epoch, "shuffle_pairs": 1})))
        for epoch in range(4)
    }
    assert len(orders) == 4


def test_a_buffer_over_the_whole_split_puts_any_pair_anywhere(tiny):
    dataset = tiny(20).write()
    pairs = dataset.split("train").captions
    places = np.zeros(pairs)
    for epoch in range(80):
        ids = caption_ids(training_batches(dataset, "train", **{**OPTIONS, "epoch": epoch, "shuffle_pairs": 100}))
        places[ids] += np.arange(pairs)
    middle = (pairs - 1) / 2
    # mean place of a pair over 80 uniform draws: standard error about 11.3 / sqrt(80) = 1.26
    assert np.abs(places / 80 - middle).max() < 5 * 1.26


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("unit", ["pairs", "images"])
def test_skipped_batches_leave_the_tail_of_the_uninterrupted_epoch(tiny, unit, workers):
    dataset = tiny().write()
    options = {**OPTIONS, "batch_unit": unit, "workers": workers}
    whole = list(training_batches(dataset, "train", **options))
    assert_equal(whole[3:], training_batches(dataset, "train", **options, skip_batches=3))
    assert list(training_batches(dataset, "train", **options, skip_batches=1000)) == []


def test_a_batch_of_pairs_joins_each_caption_with_its_own_image(tiny):
    data = tiny(regions=(1, 2, 3))
    dataset = data.write()
    texts = [(image, text) for image, captions in enumerate(data.captions) for text in captions]
    for batch in training_batches(dataset, "train", **OPTIONS):
        assert batch.caption_rows.tolist() == list(range(batch.pairs))
        assert batch.images.features.shape == (batch.pairs, 3, 3)
        assert batch.images.features.dtype == torch.float16
        assert batch.to("cpu").images.features.dtype == torch.float32
        for row, caption in enumerate(batch.caption_ids.tolist()):
            image, text = texts[caption]
            words = text.split()
            length = int(batch.captions.lengths[row])
            assert batch.image_ids[row] == image
            ids = batch.captions.tokens[row].tolist()
            assert [dataset.vocabulary.words[number] for number in ids[1 : length - 1]] == words
            assert (ids[0], ids[length - 1], set(ids[length:]) - {PAD}) == (START, END, set())
            count = int(batch.images.counts[row])
            assert count == 1 + image % 3
            assert (batch.images.features[row, :count] == image).all()
            assert (batch.images.features[row, count:] == 0).all()


def test_a_batch_of_images_brings_all_their_captions(tiny):
    dataset = tiny().write()
    options = {**OPTIONS, "batch_unit": "images"}
    batches = list(training_batches(dataset, "train", **options))
    assert len(batches) == math.ceil(23 / 4) == steps_per_epoch(dataset, "train", batch_size=4, batch_unit="images")
    assert sorted(int(image) for batch in batches for image in batch.image_ids) == list(range(23))
    assert sorted(caption_ids(batches)) == list(range(dataset.split("train").captions))
    for batch in batches:
        counts = torch.bincount(batch.caption_rows, minlength=len(batch.image_ids))
        assert counts.tolist() == [1 + int(image) % 3 for image in batch.image_ids]


def test_evaluation_keeps_the_order_of_the_split(tiny):
    dataset = tiny().write()
    batches = list(evaluation_batches(dataset, "train", batch_size=4))
    assert [int(image) for batch in batches for image in batch.image_ids] == list(range(23))
    assert caption_ids(batches) == list(range(dataset.split("train").captions))


def test_semantic_vectors_follow_their_captions(tiny):
    dataset = tiny().write()
    vectors = np.arange(2 * dataset.split("train").captions, dtype=np.float32).reshape(-1, 2)
    for batch in training_batches(dataset, "train", **OPTIONS, semantics=vectors):
        assert torch.equal(batch.semantic_vectors, torch.from_numpy(vectors)[batch.caption_ids])


def test_semantic_vectors_of_another_split_are_refused(tiny):
    dataset = tiny().write()
    with refused("VSE-D024", found="3 semantic vectors"):
        training_batches(dataset, "train", **OPTIONS, semantics=np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("workers", [0, 1])
def test_stopping_early_leaves_no_thread(tiny, workers):
    dataset = tiny(200).write()
    readers = StartedThreads("vsetune-reader")
    batches = training_batches(dataset, "train", **{**OPTIONS, "batch_size": 1}, workers=workers)
    next(batches)
    assert readers.alive()
    batches.close()
    assert readers.all_end()
    with pytest.raises(StopIteration):
        next(batches)


def test_dropping_the_iterator_leaves_no_thread(tiny):
    dataset = tiny(200).write()
    readers = StartedThreads("vsetune-reader")
    for _ in islice(training_batches(dataset, "train", **{**OPTIONS, "batch_size": 1}), 2):
        pass
    assert readers.all_end()


def test_a_batch_moves_to_a_device_with_all_its_parts(tiny):
    dataset = tiny().write()
    batch = next(iter(evaluation_batches(dataset, "train", batch_size=4))).to("meta")
    tensors = {**vars(batch.images), **vars(batch.captions), **vars(batch)}
    places = {name: value.device.type for name, value in tensors.items() if isinstance(value, torch.Tensor)}
    host = {"host_counts", "host_lengths"}  # shapes follow from them
    assert {places.pop(name) for name in host} == {"cpu"}
    assert set(places.values()) == {"meta"}
