"""Released vocabularies, the files that are none, and words beside imported weights."""

from __future__ import annotations

import json
import pickle
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import fits, refused
from torch import nn

from vsetune.errors import DataError
from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.released_file import read_words, rows_of
from vsetune.networks.importing.released_models import import_released
from vsetune.networks.importing.stored import StoredWeights

WORDS = ["<pad>", "<start>", "<end>", "<unk>", "dog", "café", "a"]
IDS = {word: number for number, word in enumerate(WORDS)}


class Released:
    """Stands in for the class of the released code while a file is written."""

    def __init__(self) -> None:
        self.word2idx = dict(IDS)
        self.idx2word = {number: word for word, number in IDS.items()}
        self.idx = len(IDS)


@pytest.fixture
def pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """pickled(module, protocol, attributes): a file as the released code writes it; the module is gone afterwards."""

    def write(module: str, protocol: int = 2, **attributes: Any) -> Path:
        stand_in = types.ModuleType(module)
        held = type("Vocabulary", (), {"__module__": module})
        stand_in.Vocabulary = held  # type: ignore[attr-defined]
        vocabulary = held()
        vars(vocabulary).update(vars(Released()) | attributes)
        path = tmp_path / "vocab.pkl"
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, stand_in)
            path.write_bytes(pickle.dumps(vocabulary, protocol))
        return path

    return write


def refuse(path: Path, *expected: str, **fields: Any) -> None:
    """Reading the file raises one of these messages, in one line."""
    with pytest.raises(DataError) as caught:
        read_words(path)
    assert "\n" not in caught.value.problem
    assert any(fits(caught.value.problem, message, path=path, **fields) for message in expected)


def test_json_gives_the_words_by_their_ids_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    shuffled = dict(sorted(IDS.items()))
    path.write_text(json.dumps({"word2idx": shuffled, "idx2word": {str(n): w for w, n in IDS.items()}, "idx": 7}))
    assert read_words(path) == tuple(WORDS)


@pytest.mark.parametrize("module", ["vocab", "__main__"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickled_vocabulary_is_read_without_its_class(pickled: Any, module: str, protocol: int) -> None:
    assert read_words(pickled(module, protocol)) == tuple(WORDS)


def test_a_pickle_of_python_2_is_read(tmp_path: Path) -> None:
    """Byte strings, the class made by an opcode of protocol 2: what Python 2 wrote."""
    items = b"".join(b"U" + bytes([len(w.encode())]) + w.encode() + b"K" + bytes([n]) for w, n in IDS.items())
    path = tmp_path / "vocab.pkl"
    path.write_bytes(b"\x80\x02cvocab\nVocabulary\n)\x81}U\x08word2idx}(" + items + b"usb.")
    assert read_words(path) == tuple(WORDS)


class Trap:
    """Runs code when a file is unpickled carelessly."""

    def __reduce__(self) -> Any:
        return (Path("trapped").touch, ())


def test_a_pickle_with_code_is_refused_by_name_and_the_code_does_not_run(
    pickled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refuse(pickled("vocab", extra=Trap()), "VSE-N035")
    assert not Path("trapped").exists()
    refuse(pickled("vocab", word2idx=OrderedDict(IDS)), "VSE-N035", kind="collections.OrderedDict")


@pytest.mark.parametrize("function", [b"os\nsystem", b"builtins\neval", b"__builtin__\ngetattr", b"os\nVocabulary"])
def test_no_function_can_be_called_by_name(function: bytes, tmp_path: Path) -> None:
    path = tmp_path / "vocab.pkl"
    path.write_bytes(b"c" + function + b"\n(U\x04trueetR.")
    refuse(path, "VSE-N035", kind=function.decode().replace("\n", "."))


def test_a_file_cannot_change_how_the_next_one_is_read(tmp_path: Path, pickled: Any) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"\x80\x02cvocab\nVocabulary\nN}U\x08word2idxN\x86b.")  # sets an attribute of the class itself
    refuse(bad, "VSE-N034", "VSE-N036", "VSE-N035")
    good = pickled("vocab")
    assert read_words(good) == tuple(WORDS)


@pytest.mark.parametrize("content", [b"", b"text", b"[1]", b"{}", pickle.dumps(3), b'{"word2idx": [1]}', b"\x80\x02."])
@pytest.mark.parametrize("ending", [".json", ".pkl"])
def test_what_is_no_vocabulary_is_refused_in_one_line(content: bytes, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"vocab{ending}"
    path.write_bytes(content)
    refuse(path, "VSE-N034", "VSE-N036", "VSE-N040", "VSE-N041")


@pytest.mark.parametrize(("ids", "message"), [
    *(({**IDS, "cat": number}, "VSE-N040") for number in (9, 3, "7", True)),
    ({"dog": 0, "cat": 1}, "VSE-N041"),
])
def test_ids_must_be_numbers_without_gaps_and_special_words_there(ids: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps({"word2idx": ids}))
    refuse(path, message)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    refuse(tmp_path / "gone.json", "VSE-N033")


def test_special_words_are_found_under_their_released_spelling() -> None:
    ours = ["<pad>", "<start>", "<end>", "<unknown>", "<mask>", "a", "cat", "dog"]
    assert rows_of(ours, WORDS) == [0, 1, 2, 3, None, 6, None, 4]


@pytest.fixture
def weights(released: Any, checkpoint: Any) -> Path:
    text = released(embed=nn.Embedding(len(WORDS), 5), rnn=nn.GRU(5, 8, batch_first=True))
    path: Path = checkpoint(released(fc=nn.Linear(6, 8)), text)
    return path


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps({"word2idx": IDS}))
    return path


def test_words_stay_with_the_weights_and_place_their_vectors(weights: Path, vocabulary: Path, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(import_released(weights, "vsepp", words=vocabulary).to_safetensors())
    held = StoredWeights.open(file).network
    assert held is not None
    assert held.words == tuple(WORDS)
    before: Any = network_of(file)
    after: Any = network_of(file, words=["<pad>", "<start>", "<end>", "<unknown>", "<mask>", "a", "cat", "dog"])
    assert torch.equal(after.words.weight[[0, 1, 2, 3, 5, 6, 7]], before.words.weight[[0, 1, 2, 3, 6, 3, 4]])


def test_a_vocabulary_of_another_size_is_refused(weights: Path, vocabulary: Path) -> None:
    vocabulary.write_text(json.dumps({"word2idx": {**IDS, "cat": 7}}))
    with refused("VSE-N042", got=8, need=7):
        import_released(weights, "vsepp", words=vocabulary)
