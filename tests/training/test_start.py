"""Trainings that start from imported weights or from those of a trial, and imported weights scored as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from refusals import refused
from trained_here import CPU, learner_of, open_attempt, train

from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import Vocabulary
from vsetune.errors import ConfigError, DataError
from vsetune.networks.importing.imported import Imported
from vsetune.networks.importing.released_models import import_released
from vsetune.networks.importing.stored import WeightNotes
from vsetune.networks.network_building import build_network
from vsetune.training.start import check_start, describe_start
from vsetune.training.trained import evaluate_stored, load_stored

RELEASED = {"image_map": "img_enc.fc", "words": "txt_enc.embed", "gru": "txt_enc.rnn"}
FRESH = {"name": "vsepp", "embedding_size": 8, "word_size": 6}


def key_of(path: Path) -> str:
    """How errors name a file that a training starts from."""
    return f"network.start_from: {path}"


@pytest.fixture(scope="module")
def trained(make_trial: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """Best weights of a trained VSE++ on the tiny data, and the trial's summary."""
    attempt = train(make_trial(epochs=12.0), tmp_path_factory.mktemp("trained"))
    return attempt.best_path, attempt.finish()


@pytest.fixture
def best(trained: tuple[Path, dict[str, float]]) -> Path:
    return trained[0]


@pytest.fixture
def words(data_path: str) -> tuple[str, ...]:
    return Dataset.open(data_path).vocabulary.words


