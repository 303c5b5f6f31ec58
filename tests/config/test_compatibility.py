"""The whole matrix of networks and losses: what trains, and what is refused with a reason."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from refusals import fits

from vsetune.config.component_specs import LOSSES, NETWORKS, NetworkSpec
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError
from vsetune.losses.many_to_many.spec import ManyToManySpec
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.pcme.spec import PcmeNetworkSpec
from vsetune.networks.pvse.spec import PvseNetworkSpec
from vsetune.networks.scan.spec import ScanSpec
from vsetune.networks.vsepp.spec import VseppSpec

ANY = {"lsh", "lmh", "lseh", "top_f", "info_nce", "clip", "irtm"}  # read similarities alone
SEVERAL = {"adaptive_margin", "contrastive", "margin_based", "pvse"}  # cosines of one or several embeddings
BOUNDED = {"luwm"}  # cosines or probabilities
COSINES = {"additive_margin", "many_to_many", "siglip", "hcl"} | BOUNDED
ONE = ANY | COSINES | SEVERAL | {"semantic_center", "nt_xent", "pcme", "pcme_pp"}  # one embedding of unit length
EXPECTED: dict[str, set[str]] = {
    "vsepp": ONE, "vsrn": ONE, "vse_infinity": ONE, "cgmn": ONE, "mse": ONE, "malali_keller": ONE,
    "dual_encoder": ONE,
    "pvse": ANY | COSINES | SEVERAL,
    "pcme": ANY | {"additive_margin", "pcme", "pcme_pp"},
    "scan": ANY | {"additive_margin"},
    "gsmn": ANY | {"additive_margin"},
    "sgraf_saf": ANY | BOUNDED | {"additive_margin"},
    "sgraf_sgr": ANY | BOUNDED | {"additive_margin"},
    "tags": ANY | BOUNDED | {"additive_margin"},
}
"""Losses that train a network, both at their default settings."""

SETTINGS: list[tuple[NetworkSpec, set[str]]] = [
    (PvseNetworkSpec(embeddings=1), ONE),
    (PcmeNetworkSpec(similarity="mean"), ANY | COSINES | {"pcme", "pcme_pp"}),
    (ScanSpec(pooling="mean"), ANY | COSINES),
    (VseppSpec(normalize_images=False), ANY | {"additive_margin", "pcme", "pcme_pp"}),
    (VseppSpec(absolute=True, similarity="order"), ANY | {"order"}),
]


def fitting(network: NetworkSpec) -> set[str]:
    return {name for name, loss in LOSSES.items() if mismatch(network, loss(), batch_unit="pairs") is None}


def test_the_table_names_every_network() -> None:
    assert EXPECTED.keys() == NETWORKS.keys()


def test_the_losses_of_a_network_are_those_of_the_table() -> None:
    assert {name: fitting(spec()) for name, spec in NETWORKS.items()} == EXPECTED


@pytest.mark.parametrize(("network", "losses"), SETTINGS)
def test_settings_of_a_network_change_which_losses_fit(network: NetworkSpec, losses: set[str]) -> None:
    assert fitting(network) == losses


def test_every_combination_validates_or_is_refused_in_one_line() -> None:
    cases = itertools.product(NETWORKS, LOSSES, ("pairs", "images"))
    assert [problem for case in cases for problem in problems_with(*case)] == []


def problems_with(network: str, loss: str, batch_unit: Any) -> list[str]:
    """What is wrong with how a trial of this combination is taken or refused."""
    case = f"{network}.{loss}, batches of {batch_unit}: "
    reason = mismatch(NETWORKS[network](), LOSSES[loss](), batch_unit=batch_unit)
    plain = {
        "study": "s", "trial": "t", "cell": "c", "data": {"path": "d"}, "seed": 0, "network": {"name": network},
        "loss": {"name": loss}, "training": {"batch_unit": batch_unit},
    }
    try:
        trial = parse_spec(plain, TrialSpec, where="trial")
    except ConfigError as error:
        is_told = reason is not None and error.problems == [reason.at("trial")] and "; " in reason
        return [] if is_told else [f"{case}refused with {error.problems}, need the reason {reason!r} alone"]
    if reason is not None or loss not in EXPECTED[network]:
        return [f"{case}taken, though the table or the reason {reason!r} refuses it"]
    same = (trial.network, trial.loss) == (NETWORKS[network](), LOSSES[loss]())
    return [] if same else [f"{case}became {trial.network!r} with {trial.loss!r}"]


def test_a_batch_of_images_with_all_their_captions_needs_a_loss_of_several_positives() -> None:
    found, expected = {}, {}
    for network, spec in NETWORKS.items():
        found[network] = {
            name for name, loss in LOSSES.items() if mismatch(spec(), loss(), batch_unit="images") is None
        }
        several = {name for name in EXPECTED[network] if LOSSES[name].several_positives}
        expected[network] = set() if network == "cgmn" else several
    assert found == expected


def test_the_sentence_loss_takes_probabilities_when_told_so() -> None:
    network = NETWORKS["sgraf_saf"]()
    assert mismatch(network, ManyToManySpec(similarity_range="unit"), batch_unit="pairs") is None
    reason = mismatch(network, ManyToManySpec(), batch_unit="pairs")
    assert reason is not None
    assert fits(reason, "VSE-C062")


def test_cgmn_takes_batches_of_images_without_its_own_loss() -> None:
    loss = LOSSES["lmh"]()
    assert mismatch(CgmnSpec(matching_weight=0), loss, batch_unit="images") is None
    reason = mismatch(CgmnSpec(), loss, batch_unit="images")
    assert reason is not None
    assert fits(reason, "VSE-C064", network="cgmn", weight="matching_weight")
