"""Every check of losses finds what it is there for: the loss that `losses new` writes, broken in one place."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused

from vsetune.quality.checks import Result
from vsetune.quality.loss_batches import LossSubject
from vsetune.quality.loss_checks import LOSS_CHECKS
from vsetune.quality.subjects import loss_at

CHECKS = {check.name: check for check in LOSS_CHECKS}
SIMILARITY = "similarity = at_least_float32(inputs.similarity)"
RETURN = "return terms.sum() / (sharpness * negatives.sum().clamp(min=1))"
COUNTED = "        self.calls = getattr(self, 'calls', 0) + 1\n        value = value * self.calls\n"
OUTPUT = "        violating ="
FORWARD = "        return self.forward(inputs)"
DIFFERENCE = "sharpness * (similarity - matched[:, None])"
UNUSED = '    unused: float = tunable(1.0, Range(low=0, high=2), ge=0, description="x")\n'
CHOICE = '    how: Literal["mean", "worst"] = Field("mean", description="x")\n'
LATER = "    # Which networks it fits."
STOPPED = ("(similarity - matched[None, :])", "(similarity - matched.detach()[None, :])")
DECLARED = (LATER, '    stop_gradient: ClassVar[str] = "a pair is a constant for its images (Eq. 1)"\n' + LATER)
VALIDATED = '''    steps: {0} = tunable({1}, Range(low=50, {2}), ge=1, description="x")

    @pydantic.field_validator("steps")
    @classmethod
    def _checked(cls, value):
        if {3}:
            raise ValueError("{4}")
        return value

'''
PAIR = '''    low: float = tunable(0.0, Range(low=0, high=1), ge=0, description="x")
    high: float = tunable(1.0, Range(low=0, high=1), ge=0, description="x")

    @pydantic.model_validator(mode="after")
    def _paired(self):
        if 0 < self.low < 1 and 0 < self.high < 1:
            raise ValueError("one of them is to be 0 or 1")
        return self

'''
NEEDS_FIELD = ("from vsetune.config", "from pydantic import Field\nfrom vsetune.config")
NEEDS_PYDANTIC = ("from vsetune.config", "import pydantic\nfrom vsetune.config")
OPTIONAL = '    scale: float | None = Field(1.0, ge=0, le=2, description="x")\n'
Changes = dict[str, list[tuple[str, str]]]


def loss(*changes: tuple[str, str]) -> Changes:
    return {"loss.py": list(changes)}


def spec(*changes: tuple[str, str]) -> Changes:
    return {"spec.py": list(changes)}


def validated(*words: str) -> Changes:
    """With a searched setting that the spec checks itself."""
    return spec((LATER, VALIDATED.format(*words) + LATER), NEEDS_PYDANTIC)


BROKEN: dict[str, tuple[str, Changes, str]] = {
    "a class without a docstring": (
        "described",
        spec(('    """Smooth hinges: every negative pushes, those above the pair the most."""', "    ")),
        "no docstring",
    ),
    "a setting without a description": (
        "described", spec((LATER, "    plain: float = 1.0\n" + LATER)), "plain has no description",
    ),
    "a value computed in half precision": (
        "value", loss((SIMILARITY, "similarity = inputs.similarity")), "at_least_float32",
    ),
    "a product in half precision": (
        "value",
        loss(
            ("    def forward(", f"    def __call__(self, inputs):\n{FORWARD}\n\n    def forward("),
            (SIMILARITY, f"{SIMILARITY}\n        similarity = similarity @ similarity.detach() ** 0 / len(similarity)"),
        ),
        "under autocast",
    ),
    "a value per pair": ("value", loss((RETURN, "return terms.sum(dim=1)")), "need one number"),
    "a part with gradient": ("value", loss(('_share": share', '_share": value')), "has a gradient"),
    "a batch changed in place": (
        "value", loss((SIMILARITY, SIMILARITY + "\n        similarity.data.add_(1.0)")), "changed in place",
    ),
    "embeddings that are not always there": (
        "kinds", loss((SIMILARITY, SIMILARITY + " + inputs.images.vectors.sum()")), "raises AttributeError at loss.py",
    ),
    "a constant that is none": (
        "gradcheck", loss(STOPPED),
        "a deliberate one is declared in spec.py: `stop_gradient",
    ),
    "a sign": ("direction", loss((SIMILARITY, "similarity = -at_least_float32(inputs.similarity)")), "larger"),
    "weights by place": (
        "permutation",
        loss(("return terms.sum()", "return (terms * terms.new_ones(len(terms)).cumsum(0)).sum()")),
        "in another order",
    ),
    "a NaN that is masked out": (
        "nan",
        loss(
            ("    def forward(", f"    def __call__(self, inputs):\n{FORWARD}\n\n    def forward("),
            (SIMILARITY, "similarity = inputs.similarity.nan_to_num()"),
        ),
        "gives a finite loss",
    ),
    "a NaN in an embedding that counts as zero": (
        "nan",
        loss((SIMILARITY, f"""{SIMILARITY}
        if inputs.images is not None:
            similarity = similarity * (1 + inputs.images.vectors.detach().nan_to_num().mean())""")),
        "a NaN in images.vectors gives a finite loss",
    ),
    "a division by the number of negatives": (
        "small batches", loss((".sum().clamp(min=1))\n\n", ".sum())\n\n")), "the loss is nan",
    ),
    "an exponential": (
        "extremes",
        loss((f"softplus({DIFFERENCE})", f"({DIFFERENCE}).exp().log1p()")), "finite",
    ),
    "a root at zero": (
        "extremes", loss((RETURN, "return (1 - matched).clamp(min=0).sqrt().sum() + terms.mean()")), "gradient",
    ),
    "several captions that are not refused": (
        "several captions",
        loss(
            ("        require_pairs(inputs, self.spec.name)", "        #"),
            (SIMILARITY, SIMILARITY + "[:, :len(inputs.similarity)]"),
            ('negatives = pair_negatives(inputs, "decided")', "negatives = similarity.detach() < 9"),
        ),
        "are not refused",
    ),
    "one caption each that counts otherwise than a pair": (
        "several captions",
        loss(
            ("        require_pairs(inputs, self.spec.name)", "        #"),
            (SIMILARITY, SIMILARITY + "[inputs.caption_rows]"),
            ('pair_negatives(inputs, "decided")', "inputs.caption_image_ids[:, None] != inputs.caption_image_ids"),
            (OUTPUT, "        value = value * (1 + inputs.several)\n" + OUTPUT),
        ) | spec((LATER, "    several_positives: ClassVar[bool] = True\n" + LATER)),
        "images with one caption each give",
    ),
    "a range without effect": ("ranges", spec((LATER, UNUSED + LATER)), "unused: 0.0 and 2.0 give the same"),
    "a range beyond the limits": (
        "ranges", spec(("high=50", "high=5000")), "sharpness: its own range holds 5000",
    ),
    "a range of whole numbers of which the spec takes every fiftieth": (
        "ranges", validated("int", "50", "high=400", "value % 50", "no fiftieth"), "no fiftieth",
    ),
    "a range of which the spec takes the ends and the default alone": (
        "ranges", validated("float", "50.0", "high=400", "value % 1", "no whole step"), "no whole step",
    ),
    "a logarithmic range with a gap": (
        "ranges", validated("float", "50.0", "high=4000, log=True", "100 < value < 3000", "a gap"), "a gap",
    ),
    "a choice in the middle that the spec refuses": (
        "ranges", spec(
            ("import Range, tunable", "import Choices, Range, tunable"),
            (LATER, '    some: int = tunable(2, Choices(choices=[2, 9, 4]), ge=1, le=5, description="x")\n' + LATER),
        ),
        "some: its own range holds 9",
    ),
    "an optional setting whose range the spec refuses inside": (
        "ranges", validated("int | None", "None", "high=400", "value and 60 < value < 390", "a gap"), "a gap",
    ),
    "settings that contradict each other inside their ranges": (
        "ranges", spec((LATER, PAIR + LATER), NEEDS_PYDANTIC), "sampled from all ranges together are refused, such as ",
    ),
    "a value inside a range that gives no finite loss": (
        "ranges",
        spec((LATER, UNUSED.replace("unused", "shift") + LATER))
        | loss((OUTPUT, "        value = value if self.spec.shift in (0, 1, 2) else value / 0\n" + OUTPUT)),
        "the loss is inf",
    ),
    "an optional setting that fails without a value": (
        "choices",
        spec((LATER, OPTIONAL + LATER), NEEDS_FIELD)
        | loss((OUTPUT, "        value = value if self.spec.scale is not None else value / 0\n" + OUTPUT)),
        "scale: None",
    ),
    "a choice of an optional setting that does not work": (
        "choices",
        spec((LATER, CHOICE.replace("]", "] | None") + LATER), NEEDS_FIELD)
        | loss((OUTPUT, '        value = value if self.spec.how != "worst" else value / 0\n' + OUTPUT)),
        "how: worst",
    ),
    "a choice that does not work": (
        "choices",
        spec((LATER, CHOICE + LATER), NEEDS_FIELD)
        | loss((OUTPUT, '        value = value if self.spec.how == "mean" else value / 0\n' + OUTPUT)),
        "how: worst",
    ),
    "a number outside of the state": ("resume", loss((OUTPUT, COUNTED + OUTPUT)), "in a buffer or a parameter"),
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_the_check_finds(flaw: str, draft: Any) -> None:
    name, changes, words = BROKEN[flaw]
    found = CHECKS[name].finding(LossSubject(loss_at(draft("loss", changes))))
    assert found.result is Result.FAILS, found
    assert words in found.note
    assert "\n" not in found.note


def test_every_check_has_a_loss_that_fails_it() -> None:
    assert {name for name, *_ in BROKEN.values()} == set(CHECKS)


def test_a_loss_that_draws_at_random_need_not_ignore_the_order(draft: Any) -> None:
    changes = {"loss.py": [(SIMILARITY, SIMILARITY + "\n        similarity = similarity + torch.rand_like(similarity)"),
                           ("from torch import Tensor", "import torch\nfrom torch import Tensor")]}
    found = CHECKS["permutation"].finding(LossSubject(loss_at(draft("loss", changes))))
    assert found.result is Result.NOT_APPLICABLE


def test_a_declared_stop_gradient_is_no_failure_and_is_named(draft: Any) -> None:
    found = CHECKS["gradcheck"].finding(LossSubject(loss_at(draft("loss", loss(STOPPED) | spec(DECLARED)))))
    assert found.result is Result.NOT_APPLICABLE
    assert found.note.endswith("as spec.py declares: a pair is a constant for its images (Eq. 1)")


def test_a_declared_stop_gradient_that_is_none_is_refused(draft: Any) -> None:
    found = CHECKS["gradcheck"].finding(LossSubject(loss_at(draft("loss", spec(DECLARED)))))
    assert found.result is Result.FAILS
    assert "no gradient is stopped; remove stop_gradient" in found.note


def test_a_declared_stop_gradient_has_words(draft: Any) -> None:
    flag = (LATER, "    stop_gradient: ClassVar[bool] = True\n" + LATER)
    with refused("VSE-C125", got="True"):
        loss_at(draft("loss", spec(flag)))
