"""Report on the search of a study: its trials, their cost, the importance of settings, and why trials were stopped."""

from vsetune.study.explaining.explained import ExplainedCell, ExplainedStudy, explain
from vsetune.study.explaining.explained_page import to_html
from vsetune.study.explaining.found import findings

__all__ = ["ExplainedCell", "ExplainedStudy", "explain", "findings", "to_html"]
