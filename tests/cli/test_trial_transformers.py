"""`vsetune trial model --transformers` writes a folder that the library loads."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tiny_dual_encoders import SIZE, save_tiny


def test_the_best_weights_leave_with_tokeniser_and_preprocessor(vsetune, record, home, tmp_path) -> None:
    save_tiny("clip", tmp_path / "clip")
    run = record({"name": "dual_encoder", "fixed": {"model": str(tmp_path / "clip"), "image_size": SIZE}})
    out = tmp_path / "out"
    said = vsetune("trial", "model", run, "--transformers", "--output", str(out))
    assert (said.code, said.out.strip()) == (0, str(out))
    model = transformers.AutoModel.from_pretrained(out)
    (best,) = home.rglob("best.safetensors")
    held = load_file(best)
    for name, value in model.state_dict().items():
        assert torch.equal(value, held[f"towers.body.{name}"])
    start = transformers.AutoModel.from_pretrained(tmp_path / "clip").state_dict()
    assert any(not torch.equal(value, start[name]) for name, value in model.state_dict().items())
    text = transformers.AutoTokenizer.from_pretrained(out)("a red dog")["input_ids"]
    assert text == transformers.AutoTokenizer.from_pretrained(tmp_path / "clip")("a red dog")["input_ids"]
    processor = transformers.AutoImageProcessor.from_pretrained(out, backend="pil")
    assert processor.crop_size["height"] == SIZE
    again = vsetune("trial", "model", run, "--transformers", "--output", str(out))
    assert again.refused("VSE-S190", str(out))


def test_joined_towers_leave_as_two_folders(vsetune, record, home, tmp_path) -> None:
    for kind in ("vit", "bert"):
        save_tiny(kind, tmp_path / kind)
    run = record({"name": "dual_encoder", "fixed": {
        "image_model": str(tmp_path / "vit"), "text_model": str(tmp_path / "bert"), "image_size": SIZE,
        "image_layers": 0, "embedding_size": 8,
    }})
    out = tmp_path / "out"
    assert vsetune("trial", "model", run, "--transformers", "--output", str(out)).code == 0
    (best,) = home.rglob("best.safetensors")
    held, maps = load_file(best), load_file(out / "projections.safetensors")
    for side, folder in (("image", "vision"), ("text", "text")):
        assert torch.equal(maps[side], held[f"towers.{side}_map.weight"])
        tower = transformers.AutoModel.from_pretrained(out / folder, add_pooling_layer=False)
        for name, value in tower.state_dict().items():
            assert torch.equal(value, held[f"towers.{side}.{name}"])
    assert transformers.AutoTokenizer.from_pretrained(out / "text")("a red dog")["input_ids"]
    assert transformers.AutoImageProcessor.from_pretrained(out / "vision", backend="pil").size["height"] == SIZE
    assert "max_length=12" in (out / "README.md").read_text()


@pytest.mark.parametrize(("missing", "fields"), [
    ("image_model", {"setting": "image_model", "got": "stored features"}),
    ("text_model", {"setting": "text_model", "got": "random"}),
])
def test_a_tower_without_a_class_there_is_refused(missing, fields, vsetune, record, tmp_path) -> None:
    models = {"image_model": "vit", "text_model": "bert"}
    del models[missing]
    for kind in models.values():
        save_tiny(kind, tmp_path / kind)
    named = {setting: str(tmp_path / kind) for setting, kind in models.items()}
    small = {"image_size": SIZE, "embedding_size": 8, "word_size": 8, "heads": 2, "layers": 1}
    run = record({"name": "dual_encoder", "fixed": named | small})
    said = vsetune("trial", "model", run, "--transformers", "--output", str(tmp_path / "out"))
    assert said.refused("VSE-S195", *fields.values())
    assert not (tmp_path / "out").exists()


def test_a_network_without_a_class_there_is_refused(vsetune, record, tmp_path) -> None:
    said = vsetune("trial", "model", record(), "--transformers", "--output", str(tmp_path / "out"))
    assert said.refused("VSE-S140", "network vsepp")
    assert not (tmp_path / "out").exists()


def test_a_folder_is_needed(vsetune, record) -> None:
    assert vsetune("trial", "model", "tiny", "--transformers").refused("VSE-X140", "--output")
