"""Ranks finished trials; refuses to compare different protocols."""

from vsetune.report.building import build
from vsetune.report.export import curves_to_csv, to_csv, to_json, to_latex
from vsetune.report.page import to_html
from vsetune.report.rows import Cost, Leaderboard, Row, SeedResult
from vsetune.report.terminal import render_table

__all__ = [
    "Cost", "Leaderboard", "Row", "SeedResult", "build", "curves_to_csv", "render_table", "to_csv", "to_html",
    "to_json", "to_latex",
]
