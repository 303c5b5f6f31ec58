"""What networks declare: paper, cost of a pair, published recalls, and what the search may vary."""

from __future__ import annotations

import pytest

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.networks.pcme.spec import PcmeNetworkSpec
from vsetune.networks.published_recalls import published_recalls
from vsetune.networks.pvse.spec import PvseNetworkSpec
from vsetune.networks.scan.spec import ScanSpec


# 36 regions, 14 ids, from the table of costs in the papers' terms: a dot product is 2 D
@pytest.mark.parametrize(("name", "flops"), [
    ("vsepp", 2 * 1024), ("vse_infinity", 2 * 1024), ("vsrn", 2 * 2048), ("cgmn", 2 * 2048), ("pvse", 8 * 1024),
    ("pcme", 2 * 1024), ("mse", 2 * 1024), ("malali_keller", 2 * 1024), ("scan", 1.1e6), ("gsmn", 2.1e6),
    ("sgraf_saf", 9.9e6), ("sgraf_sgr", 28.3e6),
    ("tags", 7.7e9),  # 11 layers of 50 tokens, 24 D^2 each, less 6 D^2 in the first, which pairs share
])
def test_the_cost_of_a_pair_is_that_of_its_products(name: str, flops: float) -> None:
    assert NETWORKS[name]().pair_cost(regions=36, words=14).flops == pytest.approx(flops, rel=0.03)


def test_settings_change_the_cost_of_a_pair() -> None:
    assert PvseNetworkSpec(embeddings=1).pair_cost(regions=36, words=14).flops == 2 * 1024
    by_samples = PcmeNetworkSpec(similarity="match_probability").pair_cost(regions=36, words=14)
    assert by_samples.flops == 49 * 2 * 1024
    # 36 x 14 products of 1,024 numbers, then 36 quadratic forms of a 14 x 14 matrix
    to_text = ScanSpec(direction="image_to_text").pair_cost(regions=36, words=14)
    assert to_text.flops == 2 * 36 * 14 * 1024 + 2 * 36 * 14**2


@pytest.mark.parametrize("name", NETWORKS)
def test_published_recalls_are_per_cent_and_grow_with_k(name: str) -> None:
    for row in published_recalls(NETWORKS[name]):
        assert 0 < row.i2t_r1 <= row.i2t_r5 <= row.i2t_r10 <= 100
        assert 0 < row.t2i_r1 <= row.t2i_r5 <= row.t2i_r10 <= 100
        assert row.loss in LOSSES or row.loss == "published"
        assert "Table" in row.source


def test_published_recalls_are_those_of_the_paper() -> None:
    rows = {(row.dataset, row.loss): row for row in published_recalls(NETWORKS["sgraf_saf"])}
    assert (rows["Flickr30K", "lseh"].i2t_r1, rows["Flickr30K", "lseh"].t2i_r10) == (76.2, 88.8)
    assert published_recalls(NETWORKS["pvse"]) == []
    own, of_lseh = (
        row for row in published_recalls(NETWORKS["vse_infinity"]) if (row.dataset, row.loss) == ("Flickr30K", "lmh")
    )
    assert (own.source, own.i2t_r1) == ("LSEH, Table 4", 80.8)
    assert (of_lseh.source, of_lseh.i2t_r1) == ("LSEH, Table 4, LMH2", 74.4)
    quoted = {(row.dataset, row.split): row for row in published_recalls(NETWORKS["scan"])}
    assert (quoted["MS-COCO", "1K"].i2t_r1, quoted["MS-COCO", "1K"].t2i_r10) == (72.7, 94.8)
    assert (quoted["Flickr30K", "test"].i2t_r1, quoted["MS-COCO", "5K"].t2i_r10) == (67.4, 80.4)


def test_published_fractions_are_told_in_per_cent() -> None:
    rows = {(row.source, row.loss): row for row in published_recalls(NETWORKS["mse"])}
    assert rows["Huteau et al., Table 1, ResNet-101", "top_f"].i2t_r1 == 36.0
    assert published_recalls(NETWORKS["malali_keller"])[0].t2i_r1 == 45.5


def test_a_network_with_one_embedding_is_of_another_kind() -> None:
    assert [PvseNetworkSpec(embeddings=count).kind for count in (1, 2)] == ["embedding", "several_embeddings"]
