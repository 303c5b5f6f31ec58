"""vsetune: fair, resumable comparison of losses and networks for image-text retrieval.

    import vsetune

    vsetune.Study.from_file("studies/quickstart.yaml").run()      # every trial, on Ray
    study = vsetune.open_study("quickstart")                      # board, curves, attempts, figure
    study.trial("vsepp.info_nce-c000-s0").search("a big blue star")
    vsetune.train(loss="info_nce", data="data/flickr8k")          # one training, in this process
    loss = vsetune.losses.LMH(margin=0.2)                         # a torch module for any training loop

Names are imported when they are first used, so that `import vsetune` stays fast; see docs/python.md.
"""

import os
import sys

# The working directory comes last: a statistics.py of the user in it would replace Python's own. `python -m vsetune...`
# puts it first, and Ray puts that of a job first, for the command of the job and for workers.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))
if {"RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_ID"} & os.environ.keys():
    sys.path.sort(key=lambda folder: os.path.realpath(folder) == os.getcwd())

from typing import TYPE_CHECKING

from vsetune import losses, metrics, networks
from vsetune.lazy_names import lazy_names
from vsetune.version import __version__ as __version__

if TYPE_CHECKING:
    from vsetune.api.charts import Figure
    from vsetune.api.recorded import RecordedStudy, Trial, open_study, studies
    from vsetune.api.retrieval import Embedded, Found
    from vsetune.api.study import Study
    from vsetune.api.training import Training, train
    from vsetune.config.component_specs import LossSpec, NetworkSpec
    from vsetune.config.spec.base import Choices, Range, tunable
    from vsetune.data.stored.dataset import Dataset
    from vsetune.errors import (
        AttemptError,
        ConfigError,
        DataError,
        NumericError,
        StorageError,
        UsageError,
        VsetuneError,
    )
    from vsetune.losses.loss_base import Loss, LossInputs, LossOutput
    from vsetune.losses.plain_loss import PlainLoss
    from vsetune.networks.encoded import Encoded
    from vsetune.networks.inputs import CaptionInputs, ImageInputs
    from vsetune.networks.network_base import Network

_PLACES = {
    "vsetune.api.charts": ("Figure",),
    "vsetune.api.recorded": ("RecordedStudy", "Trial", "open_study", "studies"),
    "vsetune.api.retrieval": ("Embedded", "Found"),
    "vsetune.api.study": ("Study",),
    "vsetune.api.training": ("Training", "train"),
    "vsetune.config.component_specs": ("LossSpec", "NetworkSpec"),
    "vsetune.config.spec.base": ("Choices", "Range", "tunable"),
    "vsetune.data.stored.dataset": ("Dataset",),
    "vsetune.errors": (
        "AttemptError", "ConfigError", "DataError", "NumericError", "StorageError", "UsageError", "VsetuneError",
    ),
    "vsetune.losses.loss_base": ("Loss", "LossInputs", "LossOutput"),
    "vsetune.losses.plain_loss": ("PlainLoss",),
    "vsetune.networks.encoded": ("Encoded",),
    "vsetune.networks.inputs": ("CaptionInputs", "ImageInputs"),
    "vsetune.networks.network_base": ("Network",),
}
"""Module of every public name."""

__all__ = [  # noqa: RUF022
    "Study", "train", "Training", "open_study", "studies", "RecordedStudy", "Trial", "Found", "Embedded", "Figure",
    "Dataset", "losses", "networks", "metrics", "PlainLoss", "Loss", "LossSpec", "LossInputs", "LossOutput", "Network",
    "NetworkSpec", "Encoded", "ImageInputs", "CaptionInputs", "tunable", "Range", "Choices", "VsetuneError",
    "UsageError", "ConfigError", "DataError", "StorageError", "AttemptError", "NumericError",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _PLACES)[0]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
