from __future__ import annotations

import io
import logging
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from sklearn.feature_extraction.text import TfidfVectorizer

from vsetune.config.sources.trial_inputs import SemanticSpec
from vsetune.data.captions import semantic_sources
from vsetune.data.captions.semantic_sources import caption_vectors, semantic_vectors, stems
from vsetune.data.looking.verify import verify
from vsetune.data.stored.array_cache import forget_arrays

CAPTIONS = ["dog run grass", "dog jump grass", "man ride bike", "man ride hors", "dog ride bike"]
SPEC = SemanticSpec(size=2)


def cosines(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def test_the_worked_example_of_lseh_comes_out():
    # idf = ln((1 + 5) / (1 + df)) + 1; figures from the definition, worked in float64
    vectors = caption_vectors(CAPTIONS, SPEC)
    assert vectors.shape == (5, 2)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(
        cosines(vectors),
        [[1, 1, 0.002616, -0.130792, 0.464341],
         [1, 1, 0.002616, -0.130792, 0.464341],
         [0.002616, 0.002616, 1, 0.991064, 0.886868],
         [-0.130792, -0.130792, 0.991064, 1, 0.817317],
         [0.464341, 0.464341, 0.886868, 0.817317, 1]],
        atol=2e-6,
    )
    np.testing.assert_allclose(
        np.linalg.norm(vectors, axis=1), [0.859061, 0.859061, 0.936107, 0.758119, 0.834257], atol=2e-6
    )
    # the columns of U S have the singular values as lengths
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), [1.445105, 1.238817], atol=2e-6)


def test_all_components_together_keep_the_cosines_of_tf_idf():
    weights = TfidfVectorizer().fit_transform(CAPTIONS).toarray()
    np.testing.assert_allclose(cosines(caption_vectors(CAPTIONS, SemanticSpec())), weights @ weights.T, atol=1e-6)


def test_captions_are_reduced_to_stems_without_stop_words():
    assert stems("Two dogs' #1 running across the grassy fields.") == "two dog # run across grassi field"
    assert stems("It isn't the END") == "end"
    assert stems("...") == ""


def test_the_second_stop_list_works_on_stems():
    # `two` goes and `across` goes; `everi` (every) is a stem the list does not know, so it stays
    vectors = caption_vectors(["two dog", "across dog", "everi dog"], SemanticSpec())
    assert cosines(vectors)[0, 1] == pytest.approx(1)
    assert cosines(vectors)[0, 2] < 0.9


def test_a_caption_without_known_words_is_a_zero_row():
    vectors = caption_vectors([*CAPTIONS, "", "the of"], SPEC)
    assert (vectors[5:] == 0).all()
    assert np.isfinite(vectors).all()


def test_identical_captions_are_no_special_case():
    np.testing.assert_allclose(np.abs(caption_vectors(["dog"] * 3, SPEC)), np.ones((3, 1)), atol=1e-6)


def test_captions_of_stop_words_only_are_refused():
    with refused("VSE-D087"):
        caption_vectors(["the", ""], SPEC)


def npy_of(array: np.ndarray) -> bytes:
    np.save(buffer := io.BytesIO(), array)
    return buffer.getvalue()


def write(tiny, **options):
    return tiny([[text] for text in CAPTIONS], **options).write()


