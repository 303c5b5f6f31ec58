"""What losses refuse: batches that they do not define, settings that contradict each other, wrong outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from refusals import fits, refused
from refused_settings import refused_settings

from vsetune.config.component_specs import LOSSES, LossSpec
from vsetune.errors import ConfigError, Message
from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.contrastive.spec import ContrastiveSpec
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Items, Loss, LossContext, LossInputs, LossOutput, Selection
from vsetune.losses.loss_building import build_loss, register
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.nt_xent.spec import NtXentSpec
from vsetune.losses.pcme.spec import PcmeSpec
from vsetune.losses.pcme_pp.spec import PcmePpSpec
from vsetune.losses.semantic_center.spec import SemanticCenterSpec

CONTEXT = LossContext(embedding_size=4, concepts=6)
N = 4


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if not spec.several_positives])
def test_several_captions_per_image_need_a_loss_that_takes_them(name, several, several_owner, make_images) -> None:
    with refused("VSE-L001", loss=name, images=3, captions=5):
        build_loss(LOSSES[name](), LossContext(4, 1000))(make_images(several, several_owner))


@pytest.mark.parametrize("name", [name for name, spec in LOSSES.items() if spec().semantic_source])
def test_semantic_vectors_are_needed(name, e, make_pairs) -> None:
    with refused("VSE-L002", loss=name):
        build_loss(LOSSES[name]())(make_pairs(e))


@pytest.mark.parametrize("missing", ["images", "captions"])
@pytest.mark.parametrize("spec", [
    PcmeSpec(), PcmePpSpec(), NtXentSpec(), SemanticCenterSpec(), LmhSpec(memory_size=4, memory_start_epoch=0),
], ids=["pcme", "pcme_pp", "nt_xent", "semantic_center", "memory"])
def test_embeddings_of_both_sides_are_needed(spec, missing, random_embedded_pairs) -> None:
    with refused("VSE-L003"):
        build_loss(spec, CONTEXT)(replace(random_embedded_pairs(0), **{missing: None}))


@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 5)])
@pytest.mark.parametrize("spec", [SemanticCenterSpec(), LmhSpec(memory_size=4, memory_start_epoch=0)], ids=repr)
def test_one_embedding_of_the_known_size_per_item_is_needed(spec, shape) -> None:
    items = Items(torch.zeros(shape))
    inputs = LossInputs(torch.eye(3), *[torch.arange(3)] * 3, images=items, captions=items)
    with refused("VSE-L004", shape=shape, size=4):
        build_loss(spec, CONTEXT)(inputs)


def test_a_memory_needs_the_sizes_and_the_vectors_that_it_stores(memory_batch, remembering) -> None:
    with refused("VSE-L005"):
        build_loss(LmhSpec(memory_size=4))
    with refused("VSE-L002", loss="memory_size"):
        remembering(LsehSpec, warmup_epochs=1)(replace(memory_batch(0), semantic_vectors=None))


def test_quantised_centres_need_as_many_images_met_and_keep_their_number(
    make_center_loss, random_embedded_pairs, center_step
) -> None:
    with refused("VSE-L017", centers=7, images=6):
        make_center_loss(centers="quantised", quantised_centers=7)
    met_three, of_two = make_center_loss(concepts=8), make_center_loss(centers="quantised", quantised_centers=2)
    center_step(met_three, random_embedded_pairs(0, 3, 8))
    with refused("VSE-L019", centers=5):
        make_center_loss(concepts=8, centers="quantised", quantised_centers=5).continue_from(met_three)
    with refused("VSE-L018", centers=3, before=2):
        make_center_loss(centers="quantised", quantised_centers=3).continue_from(of_two)


def test_drawn_negatives_must_be_there(e, make_pairs) -> None:
    with refused("VSE-L006", drawn=7):
        build_loss(IrtmSpec(drawn=7))(make_pairs(e))


@pytest.mark.parametrize(("spec", "settings", "message"), [
    (AdaptiveMarginSpec, {"cap": 0.3, "margin": 0.4}, "VSE-L012"),
    (AdaptiveMarginSpec, {"memory_size": 4}, "VSE-L013"),
    (ContrastiveSpec, {"memory_size": 4}, "VSE-L013"),
    (LsehSpec, {"memory_size": 4, "variant": "released"}, "VSE-L014"),
    (IrtmSpec, {"drawn": 7, "memory_size": 4}, "VSE-L015"),
    (IrtmSpec, {"drawn": 7, "warmup_epochs": 1}, "VSE-L016"),
])
def test_settings_that_contradict_each_other(
    spec: Callable[..., LossSpec], settings: dict[str, Any], message: Message
) -> None:
    with refused_settings(message):
        spec(**settings)


def test_a_spec_has_one_loss() -> None:
    class Strange(LossSpec):
        name: str = "strange"

    with pytest.raises(ConfigError, match="Strange"):
        build_loss(Strange())
    with pytest.raises(ValueError, match="already registered"):
        register(LmhSpec)(Loss)


class Given(Loss):
    """Returns the output that a test makes."""

    def __init__(self, made: Callable[[LossInputs], Any]) -> None:
        super().__init__()
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


@pytest.mark.parametrize(("made", "message", "fields"), [
    (mean, "VSE-L020", {"got": "Tensor"}),
    (lambda inputs: LossOutput(1.0), "VSE-L007", {"what": "value", "got": "float"}),  # type: ignore[arg-type]
    (lambda inputs: LossOutput(inputs.similarity.mean(0)), "VSE-L008", {"what": "value", "got": (4,)}),
    (lambda inputs: LossOutput(mean(inputs).half()), "VSE-L009", {"got": torch.float16}),
    (lambda inputs: LossOutput(mean(inputs).long()), "VSE-L009", {"got": torch.int64}),
    (lambda inputs: LossOutput(mean(inputs).detach()), "VSE-L010", {}),
    (lambda inputs: LossOutput(mean(inputs), {"x": inputs.similarity.detach()}), "VSE-L008",
     {"what": "part x", "got": (4, 4)}),
    (lambda inputs: LossOutput(mean(inputs), {"x": 0.5}), "VSE-L007",  # type: ignore[dict-item]
     {"what": "part x", "got": "float"}),
    (lambda inputs: LossOutput(mean(inputs), {"x": mean(inputs)}), "VSE-L011", {"part": "x"}),
    (lambda inputs: LossOutput(mean(inputs), {}, other_scores(inputs)), "VSE-L008",
     {"what": "selection.scores", "got": (1, 4)}),
])
def test_a_wrong_output_is_refused_with_the_line_of_its_forward(
    made: Callable[[LossInputs], Any], message: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        Given(made)(batch())
    (problem,) = caught.value.problems
    assert fits(problem, message, **fields)
    assert problem.startswith(f"{__file__}:{Given.forward.__code__.co_firstlineno}: loss Given: ")


def test_a_sound_output_passes_with_and_without_gradient() -> None:
    loss = Given(lambda inputs: LossOutput(mean(inputs), {"x": mean(inputs).detach()}))
    assert loss(batch()).value.item() == 1
    with torch.no_grad():
        assert Given(lambda inputs: LossOutput(mean(inputs)))(batch()).value.item() == 1


def test_typical_errors_in_words(several, several_owner, make_images, snapshot) -> None:
    lines = []
    for make in (
        lambda: build_loss(LmhSpec(memory_size=4)),
        lambda: build_loss(PcmeSpec())(make_images(several, several_owner)),
        lambda: build_loss(SemanticCenterSpec(centers="quantised"), CONTEXT),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        lines += caught.value.problems
    assert lines == snapshot


def test_a_loss_that_takes_other_arguments_is_refused_where_it_is_made() -> None:
    with refused("VSE-C113", cls="Mine", method="forward", got="self, images, captions", need="self, inputs"):
        class Mine(Loss):
            def forward(self, images, captions): ...
