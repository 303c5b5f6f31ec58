"""`vsetune losses` and `vsetune networks`: what can be compared, and every hyperparameter of it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli.output import complain, print_json, results, say
from vsetune.config.component_specs import LOSSES, NETWORKS, LossSpec, NetworkSpec
from vsetune.config.plugins import load_installed, load_plugin
from vsetune.config.spec.base import Choices, Domain, Kind, Score, Spec, conditions, known_name, tunables
from vsetune.config.study.cells import Cell
from vsetune.config.study.compatibility import mismatch
from vsetune.errors import UsageError
from vsetune.networks.published_recalls import published_recalls
from vsetune.study.study_file import load_study

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
    """Load the named plugins. Plugins of installed packages are loaded without being named; a broken one is
    reported."""
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
    """Hyperparameters of a spec and of the specs in its fields: `backbone.model`."""
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
    """Facts that a spec declares besides its fields."""
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
    """Networks that this loss can train, both with their default settings."""
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
    """The similarities that a loss takes, or the output and cost of a network."""
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
    """The searched settings of a cell: `loss.margin [0.05, 0.4], loss.sharpness [4, 64] log if loss.decay linear`."""
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
    """The allowed values of a field: its choices, or its type with the limits of its number."""
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


REGIONS, WIDTH, WORDS, VOCABULARY = 36, 2048, 14, 10_000
"""Sizes for which parameters and costs are reported: 36 regions of 2,048, captions of 12 words, 10,000 ids."""


def network_facts(spec: NetworkSpec, name: str) -> dict[str, Any]:
    """Plain data; parameters and cost at the sizes above."""
    cost = spec.pair_cost(regions=REGIONS, words=WORDS)
    return {
        "paper": spec.source, "kind": spec.kind, "similarity": spec.score, "parameters": _parameters(spec),
        "flops_per_pair": cost.flops, "needs_dependencies": spec.reads.dependencies, "reads_boxes": spec.reads.boxes,
        "reads_phrases": spec.reads.phrases, "reads_siblings": spec.reads.siblings,
        "may_read_pixels": _may_read_pixels(spec), "stop_gradient": spec.stop_gradient,
        "losses": [key for key, loss in LOSSES.items() if mismatch(spec, loss(), batch_unit="pairs") is None],
        "published": [asdict(row) for row in published_recalls(type(spec))],
    }


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """For people, one fact a line."""
    needs = ["dependency parses of the captions"] * facts["needs_dependencies"]
    needs += ["boxes of the regions, or a grid"] * facts["reads_boxes"]
    needs += ["phrases of the captions, or single words"] * facts["reads_phrases"]
    needs += ["photographs instead of features with image_input: pixels"] * facts["may_read_pixels"]
    needs += ["in training all captions of an image"] * facts["reads_siblings"]
    return [
        f"paper: {facts['paper']}",
        f"kind: {facts['kind']}; similarities: {facts['similarity']}",
        f"parameters: {facts['parameters']:,}; comparing a pair: {flops_text(facts['flops_per_pair'])} "
        f"({REGIONS} regions of {WIDTH:,}, {WORDS} ids in a caption of {VOCABULARY:,})",
        *([f"reads: {'; '.join(needs)}"] if needs else []),
        *([f"without gradient: {facts['stop_gradient']}"] if facts["stop_gradient"] else []),
        f"losses that train it: {', '.join(facts['losses'])}",
        *([] if facts["published"] else ["published recalls: none in the papers at hand"]),
    ]


def published_table(facts: Mapping[str, Any]) -> Table | None:
    """Recalls as the papers print them; None where the papers at hand print none."""
    if not facts["published"]:
        return None
    table = Table(
        "data", "loss", Column("image to text", no_wrap=True), Column("text to image", no_wrap=True), "source",
        title="Published R@1, R@5, R@10 in per cent, with the features and settings of the paper",
        title_justify="left",
    )
    for row in facts["published"]:
        sides = [" ".join(f"{row[f'{side}_r{k}']:.1f}" for k in (1, 5, 10)) for side in ("i2t", "t2i")]
        table.add_row(*map(Text, (f"{row['dataset']} {row['split']}", row["loss"], *sides, row["source"])))
    return table


def flops_text(flops: float) -> str:
    """`2 kFLOP`, `9.9 MFLOP`."""
    return f"{flops / 1e6:.1f} MFLOP" if flops >= 1e6 else f"{flops / 1e3:.0f} kFLOP"


def _may_read_pixels(spec: NetworkSpec) -> bool:
    field = type(spec).model_fields.get("image_input")
    return field is not None and "pixels" in get_args(field.annotation)


def _parameters(spec: NetworkSpec) -> int:
    import torch  # a second, which no other command of the catalogue should take

    from vsetune.networks.network_building import build_network

    with torch.device("meta"):  # shapes without memory or arithmetic
        network = build_network(spec, regions=REGIONS, width=WIDTH, vocabulary_size=VOCABULARY)
    return sum(parameter.numel() for parameter in network.parameters())
