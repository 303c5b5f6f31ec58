"""Report on the search of a study: its trials, their cost, the importance of settings, and why trials were stopped."""

from vsetune.explaining_search.explained import ExplainedCell, ExplainedStudy, explain
from vsetune.explaining_search.explained_page import to_html

__all__ = ["ExplainedCell", "ExplainedStudy", "explain", "to_html"]
