"""A recorded trial is loaded by MLflow alone, and finds what the network finds; its weights are stored once."""

import os
import shutil

import mlflow
import pandas
import pytest
from mlflow import MlflowClient

from vsetune.errors import DamagedCheckpoint, UsageError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow", "ignore::UserWarning:mlflow")


@pytest.fixture
def uri(home, monkeypatch):
    """MLflow is set as `mlflow.set_tracking_uri` sets it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'mlflow.db'}")
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    return os.environ["MLFLOW_TRACKING_URI"]


def test_mlflow_loads_the_model_and_asks_it_with_captions_and_with_features(vsetune, record, uri, home):
    run = record()
    said = vsetune("trial", "model", run)
    assert (said.code, said.err) == (0, "logged; it is among the models of the study in the MLflow UI\n")
    again = vsetune("trial", "model", "tiny/vsepp.lmh-c000-s0")
    assert (again.out, again.err) == (said.out, "was logged before\n")
    address = said.out.strip()
    client = MlflowClient(uri)
    folder = client.get_logged_model(address.removeprefix("models:/")).artifact_location.removeprefix("file://")
    kept = [name for _, _, names in os.walk(folder) for name in names]
    assert not [name for name in kept if name.endswith(("safetensors", "pt"))]
    assert "input_example.json" in kept
    model = mlflow.pyfunc.load_model(address)
    assert model.metadata.signature.inputs.input_names() == ["caption", "image_features"]
    question = pandas.DataFrame({"caption": ["a red circle above a blue square", "a green triangle"]})
    answers = model.predict(question, params={"top": 3, "split": "validation"})
    assert [len(answer["items"]) for answer in answers] == [3, 3]
    assert answers[0]["scores"] == sorted(answers[0]["scores"], reverse=True)
    _answers_are_those_of_the_network(model, run)
    with pytest.raises(UsageError, match="row 0: got neither"):
        model.predict(pandas.DataFrame({"caption": [""]}))
    with pytest.raises(UsageError, match=r"image 0: got features of shape \(1, 2\)"):
        model.predict(pandas.DataFrame({"image_features": [[[0.5, 0.5]]]}))
    weights = next((home / "artifacts").rglob(f"{run}/artifacts/best.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedCheckpoint, match="is not the one that was logged"):
        mlflow.pyfunc.load_model(address)


def _answers_are_those_of_the_network(model, run):
    """Of the first image and the first caption of the split, asked from outside and ranked inside."""
    from vsetune.data.batches.reader import evaluation_batches
    from vsetune.data.stored.shards import iter_captions
    from vsetune.explanations.rankings import caption_rankings, image_rankings
    from vsetune.networks.evaluation_mode import evaluating
    from vsetune.scoring.validation import encode_split, split_scores

    trained = model._model_impl._trained
    split = "validation"
    with evaluating(trained.network):
        encoded = encode_split(trained.network, trained.dataset, split, trial=trained.trial, device=trained.device)
        scores = split_scores(trained.network, encoded, trial=trained.trial)
        (of_caption,) = caption_rankings(scores, encoded.owner, [0], top=4)
        (of_image,) = image_rankings(scores, encoded.owner, [0], top=4)
    texts = list(iter_captions(trained.dataset, split))
    reads = trained.trial.network.reads
    with evaluation_batches(trained.dataset, split, batch_size=2, reads=reads, threads=0) as batches:
        batch = next(iter(batches))
    features = batch.image_features[0, : int(batch.region_counts[0])].tolist()
    asked = pandas.DataFrame({"caption": [texts[0], None], "image_features": [None, features]})
    images, captions = model.predict(asked, params={"top": 4, "split": split})
    assert images["scores"] == pytest.approx([each.score for each in of_caption.top], abs=1e-5)
    assert captions["scores"] == pytest.approx([each.score for each in of_image.top], abs=1e-5)
    assert captions["items"][0] == texts[of_image.top[0].index]


def test_a_trial_without_weights_is_told_in_a_line(vsetune, record, home):
    run = record(keep=False)
    shutil.rmtree(home / "runs" / "tiny")
    said = vsetune("trial", "model", run)
    assert (said.code, len(said.lines)) == (2, 1)
    assert "no checkpoint left to make a model of" in said.err
