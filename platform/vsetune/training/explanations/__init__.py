"""What a trained network retrieves, which wrong items it ranks too high, and where in an image it looks."""

from vsetune.training.explanations.gallery import Gallery, make_gallery
from vsetune.training.explanations.heat_maps import HeatMap, heat_maps
from vsetune.training.explanations.page import About, to_html
from vsetune.training.explanations.rankings import (
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
