"""A recorded trial is loaded by MLflow alone, on any machine, and finds what the network finds."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import mlflow
import numpy as np
import pandas
import pytest
from mlflow import MlflowClient

from vsetune.errors import DamagedCheckpoint, DataError, UsageError

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves
NAME = "tiny/vsepp.lmh-c000-s0"


@pytest.fixture
def uri(mlflow_here, monkeypatch):
    """MLflow is set as `mlflow.set_tracking_uri` sets it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_here)
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    return mlflow_here


@pytest.fixture
def record(vsetune, record, uri):
    """As in other files; the study is exported to MLflow too."""

    def train(*words, **changes):
        run = record(*words, **changes)
        assert vsetune("tracking", "flush", run.partition("/")[0]).code == 0
        return run

    return train


@pytest.fixture
def logged(vsetune, uri):
    """logged(run, *options): the address of a model, and the folder that holds it."""

    def log(*words):
        said = vsetune("trial", "model", *words)
        assert said.code == 0, said
        address = said.out.strip()
        place = MlflowClient(uri).get_logged_model(address.removeprefix("models:/")).artifact_location
        return address, Path(place.removeprefix("file://"))

    return log


def test_a_model_is_logged_once_with_its_weights_and_once_more_with_an_index(vsetune, record, uri, logged) -> None:
    run = record()
    said = vsetune("trial", "model", run)
    assert (said.code, said.err) == (0, "logged; it is among the models of the study in the MLflow UI\n")
    again = vsetune("trial", "model", NAME)
    assert (again.out, again.err) == (said.out, "was logged before\n")
    _, folder = logged(run)
    kept = {name for _, _, names in os.walk(folder) for name in names}
    assert {"best.safetensors", "model.json", "input_example.json"} <= kept
    assert "index.safetensors" not in kept
    address, folder = logged(run, "--index", "test")
    assert f"{address}\n" != said.out
    assert "index.safetensors" in {name for _, _, names in os.walk(folder) for name in names}


