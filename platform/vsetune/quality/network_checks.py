"""The quality checks of networks. NETWORK_CHECKS at the end gives the meaning of each."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from vsetune.config.component_specs import NetworkSpec
from vsetune.errors import DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.quality.checks import (
    Check,
    Verdict,
    described,
    fails,
    first_problem,
    holds,
    not_applicable,
    raised,
    sound_ranges,
)
from vsetune.quality.loss_batches import saved_and_loaded, seeded
from vsetune.quality.network_learning import (
    REGIONS,
    WORDS,
    Drawn,
    NetworkSubject,
    encode,
    has_exact_gradients,
    in_float32,
    learns_pairs_by_heart,
    loss_of,
    lowers_its_loss,
    reaches_every_parameter,
    rows_of,
    scores,
)

_PADDING, _JUNK = 7, 1e3
_TOLERANCE = 1e-9
_MOST_GRADIENT = 1e3
_NO_LENGTH = "a vector with a NaN has no length, not the length 0, and a NaN is below no bound"
_RANGES = {"cosine": (-1.0, 1.0), "probability": (0.0, 1.0), "order": (-math.inf, 0.0)}


def is_described(network: NetworkSubject) -> Verdict:
    return described(network, source="the paper and where it appeared")


def scores_every_pair(network: NetworkSubject) -> Verdict:
    built = network.trained()
    return first_problem(
        _flaw_of_scores(network, built, images, captions) for images, captions in ((1, 1), (2, 5), (5, 2), (5, 5))
    )


def takes_small_batches(network: NetworkSubject) -> Verdict:
    return first_problem(
        _infinite(network.trained().train(training), _one_caption(network, length), f"one caption of {length} ids")
        for length in (1, 3) for training in (False, True)  # a single id, as after dropping words; start, word, end
    )


def survives_zeros(network: NetworkSubject) -> Verdict:
    images, captions = network.draw(3)
    images.features[0], images.features[1, 0] = 0, 0
    if images.pixels is not None:
        images.pixels[0] = 0
    return first_problem(
        _infinite(network.trained().train(training), (images, captions), "an image and a region of zeros")
        for training in (False, True)
    )


def ignores_padding(network: NetworkSubject) -> Verdict:
    images, captions = network.draw(5)
    longer = pad(captions.tokens, (0, _PADDING))
    assert captions.dependencies is not None
    assert captions.phrases is not None
    edges, phrases = pad(captions.dependencies, (0, _PADDING, 0, _PADDING)), pad(captions.phrases, (0, _PADDING))
    padded = CaptionInputs(longer.masked_fill(longer == 0, 3), captions.lengths, edges, phrases)
    built = network.trained()
    problem = _changed(scores(built, (images, captions)), scores(built, (images, padded)), "ids beyond the lengths")
    fewer_refused = holds("captions; images with fewer regions are refused")
    if problem is not None or network.regions == 1:
        return fewer_refused if problem is None else fails(problem)
    try:
        return first_problem([_changed_by_regions(network, (images, captions))])
    except DataError:
        return fewer_refused


def scores_pairs_alone(network: NetworkSubject) -> Verdict:
    built, drawn, order = network.trained(), network.draw(5), torch.tensor([3, 0, 4, 1, 2])
    whole = scores(built, drawn)
    moved = scores(built, (rows_of(drawn[0], order), rows_of(drawn[1], order)))
    return first_problem([
        _changed(whole[order][:, order], moved, "the place of a pair in the batch"),
        *(
            _changed(whole[row, column], _alone(built, drawn, row, column), "who else is in the batch")
            for row, column in ((0, 0), (1, 3), (4, 2))
        ),
    ])


def evaluates_repeatably(network: NetworkSubject) -> Verdict:
    built, drawn = network.trained(), network.draw(4)
    with torch.no_grad():
        found = [scores(built, drawn) for _ in range(2)]
    if torch.equal(*found):
        return holds()
    return fails("eval() gives other scores each time; draw random numbers only `if self.training`")


def starts_from_its_seed(network: NetworkSubject) -> Verdict:
    starts = [_start(network, seed) for seed in (1, 1, 2)]
    states, losses = [state for state, _ in starts], [loss for _, loss in starts]
    if any(not torch.equal(value, states[1][name]) for name, value in states[0].items()):
        return fails("equal seeds give different parameters; draw them from torch's global generator")
    if all(torch.equal(value, states[2][name]) for name, value in states[0].items()):
        return fails("different seeds give equal parameters; draw them from torch's global generator")
    if losses[0] != losses[1] or losses[0] == losses[2]:
        return fails(f"the first losses of the seeds 1, 1, 2 are {losses}; draw from torch's global generator alone")
    return holds()


def keeps_its_scores_when_saved(network: NetworkSubject) -> Verdict:
    built, drawn = network.trained().train(), network.draw(4)
    loss_of(built, drawn)  # moves the running statistics where there are any
    restored = network.trained(seed=9)
    restored.load_state_dict(saved_and_loaded(built.eval()))
    if torch.equal(scores(built, drawn), scores(restored, drawn)):
        return holds()
    return fails("scores differ after saving and loading; keep every number in a parameter or a buffer")


def keeps_float32_under_autocast(network: NetworkSubject) -> Verdict:
    built, drawn = network.trained().float().train(), in_float32(network.draw(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(built, drawn)
        found = scores(built.eval(), drawn)
    if found.dtype != torch.float32:
        return fails(f"scores are {found.dtype} under autocast; use unit_length or at_least_float32 on the embeddings")
    return first_problem([_infinite_gradient(built, loss, "under bfloat16 autocast")])


@torch.no_grad()
def never_hides_a_nan(network: NetworkSubject) -> Verdict:
    built, (images, captions) = network.trained(), network.draw(3)
    before = scores(built, (images, captions))
    found = first_problem(
        _hidden(built, (images, captions), before, name, value) for name, value in built.named_parameters()
    )
    images.features[1, 0, 0] = math.nan
    if images.pixels is None and scores(built, (images, captions))[1].isfinite().any():
        return fails(f"a NaN in a region gives its image finite scores; {_NO_LENGTH}")
    return found


def has_sound_ranges(network: NetworkSubject) -> Verdict:
    return sound_ranges(network, _infinite_inside)


def declares_its_cost(network: NetworkSubject) -> Verdict:
    spec = network.resolved()
    cost = spec.pair_cost(regions=REGIONS, words=WORDS)
    if not (math.isfinite(cost.flops) and cost.flops > 0 and cost.numbers > 0):
        return fails(f"spec.py: pair_cost gives {cost}, need positive numbers")
    if spec.kind == "score" and type(spec).pair_cost is NetworkSpec.pair_cost:
        return fails("spec.py: scores pairs, but pair_cost is that of a dot product; give what a pair costs")
    return holds(f"{cost.flops:g} operations, {cost.numbers:g} numbers per pair at the sizes of this check")


def attends_to_regions(network: NetworkSubject) -> Verdict:
    built, drawn = network.trained(), network.draw(3)
    weights = built.attention(*encode(built, drawn))
    if weights is None:
        return not_applicable("has no attention of words to regions")
    expected = (3, 3, WORDS, REGIONS)
    if weights.shape[:2] != expected[:2] or weights.shape[3] != expected[3]:
        return fails(f"attention: got shape {tuple(weights.shape)}, need (images, captions, words, regions) {expected}")
    sums = weights[0, 0, : int(drawn[1].lengths[0])].sum(dim=-1)
    return first_problem([_changed(torch.ones_like(sums), sums, "attention: sums over the regions, which must be 1,")])


def _flaw_of_scores(network: NetworkSubject, built: Network, images: int, captions: int) -> str | None:
    spec, drawn = network.resolved(), network.draw(images, captions)
    encoded = encode(built, drawn)
    if spec.score == "cosine" and spec.kind == "embedding":
        if (problem := _flaw_of_vectors(spec, encoded)) is not None:
            return problem
    found = built.similarity(*encoded)
    if found.shape != (images, captions):
        return f"{images} images, {captions} captions: similarity has shape {tuple(found.shape)}"
    if not found.isfinite().all():
        return f"{images} images, {captions} captions: similarity is not finite"
    least, most = _RANGES.get(spec.score, (-math.inf, math.inf))
    if found.min() < least - _TOLERANCE or found.max() > most + _TOLERANCE:
        return (
            f"similarity from {float(found.min()):.3g} to {float(found.max()):.3g}, but `score` declares {spec.score}: "
            f"{least:g} to {most:g}"
        )
    return None


def _flaw_of_vectors(spec: NetworkSpec, encoded: tuple[Encoded, Encoded]) -> str | None:
    for what, items in zip(("encode_images", "encode_captions"), encoded, strict=True):
        if items.vectors.shape != (len(items), spec.embedding_size):
            return f"{what}: vectors have shape {tuple(items.vectors.shape)}, need (n, {spec.embedding_size})"
        if not torch.allclose(items.vectors.norm(dim=1), torch.ones(len(items)).double()):
            return f"{what}: vectors are not of length 1, but `score` declares cosines; return unit_length(vectors)"
    return None


def _start(network: NetworkSubject, seed: int) -> tuple[dict[str, Tensor], float]:
    """(parameters, first loss) of a training with this seed."""
    built = network.fresh(seed=seed).train()
    state = {name: value.clone() for name, value in built.state_dict().items()}
    with seeded(seed):
        return state, float(loss_of(built, network.draw(4)).detach())


def _one_caption(network: NetworkSubject, length: int) -> Drawn:
    edges = torch.zeros(1, length, length, dtype=torch.bool)
    phrases = torch.zeros(1, 1, length, dtype=torch.bool)
    phrases[:, :, 1:-1] = True
    captions = CaptionInputs(torch.tensor([[1, 7, 2]])[:, :length], torch.tensor([length]), edges, phrases)
    return network.draw(1)[0], captions


def _infinite(built: Network, drawn: Drawn, what: str) -> str | None:
    mode = "in training" if built.training else "in evaluation"
    return _infinite_gradient(built, loss_of(built, drawn) + scores(built, drawn).sum(), f"{what}, {mode}")


def _infinite_gradient(built: Network, loss: Tensor, what: str) -> str | None:
    torch.autograd.backward(loss)
    gradients = {name: value.grad for name, value in built.named_parameters() if value.grad is not None}
    if not loss.isfinite():
        return f"{what}: scores are not finite"
    for name, gradient in gradients.items():
        if not gradient.isfinite().all() or gradient.abs().max() >= _MOST_GRADIENT:
            return f"{what}: the gradient of {name} is {float(gradient.abs().max()):.3g}; look for a division by 0"
    return None if gradients else f"{what}: no parameter has a gradient"


def _changed_by_regions(network: NetworkSubject, drawn: Drawn) -> str | None:
    """A problem if values beyond the counts of regions change scores. DataError where fewer regions are refused."""
    built, counts = network.trained(regions=REGIONS + _PADDING), torch.tensor([9, 1, 3, 5, 8])
    plain = replace(drawn[0], counts=counts)
    assert plain.boxes is not None
    junk = pad(plain.features, (0, 0, 0, _PADDING))
    junk[torch.arange(junk.shape[1]) >= counts[:, None]] = _JUNK
    padded = ImageInputs(junk, counts, pad(plain.boxes, (0, 0, 0, _PADDING), value=0.3), plain.pixels)
    return _changed(
        scores(built, (plain, drawn[1])), scores(built, (padded, drawn[1])), "what lies beyond the counts of regions"
    )


def _infinite_inside(network: NetworkSubject, name: str) -> str | None:
    """A problem if a value of a range gives no network, or scores that are not finite; None otherwise."""
    for settings in network.inside(name):
        try:
            found = scores(network.fresh(**settings).eval(), network.draw(2))
        except Exception as error:  # the component is foreign code, which may raise anything
            return f"{name}: {settings[name]}: {raised(error)}"
        if not found.isfinite().all():
            return f"{name}: {settings[name]}: scores are not finite"
    return None


def _hidden(built: Network, drawn: Drawn, before: Tensor, name: str, parameter: Tensor) -> str | None:
    """A problem if a NaN in a parameter that scores depend on leaves all of them finite. Leaves it as it was."""
    numbers = parameter.view(-1)
    own = float(numbers[0])
    numbers[0] = math.nan
    is_finite = bool(scores(built, drawn).isfinite().all())
    numbers[0] = own + 1
    counts = is_finite and _changed(before, scores(built, drawn), name) is not None
    numbers[0] = own
    return f"a NaN in {name} gives finite scores; {_NO_LENGTH}" if counts else None


def _alone(built: Network, drawn: Drawn, row: int, column: int) -> Tensor:
    some = rows_of(drawn[0], slice(row, row + 1)), rows_of(drawn[1], slice(column, column + 1))
    return scores(built, some)[0, 0]


def _changed(before: Tensor, after: Tensor, by: str) -> str | None:
    """A problem that names the cause if the scores differ; None otherwise."""
    difference = float((before - after).detach().abs().max())
    return None if difference <= _TOLERANCE else f"{by} changes scores by {difference:.2g}"


NETWORK_CHECKS: tuple[Check[NetworkSubject], ...] = (
    Check("described", "source, and every field are described", is_described),
    Check("scores", "a row per image, a column per caption, in the range that `score` declares", scores_every_pair),
    Check("small batches", "one image, one caption of one word: finite scores and gradients", takes_small_batches),
    Check("zeros", "regions and images of zeros: finite scores, moderate gradients", survives_zeros),
    Check("padding", "what lies beyond the lengths of captions and images changes nothing", ignores_padding),
    Check("pairs alone", "in evaluation a score depends on its pair alone, not on the batch", scores_pairs_alone),
    Check("evaluation", "in evaluation nothing is random: equal inputs, equal scores", evaluates_repeatably),
    Check("seed", "the seed of a training decides every parameter", starts_from_its_seed),
    Check("saved", "saved and loaded, it gives the same scores bit for bit", keeps_its_scores_when_saved),
    Check("autocast", "scores are float32 under bfloat16 autocast", keeps_float32_under_autocast),
    Check("nan", "a NaN in a region or a parameter never gives finite scores", never_hides_a_nan),
    Check("cost", "pair_cost says what comparing a pair takes", declares_its_cost),
    Check("ranges", "all of every searched range is valid, and its scores are finite", has_sound_ranges),
    Check("attention", "weights of words over regions sum to 1, if it has any", attends_to_regions),
    Check("gradient", "the loss reaches every parameter", reaches_every_parameter),
    Check("gradcheck", "autograd equals finite differences in float64", has_exact_gradients),
    Check("descent", "a small step against the gradient lowers the loss", lowers_its_loss),
    Check("by heart", "32 random pairs are learned by heart", learns_pairs_by_heart),
)
