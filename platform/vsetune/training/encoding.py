"""Encoding and scoring of a training batch: at once, or in chunks that are encoded again for their gradients.

In chunks, the forward pass keeps the encoded items of a batch and forgets how they were made. The backward pass brings
the gradient of the loss to these items, and then makes the items of one chunk after the other again, to take their
gradient on to the parameters (GradCache, Gao et al. 2021). The loss and its gradients are those of the whole batch; the
towers need the memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.errors import ConfigError
from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, statistics_of_all
from vsetune.training.device import tower_precision
from vsetune.training.processes import ALONE, Processes, Share
from vsetune.training.random_state import RandomState

_KEY, _PROCESSES_KEY = "training.chunk_size", "resources.workers"
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_IMAGES, _CAPTIONS, _SCORES = range(3)


@dataclass(frozen=True)
class BatchEncoder:
    """Encodes and scores the batch of the step that starts at `epoch`.

    A chunk samples its random numbers (dropout) from a state of its own, made from the seed of the trial, the epoch and
    the number of the chunk: the second encoding repeats the first, and the random state of the trial stays as it is.
    """

    network: Network
    trial: TrialSpec
    device: torch.device
    epoch: float
    processes: Processes = ALONE

    def items(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """The images and the captions of the batch."""
        images, captions = batch.images, batch.captions
        if self.trial.training.chunk_size is None and self.processes.count == 1:
            with tower_precision(self.trial.training, self.device):
                return self.network.encode_images(images), self.network.encode_captions(captions)
        return (
            self._in_chunks(_IMAGES, self.network.encode_images, images, len(batch.image_ids)),
            self._in_chunks(_CAPTIONS, self.network.encode_captions, captions, len(batch.caption_rows)),
        )

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n, m) scores of every image with every caption; those of a network that scores pairs are made in blocks of a
        chunk of images with a chunk of captions, and made again for their gradients."""
        is_whole = self.trial.training.chunk_size is None and self.processes.count == 1
        if is_whole or self.network.kind != "score":
            return self.network.similarity(images, captions)
        columns = ALONE.share(len(captions), size=self._size(len(captions))).parts
        own = self._own(len(images))
        rows = [
            torch.cat([self._block(images[row], captions[column], place=(row.start, column.start))
                       for column in columns], dim=1)
            for row in own.parts
        ]
        return self.processes.rows(own.contributed(torch.cat(rows)), start=own.start, total=len(images))

    def _in_chunks(
        self, side: int, encode: Callable[[Any], Encoded], inputs: ImageInputs | CaptionInputs, count: int
    ) -> Encoded:
        def encoded(some: slice) -> Encoded:
            with self._sampling(side, some.start), tower_precision(self.trial.training, self.device):
                return encode(inputs[some])

        own = self._own(count)
        if self.trial.training.chunk_size is None:
            with statistics_of_all(self.network, partial(self._total, counts=own.count > 0)):
                chunks = [encoded(some) for some in own.parts]
        else:
            chunks = [
                checkpoint(encoded, some, use_reentrant=False, preserve_rng_state=False) for some in own.parts
            ]
        return self.processes.gathered(own.contributed(joined(chunks)), start=own.start, total=count)

    def _total(self, own: Tensor, *, counts: bool) -> Tensor:
        return self.processes.total(own if counts else own * 0)

    def _own(self, count: int) -> Share:
        """The chunks of this process, or its part of the batch."""
        return self.processes.share(count, size=self._size(count))

    def _size(self, count: int) -> int:
        return self.trial.training.chunk_size or -(-count // self.processes.count)

    def _block(self, images: Encoded, captions: Encoded, *, place: tuple[int, int]) -> Tensor:
        """Scores of some images with some captions. The first pass runs without gradient ("reentrant"). In some
        networks the last gradient decides what the first pass keeps; only this way to checkpoint allows that."""
        if self.trial.training.chunk_size is None:
            with self._sampling(_SCORES, *place):
                return self.network.similarity(images, captions)
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            return self.network.similarity(images, captions)
        of_images, of_captions = images.tensors(), captions.tensors()

        def scores(_: Tensor, *tensors: Tensor) -> Tensor:
            images_again = replace(images, **dict(zip(of_images, tensors, strict=False)))
            captions_again = replace(captions, **dict(zip(of_captions, tensors[len(of_images) :], strict=True)))
            with self._sampling(_SCORES, *place):
                return self.network.similarity(images_again, captions_again)

        learns = torch.zeros((), requires_grad=True)  # so that parameters get their gradient where no item has one
        block: Tensor = checkpoint(
            scores, learns, *of_images.values(), *of_captions.values(), use_reentrant=True, preserve_rng_state=False
        )
        return block

    def _sampling(self, *place: int) -> Any:
        entropy = (self.trial.seed, int(self.epoch * 2**32), *place)
        seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
        return RandomState(seed, self.device).active()


def require_divisible(network: Network, trial: TrialSpec, *, processes: int = 1) -> None:
    """ConfigError where a batch of this trial cannot be encoded in chunks, or by several processes, with equal results.
    The network is in training mode afterwards."""
    if trial.training.chunk_size is None and processes == 1:
        return
    key, name = _KEY if processes == 1 else _PROCESSES_KEY, trial.network.name
    network.train()  # batch normalisation whose statistics are fixed leaves it by itself
    is_shared = trial.training.chunk_size is None
    norm = next((path for path, module in network.named_modules() if _counts_batch(module, is_shared=is_shared)), None)
    if norm is not None:
        raise ConfigError(
            "VSE-T029", "{key}: network {network} normalises over the batch ({module}), and parts of a batch have "
            "other statistics; leave {key} out", key=key, network=name, module=norm,
        )
    weight = next((each for each in trial.network.own_loss_weights if getattr(trial.network, each) > 0), None)
    if weight is not None:
        raise ConfigError(
            "VSE-T030", "{key}: network {network} has a loss of its own over the whole batch; set network.{weight} to "
            "0, or leave {key} out", key=key, network=name, weight=weight,
        )
    for phase in range(max(1, len(trial.training.phases))):
        if trial.loss_in(phase).drawn_negatives is not None:
            raise ConfigError(
                "VSE-T031", "{key}: loss {loss} samples images beside the batch, which are encoded at once; leave "
                "`drawn` of the loss out, or {key}", key=key, loss=trial.loss.name,
            )


def _counts_batch(module: nn.Module, *, is_shared: bool) -> bool:
    """Whether the module would normalise by a part of the batch. is_shared: it may count what all processes encode."""
    return isinstance(module, _BATCH_NORMS) and module.training and not (
        is_shared and isinstance(module, SharedBatchNorm)
    )
