"""Semantic centre loss: an image and its captions gather around a learned centre (Malali and Keller, Eq. 5-13).

    L = w_c L_C + w_t L_T + w_i CE_image + w_y CE_caption

L_C: Eq. 6 or Eq. 7 (`center_terms`). L_T: the triplets of `adaptive_margin`. CE: cross-entropy of a linear classifier
per modality, whose classes are the training images. Every term is a mean over the batch; the paper does not specify it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.losses.adaptive_margin.loss import GrowingMargins, hinge_gaps, mean_over_triplets, triplet_gaps
from vsetune.losses.loss_base import (
    Loss,
    LossContext,
    LossInputs,
    LossOutput,
    ParameterGroup,
    Selection,
    at_least_float32,
    require_embeddings,
    require_pairs,
)
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import mined_selection, pair_negatives
from vsetune.losses.semantic_center.centers import Centers, ConceptCenters, QuantisedCenters
from vsetune.losses.semantic_center.spec import SemanticCenterSpec


@register(SemanticCenterSpec)
class SemanticCenter(GrowingMargins):
    """One phase of the semantic centre loss; `continue_from` leads from phase to phase.

    Centres are trained by their own SGD, the assignment layer and the classifiers with the network. The margins of the
    triplets stay unless the phase is adaptive.
    """

    needs_context = True
    spec: SemanticCenterSpec

    def __init__(self, spec: SemanticCenterSpec, context: LossContext) -> None:
        super().__init__(spec)
        kind: type[ConceptCenters | QuantisedCenters] = (
            ConceptCenters if spec.centers == "concepts" else QuantisedCenters
        )
        self.centers: Centers = kind(spec, context)
        self.image_classifier = nn.Linear(context.embedding_size, context.concepts)
        self.caption_classifier = nn.Linear(context.embedding_size, context.concepts)
        for classifier in (self.image_classifier, self.caption_classifier):
            classifier.requires_grad_(spec.train_classifiers)

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with one embedding each."""
        spec, table = self.spec, self.centers.table
        require_pairs(inputs, spec.name)
        images, captions = (each.to(table.dtype) for each in require_embeddings(inputs, spec.name, table.shape[1]))
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
        return LossOutput(value=value, parts=parts | self.margins_to_log(), selection=selection)

    def before_step(self) -> None:
        self.centers.set_gradient()

    def after_step(self) -> None:
        self.centers.after_step()
        if self.spec.adaptive:
            self.close_window()

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
            for name in ("margins", "counted", "triplets", "step"):
                self.get_buffer(name).copy_(previous.get_buffer(name))
            self.margins.clamp_(max=self.spec.cap)

    def _triplets(self, inputs: LossInputs) -> tuple[Tensor, Selection | None]:
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, "decided")
        gaps = triplet_gaps(inputs, similarity, negatives, self.spec)
        hinges = hinge_gaps(gaps, margins=self.margins)
        if self.training and self.spec.adaptive:
            self.count_triplets(gaps)
        is_mined = self.spec.negatives == "hardest"
        selection = mined_selection(inputs, similarity, negatives, hinges.active()) if is_mined else None
        return mean_over_triplets(hinges, gaps), selection
