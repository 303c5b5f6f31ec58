"""The search of a study: how much each setting matters, and slices of M-Recall over each setting."""

from vsetune.study.explaining.explained import ExplainedCell, ExplainedStudy, explain, sketch
from vsetune.study.explaining.explained_page import to_html

__all__ = ["ExplainedCell", "ExplainedStudy", "explain", "sketch", "to_html"]
