"""Semantic centre loss: an image and its captions gather around a learned centre (Malali and Keller, Eq. 5-13).

    L = w_c L_C + w_t L_T + w_i CE_image + w_y CE_caption

L_C: Eq. 6 or Eq. 7 (`center_terms`). L_T: the triplets of `adaptive_margin`. CE: cross-entropy of a linear classifier
per modality, whose classes are the training images. Every term is a mean over the batch; the paper does not specify it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.errors import ConfigError
from vsetune.losses.adaptive_margin.loss import (
    MarginWindow,
    close_window,
    count_triplets,
    hinge_gaps,
    mean_over_triplets,
    mined_selection,
    new_window,
    triplet_gaps,
)
from vsetune.losses.loss_base import (
    Loss,
    LossContext,
    LossInputs,
    LossOutput,
    ParameterGroup,
    Selection,
    at_least_float32,
    require_pairs,
)
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import pair_negatives
from vsetune.losses.semantic_center.centers import Centers, ConceptCenters, QuantisedCenters
from vsetune.losses.semantic_center.spec import SemanticCenterSpec


@register(SemanticCenterSpec)
class SemanticCenter(Loss):
    """One phase of the semantic centre loss; `continue_from` leads from phase to phase.

    Centres are trained by their own SGD, the assignment layer and the classifiers with the network. The margins of the
    triplets (see `MarginWindow`) stay unless the phase is adaptive.
    """

    needs_context = True
    margins: Tensor
    counted: Tensor
    triplets: Tensor
    step: Tensor

    def __init__(self, spec: SemanticCenterSpec, context: LossContext) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec
        kind: type[ConceptCenters | QuantisedCenters] = (
            ConceptCenters if spec.centers == "concepts" else QuantisedCenters
        )
        self.centers: Centers = kind(spec, context)
        self.image_classifier = nn.Linear(context.embedding_size, context.concepts)
        self.caption_classifier = nn.Linear(context.embedding_size, context.concepts)
        for classifier in (self.image_classifier, self.caption_classifier):
            classifier.requires_grad_(spec.train_classifiers)
        for name, value in new_window(spec)._asdict().items():
            self.register_buffer(name, value)

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with one embedding each."""
        with torch.autocast(inputs.similarity.device.type, enabled=False):
            return self._forward(inputs)

    def before_step(self) -> None:
        self.centers.set_gradient()

    def after_step(self) -> None:
        self.centers.after_step()
        if self.spec.adaptive:
            close_window(self._window(), self.spec)

    def parameter_groups(self) -> list[ParameterGroup]:
        """The centres, at their own rate; then the parameters that learn with the network."""
        others = [p for p in self.parameters() if p.requires_grad and p is not self.centers.table]
        groups = [ParameterGroup([self.centers.table], self.spec.center_learning_rate)]
        return [*groups, ParameterGroup(others, None)] if others else groups

    @torch.no_grad()
    def continue_from(self, previous: Loss) -> None:
        """Take over centres, classifiers, and margins that have grown; nothing from another kind of loss.

        Raises ConfigError if the centres of the phase before cannot become those of this one.
        """
        if not isinstance(previous, SemanticCenter):
            return
        self.centers.continue_from(previous.centers)
        self.image_classifier.load_state_dict(previous.image_classifier.state_dict())
        self.caption_classifier.load_state_dict(previous.caption_classifier.state_dict())
        if previous.spec.adaptive:
            for mine, theirs in zip(self._window(), previous._window(), strict=True):
                mine.copy_(theirs)
            self.margins.clamp_(max=self.spec.cap)

    def _forward(self, inputs: LossInputs) -> LossOutput:
        spec = self.spec
        images, captions = self._embeddings(inputs)
        triplet, selection = self._triplets(inputs)
        center = self.centers(images, captions, inputs.image_ids)
        value = spec.center_weight * center.value + spec.triplet_weight * triplet
        parts = center.parts | {"triplet": triplet.detach()}
        for name, weight, classifier, vectors in (
            ("image_class", spec.image_class_weight, self.image_classifier, images),
            ("caption_class", spec.caption_class_weight, self.caption_classifier, captions),
        ):
            if weight > 0:
                entropy = nn.functional.cross_entropy(classifier(vectors), inputs.image_ids)
                value = value + weight * entropy
                parts[name] = entropy.detach()
        margins = self.margins.clone()
        parts |= {"margin_images": margins[0], "margin_captions": margins[1]}
        return LossOutput(value=value, parts=parts, selection=selection)

    def _embeddings(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        require_pairs(inputs, self.spec.name)
        size = self.centers.table.shape[1]
        shape = (inputs.similarity.shape[0], size)
        if inputs.images is None or inputs.captions is None:
            raise ConfigError(
                f"loss {self.spec.name}: got a batch without embeddings, need one vector per image and caption; "
                "use a network that embeds images and captions"
            )
        for items in (inputs.images, inputs.captions):
            if items.vectors.shape != shape:
                raise ConfigError(
                    f"loss {self.spec.name}: got embeddings of shape {tuple(items.vectors.shape)}, need {shape}; "
                    f"use a network with one embedding of size {size} per item"
                )
        precision = self.centers.table.dtype
        return inputs.images.vectors.to(precision), inputs.captions.vectors.to(precision)

    def _triplets(self, inputs: LossInputs) -> tuple[Tensor, Selection | None]:
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, "decided")
        gaps = triplet_gaps(inputs, similarity, negatives, self.spec)
        hinges = hinge_gaps(gaps, margins=self.margins)
        if self.training and self.spec.adaptive:
            count_triplets(self._window(), gaps, self.spec)
        selection = mined_selection(inputs, similarity, negatives, hinges) if self.spec.negatives == "hardest" else None
        return mean_over_triplets(hinges, gaps), selection

    def _window(self) -> MarginWindow:
        return MarginWindow(self.margins, self.counted, self.triplets, self.step)
