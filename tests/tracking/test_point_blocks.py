"""Points as compressed tags: every number comes back, and what earlier versions wrote is read as well."""

import json
import math
import random
from dataclasses import asdict

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from vsetune.errors import StorageError
from vsetune.leaderboard.building import build
from vsetune.tracking import ValidationPoint, encoding, open_store
from vsetune.tracking.pieces import PIECE, from_pieces, in_pieces
from vsetune.tracking.point_blocks import NO_BLOCK, block_texts, last_block, points_of_block, with_points


def noisy(step: int, numbers: int = 16) -> ValidationPoint:
    draw = random.Random(step)
    metrics = {f"number_{place}": draw.random() for place in range(numbers)} | {"device_seconds": 2.5 * step}
    return ValidationPoint(10 * step, step / 7, 640 * step, 100 * draw.random(), draw.random() * step, metrics)


def read(tags: dict[str, str]) -> list[ValidationPoint]:
    return [point for text in block_texts(tags) for point in points_of_block(text)]


@pytest.mark.parametrize("at_once", [1, 7, 200])
def test_points_come_back_exactly_however_many_are_recorded_at_once(at_once):
    points = [noisy(step) for step in range(1, 201)]
    tags, last = {}, NO_BLOCK
    for place in range(0, len(points), at_once):
        blocks = with_points(last, points[place : place + at_once])
        tags |= {key: text for block in blocks for key, text in block.tags.items()}
        last = blocks[-1]
    assert read(tags) == points
    assert last == last_block(tags)
    lengths = [len(text) for text in tags.values()]
    assert max(lengths) < PIECE
    assert len(lengths) < 20
    assert encoding.curve_from_tags(tags) == [encoding.CurvePoint.of(point) for point in points]


def test_a_point_that_is_too_long_for_a_tag_takes_several_and_the_next_one_begins_anew():
    points = [noisy(1, 600), noisy(2, 600), noisy(3)]
    tags = {key: text for block in with_points(NO_BLOCK, points) for key, text in block.tags.items()}
    assert {"vsetune.points.0", "vsetune.points.0.1", "vsetune.points.1", "vsetune.points.2"} <= set(tags)
    assert read(tags) == points


def test_numbers_that_only_some_points_have_and_odd_ones_come_back():
    points = [
        ValidationPoint(1, 0.5, 10, 20.0, 1.0, {"train_loss": math.inf, "first": 1.0}),
        ValidationPoint(2, 1.0, 20, 21.0, 2.0, {"train_loss": -math.inf, "device_seconds": 3.0}),
    ]
    assert points_of_block(with_points(NO_BLOCK, points)[0].text) == points
    (block,) = with_points(NO_BLOCK, [ValidationPoint(1, 0.5, 10, 20.0, 1.0, {"train_loss": math.nan})])
    assert math.isnan(points_of_block(block.text)[0].metrics["train_loss"])


def test_a_text_that_became_exactly_as_long_as_its_pieces_is_not_read_together_with_older_ones():
    tags = in_pieces("name", "old" * PIECE)
    tags |= in_pieces("name", "x" * PIECE)
    assert from_pieces("name", tags) == "x" * PIECE


def test_blocks_of_a_later_version_are_refused_in_one_line():
    with pytest.raises(StorageError, match=r"^tracking store: points in format '2', this vsetune reads 1; install .*$"):
        points_of_block("2 abc def")


@pytest.fixture
def recorded_before(mlflow_store, database, study, start, points):
    """A running attempt with three points as earlier versions wrote it: plain JSON, a row for every number."""
    mlflow_store.open_study(study, resume=False)
    run_id = mlflow_store.start_attempt(start(configuration={"loss.margin": 0.2}))
    client = MlflowClient(f"sqlite:///{database}")
    curve = [list(encoding.CurvePoint.of(point)) for point in points(1, 3)]
    tags = encoding.in_pieces(encoding.RECORD, json.dumps(asdict(start(configuration={"loss.margin": 0.2}))))
    tags[encoding.CURVE] = json.dumps(curve)
    metrics = [
        Metric(name, float(value), 1000 + point.step, point.step)
        for point in points(1, 3) for name, value in encoding.point_metrics(point).items()
    ]
    client.log_batch(run_id, metrics, [], [RunTag(*tag) for tag in tags.items()])
    return run_id


def test_what_an_earlier_version_recorded_is_read_and_gives_the_same_board(
    recorded_before, mlflow_store, database, start, points
):
    mlflow_store.finish_attempt(recorded_before, "finished", {"device_seconds": 9.0}, [], None)
    (old,) = mlflow_store.attempts("nightly")
    now = mlflow_store.start_attempt(start(trial="now", configuration={"loss.margin": 0.2}))
    mlflow_store.record_points(now, points(1, 3))
    mlflow_store.finish_attempt(now, "finished", {"device_seconds": 9.0}, [], None)
    new = mlflow_store.attempt(now)
    assert (old.curve, old.summary, old.start.configuration) == (new.curve, new.summary, new.start.configuration)
    assert mlflow_store.points(recorded_before) == mlflow_store.points(now) == points(1, 3)
    boards = [build([attempt], baseline="lmh").rows[0] for attempt in (old, new)]
    assert (boards[0].best_m_recall, boards[0].cost) == (boards[1].best_m_recall, boards[1].cost)


def test_an_attempt_that_an_earlier_version_began_goes_on_with_one_curve(
    recorded_before, database, start, points
):
    later = open_store(f"sqlite:///{database}", None, curve_plots=False)
    assert later.start_attempt(start()) == recorded_before
    later.record_points(recorded_before, points(2, 5))
    (attempt,) = later.attempts("nightly")
    assert attempt.curve == tuple((point.epoch, point.m_recall) for point in points(1, 5))
    assert later.points(recorded_before) == points(1, 5)
