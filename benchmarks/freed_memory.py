"""Training steps where freed memory is kept, against the same steps where it goes back to the system.

    python benchmarks/freed_memory.py [--repeats 9] [--threads 2] [--networks vsepp,scan,...] [--size 256]

Every network runs in two processes that take turns, one of them after `keep_freed_memory`. B = 64 pairs of 36 regions
of 2,048 numbers, embedding size `--size`, forward and backward with LMH. Prints medians, their ratio, and the most that
either process held. Seen on two quiet cores: 1.0 for VSE++ and VSE-infinity, 1.1 for SCAN, 1.2 for SGRAF and GSMN; held
memory is the same. Small steps gain most: SCAN with D 32 on one core 1.6.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from vsetune.data.freed_memory import keep_freed_memory

NETWORKS = ("vsepp", "vse_infinity", "pvse", "scan", "sgraf_saf", "gsmn")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=9)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--networks", default=",".join(NETWORKS))
    arguments.add_argument("--size", type=int, default=256)
    arguments.add_argument("--steps-of", nargs=2, metavar=("NETWORK", "WAY"), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.steps_of:
        answer(*given.steps_of, size=given.size, threads=given.threads)
        return
    table = Table("network", "given back, ms", "kept, ms", "ratio", "held, GB", title_justify="left",
                  title=f"training step, B = 64, D = {given.size}, {given.threads} threads")
    for name in given.networks.split(","):
        table.add_row(name, *compared(name, given))
    Console(width=100).print(table)


def compared(name: str, given: argparse.Namespace) -> list[str]:
    words = ["--size", str(given.size), "--threads", str(given.threads)]
    processes = {
        way: subprocess.Popen([sys.executable, __file__, *words, "--steps-of", name, way], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
        for way in ("usual", "kept")
    }
    seconds: dict[str, list[float]] = {way: [] for way in processes}
    for _ in range(given.repeats):
        for way, process in processes.items():
            seconds[way].append(float(asked(process, "step")))
    held = {way: asked(process, "held") for way, process in processes.items()}
    for process in processes.values():
        process.communicate()
    usual, kept = (statistics.median(seconds[way]) for way in processes)
    return [f"{1000 * usual:.1f}", f"{1000 * kept:.1f}", f"{usual / kept:.2f}", f"{held['usual']} / {held['kept']}"]


def asked(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def answer(name: str, way: str, *, size: int, threads: int) -> None:
    """One line for each line that is asked: seconds of three steps, each; or GB held at most."""
    from network_steps import held, new_network, training_step

    torch.set_num_threads(threads)
    if way == "kept":
        keep_freed_memory()
    step = training_step(new_network(name, embedding_size=size), 64)
    step()
    for line in sys.stdin:
        if line.strip() == "held":
            print(f"{held():.2f}", flush=True)
            continue
        begin = time.perf_counter()
        for _ in range(3):
            step()
        print((time.perf_counter() - begin) / 3, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
