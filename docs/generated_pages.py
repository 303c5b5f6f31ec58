"""Pages of the site that are made from other files: README as its front page, and the reference from code."""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.testing import CliRunner

import vsetune
from vsetune.cli.main import app
from vsetune.config.spec.base import Spec
from vsetune.config.study.study_spec import StudySpec

_ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs. The files of docs/, with the generated ones."""
    made = {
        "index.md": _from_root("README.md"), "CHANGELOG.md": _from_root("CHANGELOG.md"),
        "CONTRIBUTING.md": _from_root("CONTRIBUTING.md"), "reference/study_file.md": study_file(),
        "reference/losses.md": components("losses"), "reference/networks.md": components("networks"),
        "reference/commands.md": commands(), "reference/python.md": python(),
    }
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Called by MkDocs. Links to files beside docs/ become text, as the site has only pages."""
    def linked(found: re.Match[str]) -> str:
        text, target = found["text"], found["target"].partition("#")[0]
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        place = (Path(page.file.src_uri).parent / target).as_posix()
        return found[0] if files.get_file_from_path(_normal(place)) else text

    return re.sub(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", linked, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Called by MkDocs. Charts of notebooks get their words as alternative text, which notebooks leave out."""
    def described(found: re.Match[str]) -> str:
        label = re.search(r'aria-label="([^"]*)"', base64.b64decode(found["drawn"]).decode())
        return found[0] if label is None else f'<img alt="{label[1]}"{found["source"]}>'

    return re.sub(r'<img(?P<source> src="data:image/svg\+xml;base64,(?P<drawn>[^"]*)")>', described, content)


def anchor(title: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it, so that links hold on both."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


def study_file() -> str:
    """Every setting of a study file, a section for each block."""
    lines = ["# Study file", "", "`vsetune study schema` prints the same as JSON Schema.", ""]
    for place, spec in _blocks(StudySpec, ""):
        lines += [f"## {place or 'Top level'}", "", _meaning(spec), "", *_settings(spec), ""]
    return "\n".join(lines)


def components(plural: str) -> str:
    """All losses or networks with their hyperparameters."""
    found: Sequence[Mapping[str, Any]] = json.loads(_output(plural, "list", "--json"))
    lines = [f"# {plural.capitalize()}", "", f"`vsetune {plural} show NAME` prints one of them.", ""]
    for each in found:
        lines += [f"## {each['name']}", "", each["meaning"], ""]
        lines += [f"    {each['equation']}", ""] if each.get("equation") else []
        lines += [f"Source: {each.get('source') or each.get('paper')}", ""]
        lines += _table(("setting", "default", "allowed", "searched", "meaning"), [
            (
                f"`{one['name']}`", f"`{_value(one['default'])}`", one["allowed"], _domain(one["search"]),
                one["description"] + (f" ({one['source']})" if one["source"] else ""),
            ) for one in each["hyperparameters"]
        ])
        lines.append("")
    return "\n".join(lines)


def commands() -> str:
    """The help of every command."""
    root = typer.main.get_command(app)
    lines = ["# Commands", "", "Every command has `--help`.", ""]
    for name, command in _commands(root, ()):
        context = command.context_class(command, info_name=f"vsetune {name}")
        usage = re.sub(r"{(\w+)}", lambda word: word[1].upper(), " ".join(command.collect_usage_pieces(context)))
        lines += [f"## vsetune {name}", "", inspect.cleandoc(command.help or ""), "", f"    vsetune {name} {usage}", ""]
        rows = [
            (f"`{', '.join(part.opts) if part.param_type_name == 'option' else (part.metavar or part.name.upper())}`",
             _sentence(getattr(part, "help", None)))
            for part in command.params
        ]
        lines += [*_table(("option", "meaning"), rows), ""] if rows else []
        lines += [command.epilog or "", ""]
    return "\n".join(lines)


def python() -> str:
    """The names of `vsetune`, documented from their docstrings."""
    lines = ["# Python", "", "[How to use them](../python.md).", ""]
    for name in vsetune.__all__:
        place = getattr(vsetune, name)
        module = place.__name__ if inspect.ismodule(place) else f"{place.__module__}.{place.__qualname__}"
        lines += [f"::: {module}", "    options:", f"      heading: vsetune.{name}", f"      toc_label: {name}", ""]
    return "\n".join(lines)


def _from_root(name: str) -> str:
    """A page beside docs/, with its links as seen from docs/."""
    text = (_ROOT / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace('src="docs/', 'src="')


def _blocks(spec: type[BaseModel], place: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """(key, block) of a study file, each after the one that it stands in. Losses and networks have their own pages."""
    yield place, spec
    for name, field in spec.model_fields.items():
        for inner, suffix in _specs_in(field.annotation, ""):
            yield from _blocks(inner, f"{place}.{name}{suffix}".lstrip("."))


def _specs_in(annotation: Any, suffix: str) -> Iterator[tuple[type[BaseModel], str]]:
    if inspect.isclass(annotation) and issubclass(annotation, Spec) and _is_block(annotation):
        yield annotation, suffix
    inside = "[]" if annotation and str(annotation).startswith(("list", "tuple")) else suffix
    for each in get_args(annotation):
        yield from _specs_in(each, inside)


def _is_block(spec: type[BaseModel]) -> bool:
    """Whether a spec is a block of its own. Search ranges are values, explained once in docs/studies.md."""
    return spec.__name__ not in ("Range", "Choices")


def _settings(spec: type[BaseModel]) -> list[str]:
    return _table(("key", "default", "meaning"), [
        (f"`{field.alias or name}`", _default(field), _sentence(field.description))
        for name, field in spec.model_fields.items()
    ])


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True) if not field.is_required() else PydanticUndefined
    if value is PydanticUndefined:
        return "required"
    return "see below" if isinstance(value, BaseModel) else f"`{_value(value)}`"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """(words, command) of every command of a group."""
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    context = command.context_class(command)
    for name in command.list_commands(context):
        yield from _commands(command.get_command(context, name), (*path, name))


def _output(*words: str) -> str:
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def _meaning(spec: type[BaseModel]) -> str:
    return inspect.cleandoc(spec.__doc__ or "")


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _domain(plain: Mapping[str, Any] | None) -> str:
    if plain is None:
        return ""
    if "choices" in plain:
        return ", ".join(map(_value, plain["choices"]))
    return f"{plain['low']:g} to {plain['high']:g}{', log' if plain['log'] else ''}"


def _value(value: Any) -> str:
    """As it stands in a study file."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = ([each.replace("|", "\\|").replace("\n", " ") for each in row] for row in rows)
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def _normal(place: str) -> str:
    """The path without `..`."""
    parts: list[str] = []
    for part in place.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
