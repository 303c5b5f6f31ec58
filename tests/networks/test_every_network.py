"""What must hold of every network that study files can name; a new one is covered as soon as it is in NETWORKS.

Its default settings are tested at a small size (SIZES), and all that VARIANTS lists beside them. `draw` makes what a
spec reads: features with boxes, photographs, captions with parses.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.nn.functional import pad

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems
from vsetune.networks.network_building import build_network
from vsetune.networks.network_catalogue import NETWORKS
from vsetune.networks.network_spec import NetworkSpec
from vsetune.networks.parts.gradients import PLAIN_AUTOGRAD
from vsetune.networks.sgraf import pair_gradients

REGIONS, WIDTH, VOCABULARY, WORDS, PADDING = 9, 7, 30, 8, 7
SIZES = {
    "embedding_size": 8, "word_size": 6, "pooling_size": 4, "similarity_size": 6, "captioning_size": 6, "blocks": 2,
    "kernels": 2, "hidden_size": 4, "samples": 3, "image_size": 32,
}
TINY_CNN = {"model": "random", "depths": (1,), "widths": (4,)}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "vsepp": [
        {"image_input": "flatten"}, {"image_input": "global"}, {"normalize_images": False},
        {"absolute": True, "similarity": "order"}, {"image_input": "pixels", "backbone": TINY_CNN},
    ],
    "vsrn": [{"mode": "coco"}, {"mode": "coco", "region_normalization": "feature", "graph": "paper"}],
    "vse_infinity": [
        {"mlp_statistics": "padded"}, {"image_mlp": False},
        {"image_mlp": False, "image_input": "pixels", "backbone": TINY_CNN},
    ],
    "scan": [{"direction": "image_to_text", "pooling": "mean"}],
    "sgraf_saf": [{"gate_statistics": "pooled"}],
    "gsmn": [{"text_graph": "sparse"}, {"propagation": "released"}],
    "pvse": [{"embeddings": 1}],
    "pcme": [{"similarity": "match_probability"}],
    "cgmn": [
        {"spatial_graph": True},
        {
            "spatial_graph": True, "region_normalization": "feature", "edge_weights": "cosine",
            "caption_graph": "dense", "caption_statistics": "padded",
        },
    ],
    "mse": [{"image_input": "pixels", "backbone": TINY_CNN}],
    "malali_keller": [{"image_input": "pixels", "backbone": TINY_CNN}],
}
NEEDS_EVERY_REGION = ("vsepp image_input=flatten", "vsepp image_input=global")
READS_ORDER = ("vsrn", "cgmn", "sgraf", "vsepp image_input=flatten")
"""Begin the names of cases that refuse images with fewer regions; of those that read regions in their order."""
LEARNT_WITH: dict[str, Any] = {
    "embedding_size": 32, "word_size": 16, "similarity_size": 16, "augment": False, "dropout": 0.0,
}


def small(name: str, settings: dict[str, Any]) -> NetworkSpec:
    spec = NETWORKS[name]
    return spec(**{size: value for size, value in SIZES.items() if size in spec.model_fields} | settings)


CASES: dict[str, NetworkSpec] = {
    " ".join([name, *(f"{key}={value}" for key, value in settings.items() if key != "backbone")]): small(name, settings)
    for name in NETWORKS for settings in ({}, *VARIANTS.get(name, []))
}
every_case = pytest.mark.parametrize("case", CASES)
both_modes = pytest.mark.parametrize("training", [False, True])


def regions_of(spec: NetworkSpec) -> int:
    return 1 if getattr(spec, "image_input", None) == "global" else REGIONS


def fresh(spec: NetworkSpec, *, seed: int = 0, regions: int | None = None) -> Network:
    torch.manual_seed(seed)
    built = build_network(spec, regions=regions or regions_of(spec), width=WIDTH, vocabulary_size=VOCABULARY)
    return built.double()


def make(case: str, *, seed: int = 0, regions: int | None = None) -> Network:
    """In evaluation mode, away from where it starts: what starts at zero or one does something."""
    built = fresh(CASES[case], seed=seed, regions=regions)
    with torch.no_grad():
        for value in built.parameters():
            value.add_(torch.randn_like(value) * 0.2)
        for name, value in built.named_buffers():
            if "running" in name:
                value.add_(torch.rand_like(value) * 0.5)
    return built.eval()


def draw(spec: NetworkSpec, batch: int) -> tuple[ImageInputs, CaptionInputs]:
    """Images of all regions with boxes, photographs where the spec wants them; captions of 1 to 8 ids with parses."""
    generator, regions = torch.Generator().manual_seed(0), regions_of(spec)
    features = torch.randn(batch, regions, WIDTH, generator=generator, dtype=torch.float64)
    low = torch.rand(batch, regions, 2, generator=generator, dtype=torch.float64) / 2
    images = ImageInputs(features, torch.full((batch,), regions), torch.cat((low, low + 0.4), dim=-1))
    if spec.pixels is not None:
        shape = (batch, 1, 3, spec.pixels.size, spec.pixels.size)
        images = replace(images, pixels=torch.randint(256, shape, generator=generator, dtype=torch.uint8))
    lengths = torch.randint(1, WORDS + 1, (batch,), generator=generator)
    tokens = torch.randint(1, VOCABULARY, (batch, WORDS), generator=generator)
    is_word = torch.arange(WORDS) < lengths[:, None]
    edges = torch.rand(batch, WORDS, WORDS, generator=generator) < 0.2
    edges = (edges | edges.mT) & ~torch.eye(WORDS, dtype=torch.bool) & is_word[:, :, None] & is_word[:, None, :]
    return images, CaptionInputs(tokens.masked_fill(~is_word, 0), lengths, edges)


def rows_of(inputs: Any, rows: Any) -> Any:
    return type(inputs)(**{name: value if value is None else value[rows] for name, value in vars(inputs).items()})


def encode(network: Network, drawn: tuple[ImageInputs, CaptionInputs]) -> tuple[Encoded, Encoded]:
    return network.encode_images(drawn[0]), network.encode_captions(drawn[1])


def scores(network: Network, drawn: tuple[ImageInputs, CaptionInputs]) -> Tensor:
    return network.similarity(*encode(network, drawn))


def loss_of(network: Network, drawn: tuple[ImageInputs, CaptionInputs], *, hardest: bool = True) -> Tensor:
    """Hinges on the scores of pairs and, in training, what the network adds itself."""
    images, captions = encode(network, drawn)
    similarity = network.similarity(images, captions)
    negatives, matched = ~torch.eye(len(similarity), dtype=torch.bool, device=images.device), similarity.diagonal()
    by_caption = (0.2 + similarity - matched[:, None]).relu() * negatives
    by_image = (0.2 + similarity - matched).relu() * negatives
    loss = by_caption.amax(dim=1).sum() + by_image.amax(dim=0).sum() if hardest else (by_caption + by_image).sum()
    if network.training:
        items = TrainingItems(images, captions, drawn[1], torch.arange(len(images)), negatives)
        loss = loss + sum(network.auxiliary_losses(items).values())
    return loss


def assert_finite(network: Network, loss: Tensor) -> None:
    loss.backward()
    gradients = [value.grad for value in network.parameters() if value.grad is not None]
    assert torch.isfinite(loss)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert max(gradient.abs().max() for gradient in gradients) < 1e3


@every_case
def test_scores_have_a_row_per_image_and_a_column_per_caption(case: str) -> None:
    network, spec = make(case), CASES[case]
    for images, captions in ((1, 1), (2, 5), (5, 2), (5, 5)):
        drawn = draw(spec, images)[0], draw(spec, captions)[1]
        found = scores(network, drawn)
        assert found.shape == (images, captions)
        assert torch.isfinite(found).all()
        if spec.score == "cosine" and spec.kind == "embedding":
            for encoded in encode(network, drawn):
                assert encoded.vectors.shape == (len(encoded), spec.embedding_size)
                torch.testing.assert_close(encoded.vectors.norm(dim=1), torch.ones(len(encoded)).double())
    limits = {"cosine": (-1, 1), "probability": (0, 1), "order": (-torch.inf, 0)}
    least, most = limits.get(spec.score, (-torch.inf, torch.inf))
    assert least - 1e-9 <= found.min() <= found.max() <= most + 1e-9


@both_modes
@every_case
def test_a_batch_of_one_and_a_caption_of_one_word_give_finite_values_and_gradients(case: str, training: bool) -> None:
    for length in (1, 3):  # a lone id, as after dropping words; and start, word, end
        network = make(case).train(training)
        images, _ = draw(CASES[case], 1)
        edges = torch.zeros(1, length, length, dtype=torch.bool)
        captions = CaptionInputs(torch.tensor([[1, 7, 2]])[:, :length], torch.tensor([length]), edges)
        added = loss_of(network, (images, captions))
        assert_finite(network, added + scores(network, (images, captions)).sum())


@both_modes
@every_case
def test_regions_and_images_of_zeros_give_finite_values_and_moderate_gradients(case: str, training: bool) -> None:
    images, captions = draw(CASES[case], 3)
    images.features[0], images.features[1, 0] = 0, 0
    if images.pixels is not None:
        images.pixels[0] = 0
    network = make(case).train(training)
    assert_finite(network, loss_of(network, (images, captions)))


@every_case
def test_padding_changes_nothing(case: str) -> None:
    takes_fewer = not case.startswith(NEEDS_EVERY_REGION)
    network = make(case, regions=REGIONS + PADDING if takes_fewer else None)
    images, captions = plain = draw(CASES[case], 5)
    if takes_fewer:
        counts = torch.tensor([9, 1, 3, 5, 8])
        plain = replace(images, counts=counts), captions
        junk = pad(images.features, (0, 0, 0, PADDING))
        junk[torch.arange(junk.shape[1]) >= counts[:, None]] = 1e3
        images = replace(plain[0], features=junk, boxes=pad(images.boxes, (0, 0, 0, PADDING), value=0.3))
    longer = pad(captions.tokens, (0, PADDING))
    longer = longer.masked_fill(longer == 0, 3)
    padded = CaptionInputs(longer, captions.lengths, pad(captions.dependencies, (0, PADDING, 0, PADDING)))
    torch.testing.assert_close(scores(network, (images, padded)), scores(network, plain), rtol=0, atol=1e-9)


@every_case
def test_a_score_depends_neither_on_its_batch_nor_on_its_place_in_it(case: str) -> None:
    network, drawn = make(case), draw(CASES[case], 5)
    whole, order = scores(network, drawn), torch.tensor([3, 0, 4, 1, 2])
    permuted = scores(network, tuple(rows_of(part, order) for part in drawn))
    torch.testing.assert_close(permuted, whole[order][:, order], rtol=0, atol=1e-9)
    for row, column in ((0, 0), (1, 3), (4, 2)):
        alone = scores(network, (rows_of(drawn[0], slice(row, row + 1)), rows_of(drawn[1], slice(column, column + 1))))
        torch.testing.assert_close(alone[0, 0], whole[row, column], rtol=0, atol=1e-9)


@every_case
def test_the_order_of_regions_matters_where_it_is_read_and_nowhere_else(case: str) -> None:
    network, (images, captions) = make(case), draw(CASES[case], 4)
    turned = replace(images, features=images.features.flip(1), boxes=images.boxes.flip(1))
    before, after = (scores(network, (some, captions)) for some in (images, turned))
    is_same = torch.allclose(before, after, rtol=0, atol=1e-9)
    assert is_same != case.startswith(READS_ORDER)


@every_case
def test_the_order_of_words_matters(case: str) -> None:
    network, (images, _) = make(case), draw(CASES[case], 1)
    edges = torch.zeros(2, 5, 5, dtype=torch.bool)
    tokens = torch.tensor([[1, 7, 8, 9, 2], [1, 9, 8, 7, 2]])
    found = scores(network, (images, CaptionInputs(tokens, torch.tensor([5, 5]), edges)))
    assert not torch.allclose(found[0, 0], found[0, 1], rtol=0, atol=1e-9)


@every_case
def test_an_equal_seed_gives_equal_parameters_and_an_equal_first_loss(case: str) -> None:
    spec, losses, states = CASES[case], [], []
    for seed in (1, 1, 2):
        network = fresh(spec, seed=seed).train()
        states.append({name: value.clone() for name, value in network.state_dict().items()})
        losses.append(loss_of(network, draw(spec, 4)))
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert any(not torch.equal(value, states[2][name]) for name, value in states[0].items())
    assert torch.equal(losses[0], losses[1])
    assert losses[0] != losses[2]


@every_case
def test_scores_are_identical_after_saving_and_loading(case: str, tmp_path: Any) -> None:
    network, drawn = make(case).train(), draw(CASES[case], 4)
    loss_of(network, drawn)  # moves the running statistics where there are any
    torch.save(network.eval().state_dict(), tmp_path / "network.pt")
    restored = make(case, seed=9)
    restored.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    assert torch.equal(scores(network, drawn), scores(restored, drawn))


@every_case
def test_scores_and_losses_are_float32_under_autocast(case: str) -> None:
    network, (images, captions) = make(case).float().train(), draw(CASES[case], 4)
    images = replace(images, features=images.features.float(), boxes=images.boxes.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(network, (images, captions))
        found = scores(network.eval(), (images, captions))
    assert (loss.dtype, found.dtype) == (torch.float32, torch.float32)
    assert_finite(network, loss)


@every_case
def test_a_small_step_against_the_gradient_lowers_the_loss(case: str) -> None:
    network, drawn, losses = fresh(CASES[case]).train(), draw(CASES[case], 5), []
    for _ in range(2):
        torch.manual_seed(0)  # the same words dropped, the same samples
        losses.append(loss_of(network, drawn))
        network.zero_grad()
        losses[-1].backward()
        with torch.no_grad():
            for value in network.parameters():
                if value.grad is not None:
                    value.sub_(1e-6 * value.grad)
    assert losses[1] < losses[0]


@pytest.mark.parametrize("way", ["plain autograd", "as on a GPU"])
@both_modes
@every_case
def test_every_way_to_the_gradient_gives_the_same_scores_and_gradients(
    case: str, training: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_gradients, "_FEW", 0.9)  # of 16 scores at most 12 get a gradient
    expected = outcome(make(case).train(training), draw(CASES[case], 4))
    if way == "plain autograd":
        monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    else:
        for module in modules_that_ask_for_the_device():
            monkeypatch.setattr(module, "is_on_cpu", lambda tensor: False)
    found = outcome(make(case).train(training), draw(CASES[case], 4))
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-12, atol=1e-12)
    assert found[2].keys() == expected[2].keys()
    for name, gradient in found[2].items():
        torch.testing.assert_close(gradient, expected[2][name], rtol=1e-9, atol=1e-10, msg=f"gradient of {name}")


def outcome(network: Network, drawn: tuple[ImageInputs, CaptionInputs]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Scores, loss and the gradient of every parameter that has one."""
    torch.manual_seed(0)  # the same words dropped, the same samples
    loss = loss_of(network, drawn)
    loss.backward()
    gradients = {name: value.grad for name, value in network.named_parameters() if value.grad is not None}
    torch.manual_seed(0)
    return scores(network, drawn).detach(), loss.detach(), gradients


