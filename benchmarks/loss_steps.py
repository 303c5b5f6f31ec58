"""What a loss costs, against LMH on the same batch, taken in turns in one run.

    python benchmarks/loss_steps.py [--repeats 20] [--threads 2] [--device cpu]

Three readings of "cost" for B = 128 and 512, D = 1024:
  step    a whole training step of VSE++: encode, similarity, loss, backward, Adam
  pairs   similarity from given embeddings, loss, backward
  matrix  loss and backward on a given similarity matrix
LUWM also stands against a loop over queries as its released code has it. Medians of the repeats; about eight minutes on
two cores. Expect for the step LSEH <= 1.05 x LMH, LUWM <= 1.3, semantic centre with 1,000 centres <= 2; on a matrix
with five captions per image top-f <= 1.7 at f = 1 and 0 and about 2 in between.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vsetune.config.component_specs import LOSSES, LossSpec
from vsetune.config.study.training import TrainingSpec
from vsetune.losses.loss_base import Items, Loss, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.network_building import build_network
from vsetune.networks.vsepp.spec import VseppSpec
from vsetune.training.step import Optimizers

D, WIDTH, WORDS, VOCABULARY, SEMANTIC, CONCEPTS = 1024, 1280, 14, 5000, 400, 1000
CAPTIONS_PER_IMAGE = 5
WARMUP = 3

PAIRS: dict[str, dict[str, Any]] = {
    "lmh": {}, "lsh": {}, "lseh": {}, "luwm": {}, "irtm": {}, "pvse": {}, "pcme": {}, "info_nce": {}, "nt_xent": {},
    "additive_margin": {}, "many_to_many": {}, "adaptive_margin": {}, "contrastive": {}, "margin_based": {},
    "semantic_center": {}, "semantic_center quantised": {"centers": "quantised", "quantised_centers": CONCEPTS},
}
READ_EMBEDDINGS = ("nt_xent", "pcme", "semantic_center", "semantic_center quantised")  # not the matrix
SEVERAL: dict[str, dict[str, Any]] = {
    "lmh": {}, "top_f f=1": {"min_fraction": 1.0}, "top_f f=0.5": {"min_fraction": 0.5, "decay_steps": 1},
    "top_f f=0.1": {"min_fraction": 0.1, "decay_steps": 1}, "top_f f=0": {"decay_steps": 1}, "info_nce": {},
}


def spec_of(label: str, settings: dict[str, Any]) -> LossSpec:
    return LOSSES[label.split()[0]].model_validate({"name": label.split()[0], **settings})


class Batch:
    """Random items. captions_per_image: 1 gives pairs; more gives images with all their captions."""

    def __init__(self, images: int, captions_per_image: int, device: torch.device) -> None:
        captions = images * captions_per_image
        self.features = torch.randn(images, 1, WIDTH, device=device)
        self.counts = torch.ones(images, dtype=torch.int64, device=device)
        self.tokens = torch.randint(5, VOCABULARY, (captions, WORDS), device=device)
        self.lengths = torch.full((captions,), WORDS, device=device)
        self.image_ids = torch.arange(images, device=device) % CONCEPTS
        self.rows = torch.arange(captions, device=device) // captions_per_image
        self.semantics = torch.randn(captions, SEMANTIC, device=device)
        self.image_vectors = torch.nn.functional.normalize(torch.randn(images, D, device=device), dim=1)
        self.caption_vectors = torch.nn.functional.normalize(torch.randn(captions, D, device=device), dim=1)

    def inputs(self, images: Tensor, captions: Tensor, similarity: Tensor) -> LossInputs:
        return LossInputs(
            similarity, self.image_ids, self.image_ids[self.rows], self.rows, self.semantics,
            images=Items(images), captions=Items(captions),
        )


def step_of(loss: Loss, batch: Batch, device: torch.device) -> Callable[[], None]:
    """A whole training step of a network of its own."""
    torch.manual_seed(0)
    network = build_network(
        VseppSpec(embedding_size=D), regions=1, width=WIDTH, vocabulary_size=VOCABULARY
    ).to(device)
    optimizers = Optimizers(TrainingSpec(), network, loss)

    def run() -> None:
        optimizers.zero_grad()
        images = network.encode_images(batch.features, batch.counts)
        captions = network.encode_captions(batch.tokens, batch.lengths)
        loss(batch.inputs(images, captions, network.similarity(images, captions))).value.backward()
        loss.before_step()
        optimizers.step()
        loss.after_step()

    return run


def pairs_of(loss: Loss, batch: Batch) -> Callable[[], None]:
    """From given embeddings, gradient on the embeddings."""
    images, captions = batch.image_vectors.clone().requires_grad_(), batch.caption_vectors.clone().requires_grad_()

    def run() -> None:
        images.grad = captions.grad = None
        loss.zero_grad(set_to_none=True)
        loss(batch.inputs(images, captions, images @ captions.T)).value.backward()
        loss.before_step()
        loss.after_step()

    return run


def matrix_of(loss: Loss, batch: Batch) -> Callable[[], None]:
    """On a given matrix, gradient on the matrix."""
    similarity = (batch.image_vectors @ batch.caption_vectors.T).requires_grad_()

    def run() -> None:
        similarity.grad = None
        loss.zero_grad(set_to_none=True)
        loss(batch.inputs(batch.image_vectors, batch.caption_vectors, similarity)).value.backward()
        loss.before_step()
        loss.after_step()

    return run


def looped_luwm(batch: Batch) -> Callable[[], None]:
    """LUWM one query at a time, as its released code computes it."""
    similarity = (batch.image_vectors @ batch.caption_vectors.T).requires_grad_()

    def run() -> None:
        similarity.grad = None
        total = similarity.new_zeros(())
        for scores in (similarity, similarity.T):
            for query in range(len(scores)):
                positive = scores[query, query]
                hardest = max(scores[query, other] for other in range(len(scores)) if other != query)
                if positive < 1 - 1e-5 and hardest + 0.2 > positive:
                    pull = 0.5 - 0.7 * positive + 0.2 * positive**2
                    push = 0.03 - 0.4 * hardest + 0.9 * hardest**2
                    total = total + pull.relu() + push.relu()
        (total / len(similarity)).backward()

    return run


def medians(runs: dict[str, Callable[[], None]], repeats: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each, one after the other in every round, so that slow moments hit all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(WARMUP + repeats):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number >= WARMUP:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def build(specs: dict[str, dict[str, Any]], device: torch.device) -> dict[str, Loss]:
    context = LossContext(D, CONCEPTS)
    losses = {label: build_loss(spec_of(label, settings), context).to(device) for label, settings in specs.items()}
    for loss in losses.values():
        loss.start_epoch(1)
        loss.after_step()
    return losses


def report(console: Console, title: str, columns: dict[str, dict[str, float]]) -> None:
    table = Table("loss", *(f"{name}, ms (x LMH)" for name in columns), title=title, title_justify="left")
    for label in next(iter(columns.values())):
        table.add_row(label, *(cell(times, label) for times in columns.values()))
    console.print(table)


def cell(times: dict[str, float], label: str) -> str:
    return f"{1000 * times[label]:.2f} ({times[label] / times['lmh']:.2f})" if label in times else "-"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=20)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--device", default="cpu")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    device, console = torch.device(given.device), Console(width=120)
    for size in (128, 512):
        torch.manual_seed(0)
        batch, repeats = Batch(size, 1, device), given.repeats
        steps = {label: step_of(loss, batch, device) for label, loss in build(PAIRS, device).items()}
        pairs = {label: pairs_of(loss, batch) for label, loss in build(PAIRS, device).items()}
        on_matrix = {label: settings for label, settings in PAIRS.items() if label not in READ_EMBEDDINGS}
        matrices = {label: matrix_of(loss, batch) for label, loss in build(on_matrix, device).items()}
        columns = {
            "step": medians(steps, max(5, repeats // 2), device), "pairs": medians(pairs, repeats, device),
            "matrix": medians(matrices, repeats, device),
        }
        report(console, f"B = {size} pairs, D = {D}, {given.threads} threads, {device}", columns)
        del steps
    for images in (128, 512):
        batch = Batch(images, CAPTIONS_PER_IMAGE, device)
        pairs = {label: pairs_of(loss, batch) for label, loss in build(SEVERAL, device).items()}
        matrices = {label: matrix_of(loss, batch) for label, loss in build(SEVERAL, device).items()}
        columns = {"pairs": medians(pairs, repeats, device), "matrix": medians(matrices, repeats, device)}
        report(console, f"{images} images x {images * CAPTIONS_PER_IMAGE} captions, D = {D}", columns)
    batch = Batch(128, 1, device)
    luwm = build({"luwm": {}}, device)["luwm"]
    times = medians({"loop": looped_luwm(batch), "luwm": matrix_of(luwm, batch)}, 3, device)
    print(f"LUWM, B = 128: loop / vectorised = {times['loop'] / times['luwm']:.0f}")


if __name__ == "__main__":
    main()
