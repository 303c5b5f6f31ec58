"""Files spoiled at random: by values nobody expects, by moved, renamed or missing keys, by text that is no YAML."""

from __future__ import annotations

import copy
import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 0.5, -0.5, 10**9, 10**12, 10**22, 2**63 - 1, 2**63, -(2**64), 10**400, 1e308,
    -1e308,
    5e-324, float("nan"), float("inf"), "", " ", "x", "default", "none", "1e-3", "1_000", "0x10", "é\u2028\u0085\ufffe",
    "~nosuchuser/x", "~", "/dev/zero", "s3://bucket/x", "http://[::1", "sqlite:///", "a\0b", "\ud800", "\x1b[31m",
    "a\nb",
    "x" * 300, "y/" * 3000, "${NOWHERE}/x", "../../x", "*", b"\xff\x00", datetime.date(2024, 2, 29), [], {}, [[]], [{}],
    [None], [1, "a", None], {"name": "lmh"}, {"name": 3}, {"a": {"b": {"c": []}}}, {1: 2}, {None: 1}, {True: []},
    {"low": 1, "high": 2}, {"low": "a", "high": []}, {"choices": []}, {"choices": [[1]]}, {"choices": [True, 1,
    1.5, "a"]},
    {"low": -1e308, "high": 1e308}, ["lmh"], [{"epochs": 1}, 3], [{"loss": 3}], [{"loss": {"name": "lsh"}}],
]
"""What any key may be given."""

SNIPPETS = [
    "!!python/object/apply:os.system [ls]", "!!binary aGk=", "!!set {a, b}", "!!omap [a: 1]", "!mine 3", "!!int abc",
    "!!int ''", "!!float ''", "!!bool x", "!!null [a]", "!!map 3", "!!timestamp 2024-02-30", "2024-02-30", "1:30:30.5",
    "9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "0b_", "1" + "0" * 400 + ".0", "[" * 1000, "{a: " * 1000,
    "- " * 1000,
    "? [a]\n: b\n", "{[a]: b}", "{{a: b}: c}", "{1: 2}", "{null: 2}", "{a: 1, a: 2}", "&a [*a]", "&a {b: *a}", "*nope",
    "&a 1", "<<: 3", "{<<: [{a: 1}, {b: 2}]}", "{<<: {study: z}}", "%YAML 99999999999.1\n", "%TAG ! tag:x,2000:\n",
    '"\\U00110000"', '"\\x00"', '"\\uD800"', '"\\uDFFF"', '"\\e[31m"', "\x00", "\x07", "\ufeff", "\u2028", "\t",
    "---\n",
    "...\n", "--- 3\n", "'", '"', "|", ">-9", "|\n  x", ":", "-", "?", "#", "=", "@", "`", "%", "{", "}", "[", "]",
    ",", "\r",
    "&a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
]
"""What may stand anywhere in the text of a file."""

KEYS: list[Any] = [
    "margin", "seed", "name", "label", "phases", "training", "network", "loss", "fixed", "search", "weight", "backbone",
    "tracking", "evaluation", "semantics", "epochs", "embedding_size", "Range", "\0", "\ud800", "", "x" * 300, 3, None,
    True, (1, 2), datetime.date(2024, 2, 29),
]
"""What a key may be called."""

_COMMENT = re.compile(r"(?m)(^| +)#.*$")

LONGEST_LINE = 2000

Place = tuple[str | int, ...]


seeded = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[
        HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
"""The same inputs every time; how long one takes is bounded by the timeout of the test."""


def spoiled(files: Sequence[Path]) -> st.SearchStrategy[bytes]:
    """The bytes of one of these YAML files after up to four mutations."""
    texts = [_COMMENT.sub("", file.read_text(encoding="utf-8")) for file in files]  # nobody reads what changes there
    plains = [yaml.safe_load(text) for text in texts]
    return st.one_of(
        _structures(plains), _structures(plains), _texts(texts), _texts([yaml.safe_dump(each) for each in plains])
    )


def assert_told_in_lines(problems: Sequence[str]) -> None:
    """Every problem is one line that a terminal and a log can show."""
    assert problems
    for line in problems:
        assert line.strip()
        assert len(line.splitlines()) == 1, line
        assert len(line) < LONGEST_LINE, line
        assert "Traceback" not in line
        line.encode()


@st.composite
def _structures(draw: st.DrawFn, plains: list[dict[str, Any]]) -> bytes:
    plain = copy.deepcopy(draw(st.sampled_from(plains)))
    for _ in range(draw(st.integers(1, 3))):
        places = [*_places(plain)]
        if not places:
            break
        at = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace"] * 3 + ["add"] * 3 + ["move", "rename", "delete", "wrap", "swap"]))
        holder, key = _at(plain, at[:-1]), at[-1]
        old = holder[key]
        if change in ("replace", "add"):
            new = copy.deepcopy(draw(st.sampled_from(VALUES)))
            if change == "add" and isinstance(old, dict):
                names = [name for name in map(str, {place[-1] for place in places}) if not name.isdigit()]
                old[draw(st.sampled_from([*sorted(names), *KEYS]))] = new
            elif change == "add" and isinstance(old, list):
                old.append(new)
            else:
                holder[key] = new
        elif change == "wrap":
            holder[key] = draw(st.sampled_from([[old], {"a": old}, {str(key): old}, str(old)]))
        elif change == "swap":
            holder[key] = copy.deepcopy(_at(plain, draw(st.sampled_from(places))))
        else:
            del holder[key]
            if change == "rename" and isinstance(holder, dict):
                name = str(key)
                cut = draw(st.integers(0, len(name)))
                holder[name[:cut] + draw(st.sampled_from(["", "s", "_", " ", "X", "\n"])) + name[cut + 1:]] = old
            if change == "move":
                homes = [place for place in _places(plain) if isinstance(_at(plain, place), dict)]
                _at(plain, draw(st.sampled_from([(), *homes])))[str(key)] = old
    return yaml.safe_dump(plain, sort_keys=False).encode()


@st.composite
def _texts(draw: st.DrawFn, texts: list[str]) -> bytes:
    content = draw(st.sampled_from(texts)).encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from([0, 0, 1, 3, 10, 40])))
        if draw(st.integers(0, 2)):  # in place of a value or of a whole line
            mark = draw(st.sampled_from([b": ", b": ", b"\n"]))
            start = content.find(mark, start) + len(mark)
            end = (content.find(b"\n", start) + len(content) + 1) % (len(content) + 1)
        new = draw(st.one_of(
            st.sampled_from(SNIPPETS).map(str.encode), st.binary(min_size=1, max_size=4),
            st.just(content[start:end] * 2),
        ))
        content = content[:start] + new + content[end:]
    marked = [content.decode("latin-1").encode("utf-16"), b"\xef\xbb\xbf" + content]
    return draw(st.sampled_from([content] * 12 + marked))


def _places(plain: Any, above: Place = ()) -> Iterator[Place]:
    """The path of every value below the top."""
    items = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from _places(value, (*above, key))


def _at(plain: Any, place: Place) -> Any:
    for part in place:
        plain = plain[part]
    return plain
