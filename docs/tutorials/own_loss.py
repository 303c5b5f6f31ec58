# %% [markdown]
# # A loss written in a notebook
#
# A loss is a class. It is written here, compared with LMH (hinge on the hardest negative, VSE++) and InfoNCE over
# three seeds, and plotted; a network trained with it is asked a question. On two idle cores all of it takes some two
# minutes. Run it cell by cell in a notebook or an editor; as a script it prints nothing. To use a loss in a training
# loop of your own instead, see [Python](../python.md#in-your-own-training-loop).
#
# The formula is a smooth hinge: the softplus of each violated margin, averaged over all negatives.

# %%
from typing import ClassVar, Literal

from torch.nn.functional import softplus

import vsetune


class SmoothSpec(vsetune.LossSpec):
    """Smooth hinges of all negatives."""

    equation: ClassVar[str] = "mean over i, j of softplus(k (S_ij - S_ii + alpha)) + softplus(k (S_ji - S_ii + alpha))"
    source: ClassVar[str] = "this notebook"
    name: Literal["smooth"] = "smooth"
    margin: float = vsetune.tunable(
        0.2, vsetune.Range(low=0.1, high=0.4), ge=0, description="alpha, in units of similarity", paper="none",
    )
    steepness: float = vsetune.tunable(
        20.0, vsetune.Range(low=5, high=50, log=True), gt=0, description="k; a hinge as it grows", paper="none",
    )


class Smooth(vsetune.Loss):
    spec: SmoothSpec

    def forward(self, inputs):
        matched = inputs.similarity.diagonal()
        by_image = inputs.similarity - matched[:, None] + self.spec.margin
        by_caption = inputs.similarity - matched[None, :] + self.spec.margin
        value = softplus(self.spec.steepness * by_image) + softplus(self.spec.steepness * by_caption)
        return vsetune.LossOutput(value=value.mean())


# %% [markdown]
# ## One training first
#
# `train` runs one configuration in this process; leave out `progress=False` to follow it. Nothing is recorded.

# %%
data = {"path": "data/tutorial", "scenes": {"train": 400, "validation": 100, "test": 100}}
network = {"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}
recipe = {"epochs": 8, "batch_size": 64, "learning_rate": 5e-3, "validate_every_steps": 16}

training = vsetune.train(network=network, loss=Smooth, data=data, progress=False, **recipe)
training

# %% [markdown]
# ## Compared over three seeds
#
# The class goes into a study as it is. It is pickled with the study, so that its workers have it too.
# `warmup_epochs: 3` trains three epochs with the sum of hinges first.

# %%
lmh = {"name": "lmh", "fixed": {"warmup_epochs": 3}}
study = vsetune.Study(
    study="smooth", data=data, networks=[network], losses=[lmh, "info_nce", Smooth], baseline="lmh", training=recipe,
    search={"configurations": 1}, seeds=[0, 1, 2], resources={"cpus": 1},
)
recorded = study.run(progress=False)
recorded

# %%
recorded.findings

# %%
recorded.figure

# %% [markdown]
# ## A sentence

# %%
recorded.trial("vsepp.smooth-c000-s0").search("two red dotted hexagons", top=4)
