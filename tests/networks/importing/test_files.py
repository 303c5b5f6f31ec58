"""Files that are no weights, hold code, belong to another network or are incomplete."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from refusals import refused
from torch import nn

from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.released_models import SOURCES, import_released


@pytest.fixture
def towers(released: Any) -> tuple[nn.Module, nn.Module]:
    """A VSE++ model."""
    text = released(embed=nn.Embedding(12, 5), rnn=nn.GRU(5, 8, batch_first=True))
    return released(fc=nn.Linear(6, 8)), text


@pytest.mark.parametrize("source", list(SOURCES))
def test_a_file_of_another_network_is_refused_with_what_it_lacks_and_what_it_has(source: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"classifier.weight": torch.zeros(2, 2)}, path)
    with refused("VSE-N045", source=source, unexpected=1) as caught:
        import_released(path, source)
    _, missing, unexpected = str(caught.value).splitlines()
    is_joint = source in ("tags", "uniter")
    assert ("uniter.embeddings.word_embeddings.weight" if is_joint else "img_enc.fc.weight") in missing
    assert unexpected == "unexpected: classifier.weight"


def test_a_partial_file_is_refused_with_every_missing_name(towers: Any, checkpoint: Any) -> None:
    image, text = towers
    del text.rnn
    with refused("VSE-N045", missing=4, unexpected=0) as caught:
        import_released(checkpoint(image, text), "vsepp")
    assert "\nmissing: txt_enc.rnn.weight_ih_l0, " in str(caught.value)


def test_a_second_layer_is_unexpected_and_another_size_is_shown(towers: Any, released: Any, checkpoint: Any) -> None:
    image, _ = towers
    text = released(embed=nn.Embedding(12, 5), rnn=nn.GRU(5, 7, num_layers=2, batch_first=True))
    with refused("VSE-N045") as caught:
        import_released(checkpoint(image, text), "vsepp")
    assert "unexpected: txt_enc.rnn.bias_hh_l1" in str(caught.value)
    assert "of another shape: txt_enc.rnn.weight_ih_l0 is (21, 5), need (24, 5)" in str(caught.value)


def test_a_long_list_of_names_is_cut_and_counted(towers: Any, released: Any, checkpoint: Any) -> None:
    image, text = towers
    image.extra = nn.Sequential(*(nn.Linear(1, 1) for _ in range(35)))
    with refused("VSE-N045", unexpected=70) as caught:
        import_released(checkpoint(image, text), "vsepp")
    assert str(caught.value).endswith("and 10 more")


def test_the_same_tensors_as_safetensors_are_read(towers: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    image, text = (part.state_dict(prefix=name) for part, name in zip(towers, ("img_enc.", "txt_enc."), strict=True))
    safetensors.torch.save_file({**image, **text}, path)
    imported = import_released(path, "vsepp")
    assert torch.equal(imported.weights["image_map.weight"], image["img_enc.fc.weight"])
    assert imported.assumed == ("absolute", "normalize_images", "similarity")


def test_a_bare_list_of_state_dicts_in_the_format_of_old_torch_is_read(towers: Any, tmp_path: Path) -> None:
    path = tmp_path / "old.pth.tar"
    torch.save([part.state_dict() for part in towers], path, _use_new_zipfile_serialization=False)
    assert import_released(path, "vsepp").vocabulary_size == 12


def test_numbers_of_numpy_beside_the_weights_do_no_harm(towers: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    state = {"model": [part.state_dict() for part in towers], "best_rsum": np.float64(3.5), "step": np.int64(2)}
    torch.save(state, path)
    assert import_released(path, "vsepp").width == 6


class Trap:
    """Runs code when a file is unpickled carelessly."""

    def __reduce__(self) -> Any:
        return (Path("trapped").touch, ())


def test_a_file_with_code_is_refused_and_the_code_does_not_run(
    towers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"model": [part.state_dict() for part in towers], "opt": argparse.Namespace(extra=Trap())}
    torch.save(state, tmp_path / "bad.pth")
    with refused("VSE-N035"):
        import_released(tmp_path / "bad.pth", "vsepp")
    assert not Path("trapped").exists()


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({"a": 1}), b"PK\x03\x04broken"])
@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_what_is_no_weights_file_is_refused_in_one_line(content: bytes, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights{ending}"
    path.write_bytes(content)
    with refused("VSE-N034", path=path) as caught:  # torch's own text recommends reading it with its code
        import_released(path, "vsepp")
    assert str(caught.value) == f"{path}: not a weights file, or damaged; download it again."


def test_weights_of_someone_else_are_no_imported_network(towers: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(towers[0].state_dict(), path)
    with refused("VSE-N051"):
        network_of(path)


def test_importing_leaves_the_random_generator_alone(towers: Any, checkpoint: Any, bring: Any) -> None:
    path = checkpoint(*towers)
    before = torch.get_rng_state()
    bring(path, "vsepp")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("weight", "message", "fields"), [
    (torch.zeros(0, 6), "VSE-N037", {"shape": (0, 6)}),
    (torch.full((8, 6), float("nan")), "VSE-N039", {"flaw": "holds numbers that are not finite"}),
    (torch.full((8, 6), 1e300, dtype=torch.float64), "VSE-N039", {"count": 1}),
    (torch.ones(8, 6, dtype=torch.int64), "VSE-N039", {"flaw": "holds int64, need floats"}),
    (torch.ones(8, 6, dtype=torch.complex64), "VSE-N038", {"kind": "a tensor of complex64"}),
    (torch.ones(8, 6).to_sparse(), "VSE-N038", {"kind": "a tensor of sparse_coo"}),
    (torch.ones(8, 6, device="meta"), "VSE-N038", {}),
], ids=["empty", "nan", "overflow", "integers", "complex", "sparse", "meta"])
def test_a_tensor_that_no_network_can_compute_with_refuses_the_file(
    weight: torch.Tensor, message: str, fields: dict[str, Any], towers: Any, tmp_path: Path
) -> None:
    path = tmp_path / "weights.pth"
    image, text = (part.state_dict() for part in towers)
    torch.save([{**image, "fc.weight": weight}, text], path)
    with refused(message, path=path, name="img_enc.fc.weight", **fields):
        import_released(path, "vsepp")


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(("held", "source", "message"), [
    ({"model": ENDLESS}, "vsepp", "VSE-N034"), ({"img_enc.fc.weight": torch.zeros(7, 4)}, "gsmn", "VSE-N046"),
], ids=["holds itself", "sizes that no network can have"])
def test_what_is_no_model_of_the_network_is_refused(held: Any, source: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(held, path)
    with refused(message, path=path):
        import_released(path, source)
