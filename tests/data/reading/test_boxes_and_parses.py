from __future__ import annotations

import numpy as np
import pytest
import torch
from refusals import fits, refused

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.captions.parses import NOT_PARSED, PARSES_FILE, joined_words, parse_dataset, read_parses, word_heads
from vsetune.data.looking.verify import verify
from vsetune.data.progress import SilentProgress

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}
BOXES, PARSES = NetworkReads(boxes=True), NetworkReads(dependencies=True)


def parse(dataset, pipeline="chain"):
    return parse_dataset(dataset.path, pipeline, progress=SilentProgress())


def boxes_of(image: int, regions: int) -> np.ndarray:
    return np.full((regions, 4), image / 100, np.float32) + np.arange(regions, dtype=np.float32)[:, None] / 10


@pytest.fixture
def boxed(tiny, npy):
    """Three images of one region after one of three; region r of image i has boxes of i / 100 + r / 10."""

    def edit(index, members):
        members["boxes.npy"] = npy(boxes_of(index, (3, 1)[index % 2]), dtype="float32")

    return tiny(8, regions=(3, 1), boxes=True, edit=edit)


@pytest.mark.parametrize("workers", [0, 2])
def test_boxes_come_with_their_images_where_they_are_asked_for(boxed, workers):
    dataset = boxed.write()
    for batch in training_batches(dataset, "train", **OPTIONS, workers=workers, reads=BOXES):
        assert batch.images.boxes.dtype == torch.float32
        for row, image in enumerate(batch.image_ids.tolist()):
            count = (3, 1)[image % 2]
            assert np.array_equal(batch.images.boxes[row, :count], boxes_of(image, count))
            assert not batch.images.boxes[row, count:].any()
    (batch,) = evaluation_batches(dataset, "train", batch_size=100, reads=BOXES)
    assert batch.images.boxes.shape == (8, 3, 4)
    assert torch.equal(batch.to("cpu").images.boxes, batch.images.boxes)


def test_boxes_that_nobody_asked_for_are_not_read(boxed):
    boxed.edit = lambda index, members: members.update({"boxes.npy": b"damaged"})
    dataset = boxed.write()
    assert all(batch.images.boxes is None for batch in training_batches(dataset, "train", **OPTIONS))
    with refused("VSE-D011"):
        list(evaluation_batches(dataset, "train", batch_size=4, reads=BOXES))


def test_a_data_set_without_boxes_gives_none(tiny):
    assert all(b.images.boxes is None for b in training_batches(tiny(4).write(), "train", **OPTIONS, reads=BOXES))


@pytest.mark.parametrize(
    ("boxes", "found"), [(np.full((2, 4), 480.0), "(2, 4)"), (np.full((3, 4), 0.5), "(3, 4)")]
)
def test_boxes_that_are_pixels_or_do_not_fit_the_regions_are_refused(tiny, npy, boxes, found):
    data = tiny(4, boxes=True, edit=lambda index, members: members.update({"boxes.npy": npy(boxes, dtype="float32")}))
    with refused("VSE-D024", found=f"boxes {found} float32", need="(2, 4) float32 from 0 to 1"):
        list(evaluation_batches(data.write(), "train", batch_size=4, reads=BOXES))


@pytest.mark.parametrize("unit", ["pairs", "images"])
def test_captions_come_with_the_others_of_their_image_where_they_are_asked_for(tiny, unit):
    dataset, reads = tiny(8).write(), NetworkReads(siblings=True)
    (whole,) = evaluation_batches(dataset, "train", batch_size=100, reads=reads)
    assert whole.captions.siblings is None
    words = zip(whole.captions.tokens, whole.captions.lengths.tolist(), strict=True)
    own = [ids[:length].tolist() for ids, length in words]
    image = whole.image_ids[whole.caption_rows].tolist()
    for batch in training_batches(dataset, "train", **OPTIONS | {"batch_unit": unit}, reads=reads):
        for number, others in zip(batch.caption_ids.tolist(), batch.captions.siblings, strict=True):
            found = [ids[ids != 0].tolist() for ids in others if ids.any()]
            assert found == [own[i] for i in range(len(own)) if image[i] == image[number] and i != number]


def test_joined_words_by_hand():
    """`a dog runs`: a -> dog, dog -> runs, runs is the root; positions 0 <start>, 1 a, 2 dog, 3 runs, 4 <end>."""
    heads = np.array([[1, 2, -1, -1], [-1, -1, -1, -1]], np.int16)
    joined = joined_words(heads, np.array([5, 3]))
    assert joined.shape == (2, 5, 5)
    assert set(zip(*np.nonzero(joined[0]), strict=True)) == {(1, 2), (2, 1), (2, 3), (3, 2)}
    assert not joined[1].any()


