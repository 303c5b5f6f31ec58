"""Our LaTeX: its structure read by a small parser everywhere, and set by pdflatex where TeX is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from board_attempts import NEW

from vsetune.board.building import build
from vsetune.board.export import to_latex, to_markdown
from vsetune.board.many_studies import StudyAttempts, build_many
from vsetune.board.paper_table import paper_table
from vsetune.board.table_filling import fill
from vsetune.board.table_formats import to_latex as paper_to_latex
from vsetune.board.table_text import tex

NASTY = r"a_b%c&d#e~f^g$h{i}j\k<l>"
PDFLATEX = shutil.which("pdflatex")
_CELLS = re.compile(r"\\multicolumn\{(\d+)\}")
_LIVE = re.compile(r"(?<!\\)[%#&~]")


def check(text: str) -> int:
    """Number of tables. Braces and environments close, every line of a tabular has the columns of its head, and no sign
    with a meaning stands unescaped outside a tabular."""
    assert text.isascii() or not set(text) - set(map(chr, range(128))) - set("−–±∞†×·’éöäü¼½≥≤")
    depth, stack = 0, []
    for token in re.findall(r"\\[{}\\]|[{}]", text):
        depth += {"{": 1, "}": -1}.get(token, 0)
        assert depth >= 0
    assert depth == 0
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if word == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    for sides, body in re.findall(r"\\begin\{tabular\}\{([lrc]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert lines
        for line in lines:
            cells = re.split(r"(?<!\\)&", line)
            spans = [int(found.group(1)) if (found := _CELLS.search(cell)) else 1 for cell in cells]
            assert sum(spans) == len(sides), line
    outside = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}|^% needs.*$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not _LIVE.search(outside)
    return text.count(r"\begin{table}")


@pytest.fixture
def nasty(attempt):
    """One study whose name and losses have every sign that LaTeX takes for its own."""
    attempts = [attempt("lmh"), attempt(NASTY, NEW), attempt("top_f", NEW, batch_unit=NASTY)]
    return build([replace(each, start=replace(each.start, study=NASTY)) for each in attempts], baseline="lmh")


@pytest.fixture
def texts(nasty, several, attempt):
    paper = fill(paper_table("lseh_table3"), [StudyAttempts("a_b", "lmh", [
        attempt(loss, recalls, seed=1, phase="confirm", dataset="flickr30k")
        for loss, recalls in (("lmh", NEW), ("lseh", NEW))
    ])])
    return {
        "board": to_latex(nasty), "several": to_latex(build_many(several)), "paper": paper_to_latex(paper),
    }


@pytest.mark.parametrize(("name", "tables"), [("board", 1), ("several", 3), ("paper", 1)])
def test_tables_are_well_formed(texts, name, tables):
    assert check(texts[name]) == tables


def test_the_table_of_a_board_has_no_shell_commands(golden, texts):
    """A board that tells more in other forms: how to train a baseline longer, and to run more seeds."""
    for text in (to_latex(golden), texts["board"], texts["several"]):
        assert "vsetune " not in text
        assert "-{}-" not in text
    assert "vsetune leaderboard repeat" in to_markdown(golden)


@pytest.mark.parametrize("broken", [
    "\\begin{tabular}{lr}\na & b & c \\\\\n\\end{tabular}", r"\begin{table}", "}{", "{", "50 % of it", "a & b",
])
def test_the_parser_finds_what_is_broken(broken):
    with pytest.raises(AssertionError):
        check(broken)


@pytest.mark.parametrize(("text", "latex"), [
    (NASTY, r"a\_b\%c\&d\#e\textasciitilde{}f\textasciicircum{}g\$h\{i\}j\textbackslash{}k$<$l$>$"),
    ("study confirm demo --seeds 8 – a-b ---", "study confirm demo -{}-seeds 8 -- a-b -{}-{}-"),
])
def test_signs_with_a_meaning_are_escaped_and_hyphens_of_options_stay_two(text, latex):
    assert tex(text) == latex


@pytest.mark.slow
@pytest.mark.skipif(PDFLATEX is None, reason="no TeX on this machine")
@pytest.mark.parametrize("name", ["board", "several", "paper", *(
    f"lseh_table{number}" for number in (4, 5, 6, 7)), "zhang_table2", "zhang_table3", "mse_table1", "mse_table2"])
def test_pdflatex_sets_it(texts, name, tmp_path):
    text = texts[name] if name in texts else paper_to_latex(fill(paper_table(name), []))
    (tmp_path / "table.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n" + text + "\\end{document}\n"
    )
    done = subprocess.run(
        [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "table.tex"], cwd=tmp_path, capture_output=True,
        text=True, errors="replace", timeout=120, check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "LaTeX Warning: Reference" not in done.stdout
