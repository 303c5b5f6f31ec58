"""Loads what the first draws of a search need while nobody waits for it: two seconds, with a worker idle in the end."""

from __future__ import annotations

import logging
import threading
from importlib import import_module

from vsetune.config.study.study_spec import SearchSpec

_log = logging.getLogger(__name__)
_ALWAYS = ("scipy.stats",)
_OF_SAMPLER = {"gp": ("optuna._gp.optim_mixed", "optuna._gp.acqf", "optuna._gp.gp")}


def load_ahead(search: SearchSpec) -> threading.Thread:
    """A thread that imports the libraries of the study's sampler. What cannot be loaded is told by the draw that needs
    it."""
    thread = threading.Thread(target=_load, args=(search.sampler,), name="search-loading", daemon=True)
    thread.start()
    return thread


def _load(sampler: str) -> None:
    for name in (*_ALWAYS, *_OF_SAMPLER.get(sampler, ())):
        try:
            import_module(name)
        except ImportError as error:
            _log.debug("%s is not loaded ahead: %s", name, error)
