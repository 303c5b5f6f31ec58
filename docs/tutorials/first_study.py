# %% [markdown]
# # From an empty folder to a board and a query
#
# Three losses are compared on one network: `lmh` (hinge on the hardest negative, VSE++), `lseh` (the same hinge,
# whose margin depends on the meaning of the captions) and `info_nce`. The data are generated: scenes of coloured
# shapes with five captions each, so nothing is downloaded. On two idle cores all of it takes some three minutes.
#
# Run the cells one by one (`# %%` starts a cell in VS Code, PyCharm and Jupytext). Everything is written under
# `VSETUNE_HOME` (by default `~/vsetune`).

# %%
import vsetune

study = vsetune.Study(
    study="first",
    data={"path": "data/tutorial", "scenes": {"train": 400, "validation": 100, "test": 100}},
    networks=[{"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}],
    losses=[
        {"name": "lmh", "fixed": {"warmup_epochs": 3}},
        {"name": "lseh", "fixed": {"warmup_epochs": 3}},
        "info_nce",
    ],
    baseline="lmh",
    training={"epochs": 8, "batch_size": 64, "learning_rate": 5e-3, "validate_every_steps": 16},
    search={"configurations": 1},
    seeds=[0, 1, 2, 3, 4, 5],
    resources={"cpus": 1},
)

# %% [markdown]
# ## Before it runs
#
# `validate` finds every wrong value at once. One row is one *cell*: a network with a loss.

# %%
study.validate()

# %% [markdown]
# `searched` names what a search would vary. Here nothing is searched: `configurations: 1` tries only the default
# settings, with the same six seeds for all losses. Differences are tested over these pairs of seeds.
#
# `warmup_epochs: 3` trains three epochs with the sum over all negatives first, because hinges on the hardest negative
# may collapse at the start. A search with `search.configurations` and `search.repeats` takes longer and answers for
# tuned losses; see [Statistics](../statistics.md).
#
# ## Run it
#
# Ray runs the trials, as many at a time as there are cores. This cell takes two to three minutes; `study.run()` without
# `progress=False` shows a table of what runs. If the process is killed, `study.resume()` goes on.

# %%
recorded = study.run(progress=False)
recorded

# %% [markdown]
# ## The board
#
# The board is a `DataFrame`. M-Recall is the mean of R@1, R@5 and R@10 in both directions, in per cent, on the
# validation split; `i2t` is image to text, `t2i` text to image. Recalls are means over the seeds, epochs medians.

# %%
recorded.board[["loss", "best_m_recall", "epochs_to_best", "i2t_r1", "t2i_r1", "seconds_per_epoch"]].round(2)

# %% [markdown]
# What the seeds support, in words. `[low, high]` is a 95 % interval; `<` before a number says that it is at most
# this, as where seeds of the baseline never reach the target:

# %%
recorded.findings

# %% [markdown]
# The curves, a mean with the lowest and the highest seed:

# %%
recorded.figure

# %% [markdown]
# ## Ask a trained network
#
# A trial is one training: `vsepp.info_nce-c000-s0` is that of the network `vsepp` with the loss `info_nce`,
# configuration 0 (the defaults) and seed 0. It finds images for a sentence, and captions for an image.

# %%
trial = recorded.trial("vsepp.info_nce-c000-s0")
trial.search("a big blue star", top=4)

# %%
embedded = trial.embed("test")
trial.search(image=embedded.image_names[0], top=3)

# %% [markdown]
# In a terminal the same is `vsetune leaderboard show first` and
# `vsetune trial search first/vsepp.info_nce-c000-s0 "a big blue star"`. `vsetune serve` shows boards and a page to ask
# trained networks in the browser.
