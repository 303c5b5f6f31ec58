"""Whatever an encoder leaves behind its items, what is compared has zeros there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.encoded import Encoded
from vsetune.networks.gsmn.network import Gsmn
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.networks.scan.network import Scan
from vsetune.networks.scan.spec import ScanSpec
from vsetune.networks.sgraf.network import Sgraf
from vsetune.networks.sgraf.spec import SgrafSgrSpec
from vsetune.networks.tags.network import Tags
from vsetune.networks.tags.spec import TagsSpec

REGIONS, WORDS, WIDTH, VOCABULARY = 5, 6, 4, 12
LENGTHS, COUNTS = torch.tensor([2, 6, 1]), torch.tensor([5, 1, 3])


def littered(items: Encoded, litter: float) -> Encoded:
    """The items with this number wherever there is nothing."""
    assert items.lengths is not None
    is_behind = torch.arange(items.vectors.shape[1]) >= items.lengths[:, None]
    vectors = items.vectors.masked_fill(is_behind[..., None], litter)
    if items.links is None:
        return replace(items, vectors=vectors)
    return replace(items, vectors=vectors, links=items.links.masked_fill(is_behind[:, None], litter))


def make(network: type[Network], spec: NetworkSpec) -> Any:
    """Whose encoders leave `litter` behind the last region and the last word."""

    class Littering(network):  # type: ignore[valid-type, misc]
        litter = 0.0

        def encode_images(self, images: ImageInputs) -> Encoded:
            return littered(super().encode_images(images), self.litter)

        def encode_captions(self, captions: CaptionInputs) -> Encoded:
            return littered(super().encode_captions(captions), self.litter)

    torch.manual_seed(0)
    sizes = {"regions": REGIONS} if network.needs_regions else {}
    return Littering(spec, width=WIDTH, vocabulary_size=VOCABULARY, **sizes).double().eval()


SIZES = {"embedding_size": 8, "word_size": 4}
CASES = {
    "scan": (Scan, ScanSpec(**SIZES)),
    "scan, regions attend": (Scan, ScanSpec(**SIZES, direction="image_to_text")),
    "sgr": (Sgraf, SgrafSgrSpec(**SIZES, similarity_size=6)),
    "gsmn": (Gsmn, GsmnSpec(**SIZES, blocks=2, kernels=2, hidden_size=4)),
    "tags": (Tags, TagsSpec(**SIZES, layers=2, heads=2)),
}


@pytest.mark.parametrize("litter", [1e3, float("nan")])
@pytest.mark.parametrize("case", CASES)
def test_what_an_encoder_leaves_behind_its_items_never_reaches_a_score(case: str, litter: float) -> None:
    network = make(*CASES[case])
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    boxes = torch.tensor([0.1, 0.1, 0.5, 0.5], dtype=torch.float64).expand(3, REGIONS, 4)
    tokens = torch.randint(1, VOCABULARY, (3, WORDS), generator=generator)
    captions = CaptionInputs(tokens.masked_fill(torch.arange(WORDS) >= LENGTHS[:, None], 0), LENGTHS)
    scores = []
    for network.litter in (0.0, litter):
        encoded = network.encode_images(ImageInputs(features, COUNTS, boxes)), network.encode_captions(captions)
        scores.append(network.similarity(*encoded))
        assert all((items.vectors[2, int(length):] == 0).all() for items, length in zip(encoded, (3, 1), strict=True))
    assert torch.equal(*scores)


def test_items_without_padding_are_handed_on_as_they_are() -> None:
    whole, full = Encoded(torch.ones(2, 3)), Encoded(torch.ones(2, 3, 4), torch.tensor([3, 3]))
    assert whole.without_padding() is whole
    assert full.without_padding() is full
