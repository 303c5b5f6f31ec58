"""`vsetune losses` and `vsetune networks`: what can be compared, and every hyperparameter of it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli.network_facts import fact_lines, flops_text, network_facts, published_table
from vsetune.cli.output import complain, print_json, results, say
from vsetune.config.spec.base import Choices, Domain, Spec, conditions, known_name, tunables
from vsetune.config.spec.kinds import Kind, Score
from vsetune.config.study.cells import Cell
from vsetune.config.study.compatibility import mismatch
from vsetune.errors import UsageError
from vsetune.jobs.study_file import load_study
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.losses.loss_spec import LossSpec
from vsetune.networks.network_catalogue import NETWORKS
from vsetune.networks.network_spec import NetworkSpec
from vsetune.plugins.plugin_loading import load_installed, load_plugin

losses = typer.Typer(
    no_args_is_help=True, help="What losses there are, and their hyperparameters.",
    epilog="Example: vsetune losses show lseh",
)
networks = typer.Typer(
    no_args_is_help=True, help="What networks there are, and their hyperparameters.",
    epilog="Example: vsetune networks show vse_infinity",
)

Name = Annotated[str, typer.Argument(help="name as in a study file", show_default=False)]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugins", metavar="PATH", help="a folder or module of your own, or a study file that names them"),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")]
_LIMITS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"), ("multiple_of", "multiple of"))


@losses.command("list", epilog="Example: vsetune losses list")
def list_losses(as_json: Json = False, plugins: Plugins = None) -> None:
    """List the losses, with what a study searches unless told otherwise."""
    _know(plugins)
    _list(LOSSES, as_json=as_json)


@losses.command("show", epilog="Example: vsetune losses show lseh")
def show_loss(name: Name, as_json: Json = False, plugins: Plugins = None) -> None:
    """Show a loss: where it comes from, and every hyperparameter."""
    _know(plugins)
    _show(name, LOSSES, "loss", as_json=as_json)


@networks.command("list", epilog="Example: vsetune networks list")
def list_networks(as_json: Json = False, plugins: Plugins = None) -> None:
    """List the networks, with what `search: default` varies."""
    _know(plugins)
    _list(NETWORKS, as_json=as_json)


@networks.command("show", epilog="Example: vsetune networks show vse_infinity")
def show_network(name: Name, as_json: Json = False, plugins: Plugins = None) -> None:
    """Show a network: where it comes from, and every hyperparameter."""
    _know(plugins)
    _show(name, NETWORKS, "network", as_json=as_json)


def _know(plugins: list[str] | None) -> None:
    """Those of installed packages are known without being named; what is wrong with one is told."""
    _, broken = load_installed()
    for problem in broken.values():
        complain("warning", problem)
    for each in plugins or []:
        if Path(each).suffix in (".yaml", ".yml") and Path(each).is_file():
            load_study(Path(each))
        else:
            load_plugin(each, base=Path.cwd())


def describe(name: str, spec: type[Spec]) -> dict[str, Any]:
    """A component as plain data: name, meaning, facts, and its hyperparameters in order of declaration."""
    return {
        "name": name, "meaning": inspect.getdoc(spec) or "", **_facts(spec), "hyperparameters": _hyperparameters(spec),
    }


def _hyperparameters(spec: type[Spec], prefix: str = "") -> list[dict[str, Any]]:
    """Of a spec and of the specs that its fields hold: `backbone.model`."""
    domains, needed = dict(tunables(spec)), conditions(spec)
    found = []
    for key, field in spec.model_fields.items():
        if isinstance(field.default, Spec):
            found += _hyperparameters(type(field.default), f"{prefix}{key}.")
        elif prefix or key != "name":
            found.append({
                "name": prefix + key, "default": field.get_default(), "allowed": _allowed(field),
                "search": domains[key].to_plain() if key in domains else None, "when": needed.get(key, {}),
                "description": field.description or "", "source": _paper(field),
            })
    return found


def _facts(spec: type[Spec]) -> dict[str, Any]:
    """What a spec declares beside its fields."""
    if issubclass(spec, LossSpec):
        loss = spec()
        return {
            "equation": spec.equation, "source": spec.source, "network_kinds": sorted(spec.kinds),
            "similarities": sorted(spec.scores), "networks": _partners(loss),
            "semantic_vectors": loss.semantic_source, "batch_units": ["pairs", *["images"] * spec.several_positives],
            "stop_gradient": loss.stop_gradient,
        }
    if issubclass(spec, NetworkSpec):
        return network_facts(spec(), str(spec.model_fields["name"].default))
    return {}


def _partners(loss: LossSpec) -> list[str]:
    """Networks this loss can train, both as they are by default."""
    return [name for name, spec in NETWORKS.items() if mismatch(spec(), loss, batch_unit="pairs") is None]


def _list(specs: Mapping[str, type[Spec]], *, as_json: bool) -> None:
    if as_json:
        print_json([describe(name, spec) for name, spec in specs.items()])
        return
    table = Table(
        Column("name", no_wrap=True), "what it is", "network gives", Column("searched by default", overflow="fold")
    )
    for name, spec in specs.items():
        meaning = " ".join((inspect.getdoc(spec) or "").split("\n\n")[0].split())
        table.add_row(*map(Text, (name, meaning, _gives(_facts(spec)), ", ".join(key for key, _ in tunables(spec)))))
    results.print(table)


def _gives(facts: Mapping[str, Any]) -> str:
    """What a loss takes; what a network gives, and at what cost."""
    if "network_kinds" in facts:
        return _kinds_text(facts["network_kinds"], facts["similarities"])
    kind = str(facts["kind"]).replace("_", " ")
    return f"{kind}; {facts['parameters'] / 1e6:.0f} M parameters, {flops_text(facts['flops_per_pair'])} per pair"


def _kinds_text(kinds: list[str], scores: list[str]) -> str:
    """`any`, or what a loss needs: kinds of networks, and of similarities where it matters."""
    needs = "any kind" if len(kinds) == len(get_args(Kind)) else " or ".join(kinds).replace("_", " ")
    if len(scores) < len(get_args(Score)):
        needs += "; similarities: " + " or ".join(scores)
    return needs


def _show(name: str, specs: Mapping[str, type[Spec]], kind: str, *, as_json: bool) -> None:
    try:
        spec = specs[known_name(name, specs, kind)]
    except ValueError as error:
        raise UsageError(str(error)) from error
    described = describe(name, spec)
    if as_json:
        print_json(described)
        return
    columns = (Column("hyperparameter", no_wrap=True), Column("default", overflow="fold"), "allowed", "meaning")
    table = Table(*columns, show_lines=True)
    domains = dict(tunables(spec))
    for each in described["hyperparameters"]:
        allowed, meaning = each["allowed"], each["description"]
        if each["name"] in domains:
            allowed += f"\nsearched {domain_text(domains[each['name']])}"
        if each["when"]:
            allowed += "\nwhen " + ", ".join(f"{key} is {value_text(value)}" for key, value in each["when"].items())
        if each["source"]:
            meaning += f" ({each['source']})"
        table.add_row(*map(Text, (each["name"], value_text(each["default"]), allowed, meaning)))
    first, *others = [_paragraph(text) for text in described["meaning"].split("\n\n")]
    for line in (f"{name}: {first}", *others, *_fact_lines(described)):
        results.print(line, markup=False, highlight=False)
    results.print(table)
    published = published_table(described) if "published" in described else None
    if published is not None:
        results.print(published)
    say(f"in a study file: {{name: {name}, fixed: {{...}}, search: default}}")


def _paragraph(text: str) -> str:
    """A paragraph of a docstring as one line; an indented one, such as a piece of a study file, as it is."""
    return text if text.startswith("    ") else " ".join(text.split())


def domain_text(domain: Domain) -> str:
    """`[0.05, 0.4]`, `[200, 20000] log`, `{a, b}`."""
    if isinstance(domain, Choices):
        return "{" + ", ".join(value_text(choice) for choice in domain.choices) + "}"
    return f"[{domain.low:g}, {domain.high:g}]" + (" log" if domain.log else "")


def searched_text(cell: Cell) -> str:
    """What the search of a cell varies: `loss.margin [0.05, 0.4], loss.sharpness [4, 64] log if loss.decay linear`."""
    found = []
    for name, domain in cell.domains.items():
        ways = [" and ".join(f"{other} {value_text(value)}" for other, value in way.items())
                for way in cell.conditions.get(name, [])]
        found.append(f"{name} {domain_text(domain)}" + (f" if {' or '.join(ways)}" if ways else ""))
    return ", ".join(found) or "nothing (fixed)"


def value_text(value: Any) -> str:
    """A value as a study file writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {value_text(each)}' for key, each in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _allowed(field: FieldInfo) -> str:
    """What values a field takes: its choices, or its type with the limits of its number."""
    if field.annotation is bool:
        return "true, false"
    choices = get_args(field.annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(choices)
    limits = [
        f"{sign} {getattr(mark, name):g}"
        for mark in field.metadata for name, sign in _LIMITS
        if getattr(mark, name, None) is not None and math.isfinite(getattr(mark, name))
    ]
    kind = "integer" if field.annotation is int else "number" if field.annotation is float else ""
    return " ".join(part for part in (kind, ", ".join(limits)) if part)


def _paper(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("paper", "")) if isinstance(extra, dict) else ""


def _fact_lines(described: Mapping[str, Any]) -> list[str]:
    if "equation" not in described:
        return fact_lines(described)
    lines = [
        f"equation: {described['equation']}",
        f"source: {described['source']}",
        f"network gives: {_kinds_text(described['network_kinds'], described['similarities'])} "
        f"({', '.join(described['networks']) or 'none with its default settings'})",
        f"batch_unit: {' or '.join(described['batch_units'])}",
    ]
    if described["semantic_vectors"]:
        lines.append(
            f"semantic vectors of the captions: {described['semantic_vectors']} by default, computed once per data set"
        )
    if described["stop_gradient"]:
        lines.append(f"without gradient: {described['stop_gradient']}")
    return lines