def kept_files(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.npy"))


def test_rows_are_captions_in_the_order_of_their_ids(tiny):
    dataset = tiny([CAPTIONS[:2], CAPTIONS[2:3], CAPTIONS[3:]], images_per_shard=1).write()
    np.testing.assert_allclose(
        semantic_vectors(dataset, SPEC, split="train"), caption_vectors(map(stems, CAPTIONS), SPEC), atol=1e-6
    )


def test_vectors_are_kept_beside_the_shards_and_read_back(tiny, monkeypatch):
    dataset = write(tiny)
    made = semantic_vectors(dataset, SPEC, split="train")
    (kept,) = kept_files(dataset.path)
    assert kept.name.startswith("semantics-train-tfidf-svd-1-k2-i20-r122-")
    monkeypatch.setattr(semantic_sources, "caption_vectors", lambda *_: pytest.fail("computed again"))
    again = semantic_vectors(dataset, SPEC, split="train")
    np.testing.assert_array_equal(made, again)
    assert not again.flags.writeable


def test_another_recipe_or_other_captions_get_another_file(tiny):
    dataset = write(tiny)
    semantic_vectors(dataset, SPEC, split="train")
    semantic_vectors(dataset, SemanticSpec(size=2, iterations=3), split="train")
    other = tiny([[text + " red"] for text in CAPTIONS]).write()
    semantic_vectors(other, SPEC, split="train")
    assert len(kept_files(dataset.path)) == 3


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"junk" * 100, npy_of(np.zeros((2, 2), np.float32))])
def test_a_damaged_file_is_made_again_and_said(tiny, caplog, damage):
    dataset = write(tiny)
    made = np.array(semantic_vectors(dataset, SPEC, split="train"))
    (kept,) = kept_files(dataset.path)
    kept.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(semantic_vectors(dataset, SPEC, split="train"), made)
    assert caplog.text.count("computing it again") == 1
    assert len(np.load(kept)) == 5


@pytest.mark.parametrize("is_another", [False, True], ids=["one byte", "another data set's"])
def test_a_file_that_is_not_what_was_kept_is_made_again_and_said(tiny, caplog, is_another):
    dataset = write(tiny)
    made = np.array(semantic_vectors(dataset, SPEC, split="train"))
    (kept,) = kept_files(dataset.path)
    content = bytearray(kept.read_bytes())
    content[-3] ^= 1
    kept.write_bytes(content)
    if is_another:  # finite numbers too, and as many rows
        np.save(kept, made[::-1])
    forget_arrays()
    assert [str(kept) in problem for problem in verify(dataset.path)] == [True]
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(semantic_vectors(dataset, SPEC, split="train"), made)
    assert caplog.text.count("is not what was kept, by its SHA-256; computing it again") == 1
    assert verify(dataset.path) == []


def test_a_file_of_before_hashes_were_kept_is_read(tiny, monkeypatch):
    dataset = write(tiny)
    made = np.array(semantic_vectors(dataset, SPEC, split="train"))
    (seal,) = Path(dataset.path).glob("*.npy.sha256")
    seal.unlink()
    forget_arrays()
    monkeypatch.setattr(semantic_sources, "caption_vectors", lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(semantic_vectors(dataset, SPEC, split="train"), made)


def test_a_data_folder_that_cannot_be_written_sends_the_file_home(tiny, monkeypatch, tmp_path):
    dataset = write(tiny)
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("vsetune.home.whole_files.NamedTemporaryFile", _refusing(dataset.path))
    semantic_vectors(dataset, SPEC, split="train")
    assert kept_files(dataset.path) == []
    assert len(kept_files(str(tmp_path / "home" / "cache"))) == 1


def test_vectors_come_even_when_nothing_can_be_written(tiny, monkeypatch, tmp_path, caplog):
    dataset = write(tiny)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("vsetune.home.whole_files.NamedTemporaryFile", _refusing(dataset.path))
    assert semantic_vectors(dataset, SPEC, split="train").shape == (5, 2)
    assert "computed again by every trial" in caplog.text


def _refusing(folder: str):
    """NamedTemporaryFile for a read-only folder; root may write anywhere, so rights cannot be tested with chmod."""
    from tempfile import NamedTemporaryFile

    def refuse(*args, dir, **options):
        if str(dir) == folder:
            raise PermissionError(13, "Permission denied")
        return NamedTemporaryFile(*args, dir=dir, **options)

    return refuse


def _fit(dataset, results):
    results.put(np.array(semantic_vectors(dataset, SPEC, split="train")))


def test_trials_that_start_together_get_the_same_vectors(tiny):
    dataset = write(tiny)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=_fit, args=(dataset, results)) for _ in range(4)]
    for process in processes:
        process.start()
    vectors = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    for other in vectors[1:]:
        np.testing.assert_array_equal(vectors[0], other)
    assert len(kept_files(dataset.path)) == 1
    assert not list(Path(dataset.path).glob(".*"))
