"""Shards made by many processes are those of one; what is finished stays finished wherever the ingest goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from mock_bucket import bucket
from refusals import refused

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.looking.verify import verify
from vsetune.data.making import data_place
from vsetune.data.making import ingest as ingesting
from vsetune.data.making.ingest import ShardTask, ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.manifest import Manifest
from vsetune.errors import StorageError

__all__ = ["bucket"]

Make = Callable[..., IngestRecipe]
Contents = Callable[[Path], dict[str, bytes]]
Run = Callable[[IngestRecipe], Manifest]


def backwards(function: Callable[[ShardTask], Any], tasks: Sequence[ShardTask]) -> Iterator[tuple[ShardTask, Any]]:
    """The last shard first, all in this process."""
    for task in reversed(tasks):
        yield task, function(task)


def in_processes(function: Callable[[ShardTask], Any], tasks: Sequence[ShardTask]) -> Iterator[tuple[ShardTask, Any]]:
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        yield from zip(tasks, pool.map(function, tasks), strict=True)


class Lost(Exception):
    """The driver died."""


class DiesAfter:
    """Does so many tasks of an ingest; made: the shards of all calls, in order."""

    def __init__(self, tasks: int | None) -> None:
        self._left = tasks
        self.made: list[str] = []

    def __call__(
        self, function: Callable[[ShardTask], Any], tasks: Sequence[ShardTask]
    ) -> Iterator[tuple[ShardTask, Any]]:
        for task in tasks:
            if self._left is not None:
                if self._left == 0:
                    raise Lost
                self._left -= 1
            self.made.append(task.plan.name)
            yield task, function(task)


def in_parallel(recipe: IngestRecipe, place: Any = backwards) -> Manifest:
    return ingest(recipe, progress=SilentProgress(), run_tasks=place)


def objects(bucket: Any) -> dict[str, bytes]:
    found = bucket.list_objects_v2(Bucket="data").get("Contents", [])
    return {each["Key"]: bucket.get_object(Bucket="data", Key=each["Key"])["Body"].read() for each in found}


@pytest.mark.parametrize("place", [backwards, in_processes])
def test_shards_made_in_any_order_by_any_process_are_those_of_one(scenes_recipe, run, contents, tmp_path, place):
    run(scenes_recipe("one"))
    in_parallel(scenes_recipe("many"), place)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert not (tmp_path / "many" / ".ingest").exists()


def test_in_a_bucket_they_are_the_same_objects_and_nothing_else_is_left(scenes_recipe, run, contents, bucket, tmp_path):
    run(scenes_recipe("one"))
    recipe = scenes_recipe("unused", upload="s3://data/sets/scenes")
    manifest = in_parallel(recipe)
    here = {f"sets/scenes/{name}": content for name, content in contents(tmp_path / "one").items()}
    assert objects(bucket) == here
    assert in_parallel(recipe, DiesAfter(0)) == manifest
    assert verify("s3://data/sets/scenes") == []
    assert not (tmp_path / "unused").exists()


def test_under_a_home_in_a_bucket_one_machine_makes_the_same_objects(
    scenes_recipe: Make, run: Run, contents: Contents, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(scenes_recipe("one"))
    monkeypatch.setattr(data_place, "under_home", lambda path: f"s3://data/home/{path}")
    recipe = scenes_recipe().model_copy(update={"output": "data/scenes"})
    manifest = run(recipe)
    here = {f"home/data/scenes/{name}": content for name, content in contents(tmp_path / "one").items()}
    assert objects(bucket) == here
    assert run(recipe) == manifest


@pytest.mark.parametrize("upload", [None, "s3://data/scenes"], ids=["folder", "bucket"])
def test_finished_shards_are_not_made_again(scenes_recipe: Make, bucket: Any, upload: str | None) -> None:
    recipe = scenes_recipe("out", upload=upload)
    first, second = DiesAfter(3), DiesAfter(None)
    with pytest.raises(Lost):
        in_parallel(recipe, first)
    in_parallel(recipe, second)
    assert len(first.made) == 3
    assert len(second.made) == 4
    assert not set(first.made) & set(second.made)


def test_a_missing_bucket_is_noticed_before_a_shard_is_made(scenes_recipe, bucket):
    place = DiesAfter(0)
    with refused("VSE-O028", bucket="nowhere"):
        in_parallel(scenes_recipe(upload="s3://nowhere/scenes"), place)
    assert place.made == []


def test_an_unfinished_ingest_of_another_recipe_under_the_prefix_is_refused(scenes_recipe, bucket):
    with pytest.raises(Lost):
        in_parallel(scenes_recipe(upload="s3://data/scenes"), DiesAfter(1))
    with refused("VSE-D038", place="s3://data/scenes", other="another recipe"):
        in_parallel(scenes_recipe(upload="s3://data/scenes", vocabulary_min_count=2))


@pytest.fixture
def table_recipe(tmp_path: Path, save_image: Callable[..., bytes]) -> IngestRecipe:
    """Nine train images in shards of two, of which the third and the fourth, a whole shard, and the last are broken."""
    names = [f"{number}.jpg" for number in range(9)]
    for number, name in enumerate(names):
        save_image(tmp_path / "raw" / name, 20 * number)
        if number in (2, 3, 8):
            (tmp_path / "raw" / name).write_bytes(b"no image")
    (tmp_path / "captions.csv").write_text("image,caption\n" + "".join(f"{name},a dog .\n" for name in names))
    (tmp_path / "train.txt").write_text("\n".join(names))
    return IngestRecipe.model_validate({
        "name": "table", "output": str(tmp_path / "out"), "vocabulary_min_count": 1, "on_unreadable": "skip",
        "source": {
            "layout": "caption_table", "captions": str(tmp_path / "captions.csv"), "images": [str(tmp_path / "raw")],
            "lists": {"train": str(tmp_path / "train.txt")},
        },
        "features": {"extractor": "pixels", "grid": 1, "width": 8}, "shard": {"max_images": 2},
    })


def test_images_left_out_move_what_follows_alike(table_recipe, contents, tmp_path):
    ingest(table_recipe, progress=SilentProgress())
    in_parallel(table_recipe.model_copy(update={"output": str(tmp_path / "many")}))
    assert contents(tmp_path / "many") == contents(tmp_path / "out")


def test_a_node_that_does_not_see_the_source_says_so_in_one_line(table_recipe: IngestRecipe, tmp_path: Path) -> None:
    def elsewhere(function: Callable[[ShardTask], Any], tasks: Sequence[ShardTask]) -> Iterator[tuple[ShardTask, Any]]:
        (tmp_path / "captions.csv").rename(tmp_path / "hidden.csv")
        ingesting._opened.cache_clear()
        yield tasks[0], function(tasks[0])

    with refused("VSE-D001") as caught:
        in_parallel(table_recipe, elsewhere)
    assert re.search(r"captions\.csv.*must stand at the same paths on every node.*\(on node ", str(caught.value))


def test_an_output_that_only_one_node_sees_is_told_in_one_line(scenes_recipe: Make, tmp_path: Path) -> None:
    def elsewhere(function: Callable[[ShardTask], Any], tasks: Sequence[ShardTask]) -> Iterator[tuple[ShardTask, Any]]:
        (tmp_path / "out" / ".ingest").rename(tmp_path / "hidden")
        yield tasks[0], function(tasks[0])

    with refused("VSE-D036", by=StorageError, place=tmp_path / "out", missing=".ingest"):
        in_parallel(scenes_recipe("out"), elsewhere)
