"""Explanations of a trained network: its rankings, the wrong items ranked too high, and heat maps of images."""

from vsetune.report.gallery.gallery import Gallery, make_gallery
from vsetune.report.gallery.gallery_page import About, to_html
from vsetune.report.gallery.heat_maps import HeatMap, heat_maps
from vsetune.report.gallery.rankings import (
    Candidate,
    HardestNegative,
    Ranking,
    caption_rankings,
    hardest_negatives,
    image_rankings,
)

__all__ = [
    "About", "Candidate", "Gallery", "HardestNegative", "HeatMap", "Ranking", "caption_rankings", "hardest_negatives",
    "heat_maps", "image_rankings", "make_gallery", "to_html",
]
