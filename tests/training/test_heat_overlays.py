"""Heat drawn over a picture: where regions and cells lie, and how it is coloured."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from vsetune.board.gallery.drawn_heat import overlay, places_of, raster
from vsetune.board.gallery.heat_maps import CENTRE, HeatMap
from vsetune.data.looking.show import Picture, Thumbnail


def test_cells_of_a_square_grid_are_in_raster_order_and_others_stand_in_a_row() -> None:
    assert raster(np.arange(4.0), None).tolist() == [[0, 1], [2, 3]]
    assert raster(np.arange(5.0), None).shape == (1, 5)


def test_boxes_are_drawn_where_they_are_and_the_warmest_wins() -> None:
    boxes = np.array([[0, 0, 0.5, 1], [0.25, 0, 1, 0.5], [0.999, 0.999, 1, 1]], np.float32)
    found = raster(np.array([1.0, 2.0, 3.0]), boxes)
    assert found.shape == (48, 48)
    assert (found[:, :12] == 1).all()  # the left quarter: the first box alone
    assert (found[:24, 12:] == 2).all()  # where they overlap, the warmer
    assert (found[24:, 24:47] == 0).all()
    assert found[47, 47] == 3


def test_the_cells_of_a_centre_crop_lie_in_the_middle_of_the_longer_side() -> None:
    picture = Picture(0, "wide", 0, [], [], None, Thumbnail(b"", 200, 100))
    boxes = places_of(HeatMap("gradient", np.ones(4), centre=CENTRE), picture)
    side = 0.875 * 100
    left, top = (200 - side) / 2 / 200, (100 - side) / 2 / 100
    np.testing.assert_allclose(boxes[0], [left, top, 0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(boxes[3], [0.5, 0.5, 1 - left, 1 - top], atol=1e-12)


def test_an_overlay_is_dark_at_the_low_end_and_bright_at_the_high_end_and_flat_heat_is_dark() -> None:
    def pixels(heat: np.ndarray, low: float, high: float) -> np.ndarray:
        content = base64.b64decode(overlay(heat, low=low, high=high).partition(",")[2])
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA")).astype(int)

    ramp = pixels(np.linspace(0, 1, 9)[None], 0, 1)[0]
    brightness = ramp[:, :3].sum(axis=1)
    assert (np.diff(brightness) > 0).all()
    flat = pixels(np.full((2, 2), 0.3), 0.3, 0.3)
    assert (flat == ramp[0]).all()
    assert (pixels(np.array([[-5.0, 5.0]]), 0, 1)[0] == ramp[[0, -1]]).all()
