"""The colours that a CNN was trained with: what photographs are normalised by."""

from __future__ import annotations

import logging
import math
from typing import Any

from vsetune.config.sources.pretrained_models import find_model
from vsetune.errors import ConfigError
from vsetune.networks.parts.backbone_spec import EFFICIENTNET, BackboneSpec

KEY = "network.backbone"
"""Where a study names the CNN."""
COLOURS = ("colour_mean", "colour_deviation")
"""Names of the buffers that keep them."""

Colours = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of red, green and blue, 0 to 1."""

IMAGENET: Colours = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
UNKNOWN: Colours = ((math.nan,) * 3, (math.nan,) * 3)
"""Until weights are loaded that tell them: an image normalised by these is no image."""

_log = logging.getLogger(__name__)


def read_colours(spec: BackboneSpec) -> Colours:
    """Those of the preprocessor saved beside the model; ImageNet's, with a line in the log, where there is none.

    A preprocessor that does not normalise gives 0 and 1. ConfigError in one line when the model cannot be found, or
    its preprocessor says no colours.
    """
    from transformers.image_processing_base import ImageProcessingMixin

    found = find_model(spec.model, spec.revision, key=f"{KEY}.model", instead=EFFICIENTNET)
    try:
        saved, _ = ImageProcessingMixin.get_image_processor_dict(found.place, revision=found.commit)
    except (OSError, ValueError):
        _log.warning(
            "%s.model: %s: has no preprocessor_config.json that can be read; its images are normalised by the colours "
            "of ImageNet", KEY, spec.model,
        )
        return IMAGENET
    if saved.get("do_normalize") is False:
        return (0.0,) * 3, (1.0,) * 3
    return (
        _of_three("image_mean", saved.get("image_mean", IMAGENET[0]), spec.model, low=-math.inf),
        _of_three("image_std", saved.get("image_std", IMAGENET[1]), spec.model, low=0.0),
    )


def _of_three(name: str, given: Any, model: str, *, low: float) -> tuple[float, ...]:
    """One number of the preprocessor for each colour, above `low`; a single one is that of all."""
    values = given if isinstance(given, list | tuple) else [given] * 3
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if len(values) != 3 or not are_numbers or not all(low < value < math.inf for value in values):
        limit = "three finite numbers" if low < 0 else "three numbers above 0"
        raise ConfigError(
            f"{KEY}.model: {model}: its preprocessor_config.json has {name} {str(given)[:60]}, need {limit}; mend it"
        )
    return tuple(float(value) for value in values)