def modules_that_ask_for_the_device() -> list[ModuleType]:
    named = [module for name, module in sys.modules.items() if name.startswith("vsetune.networks")]
    return [module for module in named if hasattr(module, "is_on_cpu")]


@every_case
def test_the_switch_leaves_no_gradient_written_by_hand(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_by_hand(loss_of(make(case).train(), draw(CASES[case], 3)))
    monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    assert not written_by_hand(loss_of(make(case).train(), draw(CASES[case], 3)))


def written_by_hand(loss: Tensor) -> set[str]:
    """Names of the autograd functions of ours that the loss was made by."""
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return {node.name() for node in seen if isinstance(node, BackwardCFunction)}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
@every_case
def test_a_few_steps_on_a_gpu_and_on_a_cpu_give_the_same_losses(
    case: str, dtype: torch.dtype, tolerance: float
) -> None:
    losses = {}
    for device in ("cpu", "cuda"):
        network = make(case).to(device, dtype).eval()  # draws nothing, which devices do differently
        drawn = tuple(moved(part, device, dtype) for part in draw(CASES[case], 6))
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-2)
        losses[device] = []
        for _ in range(4):
            loss = loss_of(network, drawn)
            losses[device].append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=tolerance)


def moved(inputs: Any, device: str, dtype: torch.dtype) -> Any:
    return type(inputs)(**{
        name: value if value is None else value.to(device, dtype if value.is_floating_point() else value.dtype)
        for name, value in vars(inputs).items()
    })


@pytest.mark.parametrize("name", NETWORKS)
def test_thirty_two_random_pairs_are_learned_by_heart(name: str) -> None:
    known = NETWORKS[name].model_fields
    settings = {key: value for key, value in LEARNT_WITH.items() if key in known}
    # samples of a Gaussian make PCME's scores noisy; its means are what must be told apart
    spec = small(name, settings | ({"similarity": "mean"} if name == "pcme" else {}))
    network, (images, captions) = fresh(spec).float().train(), draw(spec, 32)
    images = replace(images, features=images.features.float(), boxes=images.boxes.float())
    captions = replace(captions, tokens=torch.randint(5, VOCABULARY, (32, WORDS)), lengths=torch.full((32,), WORDS))
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [150])  # running statistics settle
    for step in range(200):
        loss = loss_of(network, (images, captions), hardest=step > 60)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        found = scores(network.eval(), (images, captions))
    assert (found.argmax(dim=1) == torch.arange(32)).all()
    assert (found.argmax(dim=0) == torch.arange(32)).all()
