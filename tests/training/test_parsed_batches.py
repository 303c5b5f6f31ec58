"""Networks that read dependency parses or phrases get them with every training batch."""

from __future__ import annotations

import shutil

import pytest
from chained_words import chain, parse_by_chain
from trained_here import CPU

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.captions.phrase_rules import Phrase
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.networks.tags.generator import mask_phrases
from vsetune.networks.vsepp.spec import VseppSpec
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

__all__ = ["chain"]


class MaskingSpec(VseppSpec):
    """A network that masks phrases."""

    @property
    def reads(self) -> NetworkReads:
        return NetworkReads(phrases=True)


@pytest.fixture
def sparse(make_trial, data_path, tmp_path):
    """A trial of sparse GSMN on a data set of its own, not parsed yet."""
    path = str(shutil.copytree(data_path, tmp_path / "data"))
    trial = make_trial(data={"path": path})
    return trial.model_copy(update={"network": GsmnSpec(text_graph="sparse")})


def test_batches_bring_parses_where_the_network_reads_them(sparse, chain):
    parse_by_chain(sparse.data.path)
    batches = TrainingBatches(sparse, Dataset.open(sparse.data.path), CPU)
    batch = batches.take(0)
    assert batch.captions.dependencies.sum(dim=(1, 2)).tolist() == (2 * (batch.captions.lengths - 3)).tolist()
    assert batches.describe() == {"dependency_parses": "chain 1"}
    batches.close()


def test_batches_without_parses_are_refused_where_the_network_reads_them(sparse):
    batches = TrainingBatches(sparse, Dataset.open(sparse.data.path), CPU)
    assert batches.describe() == {}
    with pytest.raises(DataError, match="vsetune data parse"):
        batches.take(0)


def test_other_networks_read_no_parses(make_trial, data_path):
    batches = TrainingBatches(make_trial(), Dataset.open(data_path), CPU)
    assert batches.take(0).captions.dependencies is None
    assert batches.describe() == {}
    batches.close()


@pytest.mark.parametrize("parsed", [True, False])
def test_batches_bring_phrases_where_the_network_reads_them_and_the_data_set_has_them(sparse, chain, parsed):
    parse_by_chain(sparse.data.path, phrases=parsed)
    trial = sparse.model_copy(update={"network": MaskingSpec()})
    batches = TrainingBatches(trial, Dataset.open(sparse.data.path), CPU)
    phrases = batches.take(0).captions.phrases
    assert batches.describe() == {"phrases": "chain 1" if parsed else "single words"}
    assert (phrases is not None) == parsed
    if parsed:
        assert phrases[:, 0].nonzero()[:, 1].tolist() == [1] * len(phrases)
    batches.close()


def test_tags_masks_the_phrases_that_its_batches_bring(sparse, small, make_trial, chain, monkeypatch):
    monkeypatch.setattr(chain, "phrases", lambda captions: ([Phrase("object", (1,))] for _ in captions))
    parse_by_chain(sparse.data.path, phrases=True)
    trial = make_trial(data={"path": sparse.data.path}, network=small("tags"))
    dataset = Dataset.open(sparse.data.path)
    batches, learner = TrainingBatches(trial, dataset, CPU), Learner.build(trial, dataset, CPU)
    batch = batches.take(0)
    copies = mask_phrases(batch.captions, learner.network.ids, rate=0.9, copies=3)
    assert copies.is_chosen.nonzero()[:, 1].unique().tolist() == [2]
    assert learner.step(batch).loss.isfinite()
    batches.close()
