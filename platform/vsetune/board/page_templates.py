"""Every HTML page: one environment of templates, which extend `base.html.j2` and share the style sheet `page.css`."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_OURS = "vsetune.board"


@cache
def environment(package: str = _OURS) -> Environment:
    """Templates of the package's folder `templates`, and ours. What values contain is escaped; an unknown name is an
    error."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(each, "templates") for each in dict.fromkeys((package, _OURS))]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )


def render(template: str, package: str = _OURS, **values: Any) -> str:
    """A page or a mail as text."""
    return environment(package).get_template(template).render(**values)
