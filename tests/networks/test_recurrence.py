"""Our GRU equals nn.GRU, whose formula test_vsepp.py and test_vsrn_loops.py write gate by gate."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from refusals import refused
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from vsetune.networks.parts.cpu.sequences import shared_states
from vsetune.networks.parts.network_devices import PLAIN_AUTOGRAD, hand_derived
from vsetune.networks.parts.packing import Repeated, pack, spelt_out
from vsetune.networks.parts.recurrence import drop_numbers, embed_words, run_gru

LENGTHS = {"any": [3, 1, 7, 7, 2], "equal": [4, 4, 4], "one sequence": [5], "one element each": [1, 1, 1]}


def packed(lengths: list[int], values: torch.Tensor, *, is_sorted: bool = False) -> PackedSequence:
    lengths = sorted(lengths, reverse=True) if is_sorted else lengths
    return pack_padded_sequence(values, torch.tensor(lengths), batch_first=True, enforce_sorted=is_sorted)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_states_and_gradients_equal_those_of_nn_gru(
    lengths: list[int], bidirectional: bool, is_sorted: bool
) -> None:
    torch.manual_seed(0)
    gru = nn.GRU(5, 8, batch_first=True, bidirectional=bidirectional, dtype=torch.float64)
    values = torch.randn(len(lengths), max(lengths), 5, dtype=torch.float64, requires_grad=True)
    outcomes = []
    for run in (gru, lambda inputs: run_gru(gru, inputs)):
        states, last = run(packed(lengths, values, is_sorted=is_sorted))
        torch.manual_seed(1)
        loss = (states.data * torch.randn_like(states.data)).sum() + (last * torch.randn_like(last)).sum()
        outcomes.append([states.data, last, *torch.autograd.grad(loss, [values, *gru.parameters()])])
    for expected, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_large_gru_over_many_elements_equals_nn_gru_in_float64() -> None:
    torch.manual_seed(0)
    lengths = [1, 12, 3, 12, 9, 2]
    plain = nn.GRU(20, 128, batch_first=True, bidirectional=True)
    ours, values = copy.deepcopy(plain), torch.randn(len(lengths), max(lengths), 20)
    weights, outcomes = torch.randn(sum(lengths), 256), []
    for gru, dtype in ((plain.double(), torch.float64), (ours, torch.float32)):
        leaf = values.to(dtype).requires_grad_()
        states, _ = (gru if dtype == torch.float64 else partial(run_gru, gru))(packed(lengths, leaf))
        loss = (states.data * weights.to(dtype)).sum()
        outcomes.append([states.data, *torch.autograd.grad(loss, [leaf, *gru.parameters()])])
    for expected, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kinds", [2, 50])
def test_what_repeats_has_the_states_and_gradients_of_what_is_spelt_out(
    lengths: list[int], bidirectional: bool, kinds: int
) -> None:
    torch.manual_seed(0)
    gru = nn.GRU(5, 8, batch_first=True, bidirectional=bidirectional, dtype=torch.float64)
    table = torch.randn(kinds, 5, dtype=torch.float64, requires_grad=True)
    words = Repeated(table, pack(torch.randint(kinds, (len(lengths), max(lengths))), torch.tensor(lengths)))
    outcomes = []
    for states, last in (gru(spelt_out(words)), run_gru(gru, words)):
        torch.manual_seed(1)
        loss = (states.data * torch.randn_like(states.data)).sum() + (last * torch.randn_like(last)).sum()
        outcomes.append([states.data, last, *torch.autograd.grad(loss, [table, *gru.parameters()])])
    for expected, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backwards", [False, True])
def test_sequences_share_a_state_as_long_as_they_have_read_the_same(backwards: bool) -> None:
    sequences = ["abcd", "abce", "ab", "bbce", "abce", "e"]
    places = pack(torch.tensor([[ord(letter) - ord("a") for letter in each.ljust(4, "a")] for each in sequences]),
                  torch.tensor([len(each) for each in sequences]))
    order = shared_states(places.data, places.batch_sizes.tolist(), backwards=backwards)
    longest_first = [sequences[number] for number in places.sorted_indices.tolist()]
    read = [each[step:] if backwards else each[: step + 1]
            for step in range(4) for each in longest_first if step < len(each)]
    by_state = sorted(zip(order.places.tolist(), read, strict=True))
    assert len(order.elements) == len(set(read)) < len(read)
    assert len({state for state, _ in by_state}) == len(set(by_state)) == len(set(read))
    assert order.elements[order.places].tolist() == places.data.tolist()


def test_each_word_of_a_batch_is_looked_up_once_and_numbers_are_dropped_where_they_stand() -> None:
    embedding, tokens = nn.Embedding(9, 4), torch.tensor([[5, 3, 5], [5, 8, 0]])
    words, expected = embed_words(embedding, tokens, torch.tensor([3, 2])), embedding(torch.tensor([5, 5, 3, 8, 5]))
    assert isinstance(words, Repeated)
    assert len(words.table) == 3
    assert torch.equal(spelt_out(words).data, expected)
    assert drop_numbers(nn.Dropout(0.5).eval(), words) is words
    torch.manual_seed(0)
    dropped = drop_numbers(nn.Dropout(0.5), words)
    torch.manual_seed(0)
    assert torch.equal(dropped.data, nn.functional.dropout(expected, 0.5))


def test_without_gradients_by_hand_words_are_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    words = embed_words(nn.Embedding(9, 4), torch.tensor([[5, 3, 5]]), torch.tensor([3]))
    assert isinstance(words, PackedSequence)


def test_states_are_float32_under_autocast() -> None:
    gru, values = nn.GRU(5, 8, batch_first=True), torch.randn(3, 4, 5)
    expected, _ = run_gru(gru, packed([4, 2, 3], values))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, last = run_gru(gru, packed([4, 2, 3], values))
    assert last.dtype == torch.float32
    assert torch.equal(found.data, expected.data)


@pytest.mark.parametrize(("value", "by_hand"), [("", True), ("0", True), ("1", False)])
def test_the_switch_turns_gradients_by_hand_off(value: str, by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLAIN_AUTOGRAD, value)
    assert hand_derived(torch.zeros(1)) is by_hand
    assert not hand_derived(torch.zeros(1, device="meta"))


def test_the_switch_takes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLAIN_AUTOGRAD, "yes")
    with refused("VSE-N018", got="yes"):
        hand_derived(torch.zeros(1))
