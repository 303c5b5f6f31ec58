"""UNITER and TAGS-DC: the imported network scores pairs and guesses words as the released modules do, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from torch.testing import assert_close

from vsetune.cli.network_weights import _snippet
from vsetune.networks.parts import text_transformer
from vsetune.networks.tags import released as tags_released

WIDTH, WORDS, SIZE, REGIONS = 6, 12, 8, 4


@pytest.fixture
def uniter(released: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tiny UNITER, its BERT that of `transformers`, which has the same names."""
    transformers = pytest.importorskip("transformers")
    tiny = {
        "vocab_size": WORDS, "hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 1,
        "intermediate_size": 10, "max_position_embeddings": 9, "layer_norm_eps": 1e-12,
    }
    monkeypatch.setitem(text_transformer._KNOWN, "bert-base-cased", tiny)
    shape = {"embedding_size": SIZE, "layers": 2, "heads": 1}
    monkeypatch.setitem(tags_released._SIZES, SIZE, {**shape, "text_model": "bert-base-cased"})
    monkeypatch.setattr(
        "vsetune.networks.parts.text_transformer.find_model", lambda *args, **keys: pytest.fail("asked the hub")
    )
    bert = transformers.BertModel(transformers.BertConfig(**tiny, attn_implementation="eager"))
    images = released(
        img_linear=nn.Linear(WIDTH, SIZE), img_layer_norm=norm(), pos_layer_norm=norm(), pos_linear=nn.Linear(7, SIZE),
        mask_embedding=nn.Embedding(2, WIDTH), LayerNorm=norm(),
    )
    return released(embeddings=bert.embeddings, img_embeddings=images, encoder=bert.encoder, pooler=bert.pooler)


def norm() -> nn.LayerNorm:
    return nn.LayerNorm(SIZE, eps=1e-12)


def word_head(released: Any, body: Any) -> Any:
    head = released(transform=released(dense=nn.Linear(SIZE, SIZE), LayerNorm=norm()), decoder=nn.Linear(SIZE, WORDS))
    head.bias, head.decoder.bias = nn.Parameter(torch.randn(WORDS)), None
    head.decoder.weight = body.embeddings.word_embeddings.weight
    return released_as_is(predictions=head)


def released_as_is(**children: Any) -> nn.Module:
    module = nn.Module()
    for name, child in children.items():
        setattr(module, name, child)
    return module


def saved(tmp_path: Path, *, are_old: bool = False, **parts: nn.Module) -> Path:
    """As UNITER's and TAGS-DC's training scripts save a model. are_old: LayerNorm named as in BERT's own files."""
    state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    if are_old:
        names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        state = {old_name(name, names): value for name, value in state.items()}
    torch.save(state, tmp_path / "model_step_5000.pt")
    return tmp_path / "model_step_5000.pt"


def old_name(name: str, names: Mapping[str, str]) -> str:
    end = ".".join(name.split(".")[-2:])
    return name.removesuffix(end) + names.get(end, end)


def states_of(body: Any, regions: Tensor, boxes: Tensor, ids: Tensor) -> Tensor:
    """(words + regions, D) of one pair."""
    text, image = body.embeddings, body.img_embeddings
    types = text.token_type_embeddings.weight
    words = text.word_embeddings(ids) + text.position_embeddings.weight[: len(ids)] + types[0]
    sides = boxes[:, 2:] - boxes[:, :2]
    places = torch.cat((boxes, sides, sides.prod(dim=1, keepdim=True)), dim=1)
    seen = image.img_layer_norm(image.img_linear(regions)) + image.pos_layer_norm(image.pos_linear(places))
    tokens = torch.cat((text.LayerNorm(words), image.LayerNorm(seen + types[1])))
    states: Tensor = body.encoder(tokens[None])[0][0]
    return states


def expected_scores(body: Any, score: Any, features: Tensor, boxes: Tensor, captions: list[Tensor]) -> Tensor:
    found = [
        score(body.pooler.dense(states_of(body, *row, ids)[0]).tanh())
        for row in zip(features, boxes, strict=True) for ids in captions
    ]
    return torch.stack(found).view(len(features), -1).sigmoid()


@pytest.fixture
def boxes() -> Tensor:
    low = torch.rand(2, REGIONS, 2) / 2
    return torch.cat((low, low + 0.3), dim=-1)


