"""Parses as part of an ingest, and of data sets in a bucket. A chain stands in for spaCy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from chained_words import Chain, chain
from mock_bucket import bucket
from refusals import fits, refused

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.captions.parses import caption_phrases, parse_dataset, read_parses, word_heads
from vsetune.data.captions.phrase_rules import Phrase
from vsetune.data.looking.verify import verify
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import Manifest

__all__ = ["bucket", "chain"]

Make = Callable[..., IngestRecipe]
Run = Callable[[IngestRecipe], Manifest]
PARSES = {"pipeline": "chain"}
PHRASES = PARSES | {"phrases": True}


def heads(path: str | Path) -> dict[str, np.ndarray]:
    dataset = Dataset.open(str(path))
    return {split: np.array(word_heads(dataset, split)) for split in dataset.manifest.splits}


def test_a_recipe_that_asks_for_parses_gets_them_for_every_split(scenes_recipe: Make, run: Run, chain: Chain) -> None:
    recipe = scenes_recipe(parses=PARSES)
    manifest = run(recipe)
    assert {name: len(array) for name, array in heads(recipe.output).items()} == {
        name: split.captions for name, split in manifest.splits.items()
    }
    assert verify(recipe.output) == []
    reads = NetworkReads(dependencies=True)
    (batch,) = evaluation_batches(Dataset.open(recipe.output), "test", batch_size=4, reads=reads)
    assert batch.captions.dependencies is not None
    assert batch.captions.dependencies.sum() == 2 * (batch.captions.lengths - 3).sum()


def test_parses_change_neither_the_recipe_nor_a_byte_of_the_data(scenes_recipe, run, chain, contents):
    bare, parsed = scenes_recipe("bare"), scenes_recipe("parsed", parses=PARSES)
    assert bare.content_fingerprint() == parsed.content_fingerprint()
    assert run(bare) == run(parsed)
    without, with_parses = contents(Path(bare.output)), contents(Path(parsed.output))
    assert {name: with_parses[name] for name in without} == without


def test_a_finished_data_set_gets_parses_when_its_recipe_asks_for_them_later(scenes_recipe, run, chain):
    run(scenes_recipe())
    assert read_parses(scenes_recipe().output) is None
    run(scenes_recipe(parses=PARSES))
    parsed = chain.parsed
    assert read_parses(scenes_recipe().output) is not None
    run(scenes_recipe(parses=PARSES))
    run(scenes_recipe())
    assert chain.parsed == parsed


def test_a_pipeline_that_is_missing_is_told_before_the_ingest(scenes_recipe: Make, run: Run, tmp_path: Path) -> None:
    with refused("VSE-D071", key="parses.pipeline", pipeline="xx_no_such"):
        run(scenes_recipe(parses={"pipeline": "xx_no_such"}))
    assert not (tmp_path / "scenes").exists()


def test_parsing_that_was_killed_goes_on_at_the_unfinished_split(scenes_recipe: Make, run: Run, chain: Chain) -> None:
    recipe = scenes_recipe()
    run(recipe)
    captions = [split.captions for split in Dataset.open(recipe.output).manifest.splits.values()]
    chain.stop_after = captions[0] + 3
    with pytest.raises(KeyboardInterrupt):
        parse_dataset(recipe.output, "chain", progress=SilentProgress())
    assert read_parses(recipe.output) is None
    chain.stop_after = None
    parse_dataset(recipe.output, "chain", progress=SilentProgress())
    assert chain.parsed == sum(captions) + 3


def phrases(path: str | Path) -> dict[str, list[list[Phrase]]]:
    dataset = Dataset.open(str(path))
    found = {}
    for split, array in heads(path).items():
        read = caption_phrases(dataset, split)
        found[split] = [read.of(caption, words=array.shape[1]) for caption in range(len(array))]
    return found


def test_a_recipe_that_asks_for_phrases_gets_them_beside_the_parses(scenes_recipe, run, chain, contents):
    bare, asked = scenes_recipe("bare", parses=PARSES), scenes_recipe("asked", parses=PHRASES)
    assert bare.content_fingerprint() == asked.content_fingerprint()
    run(bare), run(asked)
    without, beside = contents(Path(bare.output)), contents(Path(asked.output))
    assert {name for name in without if without[name] != beside[name]} == {"parses.json"}
    assert b"phrases" not in without["parses.json"]
    assert verify(asked.output) == []
    for split, array in heads(asked.output).items():
        for heads_of_it, found in zip(array, phrases(asked.output)[split], strict=True):
            assert [phrase.words for phrase in found] == [(word,) for word in range(len(found))]
            assert len(found) == (heads_of_it >= 0).sum() + 1


def test_phrases_are_added_to_parses_that_are_there_and_both_made_once(scenes_recipe, run, chain):
    run(scenes_recipe(parses=PARSES))
    recipe, parsed = scenes_recipe(parses=PHRASES), chain.parsed
    run(recipe)
    assert chain.parsed == 2 * parsed  # once for the phrases; the parses stayed
    run(recipe), run(scenes_recipe(parses=PARSES)), run(scenes_recipe())
    assert chain.parsed == 2 * parsed
    found = read_parses(recipe.output)
    assert found is not None
    assert found.has_phrases


@pytest.mark.parametrize("kind", ["parses", "phrases"])
def test_an_array_that_is_gone_is_made_again_with_phrases_as_before(scenes_recipe, run, chain, kind):
    """`data parse` found them listed, and did nothing."""
    recipe = scenes_recipe(parses=PHRASES)
    run(recipe)
    before = read_parses(recipe.output)
    (file,) = Path(recipe.output).glob(f"{kind}-train-*.npy")
    content = file.read_bytes()
    file.unlink()
    (problem,) = verify(recipe.output)
    assert fits(problem, "VSE-D077", where=file)
    assert parse_dataset(recipe.output, "chain", progress=SilentProgress()) == before
    assert file.read_bytes() == content
    file.write_bytes(content[:-1] + b"\x07")
    with refused("VSE-D030", file=file, listed="parses.json"):
        parse_dataset(recipe.output, "chain", progress=SilentProgress())


def test_phrases_go_on_at_the_unfinished_split_too(scenes_recipe: Make, run: Run, chain: Chain) -> None:
    recipe = scenes_recipe(parses=PARSES)
    run(recipe)
    captions = chain.parsed
    first = next(iter(Dataset.open(recipe.output).manifest.splits.values()))
    chain.stop_after = captions + first.captions + 2
    with pytest.raises(KeyboardInterrupt):
        parse_dataset(recipe.output, "chain", phrases=True, progress=SilentProgress())
    chain.stop_after = None
    parse_dataset(recipe.output, "chain", phrases=True, progress=SilentProgress())
    assert chain.parsed == 2 * captions + 2


def test_phrases_of_a_bucket_are_uploaded_read_from_there_and_added_later(scenes_recipe, run, chain, bucket):
    recipe = scenes_recipe(parses=PHRASES, upload="s3://data/scenes")
    run(recipe)
    assert phrases("s3://data/scenes") == phrases(recipe.output)
    assert verify("s3://data/scenes") == []
    later = scenes_recipe("later", parses=PARSES, upload="s3://data/later")
    run(later)
    made = parse_dataset("s3://data/later", "chain", phrases=True, progress=SilentProgress())
    assert parse_dataset(later.output, "chain", phrases=True, progress=SilentProgress()) == made
    assert phrases("s3://data/later") == phrases(later.output) == phrases(recipe.output)


def test_a_bucket_can_be_parsed_later_from_anywhere(scenes_recipe: Make, run: Run, chain: Chain, bucket: None) -> None:
    recipe = scenes_recipe(upload="s3://data/scenes")
    run(recipe)
    made = parse_dataset("s3://data/scenes", "chain", progress=SilentProgress())
    assert parse_dataset("s3://data/scenes", "chain", progress=SilentProgress()) == made
    assert parse_dataset(recipe.output, "chain", progress=SilentProgress()) == made
    here, there = heads(recipe.output), heads("s3://data/scenes")
    assert all(np.array_equal(here[split], there[split]) for split in here)
