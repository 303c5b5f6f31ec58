"""What the search of a study tried, what that cost, which settings mattered and why trials were stopped."""

from vsetune.explaining_search.explained import ExplainedCell, ExplainedStudy, explain
from vsetune.explaining_search.explained_page import to_html

__all__ = ["ExplainedCell", "ExplainedStudy", "explain", "to_html"]
