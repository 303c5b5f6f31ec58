"""The sweeps: short trials of a tiny VSE++ on the embedded scenes, read from S3. Two kinds, each on two stores.

`successive`: one trial at a time, TPE, successive halving, two confirming seeds. What is asked depends on everything
that happened before, so an interrupted sweep that forgets or repeats anything takes another path.
`pairs`: two trials at a time, drawn at random, none stopped early. The order in which trials end may differ, what each
gives may not.
On a file checkpoints take their share of the time, as they do by default, so that kills have validations repeated; on a
server each validation has one. Neither may change a result, so both are held against the same undisturbed run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

DATA = "s3://chaos/scenes"
SILENCE_TIMEOUT_S = 25.0
_EPOCHS = 8

Kind = Literal["successive", "pairs"]
Store = Literal["file", "server"]


@dataclass(frozen=True)
class Sweep:
    """One study on one store: the SQLite file under the home folder, or a server. number: counts sweeps."""

    number: int
    kind: Kind
    store: Store
    seed: int

    @property
    def name(self) -> str:
        return f"{self.study_name}_{self.store}"

    @property
    def study_name(self) -> str:
        """The same for both stores, where the study is the same too: one undisturbed run stands for both."""
        return f"{self.kind}_{self.seed}"

    @property
    def fewest_trials(self) -> int:
        """How many trials it comes to at least: two cells, each with its configurations and its confirming seeds.
        Epochs that stopped trials leave over go to further configurations."""
        study = self.study(has_silence_timeout=False)
        return 2 * (int(study["search"]["configurations"]) + len(study["seeds"]) - 1)

    def study(self, *, has_silence_timeout: bool) -> dict[str, Any]:
        """The study file as plain data. has_silence_timeout: a stopped worker is given up after SILENCE_TIMEOUT_S."""
        silence: dict[str, Any] = {"silence_timeout_s": SILENCE_TIMEOUT_S} if has_silence_timeout else {}
        plain: dict[str, Any] = {
            "study": self.study_name,
            "data": {"path": DATA},
            "networks": [{"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}],
            "losses": [{"name": "lmh", "search": {"margin": "default"}}, {"name": "info_nce"}],
            "baseline": "lmh",
            "training": {
                "epochs": _EPOCHS, "batch_size": 20, "validate_every_steps": 25, "learning_rate": 1e-3,
            },
            "search": {
                "seed": self.seed, "training": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
            },
        }
        if self.kind == "successive":
            plain["search"] |= {"sampler": "tpe", "configurations": 5}
            plain["scheduler"] = {"kind": "asha", "grace_epochs": 2, "reduction_factor": 2}
            plain["seeds"] = [0, 1, 2]
            plain["resources"] = {"cpus": 1, "concurrent_trials": 1} | silence
        else:
            plain["search"] |= {"sampler": "random", "configurations": 4}
            plain["scheduler"] = {"kind": "none"}
            plain["seeds"] = [0, 1]
            plain["resources"] = {"cpus": 1, "concurrent_trials": 2} | silence
        if self.store == "server":
            plain["resources"]["checkpoint_share"] = 1
        return plain

    def write(self, folder: Path, *, has_silence_timeout: bool) -> Path:
        """The study file."""
        path = folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(self.study(has_silence_timeout=has_silence_timeout), sort_keys=False))
        return path


def sweep(number: int, *, seed: int) -> Sweep:
    """The sweep with this number (from 0): every study on both stores, kinds in turn."""
    kind: Kind = "successive" if number % 4 < 2 else "pairs"
    store: Store = "file" if number % 2 == 0 else "server"
    return Sweep(number, kind, store, seed=100 * seed + number // 2)


def write_recipe(folder: Path) -> Path:
    """The recipe of the data set that every sweep reads."""
    path = folder / "scenes.yaml"
    path.write_text(yaml.safe_dump({
        "name": "scenes", "output": str(folder / "scenes"), "upload": DATA,
        "source": {"layout": "scenes", "train": 200, "validation": 50, "test": 10, "seed": 0},
        "features": {"extractor": "pixels", "grid": 6},
    }))
    return path
