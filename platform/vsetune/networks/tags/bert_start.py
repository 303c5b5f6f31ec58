"""TAGS's transformer from a pre-trained BERT: its word, position and type embeddings and all its layers."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from vsetune.config.sources.trial_inputs import KEY
from vsetune.errors import ConfigError
from vsetune.networks.parts.text_transformer import TextTransformer
from vsetune.networks.tags.joint_encoder import EncoderShape, JointEncoder, TokenInputs
from vsetune.networks.tags.spec import TagsSpec

LAYER = {
    "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
    "attended": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense", "outer": "output.dense", "output_norm": "output.LayerNorm",
}
"""Parts of a layer: our name -> that of `transformers`."""


class BertStart:
    """A BERT that is read only to copy from it. ConfigError unless it is a BERT of the shape in the spec.

    shape: of the encoder. vocabulary_size, longest: ids and positions it knows. architecture: see `architecture_of`.
    """

    def __init__(self, spec: TagsSpec) -> None:
        model = spec.reads.word_pieces
        assert model is not None
        read = TextTransformer(model)
        self._body, self.architecture = read.body, read.architecture
        config = cast(Any, read.body).config
        if config.model_type != "bert" or config.hidden_act != "gelu":
            found = f"{config.model_type} with {config.hidden_act}"
            raise ConfigError(
                "VSE-N011", "{key}: {model}: is a {got}; need {need}", key=KEY, model=model, got=found,
                need="a BERT with gelu",
            )
        shape = {
            "embedding_size": config.hidden_size, "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
        }
        wrong = [f"{name}: {value}" for name, value in shape.items() if getattr(spec, name) != value]
        if wrong:
            raise ConfigError(
                "VSE-N012", "{key}: {model}: has another shape than network tags; set {settings}", key=KEY, model=model,
                settings=", ".join(wrong),
            )
        self.vocabulary_size, self.longest = int(config.vocab_size), int(config.max_position_embeddings)
        self.shape = EncoderShape(
            size=spec.embedding_size, layers=spec.layers, heads=spec.heads, inner=int(config.intermediate_size),
            dropout=spec.dropout, epsilon=float(config.layer_norm_eps),
        )

    @torch.no_grad()
    def copy_into(self, inputs: TokenInputs, encoder: JointEncoder) -> None:
        """Copy its weights; regions get the second type, or the only one. Parameters that it lacks are not changed."""
        body = self._body
        for ours, theirs in (("words", "word_embeddings"), ("positions", "position_embeddings")):
            _copy(inputs.get_submodule(ours), body.get_submodule(f"embeddings.{theirs}"))
        _copy(inputs.word_norm, body.get_submodule("embeddings.LayerNorm"))
        types = cast(Tensor, body.get_submodule("embeddings.token_type_embeddings").weight)
        inputs.types.weight.copy_(types[[0, min(1, len(types) - 1)]])
        for number, layer in enumerate(encoder.layers):
            for name, theirs in LAYER.items():
                _copy(layer.get_submodule(name), body.get_submodule(f"encoder.layer.{number}.{theirs}"))


def _copy(ours: nn.Module, theirs: nn.Module) -> None:
    for name, value in theirs.named_parameters():
        ours.get_parameter(name).copy_(value)


