"""Whether what a page draws has a look: classes inside of its drawings, and those that its style sheet knows."""

from __future__ import annotations

import re
from html.parser import HTMLParser


def without_rule(page: str) -> set[str]:
    """Classes that elements of an svg have, or the svg itself, and that no rule of the page's own <style> names."""
    found = _Drawings(page)
    assert found.classes, "nothing is drawn on this page"
    known = set(re.findall(r"\.([a-zA-Z][\w-]*)", re.sub(r"\{[^{}]*\}", " ", found.style)))
    return found.classes - known


class _Drawings(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.classes: set[str] = set()
        self.style = ""
        self._depth, self._is_style = 0, False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_style = tag == "style"
        self._depth += tag == "svg"
        if self._depth:
            self.classes.update((dict(attrs).get("class") or "").split())

    def handle_endtag(self, tag: str) -> None:
        self._is_style = False
        self._depth -= tag == "svg"

    def handle_data(self, data: str) -> None:
        if self._is_style:
            self.style += data
