"""Libraries of a sampler are loaded before it draws, and one that is missing is no trouble yet."""

import sys
from importlib.util import find_spec

import pytest

from vsetune.config.study.study_spec import SearchSpec
from vsetune.search import loaded_ahead


@pytest.mark.parametrize("sampler", ["gp", "random"])
def test_what_a_sampler_needs_is_loaded_by_a_thread(sampler, monkeypatch):
    monkeypatch.setattr(loaded_ahead, "_ALWAYS", ("no_such_library", "colorsys"))
    monkeypatch.setattr(loaded_ahead, "_OF_SAMPLER", {"gp": ("antigravity_of_another_kind", "tabnanny")})
    for name in ("colorsys", "tabnanny"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    loaded_ahead.load_ahead(SearchSpec(sampler=sampler)).join(60)
    assert [name in sys.modules for name in ("colorsys", "tabnanny")] == [True, sampler == "gp"]


def test_the_libraries_named_are_there():
    names = [*loaded_ahead._ALWAYS, *(name for names in loaded_ahead._OF_SAMPLER.values() for name in names)]
    assert [name for name in names if find_spec(name) is None] == []
