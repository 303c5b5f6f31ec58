"""Metrics of large splits: seconds, peak memory, and the ranking against a plain sort of the whole matrix.

    python benchmarks/metrics_time.py [REPEATS]

Random embeddings (D = 1024, five captions per image) and caption vectors (384 numbers). The large split runs on two
threads; the comparisons run on one, in turns, because two threads wait for one another on busy cores. Half a minute on
free cores. Expect 3 to 5 s and about 0.5 GB for 5,000 x 25,000, both directions; at 1,000 x 5,000 about 0.25 s for the
recalls, 0.75 s for SRD@k, a ratio of ranking to sorting below 0.5, and to the float64 products alone below 1.2.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import rank_averages
from vsetune.metrics.recalls import owner_scores
from vsetune.metrics.score_blocks import EmbeddingScores
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance

CAPTIONS_PER_IMAGE, EMBEDDING_SIZE, VECTOR_SIZE = 5, 1024, 384


def main(repeats: int) -> None:
    torch.set_num_threads(2)
    images, captions, owner = split(5000)
    begin = time.perf_counter()
    owner_scores(EmbeddingScores(images, captions, product), owner)
    seconds = time.perf_counter() - begin
    print(f"{'recalls':14}5,000 x 25,000  {seconds:6.2f} s, peak of the process {peak_megabytes():.0f} MB")

    torch.set_num_threads(1)
    images, captions, owner = split(1000)
    scores = EmbeddingScores(images, captions, product)
    vectors = torch.randn(len(captions), VECTOR_SIZE, generator=torch.Generator().manual_seed(1))
    semantics = CaptionSemantics(vectors, owner, images=len(images), image_score="max")
    positives = Positives.of_owner(owner, images=len(images), captions=len(captions))
    medians = in_turns(repeats, {
        "recalls": lambda: owner_scores(EmbeddingScores(images, captions, product), owner),
        "products": lambda: images.double() @ captions.double().T,
        "plain sort": lambda: sorted_recalls(images, captions, owner),
        "rank averages": lambda: rank_averages(scores, positives),
        "SRD@1, 5, 10": lambda: semantic_ranking_distance(scores, semantics, [1, 5, 10]),
    })
    for name, median in medians.items():
        print(f"{name:14}1,000 x 5,000   {median:6.2f} s, median of {repeats}")
    for other in ("plain sort", "products"):
        print(f"ratio recalls / {other}: {medians['recalls'] / medians[other]:.3f}")


def split(images: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of images and captions, noisy copies of one another, and the owners."""
    generator = torch.Generator().manual_seed(0)
    owner = torch.arange(images).repeat_interleave(CAPTIONS_PER_IMAGE)
    image_embeddings = torch.randn(images, EMBEDDING_SIZE, generator=generator)
    captions = torch.randn(owner.numel(), EMBEDDING_SIZE, generator=generator).mul_(8).add_(image_embeddings[owner])
    return image_embeddings, captions, owner


def product(images: Tensor, captions: Tensor) -> Tensor:
    return images @ captions.T


def sorted_recalls(images: Tensor, captions: Tensor, owner: Tensor) -> list[float]:
    """The six recalls by sorting every row and every column of the whole float32 matrix, as references do."""
    similarity = images @ captions.T
    matches = torch.arange(len(images))[:, None] == owner[None, :]
    recalls = []
    for scores, positives in ((similarity, matches), (similarity.T, matches.T)):
        order = scores.argsort(dim=1, descending=True)
        first = positives.gather(1, order).int().argmax(dim=1)
        recalls += [100 * float((first < k).double().mean()) for k in (1, 5, 10)]
    return recalls


def in_turns(repeats: int, measured: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(repeats + 1):
        for name, run in measured.items():
            begin = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
