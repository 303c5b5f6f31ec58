"""Networks that read photographs or word pieces, on data or machines that lack them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_files import caption_number, write_all_cxc, write_captions
from refusals import fits
from rich.console import Console
from typer.testing import CliRunner

from vsetune.cli.main import app
from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records
from vsetune.errors import ConfigError
from vsetune.study.preparation import prepare_study


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, str]:
    """Tiny scenes by whether their photographs are stored."""
    folder = tmp_path_factory.mktemp("data")
    return {stored: scenes(folder / f"stored-{stored}", store_images=stored) for stored in (True, False)}


def scenes(folder: Path, *, store_images: bool = True, width: int = 8) -> str:
    recipe = IngestRecipe.model_validate({
        "name": "scenes", "output": str(folder), "store_images": store_images,
        "source": {"layout": "scenes", "train": 8, "validation": 4, "test": 4},
        "features": {"extractor": "pixels", "grid": 1, "width": width},
    })
    ingest(recipe, progress=SilentProgress())
    return str(folder)


@pytest.fixture
def study(tmp_path: Path) -> Any:
    """study(data folder, network, settings): a study file."""

    def write(path: str, network: str, settings: dict[str, Any]) -> Path:
        file = tmp_path / "study.yaml"
        file.write_text(json.dumps({  # JSON is YAML
            "study": "tiny", "data": {"path": path}, "losses": [{"name": "lmh"}], "seeds": [0],
            "networks": [{"name": network, "fixed": settings}], "training": {"epochs": 1, "batch_size": 4},
        }))
        return file

    return write


PHOTOGRAPHS = {"image_input": "pixels", "backbone": {"model": "random"}, "image_size": 32}


def problems(file: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        prepare_study(file, Console(quiet=True))
    return caught.value.problems


def test_a_network_that_reads_photographs_is_refused_where_none_are_stored(data: Any, study: Any) -> None:
    file = study(data[False], "mse", PHOTOGRAPHS)
    (problem,) = problems(file)
    assert problem.startswith(f"{file}: cell mse.lmh: network mse reads photographs: {data[False]}: ")
    done = CliRunner().invoke(app, ["study", "validate", str(file)])
    assert done.exit_code != 0
    assert "store_images: true" in f"{done.output}{done.exception}"


def test_a_network_that_reads_photographs_fits_data_that_stores_them(data: Any, study: Any) -> None:
    assert prepare_study(study(data[True], "mse", PHOTOGRAPHS), Console(quiet=True)).cells[0].name == "mse.lmh"


@pytest.mark.parametrize("model", ["package:no_such_model", "./absent"])
def test_word_pieces_that_cannot_be_found_are_refused(data: Any, study: Any, model: str) -> None:
    file = study(data[True], "vse_infinity", {"text_tower": "bert", "text_model": model})
    assert any(line.startswith(f"{file}: cell vse_infinity.lmh: network.text_model: ") for line in problems(file))


def test_everything_that_does_not_fit_is_reported_at_once(data: Any, study: Any) -> None:
    file = study(data[True], "gsmn", {})
    plain = json.loads(file.read_text())
    plain |= {
        "data": {"path": data[True], "validation_split": "validation"},
        "training": {"epochs": 1, "batch_size": 400},
        "evaluation": {"protocols": ["coco_test_5k"], "srd_at": [50], "validation_images": 100},
    }
    file.write_text(json.dumps(plain))
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("VSE-S011", {"key": "evaluation.validation_images", "got": 100, "split": "validation", "most": 4}),
        ("VSE-S012", {"protocol": "coco_test_5k", "need": 5000, "got": 4}),
        ("VSE-S011", {"key": "evaluation.srd_at", "got": 50, "split": "test", "most": 4}),
        ("VSE-S011", {"key": "training.batch_size", "got": 400, "most": 40, "unit": "pairs"}),
    ]
    found = problems(file)
    assert [fits(problem, code, **fields) for problem, (code, fields) in zip(found, wanted, strict=True)] == [True] * 4
    assert found[-1].startswith(f"{file}: cell gsmn.lmh: ")


def test_a_further_test_set_that_the_networks_cannot_read_is_refused(data: Any, study: Any, tmp_path: Path) -> None:
    def found(network: str, fixed: Any, **tests: Any) -> list[str]:
        file = study(data[True], network, fixed)
        plain = json.loads(file.read_text())
        file.write_text(json.dumps(plain | {"data": plain["data"] | {"tests": tests}}))
        return [line.removeprefix(f"{file}: ") for line in problems(file)]

    (gone,) = found("vsepp", {}, gone={"split": "hard"})
    assert gone.startswith("data.tests.gone: ")
    (missing,) = found("vsepp", {}, elsewhere={"path": str(tmp_path / "nowhere")})
    assert missing.startswith("data.tests.elsewhere: ")
    (other,) = found("vsepp", {}, narrow={"path": scenes(tmp_path / "narrow", width=9)})
    assert other.startswith("data.tests.narrow: ")
    (bare,) = found("mse", PHOTOGRAPHS, bare={"path": data[False]})
    assert bare.startswith("cell mse.lmh: data.tests.bare: ")


def test_published_judgements_of_another_split_are_refused_before_anything_runs(
    data: Any, study: Any, tmp_path: Path
) -> None:
    dataset = Dataset.open(data[True])
    names = [record.image_id for _, record in split_records(dataset, "test")]
    captions, across = write_captions(tmp_path, dataset, "test"), [(caption_number(0), names[0], 5.0)]

    cxc = write_all_cxc(
        tmp_path, across, [(caption_number(0), caption_number(2), 3.0)], [(names[0], "elsewhere.jpg", 4.0)]
    )
    file = study(data[True], "vsepp", {})
    plain = json.loads(file.read_text()) | {"evaluation": {"coco": {"captions": captions, "cxc": cxc}}}
    file.write_text(json.dumps(plain))
    (problem,) = problems(file)
    assert problem.startswith(f"{file}: evaluation.coco: {tmp_path}/sis_test.csv: line 2: ")


def test_a_warm_up_longer_than_the_training_is_refused_before_anything_runs(data: Any, study: Any) -> None:
    file = study(data[True], "vsepp", {})
    plain = json.loads(file.read_text())
    plain["training"]["linear_schedule"] = {"warmup_steps": 10}  # 40 pairs in batches of 4
    file.write_text(json.dumps(plain))
    (problem,) = problems(file)
    assert problem.startswith(f"{file}: cell vsepp.lmh: training.linear_schedule.warmup_steps: ")