@torch.no_grad()
def test_uniter_gives_its_logit_of_a_match_as_the_score(
    uniter: Any, released: Any, bring: Any, scores: Any, features: Tensor, boxes: Tensor, captions: list[Tensor],
    tmp_path: Path,
) -> None:
    matching, words = released(itm=nn.Linear(SIZE, 2)).itm, word_head(released, uniter)
    path = saved(
        tmp_path, uniter=uniter, cls=words, itm_output=matching, feat_regress=nn.Linear(2, 2),
        region_classifier=nn.Linear(2, 2),
    )
    imported, network = bring(path, "uniter")
    expected = expected_scores(uniter, lambda pooled: matching(pooled)[1], features, boxes, captions)
    assert_close(scores(network, boxes=boxes), expected)
    assert torch.equal(network.replaced_words.weight, matching.weight)
    assert torch.equal(network.corrected_words.bias, words.predictions.bias)
    assert (imported.width, imported.vocabulary_size, imported.words) == (WIDTH, WORDS, None)
    assert set(imported.unused) == {
        "uniter.img_embeddings.mask_embedding.weight", "cls.predictions.decoder.weight", "feat_regress.weight",
        "feat_regress.bias", "region_classifier.weight", "region_classifier.bias",
    }
    assert "word pieces of bert-base-cased" in _snippet(path, imported, Path("/w.safetensors"))


@torch.no_grad()
@pytest.mark.parametrize("stage", [1, 2])
def test_tags_scores_by_its_rank_output_and_guesses_words_as_the_released_modules(
    stage: int, uniter: Any, released: Any, bring: Any, scores: Any, features: Tensor, boxes: Tensor,
    captions: list[Tensor], tmp_path: Path,
) -> None:
    heads = released(itm=nn.Linear(SIZE, 2), rank=nn.Linear(SIZE, 1), disc=nn.Linear(SIZE, 2))
    words = word_head(released, uniter)
    last = {"disc_output": heads.disc, "correction_output": word_head(released, uniter)} if stage == 2 else {}
    parts = {"uniter": uniter, "cls": words, "itm_output": heads.itm, "rank_output": heads.rank, **last}
    path = saved(tmp_path, are_old=stage == 1, **parts)
    imported, network = bring(path, "tags")
    expected = expected_scores(uniter, lambda pooled: heads.rank(pooled)[0], features, boxes, captions)
    assert_close(scores(network, boxes=boxes), expected)
    hidden = torch.randn(3, SIZE)
    for ours, theirs in (
        (network.masked_words, words), (network.corrected_words, last.get("correction_output", words))
    ):
        head = theirs.predictions
        guessed = linear(head.transform.LayerNorm(gelu(head.transform.dense(hidden))), head.decoder.weight, head.bias)
        assert_close(ours(hidden, network.inputs.words.weight), guessed)
    assert torch.equal(network.replaced_words.weight, (heads.disc if stage == 2 else heads.itm).weight)
    assert ("itm_output.weight" in imported.unused) == (stage == 2)


@pytest.mark.parametrize(("source", "change", "named"), [
    ("uniter", "partial", "missing: uniter.encoder.layer.1.output.dense.bias"),
    ("tags", "whole", "missing: rank_output.weight, rank_output.bias"),
    ("uniter", "other", "unexpected: vqa_output.weight"),
])
def test_a_partial_or_other_file_is_refused_with_the_names(
    source: str, change: str, named: str, uniter: Any, released: Any, bring: Any, tmp_path: Path
) -> None:
    more = {"vqa_output": nn.Linear(2, 2, bias=False)} if change == "other" else {}
    if change == "partial":
        del uniter.encoder.layer[1].output.dense.bias
    path = saved(tmp_path, uniter=uniter, cls=word_head(released, uniter), itm_output=nn.Linear(SIZE, 2), **more)
    with refused("VSE-N045", source=source) as caught:
        bring(path, source)
    assert named in str(caught.value).splitlines()


@pytest.mark.parametrize("source", ["uniter", "tags"])
def test_a_width_that_no_released_model_has_is_refused_in_one_line(
    source: str, uniter: Any, released: Any, bring: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(tags_released._SIZES, SIZE)
    path = saved(tmp_path, uniter=uniter, cls=word_head(released, uniter), itm_output=nn.Linear(SIZE, 2))
    with refused("VSE-N047", path=path, got=8):
        bring(path, source)


def test_a_head_with_word_embeddings_of_its_own_is_refused(
    uniter: Any, released: Any, bring: Any, tmp_path: Path
) -> None:
    words = word_head(released, uniter)
    words.predictions.decoder.weight = nn.Parameter(torch.zeros(WORDS, SIZE))
    path = saved(tmp_path, uniter=uniter, cls=words, itm_output=nn.Linear(SIZE, 2))
    with refused("VSE-N048", name="cls.predictions.decoder.weight"):
        bring(path, "uniter")
