"""Mean hinge over the h hardest negatives of each query (image-retrieval-text matching of TAGS-DC, Eq. 4-5).

    1/B sum_i mean_{h hardest j} [m + S_ij - S_ii]+  +  1/B sum_j mean_{h hardest i} [m + S_ij - S_jj]+

Eq. 5 has one negative per query, the released code the mean over the 31 hardest of 399, once per direction. Eq. 5 is
written for one pair; over a batch it is averaged. Negatives are those of the batch, with `memory_size` also those of
earlier batches, with `drawn` also those sampled from the data set (decision 0017).
"""

from __future__ import annotations

from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.lmh.loss import mined_output
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Memory, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.parts.pairing import Candidates, QueryTerms, batch_negatives, candidates, pair_similarity


def mean_hardest_hinges(among: Candidates, matched: Tensor, *, margin: float, hardest: int) -> QueryTerms:
    """Per query the mean of [margin + score - positive]+ over its `hardest` highest scores; over all if it has fewer.

    A query without negatives gives 0. Ignored items never enter a divisor. matched: (B,) similarity of the pairs.
    """
    return QueryTerms(
        _row_means(among.images, matched, margin=margin, hardest=hardest),
        _row_means(among.captions.T, matched, margin=margin, hardest=hardest),
    )


def _row_means(scores: Tensor, matched: Tensor, *, margin: float, hardest: int) -> Tensor:
    used = (scores != float("-inf")).sum(dim=1).clamp(max=hardest)
    highest = scores.topk(min(hardest, scores.shape[1]), dim=1, sorted=False).values  # a NaN is the highest
    return (margin + highest - matched[:, None]).relu().sum(dim=1) / used.clamp(min=1)


@register(IrtmSpec)
class MeanOfHardest(Loss):
    """Mean over the h hardest, optionally after epochs of LSH with the same margin (a sum: B to B^2 times as large)."""

    spec: IrtmSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        if self.is_warming_up:
            return sum_of_hinges_output(inputs, margin=spec.margin, same_image_rule=spec.variant)
        similarity = at_least_float32(inputs.similarity)
        negatives = batch_negatives(inputs, spec.variant)
        among = candidates(inputs, similarity, negatives, self._further(inputs), spec.variant)
        terms = mean_hardest_hinges(
            among, pair_similarity(inputs, similarity), margin=spec.margin, hardest=spec.hardest
        )
        return mined_output(
            inputs, terms.total() / len(negatives), terms.active(), scores=similarity, negatives=negatives,
            is_proxy=spec.hardest > 1 or spec.drawn > 0,
        )

    def _further(self, inputs: LossInputs) -> Memory | None:
        if not self.spec.drawn:
            return inputs.memory
        if inputs.drawn is None:
            raise ConfigError(
                "VSE-L006", "loss {loss}: got a batch without drawn negatives, need {drawn} images of the data set; "
                "give the step those of `TrainingBatches.drawn`, or set drawn to 0", loss=self.spec.name,
                drawn=self.spec.drawn,
            )
        return inputs.drawn
