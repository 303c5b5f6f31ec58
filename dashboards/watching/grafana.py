"""Our boards as Grafana's JSON, made with its foundation SDK (extra `dashboards`)."""

from __future__ import annotations

import json

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, VisibilityMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, FieldColorModeId, VariableRefresh, VariableSort

from vsetune.nightly import night_metrics as nights
from vsetune.study import exported_metrics as ours
from watching.panels import WHY_EMPTY, Board, Panel, Unit

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
UNITS: dict[Unit, str] = {
    "share": "percentunit", "number": "short", "seconds": "s", "hours": "h", "bytes": "bytes", "bytes/s": "Bps",
    "USD": "currencyUSD", "USD/h": "currencyUSD", "pairs/s": "short", "epochs": "short",
}
_VARIABLE_SOURCES = {"study": ours.STUDY_PROMISED_TRIALS, "cell": ours.CELL_CHARGED_EPOCHS,
                     "trial": ours.TRIAL_LAST_VALIDATION}
_STAT_HEIGHT, _LINE_HEIGHT = 4, 8
_COLOURS = dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC)
"""One of 56 colours for each series of a panel in their order; by name, two series may get one colour."""


def grafana_json(board: Board) -> str:
    """The file for import or provisioning in Grafana. It names no data source; users choose theirs."""
    made = (
        dashboard.Dashboard(board.title).uid(f"vsetune-{board.name}").description(board.help).tags(["vsetune"])
        .time(board.since, "now").refresh("30s").timezone("browser").editable()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(dashboard.DashboardLink("other views").type("dashboards").tags(["vsetune"]).as_dropdown(True)
              .keep_time(True).include_vars(True))
    )
    for position, name in enumerate(board.variables):
        made = made.with_variable(_variable(board, name, board.variables[:position]))
    for panel in board.panels:
        made = made.with_panel(_panel(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(board: Board, name: str, before: tuple[str, ...]) -> dashboard.QueryVariable:
    chosen = ", ".join(f'{other}=~"${other}"' for other in before)
    metric = (nights.REGRESSED if "nightly" in board.variables else _VARIABLE_SOURCES[name]).in_prometheus
    return (
        dashboard.QueryVariable(name).label(name).datasource(DATASOURCE)
        .query(f"label_values({metric}{{{chosen}}}, {name})" if chosen else f"label_values({metric}, {name})")
        .multi(True).include_all(True).all_value(".*")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    )


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel:
    query = (prometheus.Dataquery().expr(panel.expr).legend_format(panel.legend).ref_id("A").datasource(DATASOURCE))
    made: timeseries.Panel | stat.Panel
    if panel.kind == "stat":
        newest = common.ReduceDataOptions().calcs(["lastNotNull"])
        made = stat.Panel().height(_STAT_HEIGHT).span(6).reduce_options(newest)
        query = query.instant()
    else:
        made = (
            timeseries.Panel().height(_LINE_HEIGHT).color_scheme(_COLOURS).span(12).line_width(1.5).show_points(VisibilityMode.AUTO)
            .legend(common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.RIGHT)
                    .calcs(["lastNotNull"]).show_legend(True))
        )
        query = query.range()
    if panel.unit == "share":
        made = made.min(0)
    return (
        made.title(panel.title).description(panel.help).datasource(DATASOURCE).unit(UNITS[panel.unit])
        .no_value(WHY_EMPTY[panel.needs]).with_target(query)
    )
