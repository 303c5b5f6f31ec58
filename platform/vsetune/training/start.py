"""The initial weights of a training whose network names some: `start_from`. Read once, before the first step."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from vsetune.config.component_specs import AnyNetwork
from vsetune.config.sources.recipe import expand_path
from vsetune.data.stored.vocabulary import SPECIAL_WORDS
from vsetune.errors import ConfigError, DataError
from vsetune.home.hashes import sha256_of_file
from vsetune.home.paths import on_this_node
from vsetune.networks.importing.released_file import rows_of
from vsetune.networks.importing.stored import WORD_VECTORS, StoredWeights, fingerprint_of_words, placed
from vsetune.networks.parts.backbone import names_of_colours
from vsetune.networks.parts.text_transformer import Architecture

_KEY = "network.start_from"

_log = logging.getLogger(__name__)


def check_start(network: nn.Module, spec: AnyNetwork, words: Sequence[str]) -> StoredWeights | None:
    """The weights that a training of `network` starts from; None: fresh ones. Only the header of the file is read.

    network: may be on the meta device. words: of the data set, special ones first. ConfigError in one line when the
    file is missing, or does not match the network exactly. Two differences are allowed: word vectors of other words,
    and spare heads of an imported file.
    """
    if spec.start_from is None:
        return None
    stored = _open(spec.start_from)
    where = f"{_KEY}: {stored.path}"
    own = stored.network.name if stored.network is not None else stored.notes.network if stored.notes else spec.name
    if own != spec.name:
        raise ConfigError(
            "VSE-T021", "{file}: holds {got}, need {need}; name weights of this network", file=where, got=own,
            need=spec.name,
        )
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    if WORD_VECTORS in wanted and WORD_VECTORS in stored.shapes:
        _check_words(stored, words, where)
        # Other words come with other rows, and find their places.
        wanted[WORD_VECTORS] = (*stored.shapes[WORD_VECTORS][:1], *wanted[WORD_VECTORS][1:])
    elif spec.reads.word_pieces is None:
        _check_same_words(stored, words, where)
    for name in names_of_colours(network) - stored.shapes.keys():
        del wanted[name]  # of an earlier version; `load_state_dict` finds them
    held = {name: stored.shapes[name] for name in stored.without_spare(wanted)}
    problems = list(_differences(wanted, held))
    if problems:
        raise ConfigError(
            "VSE-T022", "{file}: does not fit network {network} on these data: {differences}; need weights of the same "
            "network with the same sizes, and features of the same width", file=where, network=spec.name,
            differences="; ".join(problems),
        )
    return stored


def start(network: nn.Module, spec: AnyNetwork, words: Sequence[str]) -> None:
    """Load the weights of `spec.start_from`, if any. Errors as in `check_start`.

    Words of the data set that the file does not know keep their present vectors. No random number is used.
    """
    stored = check_start(network, spec, words)
    if stored is None:
        return
    kept = stored.without_spare(network.state_dict())
    tensors = {name: tensor for name, tensor in stored.tensors().items() if name in kept}
    known = _known_words(stored)
    if known is not None and WORD_VECTORS in tensors:
        fresh: Tensor = network.state_dict()[WORD_VECTORS]
        tensors[WORD_VECTORS] = placed(tensors[WORD_VECTORS].to(fresh), words, known, otherwise=fresh)
    network.load_state_dict(tensors)
    _log.info("starts from %s: %s", stored.path, _words_found(stored, words))


def known_architecture(spec: AnyNetwork) -> Architecture:
    """The architecture of pre-trained models inside the weights of `spec.start_from`; errors as above."""
    notes = None if spec.start_from is None else _open(spec.start_from).notes
    return {} if notes is None else notes.architecture


def describe_start(spec: AnyNetwork, words: Sequence[str]) -> dict[str, str]:
    """For records: which weights a training started from, and how many words they knew; empty for fresh ones."""
    if spec.start_from is None:
        return {}
    stored = _open(spec.start_from)
    content = sha256_of_file(stored.path)[:12]
    return {"start_from": f"{stored.path.name} {content}: {_words_found(stored, words)}"}


def count_known(words: Sequence[str], known: Sequence[str]) -> tuple[int, int]:
    """How many words of a data set are known to another vocabulary, and how many there are. Special words are not
    counted."""
    rows = rows_of(words[len(SPECIAL_WORDS):], known)
    return sum(row is not None for row in rows), len(rows)


def _open(start_from: str) -> StoredWeights:
    place = on_this_node(expand_path(start_from, key=_KEY))
    if "://" in place:
        raise ConfigError(
            "VSE-T020", "{key}: got {place}, need a file of this machine; copy it to every machine that trains",
            key=_KEY, place=place,
        )
    try:
        return StoredWeights.open(Path(place))
    except DataError as error:
        raise ConfigError(error.problem.at(_KEY)) from error


def _known_words(stored: StoredWeights) -> tuple[str, ...] | None:
    return None if stored.network is None else stored.network.words


def _words_found(stored: StoredWeights, words: Sequence[str]) -> str:
    known = _known_words(stored)
    if known is not None:
        found, of = count_known(words, known)
        return f"{found} of {of} words found"
    if WORD_VECTORS not in stored.shapes:
        return "no word vectors in it"
    return f"{len(words)} words, by their ids"


def _check_words(stored: StoredWeights, words: Sequence[str], where: str) -> None:
    """Rows without names belong to the words of the data set only if a trial on that data set made them."""
    rows = stored.shapes[WORD_VECTORS][0]
    if stored.network is not None and stored.network.words is None:
        raise ConfigError(
            "VSE-T023", "{file}: {rows} word vectors, and no words to them; import the weights again with --words "
            "VOCABULARY", file=where, rows=rows,
        )
    if stored.network is None and rows != len(words):
        raise ConfigError(
            "VSE-T024", "{file}: weights of a trial whose data set had {got} words, this one has {need}; need a trial "
            "on the same vocabulary", file=where, got=rows, need=len(words),
        )
    _check_same_words(stored, words, where)


def _check_same_words(stored: StoredWeights, words: Sequence[str], where: str) -> None:
    """ConfigError unless the word fingerprint stored by a trial matches the words of the data set, row by row."""
    known = stored.notes.words if stored.notes is not None else None
    if known is not None and known != fingerprint_of_words(words):
        raise ConfigError(
            "VSE-T025", "{file}: weights of a trial whose data set had other words, or the same in another order; need "
            "a trial on the same vocabulary", file=where,
        )


def _differences(
    wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    misshapen = [name for name in sorted(wanted.keys() & found.keys()) if wanted[name] != found[name]]
    if missing:
        yield f"{len(missing)} tensors missing, first {missing[0]}"
    if unexpected:
        yield f"{len(unexpected)} unexpected, first {unexpected[0]}"
    if misshapen:
        first = misshapen[0]
        yield f"{len(misshapen)} of another shape, first {first} is {found[first]}, need {wanted[first]}"
