"""Runs a folder of small inputs that once failed, and holds what each command prints against what is right.

    python benchmarks/cases.py FOLDER [--only NAME ...]

FOLDER/NAME has the input, and mostly the command in `cmd`. In both, CASES stands for FOLDER. A case is right if its
exit code is the stated one and its output has the stated words. Exits with 1 if one is wrong, or has no entry here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Right(NamedTuple):
    """words: regular expressions, each in the output. command: in place of the folder's `cmd`."""

    code: int
    words: tuple[str, ...]
    command: str = ""


RUN = "vsetune study run {}"
CLASSES = {"lmh": "LMH", "clip": "CLIP", "semantic_center": "SemanticCenter"}
"""Scripts of the cases call losses by the names they had before they were classes; the copy calls the classes."""
LONG = f"/tmp/{'x' * 70}"
CASES = {
    "choices_same_value": Right(2, ("C520",), "vsetune study validate CASES/strmix/study.yaml"),
    "explain_choices": Right(0, ("ch",), f"{RUN.format('study.yaml')} > /dev/null && vsetune study explain ch"),
    "f02_six_captions": Right(0, ("12 images, 72 captions", "4 images, 24 captions", "every 6th row")),
    "gitignore": Right(0, (r"sent by Ray: .*loss\.py",), "python sent.py"),
    "gitignored_plugin_file": Right(0, (r"sent by Ray: .*loss\.py",), "cd CASES/gitignore && python sent.py"),
    "home_s3_one_slash": Right(2, ("s3:",), "VSETUNE_HOME=s3:/bucket/prefix vsetune study run CASES/one.yaml"),
    "k10_train_only_capital": Right(2, ("splits: {Train: train, Val: validation, Test: test}",)),
    "k17_backslash": Right(2, (r"img: found nothing there",)),
    "l01_caption_rows_permuted": Right(0, (r"LMH .*with caption_rows (\S+) .*in order \1",)),
    "l02_half_zero_vector": Right(0, (r"float16 5\.28", r"float32 5\.28")),
    "l04_save_module": Right(0, ("saved",)),
    "l05_semantic_center_adamw": Right(0, ("ok",)),
    "plan_in_container": Right(2, ("2 CPUs",), "taskset -c 0 vsetune study plan cg.yaml"),
    "shadowed_module": Right(0, ("1 finished",), RUN.format("one.yaml")),
    "strmix": Right(2, ("C520",), "vsetune study validate study.yaml"),
    "t11_token_u2028": Right(0, ("8 images, 10 captions",)),
    "t13_nfc_nfd": Right(0, ("8 images, 8 captions",)),
    "t20_empty_captions": Right(0, ("left out 3 empty captions",)),
    "t33_two_tabs": Right(0, ("8 images, 16 captions",)),
    "tmpdir_long": Right(2, ("TMPDIR",), f"mkdir -p {LONG}; TMPDIR={LONG} {RUN.format('CASES/one.yaml')}"),
    "w01_clipbench_lines": Right(0, ("captions: txt_lines",)),
    "w02_dots_in_key": Right(0, ("6 of 12 samples are left out", "key_ends_at")),
    "w05_input_jpg": Right(2, (r"\.input\.jpg",)),
    "w07_not_adjacent": Right(2, ("tar --sort=name",)),
    "w10_txt_kinds": Right(0, ("9 images", "UTF-16", "NUL", "latin-1", "2 caption is empty")),
    "w13_tar_gz_named_tar": Right(2, ("gzip",)),
    **dict.fromkeys(("w16_narrow_space_name", "w17_ideographic_space", "w18_pax_folder_then_file", "w30_sparse"),
                    Right(0, ("train: 6 images, 6 captions",))),
    "w19_pax_link_then_file": Right(0, ("train: 6 images", "a link")),
    "w24_glob": Right(0, ("train: 6 images",)),
    "w32_contiguous": Right(0, ("train: 7 images",)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    asked = parser.parse_args()
    names = sorted(path.name for path in asked.folder.iterdir() if path.is_dir())
    table, wrong = Table("case", "right", "seen"), 0
    with tempfile.TemporaryDirectory(prefix="cases") as made:
        copied = Path(made) / "cases"
        shutil.copytree(asked.folder, copied)
        for path in copied.rglob("*"):
            path.chmod(path.stat().st_mode | 0o200)
            if path.is_file() and (path.name == "cmd" or path.suffix in (".yaml", ".py")):
                text = path.read_text().replace("CASES", str(copied))
                path.write_text(re.sub(r"(vsetune\.losses)\.(\w+)\(", _class_called, text))
        for name in asked.only or names:
            flaw = judged(name, copied)
            wrong += bool(flaw)
            table.add_row(name, "no" if flaw else "yes", flaw)
    Console().print(table)
    return min(wrong, 1)


def _class_called(call: re.Match[str]) -> str:
    package, name = call.groups()
    return f"{package}.{CLASSES[name]}("


def judged(name: str, copied: Path) -> str:
    """What is wrong with a case; empty if nothing is."""
    right = CASES.get(name)
    if right is None:
        return "no entry in this file says what is right"
    command = right.command.replace("CASES", str(copied)) or (copied / name / "cmd").read_text()
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            ["bash", "-c", command], cwd=copied / name, capture_output=True, text=True, timeout=300,
            env=os.environ | {"VSETUNE_HOME": home, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
    said = " ".join((done.stdout + done.stderr).split())
    missing = [words for words in right.words if not re.search(words, said)]
    if done.returncode == right.code and not missing:
        return ""
    return f"exit {done.returncode}, without {missing}: {said[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
