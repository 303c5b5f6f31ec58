"""The printed words of typical errors of files and addresses; other tests compare codes and fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vsetune.storage import s3
from vsetune.storage.addresses import bucket_and_key, is_remote, usable_url
from vsetune.storage.node_cache import SIZE_VARIABLE, WrongContent, node_cache
from vsetune.storage.paths import HOME_VARIABLE, local_path, remote_home, under_home, usable_path, usable_uri
from vsetune.storage.whole_files import make_folder, read_json


def test_the_words_of_typical_errors(tmp_path, snapshot, monkeypatch):
    (tmp_path / "a.json").write_text("{")
    attempts: list[Callable[[], object]] = [
        lambda: is_remote("gs://bucket/x"), lambda: bucket_and_key("s3://bucket"), lambda: usable_path(" "),
        lambda: usable_path("a\0b"), lambda: usable_path("x" * 300), lambda: local_path("s3://bucket/x"),
        lambda: usable_uri("a b"), lambda: usable_uri("http://host:port"), lambda: under_home("~nobody-of-this-name/x"),
        lambda: usable_url("postgresql://me:***@host/db", where="tracking"),
        lambda: usable_url("postgresql://me:${NOT_SET_ANYWHERE}@host/db", where="tracking"),
        lambda: make_folder(tmp_path / "a.json" / "below"), lambda: read_json(tmp_path / "a.json"),
        lambda: s3.open_object("s3://Not_A_Bucket!/x"), node_cache,
        lambda: (_ for _ in ()).throw(WrongContent.of("s3://bucket/x", "3 bytes, the manifest says 4")),
        lambda: monkeypatch.setenv(HOME_VARIABLE, "s3://key:secret@bucket/x") or remote_home(),  # type: ignore[func-returns-value]
    ]
    monkeypatch.setenv(SIZE_VARIABLE, "much")
    words = []
    for attempt in attempts:
        with pytest.raises(Exception) as caught:  # noqa: PT011  ValueErrors of paths too
            attempt()
        words.append(str(caught.value).replace(str(tmp_path), "FOLDER"))
    assert words == snapshot
