"""What `vsetune networks list/show` say of a network beside its hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

from rich.table import Column, Table
from rich.text import Text

from vsetune.config.study.compatibility import mismatch
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.networks.network_spec import NetworkSpec
from vsetune.networks.published_recalls import published_recalls

REGIONS, WIDTH, WORDS, VOCABULARY = 36, 2048, 14, 10_000
"""Sizes that parameters and costs are told for: 36 regions of 2,048, captions of 12 words, 10,000 ids."""


def network_facts(spec: NetworkSpec, name: str) -> dict[str, Any]:
    """Plain data; parameters and cost at the sizes above."""
    cost = spec.pair_cost(regions=REGIONS, words=WORDS)
    return {
        "paper": spec.source, "kind": spec.kind, "similarity": spec.score, "parameters": _parameters(spec),
        "flops_per_pair": cost.flops, "needs_dependencies": spec.reads.dependencies, "reads_boxes": spec.reads.boxes,
        "reads_phrases": spec.reads.phrases, "reads_siblings": spec.reads.siblings,
        "may_read_pixels": _may_read_pixels(spec), "stop_gradient": spec.stop_gradient,
        "losses": [key for key, loss in LOSSES.items() if mismatch(spec, loss(), batch_unit="pairs") is None],
        "published": [asdict(row) for row in published_recalls(type(spec))],
    }


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """For people, one fact a line."""
    needs = ["dependency parses of the captions"] * facts["needs_dependencies"]
    needs += ["boxes of the regions, or a grid"] * facts["reads_boxes"]
    needs += ["phrases of the captions, or single words"] * facts["reads_phrases"]
    needs += ["photographs instead of features with image_input: pixels"] * facts["may_read_pixels"]
    needs += ["in training all captions of an image"] * facts["reads_siblings"]
    return [
        f"paper: {facts['paper']}",
        f"kind: {facts['kind']}; similarities: {facts['similarity']}",
        f"parameters: {facts['parameters']:,}; comparing a pair: {flops_text(facts['flops_per_pair'])} "
        f"({REGIONS} regions of {WIDTH:,}, {WORDS} ids in a caption of {VOCABULARY:,})",
        *([f"reads: {'; '.join(needs)}"] if needs else []),
        *([f"without gradient: {facts['stop_gradient']}"] if facts["stop_gradient"] else []),
        f"losses that train it: {', '.join(facts['losses'])}",
        *([] if facts["published"] else ["published recalls: none in the papers at hand"]),
    ]


def published_table(facts: Mapping[str, Any]) -> Table | None:
    """Recalls as the papers print them; None where the papers at hand print none."""
    if not facts["published"]:
        return None
    table = Table(
        "data", "loss", Column("image to text", no_wrap=True), Column("text to image", no_wrap=True), "source",
        title="Published R@1, R@5, R@10 in per cent, with the features and settings of the paper",
        title_justify="left",
    )
    for row in facts["published"]:
        sides = [" ".join(f"{row[f'{side}_r{k}']:.1f}" for k in (1, 5, 10)) for side in ("i2t", "t2i")]
        table.add_row(*map(Text, (f"{row['dataset']} {row['split']}", row["loss"], *sides, row["source"])))
    return table


def flops_text(flops: float) -> str:
    """`2 kFLOP`, `9.9 MFLOP`."""
    return f"{flops / 1e6:.1f} MFLOP" if flops >= 1e6 else f"{flops / 1e3:.0f} kFLOP"


def _may_read_pixels(spec: NetworkSpec) -> bool:
    field = type(spec).model_fields.get("image_input")
    return field is not None and "pixels" in get_args(field.annotation)


def _parameters(spec: NetworkSpec) -> int:
    import torch  # a second, which no other command of the catalogue should take

    from vsetune.networks.network_building import build_network

    with torch.device("meta"):  # shapes without memory or arithmetic
        network = build_network(spec, regions=REGIONS, width=WIDTH, vocabulary_size=VOCABULARY)
    return sum(parameter.numel() for parameter in network.parameters())
