"""The quality checks of losses. LOSS_CHECKS at the end gives the meaning of each."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from vsetune.config.component_specs import LossSpec
from vsetune.config.spec.base import Range, conditions, kinds_of, tunables
from vsetune.errors import ConfigError, one_line
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Loss, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.quality.checks import (
    Check,
    Verdict,
    described,
    ends_of,
    equal_gradients,
    fails,
    first_problem,
    not_applicable,
    sound_ranges,
)
from vsetune.quality.loss_batches import (
    LossSubject,
    Surroundings,
    beside_the_similarity,
    compared_again,
    equal_states,
    extreme_batches,
    images_with_captions,
    infinite,
    leaves_of,
    output_of,
    pairs,
    permuted,
    run_steps,
    saved_and_loaded,
    surroundings_of,
    value_of,
)

_RESUMED_AT, _STEPS = 5, 11
_SIZE, _ORDER = 6, (3, 0, 5, 1, 4, 2)
_FEW_IDS = (0, 0, 1)
_TOLERANCE, _HALF_TOLERANCE = 1e-9, 1e-6
_NAN_COUNTS = "a NaN in {} gives a finite loss although its value counts; let masks keep what compares as neither"


def is_described(loss: LossSubject) -> Verdict:
    return described(loss, equation="the formula in plain text", source="the paper and its equation")


def gives_a_value(loss: LossSubject) -> Verdict:
    return first_problem(_flaw_of_output(loss, pairs(each)) for each in loss.surroundings())


def accepts_what_it_declares(loss: LossSubject) -> Verdict:
    tried = loss.surroundings()
    if not tried:
        return fails("fits no network: needed_kinds or needed_scores is empty with the default settings")
    return first_problem(
        (infinite(loss.build(), pairs(each, seed=seed), f"{each}") for each in tried for seed in range(3)),
        f"{len(tried)} of 16 combinations",
    )


def has_exact_gradients(loss: LossSubject) -> Verdict:
    wrong = (_wrong_gradient(loss, each) for each in loss.kinds(torch.float64))
    return equal_gradients(next(filter(None, wrong), None), loss.resolved().stop_gradient)


def ignores_the_order_of_pairs(loss: LossSubject) -> Verdict:
    exact = [each for each in loss.kinds(torch.float64) if not _draws(loss, each)]
    if not exact:
        return not_applicable("draws at random: which numbers a pair gets depends on its place")
    return first_problem(_moved_by_order(loss, each) for each in exact)


def never_hides_a_nan(loss: LossSubject) -> Verdict:
    kinds = loss.kinds()
    return first_problem(itertools.chain(
        (_hidden(loss, each, value) for each in kinds for value in (math.nan, math.inf)),
        (_hidden_elsewhere(loss, each) for each in kinds),
    ))


def takes_small_batches(loss: LossSubject) -> Verdict:
    return first_problem(
        infinite(loss.build(), pairs(each, ids=ids), f"{len(ids)} pairs of images {ids}, {each}")
        for each in loss.surroundings() for ids in ((0,), (0, 1), (0, 0), (2, 2, 2))
    )


def survives_extremes(loss: LossSubject) -> Verdict:
    return first_problem(
        infinite(loss.build(), inputs, f"{what}, {each}")
        for each in loss.surroundings() for what, inputs in extreme_batches(each, _SIZE)
    )


def rewards_close_pairs(loss: LossSubject) -> Verdict:
    return first_problem(_reversed(loss, each) for each in loss.surroundings())


def resumes_exactly(loss: LossSubject) -> Verdict:
    return first_problem(_changed_by_resume(loss, each) for each in loss.kinds())


def takes_several_or_says_no(loss: LossSubject) -> Verdict:
    tried = loss.surroundings()
    if loss.spec.several_positives:
        return first_problem(itertools.chain(
            (infinite(loss.build(), images_with_captions(each), f"3 images with 5 captions, {each}") for each in tried),
            (_other_than_pairs(loss, each) for each in tried),
        ))
    try:
        output_of(loss.build(), images_with_captions(tried[0]))
    except ConfigError:
        return not_applicable("refuses batch_unit images, as several_positives = False declares")
    return fails(
        "several_positives is False, but 3 images with 5 captions are not refused; call require_pairs(inputs, name) "
        "first in forward, or declare several_positives = True"
    )


def _flaw_of_output(loss: LossSubject, inputs: LossInputs) -> str | None:
    """A problem with the output of this batch, besides those that the loss itself refuses (`require_sound`)."""
    before = inputs.similarity.detach().clone()
    chosen = output_of(loss.build(), inputs).selection
    if not torch.equal(before, inputs.similarity.detach()):
        return "inputs.similarity was changed in place; work on a copy"
    if chosen is not None and (chosen.scores.requires_grad or chosen.negatives.dtype != torch.bool):
        return "selection: scores must have no gradient, and negatives must be bool"
    for half in (torch.float16, torch.bfloat16):
        rounded = before.to(half)
        both = (replace(inputs, similarity=each) for each in (rounded, rounded.float()))
        found, wanted = (value_of(loss.build(), each) for each in both)
        if not math.isclose(found, wanted, rel_tol=_HALF_TOLERANCE, abs_tol=_HALF_TOLERANCE):
            return f"{half}: got {found:.7g} instead of {wanted:.7g}; begin with at_least_float32(inputs.similarity)"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = value_of(loss.build(), inputs)
    if inside != (outside := value_of(loss.build(), inputs)):
        return f"under autocast: got {inside:.7g} instead of {outside:.7g}; do not override __call__"
    return None


def _wrong_gradient(loss: LossSubject, surroundings: Surroundings) -> str | None:
    """A problem if autograd and finite differences differ. Parameters with their own rule (sgd_rate) are left out."""
    built, inputs = loss.build(dtype=torch.float64), pairs(surroundings)
    value_of(built, inputs)  # some losses set values at their first batch
    own = [each for group in built.parameter_groups() if group.sgd_rate is None for each in group.parameters]

    def value(*_: Tensor) -> Tensor:  # gradcheck changes the leaves and parameters in place
        return output_of(built, compared_again(inputs, surroundings)).value

    try:
        gradcheck(value, (*leaves_of(inputs), *own), check_undefined_grad=False, fast_mode=True)
    except GradcheckError as error:
        return (
            f"{surroundings}: autograd and finite differences differ ({one_line(error)}); look for detach(), "
            ".item(), float() or rounding inside the formula"
        )
    return None


def _other_than_pairs(loss: LossSubject, surroundings: Surroundings) -> str | None:
    inputs = pairs(surroundings, ids=range(_SIZE))
    first, second = (value_of(loss.build(), replace(inputs, several=several)) for several in (False, True))
    if math.isclose(first, second, rel_tol=_HALF_TOLERANCE, abs_tol=_HALF_TOLERANCE):
        return None
    return f"{surroundings}: images with one caption each give {second:.6g}, the same as a batch of pairs {first:.6g}"


def _draws(loss: LossSubject, surroundings: Surroundings) -> bool:
    """Whether the value depends on the seed of the random numbers."""
    built, inputs = loss.build(dtype=torch.float64), pairs(surroundings)
    return len({value_of(built, inputs, seed=seed) for seed in range(5)}) > 1


def _moved_by_order(loss: LossSubject, surroundings: Surroundings) -> str | None:
    inputs = pairs(surroundings)
    first = value_of(loss.build(dtype=torch.float64), inputs)
    second = value_of(loss.build(dtype=torch.float64), permuted(inputs, torch.tensor(_ORDER)))
    if math.isclose(first, second, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        return None
    return f"{surroundings}: {first:.6g} becomes {second:.6g} when the same pairs come in another order"


def _hidden(loss: LossSubject, surroundings: Surroundings, value: float) -> str | None:
    built, inputs = loss.build(), pairs(surroundings, ids=_FEW_IDS)
    for place in range(inputs.similarity.numel()):
        broken = replace(inputs, similarity=_with(inputs.similarity, place, value))
        if math.isfinite(value_of(built, broken)):
            row, column = divmod(place, len(inputs.similarity))
            return (
                f"{surroundings}: a similarity of {value:g} at row {row}, column {column} gives a finite loss; do not "
                "override __call__, and keep what you mask out of the value only"
            )
    return None


def _hidden_elsewhere(loss: LossSubject, surroundings: Surroundings) -> str | None:
    """A problem if a number that the loss reads beside the similarity, or learns, is NaN and the loss is finite."""
    inputs = pairs(surroundings, ids=_FEW_IDS)
    before = value_of(loss.build(), inputs)
    for what, numbers, having in beside_the_similarity(inputs):
        if value_of(loss.build(), having(numbers.detach() + 1)) == before:
            continue  # the loss does not read them
        for place in range(numbers.numel()):
            found, other = (value_of(loss.build(), having(_with(numbers, place, value))) for value in (math.nan, 1.0))
            if math.isfinite(found) and other != before:
                return f"{surroundings}: {_NAN_COUNTS.format(what)}"
    for name in dict(loss.build().named_parameters()):
        found, other = (value_of(_having(loss.build(), name, value), inputs) for value in (math.nan, 1.0))
        if math.isfinite(found) and other != before:
            return f"{surroundings}: {_NAN_COUNTS.format(name)}"
    return None


def _having(built: Loss, name: str, value: float) -> Loss:
    """The loss with this number at the beginning of a parameter."""
    with torch.no_grad():
        built.get_parameter(name).view(-1)[0] = value
    return built


def _with(numbers: Tensor, place: int, value: float) -> Tensor:
    changed = numbers.detach().clone()
    changed.view(-1)[place] = value
    return changed


def _reversed(loss: LossSubject, surroundings: Surroundings) -> str | None:
    batches = dict(extreme_batches(surroundings, _SIZE))
    near = value_of(loss.build(), batches["every caption equal to its image"])
    far = value_of(loss.build(), batches["every caption equal to the next image"])
    if near < far:
        return None
    return (
        f"{surroundings}: {near:.4g} where every caption equals its image, {far:.4g} where it equals another; need "
        "less for the first, since a larger similarity is closer"
    )


def _changed_by_resume(loss: LossSubject, surroundings: Surroundings) -> str | None:
    whole = loss.build()
    before = run_steps(whole, surroundings, range(_RESUMED_AT))
    state = saved_and_loaded(whole)
    resumed = loss.build(seed=1)
    resumed.load_state_dict(state)
    first = run_steps(whole, surroundings, range(_RESUMED_AT, _STEPS))
    second = run_steps(resumed, surroundings, range(_RESUMED_AT, _STEPS))
    for step, (one, other) in enumerate(zip(first, second, strict=True), start=len(before)):
        if one != other:
            return (
                f"{surroundings}: saved at step {_RESUMED_AT}, step {step} gives {other:.9g} instead of {one:.9g}; "
                "keep every number that changes in a buffer or a parameter"
            )
    if not equal_states(whole.state_dict(), resumed.state_dict()):
        return f"{surroundings}: saved at step {_RESUMED_AT}, the state at step {_STEPS} is another than undisturbed"
    return None


_FEW, _MANY = 4, 300
"""Steps within which two settings must differ: with the defaults, or with the quickest settings (`_eager`)."""


def has_sound_ranges(loss: LossSubject) -> Verdict:
    return sound_ranges(loss, _infinite_inside, _without_effect)


def takes_every_choice(loss: LossSubject) -> Verdict:
    return first_problem(_refused_choice(loss, name, value) for name, value in _choices(loss))


def _infinite_inside(loss: LossSubject, name: str) -> str | None:
    """A problem if a value of a range gives a loss or gradient that is not finite; None otherwise."""
    for settings in loss.inside(name):
        for kind in loss.kinds(**settings):
            try:
                flaw = infinite(loss.build(**settings), pairs(kind), f"{name}: {settings[name]}, {kind}")
            except ConfigError:
                continue  # refused with a reason: too large for the few images of a check
            if flaw is not None:
                return flaw
    return None


def _without_effect(loss: LossSubject, name: str) -> str | None:
    """A problem if the two ends of a range give equal losses; None otherwise."""
    domain, needed = dict(tunables(loss.spec))[name], conditions(loss.spec).get(name, {})
    first, second = ({**needed, name: end} for end in ends_of(domain))
    kinds, eager = loss.kinds(**needed), _eager(loss, first, second)
    tries: list[tuple[int, Surroundings, dict[str, Any]]] = [(_FEW, kind, {}) for kind in kinds]
    for steps, kind, others in [*tries, (_MANY, kinds[0], eager)]:
        try:
            traces = [run_steps(loss.build(**others, **ends), kind, range(steps)) for ends in (first, second)]
        except ConfigError:
            return None  # refused with a reason: too large for the few images of a check
        if traces[0] != traces[1]:
            return None
    return (
        f"{name}: {first[name]} and {second[name]} give the same {_MANY} losses, a search of it would be wasted; use "
        "it in the formula, or name with `when` the other field that it needs"
    )


def _eager(loss: LossSubject, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Values of the other tunables for which delayed effects appear early: integer ranges low, all others high."""
    found: dict[str, Any] = {}
    for name, domain in tunables(loss.spec):
        is_count = isinstance(domain, Range) and domain.integer
        value = ends_of(domain)[0 if is_count else 1]
        tried = {**found, name: value}
        if name not in first and all(loss.refusal({**tried, **ends}) is None for ends in (first, second)):
            found = tried
    return found


