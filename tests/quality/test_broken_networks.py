"""Every check of networks finds what it is there for: the network that `networks new` writes, broken in one place."""

from __future__ import annotations

from typing import Any

import pytest

from vsetune.quality.checks import Result
from vsetune.quality.network_checks import NETWORK_CHECKS
from vsetune.quality.network_learning import NetworkSubject
from vsetune.quality.subjects import network_at

CHECKS = {check.name: check for check in NETWORK_CHECKS}
REGION = "mean_of_items(images.features, is_region)"
WORD = "mean_of_items(self.words(captions.tokens), is_word)"
IMAGES = f"return Encoded(unit_length(self.image_map({REGION})))"
CAPTIONS = f"return Encoded(unit_length(self.caption_map({WORD})))"
SIMILARITY = "    def similarity(self, images, captions):"
ATTENTION = "    def attention(self, images, captions):"
TURNED = "return Encoded(unit_length(2 * found.detach() - found))"
NAME = '    name: Literal["mine"]'
STOPPED = f"found = self.image_map({REGION})\n        return Encoded(found / found.norm(dim=1, keepdim=True).detach())"
CUT_OFF = f"return Encoded(unit_length(self.image_map({REGION})).detach())"
DECLARED = (NAME, f'    stop_gradient: ClassVar[str] = "images are targets (Eq. 1)"\n\n{NAME}')
INIT = "super().__init__(spec)"
TORCH = ("from torch import nn", "import torch\nfrom torch import nn")


Changes = dict[str, list[tuple[str, str]]]


def network(*changes: tuple[str, str]) -> Changes:
    return {"network.py": [TORCH, *changes]}


def spec(*changes: tuple[str, str]) -> Changes:
    return {"spec.py": list(changes)}


def images(region: str) -> Changes:
    """With another vector of an image than the mean of its regions."""
    return network((IMAGES, IMAGES.replace(REGION, region)))


def captions(word: str) -> Changes:
    """With another vector of a caption than the mean of its words."""
    return network((CAPTIONS, CAPTIONS.replace(WORD, word)))


BROKEN: dict[str, tuple[str, Changes, str]] = {
    "a class without a docstring": (
        "described", spec(('    """A linear map of the mean region, a linear map of the mean word."""', "    ")),
        "no docstring",
    ),
    "a setting without a description": (
        "described", spec((NAME, f"    plain: float = 1.0\n\n{NAME}")), "plain has no description",
    ),
    "no unit length": (
        "scores", network((IMAGES, f"return Encoded(self.image_map({REGION}))")), "not of length 1",
    ),
    "another width": (
        "scores",
        network((IMAGES, f"return Encoded(unit_length(self.image_map({REGION}))[:, :5])")),
        "encode_images: vectors have shape",
    ),
    "a deviation of one caption": (
        "small batches", captions("self.words(captions.tokens).var(dim=1, correction=0).sqrt()"), "caption of 1 ids",
    ),
    "a division by the length": ("zeros", images(f"{REGION} / {REGION}.norm(dim=1, keepdim=True)"), "zeros"),
    "words behind the last": (
        "padding", captions("self.words(captions.tokens).mean(dim=1)"), "ids beyond the lengths",
    ),
    "regions behind the last": (
        "padding", images("images.features.mean(dim=1)"), "beyond the counts of regions",
    ),
    "images that look at one another": (
        "pairs alone", images(f"{REGION} - {REGION}.mean(dim=0)"), "who else is in the batch",
    ),
    "dropout in evaluation": ("evaluation", images(f"nn.functional.dropout({REGION})"), "if self.training"),
    "a generator of its own": ("seed", network((INIT, INIT + "\n        torch.manual_seed(0)")), "different seeds"),
    "a number outside of the state": (
        "saved",
        network(
            (INIT, INIT + "\n        self.turn = torch.randn(width).double()"),
            (IMAGES, IMAGES.replace(REGION, f"self.turn * {REGION}")),
        ),
        "saving and loading",
    ),
    "scores in half precision": (
        "autocast",
        network((IMAGES, f"{IMAGES}\n\n{SIMILARITY}\n        return images.vectors @ captions.vectors.T")),
        "torch.bfloat16",
    ),
    "a NaN that counts as zero": ("nan", images(f"{REGION}.nan_to_num()"), "a NaN in a region"),
    "a map whose NaN counts as zero": (
        "nan", network((CAPTIONS, CAPTIONS.replace(f"({WORD})))", f"({WORD}).nan_to_num()))"))),
        "a NaN in caption_map.weight",
    ),
    "scores without a cost": (
        "cost", spec((NAME, f"    @property\n    def kind(self):\n        return 'score'\n\n{NAME}")),
        "pair_cost is that of a dot product",
    ),
    "a range beyond the limits": ("ranges", spec(("128, 256, 512]", "128, 256, 10**6]")), "holds 1000000"),
    "a choice in the middle beyond the limits": (
        "ranges", spec(("128, 256, 512]", "128, 10**6, 512]")), "holds 1000000",
    ),
    "a choice in the middle that does not build": (
        "ranges", network((INIT, INIT + "\n        assert spec.embedding_size != 256")), "embedding_size: 256",
    ),
    "attention that does not add up": (
        "attention",
        network((IMAGES, f"{IMAGES}\n\n{ATTENTION}\n        return torch.ones(len(images), len(captions), 8, 9)")),
        "must be 1",
    ),
    "a layer that is cut off": (
        "gradient", network((IMAGES, CUT_OFF)), "no gradient reaches image_map",
    ),
    "a constant that is none": (
        "gradcheck", network((IMAGES, STOPPED)), "a deliberate one is declared in spec.py: `stop_gradient",
    ),
    "a gradient that points the wrong way": (
        "descent",
        network(
            (IMAGES, f"found = self.image_map({REGION})\n        {TURNED}"),
            (CAPTIONS, f"found = self.caption_map({WORD})\n        {TURNED}"),
        ),
        "a gradient is wrong",
    ),
    "captions that are all alike": (
        "by heart", captions(WORD.replace("captions.tokens", "captions.tokens * 0")), "queries find their pair",
    ),
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_the_check_finds(flaw: str, draft: Any) -> None:
    name, changes, words = BROKEN[flaw]
    found = CHECKS[name].finding(NetworkSubject(network_at(draft("network", changes))))
    assert found.result is Result.FAILS, found
    assert words in found.note
    assert "\n" not in found.note


def test_every_check_has_a_network_that_fails_it() -> None:
    assert {name for name, *_ in BROKEN.values()} == set(CHECKS)


@pytest.mark.parametrize("stopped", [STOPPED, CUT_OFF])
def test_a_network_with_a_declared_stop_gradient_passes_its_list(stopped: str, draft: Any) -> None:
    subject = NetworkSubject(network_at(draft("network", network((IMAGES, stopped)) | spec(DECLARED))))
    found = {name: check.finding(subject) for name, check in CHECKS.items()}
    assert Result.FAILS not in {each.result for each in found.values()}, found
    assert found["gradcheck"].note.endswith("as spec.py declares: images are targets (Eq. 1)")


def test_a_declared_stop_gradient_of_a_network_that_is_none_is_refused(draft: Any) -> None:
    found = CHECKS["gradcheck"].finding(NetworkSubject(network_at(draft("network", spec(DECLARED)))))
    assert found.result is Result.FAILS
    assert "no gradient is stopped; remove stop_gradient" in found.note
