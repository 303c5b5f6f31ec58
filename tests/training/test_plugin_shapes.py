"""A plugin trains like a component of ours; one that gives a wrong shape is refused at the first step, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plugin_folders import LOSS, NETWORK, write_loss, write_network
from trained_here import open_attempt

from vsetune.config.plugins import forget_plugins, load_plugin
from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.failures import failure_of, raised_by_code

ENCODED = "Encoded(unit_length(self.words(captions.tokens)))"


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


@pytest.fixture
def train(tmp_path: Path, make_trial: Callable[..., TrialSpec]) -> Callable[..., TrainingAttempt]:
    """Trains the plugins, `loss` and `network` being the text of their modules, up to the first validation."""

    def run(loss: str = LOSS, network: str = NETWORK) -> TrainingAttempt:
        plugins = load_plugin(str(write_loss(tmp_path / "half_hinge", loss=loss)), base=tmp_path)
        plugins += load_plugin(str(write_network(tmp_path / "bag", network=network)), base=tmp_path)
        trial = make_trial().to_plain() | {
            "loss": {"name": "half_hinge"}, "network": {"name": "bag", "embedding_size": 8},
            "plugins": {plugin.key: plugin.sha256 for plugin in plugins},
        }
        attempt = open_attempt(TrialSpec.model_validate(trial), tmp_path / "trial")
        attempt.advance()
        return attempt

    return run


def test_plugins_train_and_go_on_from_their_checkpoint(train: Callable[..., TrainingAttempt]) -> None:
    first = train()
    assert "active" in " ".join(first.history[0].metrics)
    again = train()
    assert again.inherited == 1
    assert again.is_finished


@pytest.mark.parametrize(("old", "new"), [
    ("hinges.mean()", "hinges"),
    ("return LossOutput(value=hinges.mean(), parts", "return dict(value=hinges.mean(), parts"),
])
def test_a_loss_of_a_wrong_shape(train: Callable[..., TrainingAttempt], old: str, new: str) -> None:
    assert old in LOSS
    with pytest.raises(ConfigError, match="half_hinge/loss.py:16: loss half_hinge: "):
        train(loss=LOSS.replace(old, new))


SIMILARITY = "    def similarity(self, images, captions):\n        return "
PRODUCT = f"{SIMILARITY}(images.vectors @ captions.vectors.T)"


@pytest.mark.parametrize(("old", "new", "place"), [
    (ENCODED, "unit_length(self.words(captions.tokens))", "bag/network.py:23: encode_captions"),
    (ENCODED, "Encoded(self.words(captions.tokens)[:1])", "encode_captions gave vectors of shape"),
    (ENCODED, "Encoded(self.words(captions.tokens)[:, None])", "network.py:23: network bag: encode_captions"),
    ("    def encode_images", f"{SIMILARITY}images.vectors.sum(1)\n\n    def encode_images",
     "bag/network.py:20: network bag: similarity"),
    ("    def encode_images", f"{PRODUCT}.detach()\n\n    def encode_images", "network bag: similarity"),
    ("    def encode_images", f"{PRODUCT}.half()\n\n    def encode_images", "network bag: similarity"),
    ("super().__init__(spec)", "super().__init__()", "bag/network.py:16: TypeError: "),
])
def test_a_network_of_a_wrong_shape(train: Callable[..., TrainingAttempt], old: str, new: str, place: str) -> None:
    assert old in NETWORK
    with pytest.raises(ConfigError, match=place):
        train(network=NETWORK.replace(old, new))


def test_an_exception_in_a_step_names_the_line_of_the_plugin(train: Callable[..., TrainingAttempt]) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        train(loss=LOSS.replace("similarity = inputs.similarity", "similarity = inputs.similarity * (1 / 0)"))
    failure = failure_of(raised.value)
    assert (failure.kind, failure.is_final) == ("bug", True)
    assert failure.text.endswith("half_hinge/loss.py:17)")


OPENED = ("similarity = inputs.similarity", "similarity = inputs.similarity * len(open('weights.txt').read())")


def test_a_file_that_a_plugin_misses_is_known_by_its_line_and_step(train: Callable[..., TrainingAttempt]) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        train(loss=LOSS.replace(*OPENED))
    failure = failure_of(raised.value, step=3)
    assert (failure.kind, failure.is_final) == ("storage", False)
    mark = "FileNotFoundError at half_hinge/loss.py:17 in step 3"
    assert failure.text == f"storage: {mark}: [Errno 2] No such file or directory: 'weights.txt'"
    assert raised_by_code(failure.text) == mark


@pytest.mark.parametrize(("raised", "kind"), [
    ("ConnectionResetError(104, 'reset')", "network"), ("OSError(5, 'Input/output error')", "storage"),
    ("MemoryError()", "memory"),
])
def test_an_outage_while_a_plugin_is_built_is_an_interruption(
    train: Callable[..., TrainingAttempt], raised: str, kind: str
) -> None:
    with pytest.raises(ConfigError) as told:
        train(loss=LOSS.replace("        self.spec = spec", f"        raise {raised}"))
    failure = failure_of(told.value)
    assert (failure.kind, failure.is_final, raised_by_code(failure.text)) == (kind, False, None)
