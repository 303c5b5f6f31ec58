"""What must hold of every network that study files can name; a new one is covered as soon as it is in NETWORKS.

The quality list is tested on the default settings and on all that `network_cases` lists beside them, at a small size.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from network_cases import CASES

from vsetune.config.component_specs import NETWORKS
from vsetune.networks.inputs import CaptionInputs
from vsetune.quality.checks import Check, Result
from vsetune.quality.network_checks import NETWORK_CHECKS
from vsetune.quality.network_learning import NetworkSubject, in_float32, learns_pairs_by_heart, scores

NEEDS_EVERY_REGION = ("vsepp image_input=flatten", "vsepp image_input=global")
READS_ORDER = ("vsrn", "cgmn", "sgraf", "vsepp image_input=flatten")
ATTEND = ("scan", "sgraf", "gsmn")
"""Begin the names of cases that refuse images with fewer regions; of those that read regions in their order; of those
whose words attend to regions."""

OF_SPECS = ("described", "cost", "ranges", "seed", "nan")
"""Checks of what a spec says whatever its settings, and a slow one."""

every_case = pytest.mark.parametrize("case", CASES)


@pytest.mark.parametrize(("case", "check"), [
    pytest.param(case, check, id=f"{case}-{check}") for case in CASES for check in NETWORK_CHECKS
    if check.name != "by heart" and (case in NETWORKS or check.name not in OF_SPECS)
])
def test_the_quality_list(case: str, check: Check[NetworkSubject]) -> None:
    found = check.finding(CASES[case])
    assert found.result is not Result.FAILS, found.note
    if found.result is Result.NOT_APPLICABLE:
        attends = case.startswith(ATTEND) and "image_to_text" not in case
        assert check.name == "ranges" or (check.name == "attention" and not attends), found.note
    if check.name == "padding":
        assert ("refused" in found.note) == case.startswith(NEEDS_EVERY_REGION)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_thirty_two_random_pairs_are_learned_by_heart(name: str) -> None:
    # samples of a Gaussian make PCME's scores noisy; its means are what must be told apart
    found = learns_pairs_by_heart(NetworkSubject(NETWORKS[name], {"similarity": "mean"} if name == "pcme" else {}))
    assert found.result is Result.HOLDS, found.note


@every_case
def test_scores_and_gradients_in_float32_are_those_of_float64(case: str) -> None:
    outcomes = []
    for dtype in (torch.float64, torch.float32):
        network, drawn = CASES[case].trained().to(dtype), CASES[case].draw(4)
        found = scores(network, drawn if dtype == torch.float64 else in_float32(drawn))
        learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
        upstream = torch.linspace(-1, 1, 16).view(4, 4).to(found)
        gradients = torch.autograd.grad(found, learned, upstream, materialize_grads=True)
        assert found.dtype == dtype
        outcomes.append([found.detach(), *gradients])
    for wide, narrow in zip(*outcomes, strict=True):
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-3, atol=1e-3 * max(1.0, float(wide.abs().max())))


@pytest.mark.parametrize(("case", "words", "images"), [
    ("vsepp", "words", "image_map"), ("vsrn", "words", "region_map"), ("cgmn", "words", "region_map"),
    ("sgraf_sgr", None, "local_map"),
])
def test_parameters_start_as_published(case: str, words: str | None, images: str) -> None:
    network = CASES[case].fresh(embedding_size=64, word_size=30)
    start, mapped = dict(network.named_parameters()), network.get_submodule(images)
    if words is not None:
        assert 0.09 < start[f"{words}.weight"].abs().max() <= 0.1
        assert start[f"{words}.weight"][0].any()
    bound = (6 / sum(mapped.weight.shape)) ** 0.5
    assert 0.9 * bound < mapped.weight.abs().max() <= bound
    assert not mapped.bias.any()


@every_case
def test_the_order_of_regions_matters_where_it_is_read_and_nowhere_else(case: str) -> None:
    network, (images, captions) = CASES[case].trained(), CASES[case].draw(4)
    turned = replace(images, features=images.features.flip(1), boxes=images.boxes.flip(1))
    before, after = (scores(network, (some, captions)) for some in (images, turned))
    is_same = torch.allclose(before, after, rtol=0, atol=1e-9)
    assert is_same != case.startswith(READS_ORDER)


@every_case
def test_the_order_of_words_matters(case: str) -> None:
    network, (images, _) = CASES[case].trained(), CASES[case].draw(1)
    edges = torch.zeros(2, 5, 5, dtype=torch.bool)
    tokens = torch.tensor([[1, 7, 8, 9, 2], [1, 9, 8, 7, 2]])
    found = scores(network, (images, CaptionInputs(tokens, torch.tensor([5, 5]), edges)))
    assert not torch.allclose(found[0, 0], found[0, 1], rtol=0, atol=1e-9)