def test_joined_words_equal_a_loop_over_random_parses():
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 12, size=50)
    heads = np.full((50, 10), -1, np.int16)
    expected = np.zeros((50, lengths.max(), lengths.max()), bool)
    for caption, length in enumerate(lengths):
        for word in range(length - 2):
            head = draw.integers(-1, length - 2)
            if head in (-1, word):
                continue
            heads[caption, word] = head
            expected[caption, 1 + word, 1 + head] = expected[caption, 1 + head, 1 + word] = True
    joined = joined_words(heads, lengths)
    assert np.array_equal(joined, expected)
    assert np.array_equal(joined, joined.transpose(0, 2, 1))
    assert not joined[:, range(lengths.max()), range(lengths.max())].any()


def test_a_head_beyond_its_caption_is_refused():
    for heads in ([[3, -1, -1, -1]], [[-1, -1, -1, 0]]):
        with refused("VSE-D082"):
            joined_words(np.array([*heads, [-1] * 4], np.int16), np.array([5, 9]))


@pytest.mark.parametrize("workers", [0, 2])
def test_each_caption_brings_its_own_parse(tiny, chain, workers):
    dataset = tiny().write()
    parse(dataset)
    batches = [
        *training_batches(dataset, "train", **OPTIONS, workers=workers, reads=PARSES),
        *evaluation_batches(dataset, "train", batch_size=7, reads=PARSES),
    ]
    for batch in batches:
        longest = batch.captions.tokens.shape[1]
        assert batch.captions.dependencies.shape == (batch.pairs, longest, longest)
        for joined, length in zip(batch.captions.dependencies, batch.captions.lengths.tolist(), strict=True):
            along = {(word, word + 1) for word in range(1, length - 2)}
            assert set(map(tuple, joined.nonzero().tolist())) == along | {(b, a) for a, b in along}
    assert all(batch.captions.dependencies is None for batch in training_batches(dataset, "train", **OPTIONS))


def test_a_caption_without_parse_has_no_pairs_and_is_counted(tiny, chain, monkeypatch):
    heads = chain.heads
    monkeypatch.setattr(
        chain, "heads", lambda captions: (None if row == 1 else found for row, found in enumerate(heads(captions)))
    )
    dataset = tiny([["a dog", "two dogs run"], ["a cat"]]).write()
    info = parse(dataset).splits["train"]
    assert (info.captions, info.pairs, info.not_parsed) == (3, 2, 1)
    assert (word_heads(dataset, "train")[1] == NOT_PARSED).all()
    (batch,) = evaluation_batches(dataset, "train", batch_size=2, reads=PARSES)
    assert batch.captions.dependencies.sum(dim=(1, 2)).tolist() == [2, 0, 2]


def test_parses_are_made_once_and_leave_shards_and_fingerprint_as_they_were(tiny, chain):
    data = tiny()
    dataset = data.write()
    before = {path.name: path.read_bytes() for path in data.folder.iterdir()}
    made = parse(dataset)
    assert parse(dataset) == made == read_parses(dataset.path)
    assert chain.parsed == dataset.split("train").captions
    after = {path.name: path.read_bytes() for path in data.folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {PARSES_FILE, made.splits["train"].file}
    assert type(dataset).open(dataset.path).fingerprint == dataset.fingerprint


def test_a_data_set_without_parses_is_refused_with_the_command_that_adds_them(tiny):
    dataset = tiny().write()
    with refused("VSE-D075", folder=dataset.path):
        training_batches(dataset, "train", **OPTIONS, reads=PARSES)


def test_parses_by_another_pipeline_are_not_replaced(tiny, chain):
    dataset = tiny().write()
    parse(dataset)
    with refused("VSE-D080", found="chain"):
        parse(dataset, "another")
    (tiny().folder / PARSES_FILE).unlink()
    assert parse(dataset, "another").pipeline == "another"


def test_parses_of_other_captions_are_refused_and_made_again(tiny, chain):
    parse(tiny([["a dog"]]).write())
    changed = tiny([["a dog runs"]]).write()
    with refused("VSE-D078", split="train"):
        word_heads(changed, "train")
    assert parse(changed).splits["train"].pairs == 2
    assert word_heads(changed, "train").tolist() == [[-1, 0, 1]]


def test_verify_tells_of_a_changed_array_and_of_one_that_is_gone(tiny, chain):
    dataset = tiny([["a dog"]]).write()
    parses_at = tiny().folder / parse(dataset).splits["train"].file
    content = parses_at.read_bytes()
    parses_at.write_bytes(content[:-1] + b"\x07")
    assert any(fits(each, "VSE-D030", file=parses_at) for each in verify(dataset.path))
    parses_at.unlink()
    assert any(fits(each, "VSE-D077", where=parses_at) for each in verify(dataset.path))
    with refused("VSE-D077", where=parses_at):
        word_heads(dataset, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:20], "VSE-D010"),
        (lambda text: text.replace("vsetune-parses-1", "vsetune-parses-9"), "VSE-D076"),
        (lambda text: text.replace('"parses-train', '"../parses-train'), "VSE-D076"),
    ],
)
def test_a_list_of_parses_that_is_no_longer_one_is_refused(tiny, chain, change, message):
    dataset = tiny([["a dog"]]).write()
    parse(dataset)
    where = tiny().folder / PARSES_FILE
    where.write_text(change(where.read_text()))
    with refused(message, where=where):
        word_heads(dataset, "train")
