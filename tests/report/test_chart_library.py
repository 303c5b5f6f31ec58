"""The script that draws charts: put together once, kept, and made anew where what was kept is damaged."""

from __future__ import annotations

import base64
import gzip

import pytest

from vsetune.report import vega


@pytest.mark.slow
def test_a_damaged_copy_is_made_anew_and_a_sound_one_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = vega.packed_library.__wrapped__()
    (kept,) = (tmp_path / "vsetune").iterdir()
    assert base64.b64decode(first) == kept.read_bytes()
    assert b"window.vegaEmbed" in gzip.decompress(kept.read_bytes())
    kept.write_bytes(kept.read_bytes()[:-100])
    assert vega.packed_library.__wrapped__() == first
    kept.write_bytes(gzip.compress(b"another"))
    assert gzip.decompress(base64.b64decode(vega.packed_library.__wrapped__())) == b"another"


@pytest.mark.slow
def test_where_nothing_can_be_kept_there_is_a_script_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(vega.packed_library.__wrapped__()) > 100_000
