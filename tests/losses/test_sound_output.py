"""A loss that returns a wrong shape is told so in one line, with its file and line, at the first batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection

N = 4


class Given(Loss):
    """Returns what a test says."""

    def __init__(self, made: Callable[[LossInputs], Any]) -> None:
        super().__init__(warmup_epochs=0)
        self.made = made

    def forward(self, inputs: LossInputs) -> LossOutput:
        return self.made(inputs)  # type: ignore[no-any-return]


def batch() -> LossInputs:
    ids = torch.arange(N)
    return LossInputs(torch.ones(N, N, requires_grad=True), ids, ids, ids)


def mean(inputs: LossInputs) -> torch.Tensor:
    return inputs.similarity.mean()


def other_scores(inputs: LossInputs) -> Selection:
    return Selection(inputs.similarity[:1], inputs.similarity > 0, None, None, is_proxy=True)


@pytest.mark.parametrize(("made", "told"), [
    (mean, r"forward returned a Tensor, need `LossOutput\(value=...\)`"),
    (lambda inputs: None, "forward returned a NoneType"),
    (lambda inputs: LossOutput(1.0), "value is a float, need a tensor of one number"),  # type: ignore[arg-type]
    (lambda inputs: LossOutput(inputs.similarity.mean(0)), r"value has shape \(4,\), need one number; reduce it with"),
    (lambda inputs: LossOutput(mean(inputs).half()), "value is of torch.float16, need float32 or wider"),
    (lambda inputs: LossOutput(mean(inputs).long()), "value is of torch.int64, need float32 or wider"),
    (lambda inputs: LossOutput(mean(inputs).detach()), "value has no gradient; compute it from inputs.similarity"),
    (lambda inputs: LossOutput(mean(inputs), {"x": inputs.similarity.detach()}), r"part x has shape \(4, 4\), need"),
    (lambda inputs: LossOutput(mean(inputs), {"x": 0.5}), "part x has type float, need"),  # type: ignore[dict-item]
    (lambda inputs: LossOutput(mean(inputs), {"x": mean(inputs)}), r"part x carries a gradient, .*`.detach\(\)`"),
    (lambda inputs: LossOutput(mean(inputs), {}, other_scores(inputs)), r"selection.scores has shape \(1, 4\), need"),
])
def test_a_wrong_output_is_told_with_the_line_of_its_forward(made: Callable[[LossInputs], Any], told: str) -> None:
    line = Given.forward.__code__.co_firstlineno
    with pytest.raises(ConfigError, match=rf"^{__file__}:{line}: loss Given: {told}") as refused:
        Given(made)(batch())
    assert len(refused.value.problems) == 1


def test_a_sound_output_passes_with_and_without_gradient() -> None:
    loss = Given(lambda inputs: LossOutput(mean(inputs), {"x": mean(inputs).detach()}))
    assert loss(batch()).value.item() == 1
    with torch.no_grad():
        assert Given(lambda inputs: LossOutput(mean(inputs)))(batch()).value.item() == 1
