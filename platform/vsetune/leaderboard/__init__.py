"""Ranks finished trials; refuses to compare different protocols."""

from vsetune.leaderboard.building import build
from vsetune.leaderboard.export import curves_to_csv, to_csv, to_json, to_latex
from vsetune.leaderboard.page import to_html
from vsetune.leaderboard.rows import Cost, Leaderboard, Row, SeedResult
from vsetune.leaderboard.terminal import render_table

__all__ = [
    "Cost", "Leaderboard", "Row", "SeedResult", "build", "curves_to_csv", "render_table", "to_csv", "to_html",
    "to_json", "to_latex",
]