def test_the_model_answers_as_the_network_does(record, logged, uri) -> None:
    run = record()
    address, folder = logged(run)
    model = mlflow.pyfunc.load_model(address)
    question = pandas.DataFrame({"caption": ["a red circle above a blue square", "a green triangle"]})
    answers = model.predict(question, params={"top": 3, "split": "validation"})
    assert [len(answer["items"]) for answer in answers] == [3, 3]
    assert answers[0]["scores"] == sorted(answers[0]["scores"], reverse=True)
    _answers_are_those_of_the_network(model, run)
    weights = next(folder.rglob("best.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedCheckpoint, match="best.safetensors"):
        mlflow.pyfunc.load_model(address)


def _answers_are_those_of_the_network(model, run):
    """Of the first image and the first caption of the split, asked from outside and ranked inside."""
    import tempfile

    import torch

    from vsetune.board.gallery.rankings import caption_rankings, image_rankings
    from vsetune.data.batches.reader import evaluation_batches
    from vsetune.data.stored.shards import iter_captions
    from vsetune.networks.network_base import evaluating
    from vsetune.records.studies import Studies
    from vsetune.study.recorded import find_attempt, load_recorded
    from vsetune.training.validation import encode_split, split_scores

    store = Studies()
    with tempfile.TemporaryDirectory() as into:
        attempt = find_attempt(store, run, finished=True)
        trained = load_recorded(store, attempt, device=torch.device("cpu"), into=Path(into))
    split = "validation"
    with evaluating(trained.network):
        encoded = encode_split(trained.network, trained.dataset, split, trial=trained.trial, device=trained.device)
        scores = split_scores(trained.network, encoded, trial=trained.trial)
        (of_caption,) = caption_rankings(scores, encoded.owner, [0], top=4)
        (of_image,) = image_rankings(scores, encoded.owner, [0], top=4)
    texts = list(iter_captions(trained.dataset, split))
    reads = trained.trial.network.reads
    with closing(evaluation_batches(trained.dataset, split, batch_size=2, reads=reads, threads=0)) as batches:
        batch = next(iter(batches))
    features = batch.images.features[0, : int(batch.images.counts[0])].tolist()
    asked = pandas.DataFrame({"caption": [texts[0], None], "image_features": [None, features]})
    images, captions = model.predict(asked, params={"top": 4, "split": split})
    assert images["scores"] == pytest.approx([each.score for each in of_caption.top], abs=1e-5)
    assert captions["scores"] == pytest.approx([each.score for each in of_image.top], abs=1e-5)
    assert captions["items"][0] == texts[of_image.top[0].index]


def test_sentences_are_asked_in_every_usual_form_and_other_input_is_refused_with_the_columns(record, logged) -> None:
    model = mlflow.pyfunc.load_model(logged(record())[0])
    text = "a red circle above a blue square"
    (answer,) = model.predict(text)
    assert len(answer["items"]) == 5
    for form in (
        [text], (text,), np.array([text]), pandas.Series([text]), {"caption": [text]}, {"caption": text},
        pandas.DataFrame({"caption": [text]}),
    ):
        assert model.predict(form) == [answer], form
    assert [each["items"] for each in model.predict([text, text])] == [answer["items"]] * 2
    assert model.predict([]) == []
    for wrong, said in {
        "column 'text'": pandas.DataFrame({"text": [text]}), "column 'id'": {"caption": [text], "id": [1]},
        "column 0": pandas.DataFrame([text]), "no column": pandas.DataFrame(), "a list of int": [1, 2],
        "a list of dict": [{"caption": text}], "a int": 3,
    }.items():
        with pytest.raises(UsageError, match=rf"{wrong}.*caption.*image_features"):
            model.predict(said)
    with pytest.raises(UsageError, match="row 0: "):
        model.predict(pandas.DataFrame({"caption": [""]}))
    with pytest.raises(UsageError, match=r"image 0: .*\(1, 2\)"):
        model.predict(pandas.DataFrame({"image_features": [[[0.5, 0.5]]]}))
    with pytest.raises(UsageError, match="answer: .*vectors.*items.*embeddings"):
        model.predict(text, params={"answer": "vectors"})


_ELSEWHERE = """
import json, sys
import mlflow
answers = []
for folder in sys.argv[2:]:
    model = mlflow.pyfunc.load_model(folder)
    for params in ({"top": 3}, {"answer": "embeddings"}, {"split": "test"}):
        try:
            answers.append(model.predict(json.loads(sys.argv[1]), params=params))
        except Exception as error:
            answers.append(str(error))
print(json.dumps(answers))
"""


def _asked_elsewhere(tmp_path: Path, captions: list[str], *folders: Path):
    """What the models in folders answer in a process with another home, each: items, embeddings, items of the test
    split; or the errors."""
    away = {"VSETUNE_HOME": str(tmp_path / "other home"), "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'other.db'}"}
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, json.dumps(captions), *map(str, folders)], env=os.environ | away,
        text=True, capture_output=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CASES = {
    "words": {"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}},
    "other people's code": {"name": "word_cnn", "fixed": {"embedding_size": 16, "word_size": 8}},
    "a score per pair": {"name": "scan", "fixed": {"embedding_size": 8, "word_size": 6}},
    "word pieces": {
        "name": "vse_infinity",
        "fixed": {"embedding_size": 8, "pooling_size": 4, "text_tower": "bert"},
    },
    "ids of any tokeniser": {"name": "dual_encoder", "fixed": {"embedding_size": 8}},
}


@pytest.mark.parametrize("cases", [
    ["words", "a score per pair"],
    pytest.param(["other people's code", "word pieces", "ids of any tokeniser"], marks=pytest.mark.slow),
], ids=" and ".join)
def test_models_work_on_another_machine_and_search_their_indexes_there(cases, record, logged, home, tmp_path, bert):
    captions = ["a red circle above a blue square", "a small green triangle"]
    own = Path(__file__).parents[2] / "studies" / "plugins" / "word_cnn"
    folders, wanted = [], []
    for number, case in enumerate(cases):
        network = CASES[case] | {"fixed": dict(CASES[case]["fixed"])}
        if case in ("word pieces", "ids of any tokeniser"):
            network["fixed"]["text_model"] = str(bert)
        run = record(network, name=f"tiny{number}", plugins=[str(own)] if case == "other people's code" else [])
        address, folder = logged(run, "--index", "validation")
        folders += [tmp_path / f"with index {number}", tmp_path / f"without {number}"]
        shutil.copytree(folder, folders[-2])
        shutil.copytree(logged(run)[1], folders[-1])
        wanted.append(mlflow.pyfunc.load_model(address).predict(captions, params={"top": 3, "split": "validation"}))
        assert {len(answer["items"]) for answer in wanted[-1]} == {3}
    for gone in (home, bert):
        gone.rename(tmp_path / f"moved {gone.name}")
    answers = _asked_elsewhere(tmp_path, captions, *folders)
    for number, case in enumerate(cases):
        found, vectors, other_split, refused, same, _ = answers[6 * number : 6 * number + 6]
        assert found == [
            {"items": answer["items"], "scores": pytest.approx(answer["scores"], abs=1e-5)} for answer in wanted[number]
        ], case
        if case == "a score per pair":
            assert "network scan" in vectors
        else:
            assert [len(vector["embedding"]) for vector in vectors] == [CASES[case]["fixed"]["embedding_size"]] * 2
        assert "validation" in other_split
        assert same == vectors
        assert "--index SPLIT" in refused


def test_a_trial_without_weights_or_without_an_mlflow_is_refused(vsetune, record, home) -> None:
    run = record(keep=False)
    assert vsetune("trial", "model", run, "--tracking-uri", "none").refused("VSE-X037", "trial model: ")
    shutil.rmtree(home / "runs" / "tiny" / "trials")
    assert vsetune("trial", "model", run).refused(run)


def test_a_model_of_an_earlier_version_is_refused_in_a_line(tmp_path) -> None:
    from vsetune.study.recorded_model import _load_pyfunc

    (tmp_path / "attempt.json").write_text("{}")
    with pytest.raises(DataError, match="log it again"):
        _load_pyfunc(str(tmp_path / "attempt.json"))