@pytest.fixture
def released(best: Path, words: tuple[str, ...], tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """released(left_out words): the trained weights as the code of VSE++ saves them, words in another order, with one
    more word that the data do not have; and their vocabulary."""

    def write(left_out: Sequence[str] = ()) -> tuple[Path, Path]:
        weights = safetensors.torch.load_file(best)
        kept = [word for word in reversed(words[5:]) if word not in left_out]
        rows = [0, 1, 2, 3, 4, *(words.index(word) for word in kept)]
        weights["words.weight"] = weights["words.weight"][rows]
        names = ["<pad>", "<start>", "<end>", "<unk>", "elsewhere", *kept]
        parts: list[dict[str, Any]] = [{}, {}]
        for name, tensor in weights.items():
            module, rest = name.split(".", 1)
            part, theirs = RELEASED[module].split(".")
            parts[part == "txt_enc"][f"{theirs}.{rest}"] = tensor
        torch.save({"model": parts, "epoch": 3}, tmp_path / "released.pth.tar")
        (tmp_path / "vocab.json").write_text(json.dumps({"word2idx": {word: n for n, word in enumerate(names)}}))
        return tmp_path / "released.pth.tar", tmp_path / "vocab.json"

    return write


@pytest.fixture
def imported(released: Any, tmp_path: Path) -> Callable[..., Path]:
    """imported(left_out words, with_words): the file that `networks import` makes of them."""

    def write(left_out: Sequence[str] = (), *, with_words: bool = True) -> Path:
        weights, vocabulary = released(left_out)
        path = tmp_path / "weights.safetensors"
        path.write_bytes(import_released(weights, "vsepp", words=vocabulary if with_words else None).to_safetensors())
        return path

    return write


def learner(trial: Any) -> Any:
    return learner_of(trial, seed=5)


def assert_refused(trial: Any, message: str, **fields: object) -> str:
    with refused(message, by=ConfigError, **fields) as caught:
        learner(trial)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_imported_weights_score_as_they_did_where_they_were_trained(
    imported: Any, trained: Any, data_path: str
) -> None:
    found = load_stored(imported(), data_path, split="test", device=CPU)
    numbers = evaluate_stored(found)
    assert found.words == (found.words[1], found.words[1])
    assert numbers == {name: trained[1][f"test_{name}"] for name in numbers}
    assert numbers["i2t_r1"] > 3 / 12


def test_a_word_that_the_weights_lack_is_read_as_their_unknown_word(imported: Any, data_path: str) -> None:
    found = load_stored(imported(["star", "red"]), data_path, split="test", device=CPU)
    assert found.words is not None
    assert found.words[0] == found.words[1] - 2
    assert found.dataset.vocabulary.encode(["star", "a"]) == [1, 3, found.dataset.vocabulary.words.index("a"), 2]


def test_a_word_that_is_rare_in_the_data_is_read_by_the_vector_of_the_weights(imported: Any, data_path: str) -> None:
    found = load_stored(imported(), data_path, split="test", device=CPU)
    whole = evaluate_stored(found)
    few = Dataset.open(data_path)
    few = replace(few, vocabulary=Vocabulary(few.vocabulary.words[:7]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Dataset, "open", lambda path: few)
        assert evaluate_stored(load_stored(imported(), data_path, split="test", device=CPU)) == whole


def test_a_training_starts_from_imported_weights(imported: Any, trained: Any, make_trial: Any, tmp_path: Path) -> None:
    still = {"epochs": 1.0, "learning_rate": 1e-9}
    path = str(imported())
    first = open_attempt(make_trial(network=FRESH | {"start_from": path}, **still), tmp_path / "a")
    start = first.advance()
    fresh = open_attempt(make_trial(network=FRESH, **still), tmp_path / "b").advance()
    assert start.m_recall == pytest.approx(trained[1]["best_m_recall"])
    assert start.m_recall > fresh.m_recall + 15
    described = first.environment()["start_from"]
    assert described.startswith("weights.safetensors ")
    count = len(first.dataset.vocabulary) - 5
    assert described.endswith(f": {count} of {count} words found")


def test_words_that_the_weights_lack_keep_their_fresh_vectors(
    imported: Any, best: Path, words: tuple[str, ...], make_trial: Any
) -> None:
    trial = make_trial(network=FRESH | {"start_from": str(imported(["star"]))})
    fresh, started = learner(make_trial()), learner(trial)
    old = safetensors.torch.load_file(best)["words.weight"]
    for row, word in enumerate(words):
        expected = fresh.network.words.weight if word in ("star", "<mask>") else old
        assert torch.equal(started.network.words.weight[row], expected[row]), word
    count = len(words) - 5
    assert describe_start(trial.network, words)["start_from"].endswith(f": {count - 1} of {count} words found")


def test_spare_heads_of_imported_weights_may_be_too_many(released: Any, make_trial: Any, tmp_path: Path) -> None:
    weights, vocabulary = released()
    whole = import_released(weights, "vsepp", words=vocabulary)
    path = tmp_path / "weights.safetensors"
    trial = make_trial(network=FRESH | {"start_from": str(path)})
    more = replace(whole, weights={**whole.weights, "head.bias": torch.zeros(2)}, spare=("head", "gru"))
    path.write_bytes(more.to_safetensors())
    state = learner(trial).network.state_dict()
    assert torch.equal(state["image_map.bias"], whole.weights["image_map.bias"])
    path.write_bytes(replace(more, spare=("gru",)).to_safetensors())
    assert "1 unexpected, first head.bias" in assert_refused(trial, "VSE-T022", file=key_of(path))
    lacking = {name: tensor for name, tensor in whole.weights.items() if not name.startswith("gru.")}
    path.write_bytes(replace(more, weights=lacking).to_safetensors())
    assert "4 tensors missing, first gru.bias_hh_l0" in assert_refused(trial, "VSE-T022")


def test_loading_draws_no_random_number(imported: Any, make_trial: Any) -> None:
    learner(make_trial())
    after = torch.get_rng_state()
    learner(make_trial(network=FRESH | {"start_from": str(imported())}))
    assert torch.equal(torch.get_rng_state(), after)


def test_a_training_starts_from_the_best_weights_of_a_trial_on_the_same_vocabulary(
    best: Path, make_trial: Any, words: tuple[str, ...]
) -> None:
    trial = make_trial(network=FRESH | {"start_from": str(best)})
    state = learner(trial).network.state_dict()
    expected = safetensors.torch.load_file(best)
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
    assert describe_start(trial.network, words)["start_from"].endswith(f": {len(words)} words, by their ids")


def test_weights_of_a_trial_on_another_vocabulary_are_refused(best: Path, make_trial: Any, tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(best)
    tensors["words.weight"] = tensors["words.weight"][:9]
    safetensors.torch.save_file(tensors, tmp_path / "other.safetensors")
    trial = make_trial(network=FRESH | {"start_from": str(tmp_path / "other.safetensors")})
    assert_refused(trial, "VSE-T024", file=key_of(tmp_path / "other.safetensors"), got=9)


def test_weights_of_a_trial_on_the_same_words_in_another_order_are_refused_wherever_the_network_keeps_them(
    make_trial: Any, small: Any, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "best.safetensors"
    network = learner(make_trial(network=small("tags"))).network
    trial = make_trial(network=small("tags") | {"start_from": str(path)})
    for kept in (words, (*words[:5], *reversed(words[5:]))):
        notes = WeightNotes.of(network, "tags", kept).to_metadata(step=1)
        safetensors.torch.save_file(network.state_dict(), path, metadata=notes)
        if kept == words:
            learner(trial)
    assert_refused(trial, "VSE-T025", file=key_of(path))


def test_imported_weights_without_words_are_refused_with_the_way_out(
    imported: Any, make_trial: Any, data_path: str
) -> None:
    path = imported(with_words=False)
    assert_refused(make_trial(network=FRESH | {"start_from": str(path)}), "VSE-T023", file=key_of(path))
    with refused("VSE-T023", by=DataError, file=path):
        load_stored(path, data_path, split="test", device=CPU)


def test_weights_of_other_sizes_are_refused_with_counts_and_first_names(imported: Any, make_trial: Any) -> None:
    start = {"start_from": str(imported())}
    wider = make_trial(network={"name": "vsepp", "embedding_size": 9, "word_size": 7} | start)
    said = assert_refused(wider, "VSE-T022", network="vsepp")
    assert "7 of another shape, first gru.bias_hh_l0 is (24,), need (27,)" in said
    other = make_trial(network={"name": "scan", "embedding_size": 8, "word_size": 6} | start)
    assert_refused(other, "VSE-T021", got="vsepp", need="scan")


def test_a_partial_file_is_refused_with_counts_and_first_names(best: Path, make_trial: Any, tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(best)
    tensors["extra"] = tensors.pop("image_map.weight")
    safetensors.torch.save_file(tensors, tmp_path / "partial.safetensors")
    trial = make_trial(network=FRESH | {"start_from": str(tmp_path / "partial.safetensors")})
    differences = "1 tensors missing, first image_map.weight; 1 unexpected, first extra"
    assert_refused(trial, "VSE-T022", differences=differences)


def test_a_start_that_is_no_file_of_weights_is_refused_in_one_line(make_trial: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    for content in (None, b"", b"text"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=key_of(path)) as caught:
            learner(make_trial(network=FRESH | {"start_from": str(path)}))
        assert "\n" not in str(caught.value)


def test_a_start_at_an_address_is_refused_with_what_is_needed(make_trial: Any) -> None:
    place = "s3://bucket/weights.safetensors"
    assert_refused(make_trial(network=FRESH | {"start_from": place}), "VSE-T020", place=place)


def test_the_check_before_a_study_reads_names_and_shapes_alone(imported: Any, make_trial: Any, data_path: str) -> None:
    dataset = Dataset.open(data_path)
    spec = make_trial(network=FRESH | {"start_from": str(imported())}).network
    sizes = {"regions": dataset.regions, "vocabulary_size": len(dataset.vocabulary)}
    with torch.device("meta"):
        fitting = build_network(spec, width=dataset.width, **sizes)
        wider = build_network(spec, width=dataset.width + 1, **sizes)
    assert check_start(fitting, spec, dataset.vocabulary.words) is not None
    with refused(
        "VSE-T022", differences="1 of another shape, first image_map.weight is (8, 12), need (8, 13)"
    ):
        check_start(wider, spec, dataset.vocabulary.words)


def test_features_of_another_width_are_refused_with_both_sizes(imported: Any, data_path: str) -> None:
    path = imported()
    tensors = safetensors.torch.load_file(path)
    released = {"img_enc.fc.weight": torch.zeros(8, 5), "img_enc.fc.bias": tensors["image_map.bias"]}
    released["txt_enc.embed.weight"] = tensors["words.weight"]
    released |= {f"txt_enc.rnn.{n.removeprefix('gru.')}": t for n, t in tensors.items() if n.startswith("gru.")}
    narrow = path.with_name("narrow.safetensors")
    safetensors.torch.save_file(released, narrow)
    path.write_bytes(import_released(narrow, "vsepp", words=path.with_name("vocab.json")).to_safetensors())
    with pytest.raises(DataError, match="reads features of 5 numbers, .* has 12; ingest the features"):
        load_stored(path, data_path, split="test", device=CPU)


@pytest.fixture
def saf(make_trial: Any, words: tuple[str, ...], tmp_path: Path) -> Callable[[int], Path]:
    """saf(regions): a file with a fresh SGRAF-SAF that reads so many regions."""

    def write(regions: int) -> Path:
        network = {"name": "sgraf_saf", "embedding_size": 8, "word_size": 6, "similarity_size": 6}
        spec = make_trial(network=network).network
        names = ("<pad>", "<start>", "<end>", "<unk>", *words[5:])
        sizes = {"regions": regions, "width": 12, "vocabulary_size": len(names)}
        weights = build_network(spec, **sizes).state_dict()
        held = Imported(
            source="sgraf", name="sgraf_saf", spec=spec, settings=network, weights=weights, unused={}, assumed=(),
            words=names, **sizes,
        )
        path = tmp_path / "saf.safetensors"
        path.write_bytes(held.to_safetensors())
        return path

    return write


def test_a_network_that_scores_pairs_is_scored_too_and_needs_its_number_of_regions(saf: Any, data_path: str) -> None:
    numbers = evaluate_stored(load_stored(saf(4), data_path, split="test", device=CPU))
    assert 0 <= numbers["m_recall"] <= 100
    with refused("VSE-T028", by=DataError, reads="3 regions", has="4 to 4"):
        load_stored(saf(3), data_path, split="test", device=CPU)