def _choices(loss: LossSubject) -> Iterator[tuple[str, Any]]:
    """Every value of fields with few values: true and false, listed words and numbers, and None where optional."""
    for name, field in loss.spec.model_fields.items():
        if name == "name":
            continue
        for kind in kinds_of(field.annotation):
            if kind is bool:
                yield from ((name, False), (name, True))
            elif kind is NoneType:
                yield name, None
            elif isinstance(kind, (bool, int, str)):
                yield name, kind


def _refused_choice(loss: LossSubject, name: str, value: Any) -> str | None:
    try:
        tried = loss.surroundings(**{name: value})
    except ValueError:
        return None  # refused with a reason: contradicts the other settings
    for surroundings in tried:
        try:
            flaw = infinite(loss.build(**{name: value}), pairs(surroundings), f"{name}: {value}, {surroundings}")
        except ConfigError:
            continue  # refused with a reason
        if flaw is not None:
            return flaw
    return None


LOSS_CHECKS: tuple[Check[LossSubject], ...] = (
    Check("described", "equation, source, and every field are described", is_described),
    Check("value", "a scalar with gradient, in float32 also of half precision; inputs unchanged", gives_a_value),
    Check("kinds", "finite with every kind of network and of similarity that is declared", accepts_what_it_declares),
    Check("gradcheck", "autograd equals finite differences in float64", has_exact_gradients),
    Check("direction", "close pairs cost less than far ones: larger is closer", rewards_close_pairs),
    Check("permutation", "the order of the pairs in a batch changes nothing", ignores_the_order_of_pairs),
    Check("nan", "a NaN in what it reads, or an infinite similarity, never gives a finite loss", never_hides_a_nan),
    Check("small batches", "one pair, two, and pairs of one image alone give finite values", takes_small_batches),
    Check("extremes", "equal, opposite and zero items, similarities of 10,000: finite in float32", survives_extremes),
    Check("several captions", "images with all captions and with one as pairs; else refused", takes_several_or_says_no),
    Check("ranges", "all of every searched range is valid and finite, and its ends change the loss", has_sound_ranges),
    Check("choices", "every value of fields with few values works, or is refused with a reason", takes_every_choice),
    Check("resume", "saved in the middle of an epoch and loaded, it goes on bit for bit", resumes_exactly),
)


