"""`vsetune losses` and `vsetune networks`: the components there are, their hyperparameters, and components of your own.

Both groups have the same commands, made from a description of their kind.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
from pydantic.fields import FieldInfo
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli.options import Json, place_to_write, require_known
from vsetune.cli.output import complain, domain_text, inform, print_json, results, value_text
from vsetune.config.component_specs import LOSSES, NETWORKS, LossSpec, NetworkSpec
from vsetune.config.plugins import load_installed, load_plugin
from vsetune.config.registry import name_of
from vsetune.config.spec.base import Kind, Score, Spec, conditions, paper_of, tunables
from vsetune.config.study.compatibility import mismatch
from vsetune.networks.published_recalls import published_recalls
from vsetune.quality.checks import Finding, Result
from vsetune.quality.subjects import loss_at, network_at, write_draft
from vsetune.study.study_file import load_study

Name = Annotated[str, typer.Argument(help="name as in a study file", show_default=False)]
NewName = Annotated[str, typer.Argument(help="what study files will call it, e.g. my_own", show_default=False)]
Component = Annotated[
    str,
    typer.Argument(
        metavar="PATH_OR_NAME", help="folder of your own, or name as in a study file", show_default=False
    ),
]
Parent = Annotated[Path, place_to_write("--folder", metavar="DIR", help="where the folder NAME is made")]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugins", metavar="PATH", help="a folder of your own, or a study file that names them"),
]
_LIMITS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"), ("multiple_of", "multiple of"))
_COLOURS = {Result.HOLDS: "green", Result.FAILS: "red", Result.NOT_APPLICABLE: "dim"}


@dataclass(frozen=True)
class _Components:
    """One kind of components. checked: what `check` checks. facts: what a spec declares besides its fields. lines: the
    facts for people, one a line. gives: the facts that matter most, for a list, below gives_heading. findings: of
    `check`, with facts."""

    kind: Literal["loss", "network"]
    plural: str
    example: str
    checked: str
    specs: Mapping[str, type[Spec]]
    facts: Callable[[Any], dict[str, Any]]
    lines: Callable[[Mapping[str, Any]], list[str]]
    gives_heading: str
    gives: Callable[[Mapping[str, Any]], str]
    findings: Callable[[str], tuple[str, list[Finding], dict[str, Any]]]


def _commands(of: _Components) -> typer.Typer:
    """The group of commands of a kind."""
    kind, command = of.kind, f"Example: vsetune {of.plural}"
    app = typer.Typer(
        no_args_is_help=True, help=f"The {of.plural} there are, their hyperparameters, and {of.plural} of your own.",
        epilog=f"{command} show {of.example}",
    )

    @app.command("list", epilog=f"{command} list", help=f"List the {of.plural}, with what `search: default` searches.")
    def list_all(as_json: Json = False, plugins: Plugins = None) -> None:
        _load(plugins)
        if as_json:
            print_json([describe(name, spec, of) for name, spec in of.specs.items()])
        else:
            results.print(_list_of(of))
            inform(f"all settings and the source of one: vsetune {of.plural} show NAME")

    @app.command(
        "show", epilog=f"{command} show {of.example}", help=f"Show a {kind}: its source, and every hyperparameter."
    )
    def show(name: Name, as_json: Json = False, plugins: Plugins = None) -> None:
        _load(plugins)
        spec = of.specs[require_known(name, of.specs, kind)]
        described = describe(name, spec, of)
        if as_json:
            print_json(described)
        else:
            _show(described, spec, of)

    @app.command(
        "check", epilog=f"{command} check my_{kind}",
        help=f"Check that a {kind} works: {of.checked}.\n\nExit code 1 if a check fails, 2 if there is no such {kind}.",
    )
    def check(component: Component, as_json: Json = False) -> None:
        load_installed()
        name, findings, facts = of.findings(component)
        _report(name, findings, facts, as_json=as_json)

    @app.command(
        "new", epilog=f"{command} new my_{kind}",
        help=f"Write a commented {kind} of your own that works, with its test: a folder to change.",
    )
    def new(name: NewName, folder: Parent = Path()) -> None:
        written = write_draft(kind, name, folder)
        for file in written:
            results.out(str(file))
        made, entry = written[0].parent, f"{of.plural}: [{{name: {name}}}]"
        inform(f"next: change {made}/{kind}.py, then vsetune {of.plural} check {made}")
        inform(f"in a study file: plugins: [{made.name}], and {entry}; the path starts at that file")

    return app


def _load(plugins: list[str] | None) -> None:
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


def describe(name: str, spec: type[Spec], of: _Components) -> dict[str, Any]:
    """A component as plain data: name, meaning, facts, and its hyperparameters in order of declaration."""
    return {
        "name": name, "meaning": inspect.getdoc(spec) or "", **of.facts(spec),
        "hyperparameters": _hyperparameters(spec),
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
                "description": field.description or "", "source": paper_of(field),
            })
    return found


def _facts_of_loss(spec: type[LossSpec]) -> dict[str, Any]:
    loss = spec()
    return {
        "equation": spec.equation, "source": spec.source, "network_kinds": sorted(spec.kinds),
        "similarities": sorted(spec.scores), "networks": _partners(loss),
        "semantic_vectors": loss.semantic_source, "batch_units": ["pairs", *["images"] * spec.several_positives],
        "stop_gradient": loss.stop_gradient,
    }


def _partners(loss: LossSpec) -> list[str]:
    """Networks that this loss can train, both with their default settings."""
    return [name for name, spec in NETWORKS.items() if mismatch(spec(), loss, batch_unit="pairs") is None]


def _list_of(of: _Components) -> Table:
    table = Table(
        Column("name", no_wrap=True), Column("what it is", overflow="fold"), of.gives_heading,
        Column("searched by default", overflow="fold", width=20),
    )
    for name, spec in of.specs.items():
        meaning = " ".join((inspect.getdoc(spec) or "").split("\n\n")[0].split())
        searched = ", ".join(key for key, _ in tunables(spec))
        table.add_row(name, meaning, of.gives(of.facts(spec)), searched)
    return table


def _gives(facts: Mapping[str, Any]) -> str:
    """The output and the cost of a network."""
    kind = str(facts["kind"]).replace("_", " ")
    return f"{kind}; {facts['parameters'] / 1e6:.0f} M parameters, {_flops_text(facts['flops_per_pair'])} per pair"


def _kinds_text(kinds: list[str], scores: list[str]) -> str:
    """`anything`, or what a loss needs: kinds of networks, and of similarities where it matters."""
    needs = "anything" if len(kinds) == len(get_args(Kind)) else " or ".join(kinds).replace("_", " ")
    if len(scores) < len(get_args(Score)):
        needs += "; similarities: " + " or ".join(scores)
    return needs


def _show(described: Mapping[str, Any], spec: type[Spec], of: _Components) -> None:
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
        table.add_row(each["name"], value_text(each["default"]), allowed, meaning)
    first, *others = [_paragraph(text) for text in described["meaning"].split("\n\n")]
    name = described["name"]
    for line in (f"{name}: {first}", *others, *of.lines(described)):
        results.print(line)
    results.print(table)
    if described.get("published"):
        results.print(_published_table(described["published"]))
    inform(f"in a study file: {{name: {name}, fixed: {{...}}, search: default}}")


def _paragraph(text: str) -> str:
    """A paragraph of a docstring as one line; an indented one, such as a piece of a study file, as it is."""
    return text if text.startswith("    ") else " ".join(text.split())


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




def _lines_of_loss(described: Mapping[str, Any]) -> list[str]:
    lines = [
        f"equation: {described['equation']}",
        f"source: {described['source']}",
        f"trains networks that give: {_kinds_text(described['network_kinds'], described['similarities'])} "
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


_REGIONS, _WIDTH, _WORDS, _VOCABULARY = 36, 2048, 14, 10_000
"""Sizes for which parameters and costs are reported: 36 regions of 2,048, captions of 12 words, 10,000 ids."""


def _facts_of_network(spec_class: type[NetworkSpec]) -> dict[str, Any]:
    """Parameters and cost at the sizes above."""
    spec = spec_class()
    cost = spec.pair_cost(regions=_REGIONS, words=_WORDS)
    return {
        "paper": spec.source, "kind": spec.kind, "similarity": spec.score,
        "parameters": vars(spec_class).get("default_parameters") or count_parameters(spec),
        "flops_per_pair": cost.flops, "needs_dependencies": spec.reads.dependencies, "reads_boxes": spec.reads.boxes,
        "reads_phrases": spec.reads.phrases, "reads_siblings": spec.reads.siblings,
        "may_read_pixels": _may_read_pixels(spec), "stop_gradient": spec.stop_gradient,
        "losses": [key for key, loss in LOSSES.items() if mismatch(spec, loss(), batch_unit="pairs") is None],
        "published": [asdict(row) for row in published_recalls(spec_class)],
    }


def _lines_of_network(facts: Mapping[str, Any]) -> list[str]:
    needs = ["dependency parses of the captions"] * facts["needs_dependencies"]
    needs += ["boxes of the regions, or a grid"] * facts["reads_boxes"]
    needs += ["phrases of the captions, or single words"] * facts["reads_phrases"]
    needs += ["photographs instead of features with image_input: pixels"] * facts["may_read_pixels"]
    needs += ["in training all captions of an image"] * facts["reads_siblings"]
    return [
        f"paper: {facts['paper']}",
        f"kind: {facts['kind']}; similarities: {facts['similarity']}",
        f"parameters: {facts['parameters']:,}; comparing a pair: {_flops_text(facts['flops_per_pair'])} "
        f"({_REGIONS} regions of {_WIDTH:,}, {_WORDS} ids in a caption of {_VOCABULARY:,})",
        *([f"reads: {'; '.join(needs)}"] if needs else []),
        *([f"without gradient: {facts['stop_gradient']}"] if facts["stop_gradient"] else []),
        f"losses that train it: {', '.join(facts['losses'])}",
        *([] if facts["published"] else ["published recalls: none in the papers at hand"]),
    ]


def _published_table(recalls: Sequence[Mapping[str, Any]]) -> Table:
    """Recalls as the papers print them."""
    table = Table(
        "data", "loss", Column("image to text", no_wrap=True), Column("text to image", no_wrap=True), "source",
        title="Published R@1, R@5, R@10 in per cent, with the features and settings of the paper",
        title_justify="left",
    )
    for row in recalls:
        sides = [" ".join(f"{row[f'{side}_r{k}']:.1f}" for k in (1, 5, 10)) for side in ("i2t", "t2i")]
        table.add_row(f"{row['dataset']} {row['split']}", row["loss"], *sides, row["source"])
    return table


def _flops_text(flops: float) -> str:
    """`2 kFLOP`, `9.9 MFLOP`."""
    return f"{flops / 1e6:.1f} MFLOP" if flops >= 1e6 else f"{flops / 1e3:.0f} kFLOP"


def _may_read_pixels(spec: NetworkSpec) -> bool:
    field = type(spec).model_fields.get("image_input")
    return field is not None and "pixels" in get_args(field.annotation)


def count_parameters(spec: NetworkSpec) -> int:
    """Parameters of the network at the sizes above. Loads torch and builds the network, which takes seconds."""
    import torch

    from vsetune.networks.network_building import build_network

    with torch.device("meta"):  # shapes without memory or arithmetic
        network = build_network(spec, regions=_REGIONS, width=_WIDTH, vocabulary_size=_VOCABULARY)
    return sum(parameter.numel() for parameter in network.parameters())


def _findings_of_loss(reference: str) -> tuple[str, list[Finding], dict[str, Any]]:
    from vsetune.quality.loss_batches import LossSubject  # bring torch, which other commands do without
    from vsetune.quality.loss_checks import LOSS_CHECKS, step_times

    spec = loss_at(reference)
    subject = LossSubject(spec)
    findings = [check.finding(subject) for check in LOSS_CHECKS]
    try:
        milliseconds, ratio = step_times(spec())
    except Exception:  # foreign code; what is wrong with it is among the findings
        return name_of(spec), findings, {"step": {}}
    return name_of(spec), findings, {"step": {"milliseconds": round(milliseconds, 3), "times_lmh": round(ratio, 2)}}


def _findings_of_network(reference: str) -> tuple[str, list[Finding], dict[str, Any]]:
    from vsetune.quality.network_checks import NETWORK_CHECKS
    from vsetune.quality.network_learning import NetworkSubject

    spec = network_at(reference)
    subject = NetworkSubject(spec)
    return name_of(spec), [check.finding(subject) for check in NETWORK_CHECKS], {}


def _report(name: str, findings: Sequence[Finding], facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the findings; exit with code 1 if any check fails."""
    failed = [each for each in findings if each.result is Result.FAILS]
    if as_json:
        print_json({"name": name, "holds": not failed, "checks": [asdict(each) for each in findings], **facts})
    else:
        results.print(_table_of(findings))
        if step := facts.get("step"):
            times = f"{step['milliseconds']:.2f} ms, {step['times_lmh']:.2f} x LMH in this run"
            inform(f"a step of 128 pairs takes {times}")
        inform(f"{name}: {len(findings) - len(failed)} of {len(findings)} checks hold or do not apply")
    if failed:
        raise typer.Exit(1)


def _table_of(findings: Sequence[Finding]) -> Table:
    fixed = (Column(name, no_wrap=True) for name in ("check", "result"))
    table = Table(*fixed, Column("what it means", overflow="fold"))
    for each in findings:
        meaning = Text(each.meaning)
        if each.note:
            meaning.append(f"\n{each.note}", style="bold red" if each.result is Result.FAILS else "dim")
        table.add_row(each.check, Text(str(each.result), style=_COLOURS[each.result]), meaning)
    return table


losses = _commands(_Components(
    "loss", "losses", "lseh", "gradients, NaN, small batches, extremes, resume; and time a step", LOSSES,
    _facts_of_loss, _lines_of_loss, "trains networks that give",
    lambda facts: _kinds_text(facts["network_kinds"], facts["similarities"]),
    _findings_of_loss,
))
networks = _commands(_Components(
    "network", "networks", "vse_infinity", "shapes, padding, evaluation pair by pair, gradients, learning by heart",
    NETWORKS, _facts_of_network, _lines_of_network, "gives", _gives, _findings_of_network,
))
