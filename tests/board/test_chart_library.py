"""The script that draws charts: put together once, kept, and made anew where what was kept is damaged."""

from __future__ import annotations

import gzip

import pytest

from vsetune.board import vega


@pytest.mark.slow
def test_a_damaged_copy_is_made_anew_and_a_sound_one_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = vega.chart_library.__wrapped__()
    (kept,) = (tmp_path / "vsetune").iterdir()
    assert gzip.decompress(kept.read_bytes()).decode() in first
    assert "window.vegaEmbed" in first
    assert "</script" not in first
    kept.write_bytes(kept.read_bytes()[:-100])
    assert vega.chart_library.__wrapped__() == first
    kept.write_bytes(gzip.compress(b"another('</script>')"))
    assert vega.chart_library.__wrapped__() == r"(() => {another('<\/script>')})();"


@pytest.mark.slow
def test_where_nothing_can_be_kept_there_is_a_script_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(vega.chart_library.__wrapped__()) > 100_000


def test_a_chart_of_a_page_has_its_words_escaped_and_the_colours_of_the_style_sheet():
    values = [{"x": 1, "y": 2, "loss": "lmh", "words": '<b> "one"'}]
    channels = {name: {"field": name, "type": "quantitative"} for name in "xy"}
    spec = {
        "data": {"values": values}, "mark": "point",
        "encoding": channels | {"description": {"field": "words"}, **vega.looks_of({"lmh": 1}, vega.ON_PAGE)},
    }
    text = vega.svg(spec, "all of <it>")
    assert text.startswith('<svg role="img" aria-label="all of &lt;it&gt;" width=')
    assert "<title>&lt;b&gt; &quot;one&quot;</title>" in text
    assert 'stroke="var(--c1)"' in text
    assert "#" not in text.replace("url(#", "")