PAIRS, SIZE = 128, 256
_WARMUP, _ROUNDS = 3, 20


def step_times(spec: LossSpec) -> tuple[float, float]:
    """(milliseconds, multiple of LMH's time) of a step from given embeddings: similarity, loss, backward. Best of 20
    rounds.

    128 pairs of 256 numbers on one core, with the first kind of network that the loss declares.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _step_times(spec)
    finally:
        torch.set_num_threads(threads)


def _step_times(spec: LossSpec) -> tuple[float, float]:
    surroundings = next(surroundings_of(spec))
    loss, lmh = _step(spec, surroundings), _step(LmhSpec(), surroundings)
    seconds: list[tuple[float, float]] = [(_timed(loss), _timed(lmh)) for _ in range(_WARMUP + _ROUNDS)][_WARMUP:]
    own, other = (min(column) for column in zip(*seconds, strict=True))
    return 1000 * own, own / other


def _timed(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _step(spec: LossSpec, surroundings: Surroundings) -> Callable[[], None]:
    loss, batch = build_loss(spec, LossContext(SIZE, PAIRS)), pairs(surroundings, ids=range(PAIRS), size=SIZE)
    loss.start_epoch(0)

    def run() -> None:
        loss.zero_grad(set_to_none=True)
        for leaf in leaves_of(batch):
            leaf.grad = None
        torch.autograd.backward(loss(compared_again(batch, surroundings)).value)
        loss.before_step()
        loss.after_step()

    return run
