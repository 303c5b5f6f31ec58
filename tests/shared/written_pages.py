"""What the committed Markdown pages say: their blocks, the code in their sentences, their links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Snippet:
    """A piece of a page. line: where it stands, 1-based; of code in a sentence, the line its paragraph begins at.

    language: of a fenced block, as written, `indented` of a block without fences; `inline` of code in a sentence.
    """

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages(*left_out: str) -> list[Path]:
    """Every Markdown page of the repository, but those of these names; caches and environments have none of ours."""
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    found = [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    return sorted(page for page in found if page.name not in left_out)


def blocks(page: Path) -> list[Snippet]:
    """The blocks of code of a page."""
    return [
        Snippet(page, _line(token), token.info.strip() if token.type == "fence" else "indented", token.content)
        for token in _tokens(page) if token.type in ("fence", "code_block")
    ]


def links(page: Path) -> list[Snippet]:
    """What a page links to or shows."""
    return [
        Snippet(page, _line(token), "link", str(child.attrs["href" if child.type == "link_open" else "src"]))
        for token in _tokens(page) for child in token.children or () if child.type in ("link_open", "image")
    ]


def anchors(page: Path) -> set[str]:
    """The names under which a browser finds the headings of a page, as GitHub makes them."""
    tokens = _tokens(page)
    titles = [
        "".join(child.content for child in heading.children or ())
        for opening, heading in pairwise(tokens) if opening.type == "heading_open"
    ]
    return set(_numbered(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles))


def _numbered(names: Iterator[str]) -> Iterator[str]:
    """A name that comes again gets -1, -2, ..."""
    seen: dict[str, int] = {}
    for name in names:
        yield f"{name}-{seen[name]}" if name in seen else name
        seen[name] = seen.get(name, 0) + 1


def _tokens(page: Path) -> list[Token]:
    return _PARSER.parse(page.read_text(encoding="utf-8"))


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 1
