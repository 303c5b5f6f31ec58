"""Every link of a page leads somewhere, and every page of docs/ is one click away from README."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_pages import ROOT, Snippet, anchors, links, pages

LINKS = [link for page in pages() for link in links(page)]
ELSEWHERE = ("https://", "http://", "mailto:")


def trouble(link: Snippet) -> str | None:
    """What is wrong with a link to this repository; None where nothing is."""
    path, _, anchor = link.text.partition("#")
    target = (link.page.parent / path).resolve() if path else link.page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link.where}: links to {link.text}, which does not exist; correct the path"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target)):
        return f"{link.where}: links to {link.text}, but no heading there gives #{anchor}; correct the anchor"
    return None


@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link.where} {link.text}")
def test_a_link_leads_to_a_file_or_a_heading_of_ours(link: Snippet) -> None:
    assert link.text.startswith(ELSEWHERE) or trouble(link) is None


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_of_docs_is_linked_from_readme(page: Path) -> None:
    assert f"docs/{page.name}" in {link.text.partition("#")[0] for link in links(ROOT / "README.md")}


def test_anchors_are_those_of_github_and_a_wrong_one_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What is `retried`, and what's not?\n## Twice\n## Twice\n### Exit codes: 0-3\n")
    assert anchors(page) == {"what-is-retried-and-whats-not", "twice", "twice-1", "exit-codes-0-3"}
    for text in ("docs/no_such_page.md", "docs/architecture.md#no-such-heading", "../outside.md", "Makefile#help"):
        assert text in str(trouble(Snippet(ROOT / "README.md", 1, "link", text)))
