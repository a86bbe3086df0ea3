"""Image encoders: patches on rendered frames, DINOv3 and SigLIP at tiny sizes, saved and loaded."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertModel,
    DINOv3ViTConfig,
    DINOv3ViTModel,
    SiglipConfig,
    SiglipModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from recap.errors import DatasetError, InputError, RecapError
from recap.features import pretrained
from recap.features.images import normalise, resize
from recap.features.vision import DinoEncoder, PatchEncoder, make_image_encoder
from recap_worlds.pusht.env import PushTEnv

torch.set_num_threads(1)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def edit_weights(directory: Path, name: str) -> None:
    """Add 0.001 to one number of one weight."""
    weights = load_file(directory / "model.safetensors")
    weights[name].view(-1)[0] += 1e-3
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    config = DINOv3ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_register_tokens=4,
    )
    DINOv3ViTModel(config).save_pretrained(directory)
    return directory


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


# Patches.


def pusht_frames(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """PushT frames with block and pusher at random poses, and the block's poses (n, 3)."""
    rng = np.random.default_rng(seed)
    env = PushTEnv()
    env.reset(seed=0)
    frames, poses = [], []
    for _ in range(n):
        pose = np.array([*rng.uniform(100, 412, 2), rng.uniform(-np.pi, np.pi)])
        env.block.position, env.block.angle = tuple(pose[:2]), pose[2]
        env.agent.position = tuple(rng.uniform(30, 480, 2))
        frames.append(env.draw(96))
        poses.append(pose)
    return np.stack(frames), np.array(poses)


def pose_distances(poses: np.ndarray) -> np.ndarray:
    """Distances in pixels between centres of mass of the T; a radian counts 60, its radius of gyration."""
    centre = poses[:, :2] + 45 * np.stack([-np.sin(poses[:, 2]), np.cos(poses[:, 2])], axis=1)
    moved = np.linalg.norm(centre[:, None] - centre, axis=-1)
    turned = np.abs((poses[:, None, 2] - poses[:, 2] + np.pi) % (2 * np.pi) - np.pi)
    return np.hypot(moved, 60 * turned)


def ranks(values: np.ndarray) -> np.ndarray:
    return values.argsort(axis=1).argsort(axis=1)


def test_patch_distances_correlate_with_block_pose_distances() -> None:
    frames, poses = pusht_frames(200, seed=7)
    rows = PatchEncoder().encode(frames)
    others = ~np.eye(len(rows), dtype=bool)
    seen = (1 - rows @ rows.T)[others].reshape(len(rows), -1)
    true = pose_distances(poses)[others].reshape(len(rows), -1)
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(ranks(seen), ranks(true), strict=True)]
    assert np.mean(correlation) > 0.55
    nearest = true[np.arange(len(rows)), seen.argmin(axis=1)]
    assert nearest.mean() < 0.5 * true.mean()


def test_a_small_image_shift_changes_patches_little() -> None:
    frames, _ = pusht_frames(12, seed=3)
    rows = PatchEncoder().encode(frames)
    shifted = PatchEncoder().encode(np.roll(frames, 2, axis=2))
    assert ((1 - (rows * shifted).sum(axis=1)) < 0.25 * (1 - rows @ rows.T).mean()).all()


def test_patches_have_unit_norm_for_any_image() -> None:
    encoder = PatchEncoder()
    blank = np.stack([np.full((9, 9, 3), value, np.uint8) for value in (0, 77, 255)])
    for images in (blank, noise(3, 96, 96, 3), noise(2, 480, 640, 3), noise(1, 1, 1, 3)):
        rows = encoder.encode(images)
        assert rows.shape == (len(images), encoder.dim)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_patches_do_not_depend_on_the_batch() -> None:
    encoder, images = PatchEncoder(), noise(40, 24, 24, 3)
    rows = encoder.encode(images)
    np.testing.assert_allclose(encoder.encode(list(images)), rows, atol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([encoder.encode(image[None]) for image in images]), rows, atol=1e-6
    )


def test_patches_fingerprint_depends_on_the_settings() -> None:
    encoders = [
        PatchEncoder(),
        PatchEncoder(5),
        PatchEncoder(4, 5),
        PatchEncoder(4, 6, 8),
        PatchEncoder(edge_weight=1),
    ]
    assert len({encoder.fingerprint for encoder in encoders}) == 5
    assert PatchEncoder().fingerprint == PatchEncoder().fingerprint
    assert all(e.encode(noise(1, 8, 8, 3)).shape == (1, e.dim) for e in encoders)
    with pytest.raises(InputError, match="cells"):
        PatchEncoder(edge_cells=99)


# DINOv3.


def test_dino_returns_the_networks_normalised_tokens(tiny: Path) -> None:
    images = noise(3, 40, 60, 3)
    model = DINOv3ViTModel.from_pretrained(tiny).eval()
    pixels = torch.from_numpy(normalise(resize(images, 32))).permute(0, 3, 1, 2)
    with torch.inference_mode():
        tokens = model(pixel_values=pixels).last_hidden_state
    assert tokens.shape == (3, 1 + 4 + 4, 32)
    for token, row in (("cls", tokens[:, 0]), ("mean", tokens[:, 5:].mean(1))):
        encoder = DinoEncoder(tiny, token, size=32, batch_size=2)  # type: ignore[arg-type]
        rows = encoder.encode(images)
        assert (rows.dtype, encoder.dim) == (np.float32, 32)
        expected = torch.nn.functional.normalize(row, dim=1).numpy()
        np.testing.assert_allclose(rows, expected, atol=1e-5)
        np.testing.assert_allclose(encoder.encode(list(images)), rows, atol=1e-6)
    assert encoder.encode([]).shape == (0, 32)


def test_make_image_encoder_finds_dino_by_name(tiny: Path) -> None:
    image = noise(1, 96, 96, 3)
    cls, mean = make_image_encoder(f"dino:{tiny}"), make_image_encoder(f"dino-mean:{tiny}")
    assert cls.fingerprint == DinoEncoder(tiny).fingerprint != mean.fingerprint
    assert not np.allclose(cls.encode(image), mean.encode(image))


@pytest.mark.parametrize("whole", [False, True])
def test_siglip_returns_its_normalised_pooled_output(tmp_path: Path, whole: bool) -> None:
    """From the vision model alone, or from the published checkpoint, which also has the text model."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = SiglipVisionConfig(**sizes, image_size=32, patch_size=16)
    if whole:
        text = {**sizes, "vocab_size": 64, "max_position_embeddings": 8, "projection_size": 32}
        both = SiglipModel(SiglipConfig(text_config=text, vision_config=config.to_dict()))
        both.save_pretrained(tmp_path)
        model = both.vision_model
    else:
        model = SiglipVisionModel(config)
        model.save_pretrained(tmp_path)
    images = noise(3, 40, 60, 3)
    half = (0.5, 0.5, 0.5)
    pixels = torch.from_numpy(normalise(resize(images, 32), half, half)).permute(0, 3, 1, 2)
    with torch.inference_mode():
        row = model.eval()(pixel_values=pixels).pooler_output
    encoder = make_image_encoder(f"siglip:{tmp_path}")
    expected = torch.nn.functional.normalize(row, dim=1).numpy()
    np.testing.assert_allclose(encoder.encode(images), expected, atol=1e-5)
    assert encoder.dim == 32


def test_an_entry_point_adds_an_image_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> object:
            return lambda text: PatchEncoder(colour_cells=int(text))

    monkeypatch.setattr("recap.features.vision.plugins", lambda group: {"mine": Entry()})
    assert make_image_encoder("mine:3").fingerprint == PatchEncoder(3).fingerprint
    with pytest.raises(InputError, match="mine"):
        make_image_encoder("mime")


def test_dino_fingerprint_depends_on_each_setting(tiny: Path) -> None:
    def fingerprint(**settings: object) -> str:
        return DinoEncoder(tiny, **{"size": 32, **settings}).fingerprint  # type: ignore[arg-type]

    changed = [{}, {"token": "mean"}, {"size": 48}]
    assert len({fingerprint(**settings) for settings in changed}) == len(changed)
    assert fingerprint() == fingerprint(batch_size=1)  # batch_size does not change the output


def test_dino_fingerprint_depends_on_the_weights(tiny: Path, copy: Path) -> None:
    before = DinoEncoder(tiny, size=32)
    assert DinoEncoder(copy, size=32).fingerprint == before.fingerprint  # the folder does not matter
    edit_weights(copy, "norm.bias")
    after = DinoEncoder(copy, size=32)
    assert after.fingerprint != before.fingerprint
    assert not np.array_equal(after.encode(noise(1, 32, 32, 3)), before.encode(noise(1, 32, 32, 3)))


def test_dino_fingerprint_depends_on_the_config(tiny: Path, copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "transformers_version": "9", "dtype": "float16"}))
    assert DinoEncoder(copy, size=32).fingerprint == DinoEncoder(tiny, size=32).fingerprint
    (copy / "config.json").write_text(json.dumps({**config, "rope_theta": 50.0}))
    assert DinoEncoder(copy, size=32).fingerprint != DinoEncoder(tiny, size=32).fingerprint


def test_the_weights_digest_ignores_dates_and_shards_but_not_names_types_or_shapes(
    tiny: Path, tmp_path: Path
) -> None:
    digest = pretrained.digest_weights(tiny)
    DINOv3ViTModel.from_pretrained(tiny).save_pretrained(tmp_path / "sharded", max_shard_size="20kB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    assert pretrained.digest_weights(tmp_path / "sharded") == digest
    assert DinoEncoder(tmp_path / "sharded").fingerprint == DinoEncoder(tiny).fingerprint

    weights = load_file(tiny / "model.safetensors")
    changes = {
        "renamed": {("x" if name == "norm.bias" else name): value for name, value in weights.items()},
        "retyped": {name: value.half() for name, value in weights.items()},
        "reshaped": {**weights, "norm.bias": weights["norm.bias"][None]},
    }
    found = {digest}
    for name, changed in changes.items():
        (tmp_path / name).mkdir()
        save_file(changed, tmp_path / name / "model.safetensors")
        found.add(pretrained.digest_weights(tmp_path / name))
    assert len(found) == 4

    # An edit that keeps size and modification time changes the digest.
    same = tmp_path / "same"
    same.mkdir()
    file = same / "model.safetensors"
    save_file(weights, file)
    os.utime(file, (1, 1))
    before, size = pretrained.digest_weights(same), file.stat().st_size
    assert before == digest
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, (1, 1))
    assert file.stat().st_size == size
    assert pretrained.digest_weights(same) != before


def one_line(error: pytest.ExceptionInfo[RecapError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_dino_from_a_folder_that_is_no_dino_model_is_an_error(tiny: Path, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist") as error:
        DinoEncoder(tmp_path / "missing")
    one_line(error)
    with pytest.raises(InputError, match="is a file"):
        DinoEncoder(tiny / "config.json")
    with pytest.raises(DatasetError, match=r"no config\.json"):
        DinoEncoder(tmp_path)
    BertModel(
        BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    ).save_pretrained(tmp_path / "bert")
    with pytest.raises(DatasetError, match="not a DINOv3 model: its model_type is 'bert'") as error_:
        DinoEncoder(tmp_path / "bert")
    one_line(error_)
    (copy / "config.json").write_text("{")
    with pytest.raises(DatasetError, match="cannot be read"):
        DinoEncoder(copy)


def test_dino_with_damaged_or_missing_weights_is_an_error(tiny: Path, copy: Path) -> None:
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    for content in (whole[:-100], whole[:100], b"", b"\xff" * 64):
        file.write_bytes(content)
        with pytest.raises(DatasetError, match="is damaged") as error:
            DinoEncoder(copy)
        one_line(error)
    weights = load_file(tiny / "model.safetensors")
    del weights["norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(DatasetError, match=r"lacks 1 weights of AutoModel, such as norm\.weight") as error:
        DinoEncoder(copy)
    one_line(error)
    file.rename(copy / "pytorch_model.bin")
    with pytest.raises(DatasetError, match="other weight formats are not read"):
        DinoEncoder(copy)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"token": "max"}, "unknown token"),
        ({"size": 100}, "multiple of DINOv3's patch size 16"),
        ({"batch_size": 0}, "batch_size 0"),
    ],
)
def test_dino_with_invalid_settings_is_an_error(tiny: Path, settings: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        DinoEncoder(tiny, **settings)  # type: ignore[arg-type]


def test_a_hub_name_without_network_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="hub cannot be reached and the model was not downloaded") as error:
        make_image_encoder("dino:nobody/nothing")
    one_line(error)
    with pytest.raises(InputError, match="Repo id"):
        make_image_encoder("dino:not a name")


def test_a_hub_name_is_read_from_the_hub_cache(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub.constants

    repository = tmp_path / "models--someone--dino"
    shutil.copytree(tiny, repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert DinoEncoder("someone/dino").fingerprint == DinoEncoder(tiny).fingerprint


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_extra_is_an_error_that_names_the_pip_command(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"pip install 'recap-robot\[vision\]'") as error:
        DinoEncoder(tiny)
    assert missing in one_line(error)


@pytest.mark.parametrize("name", ["patch", "dino", "dino:", "clip:x", "patches:x"])
def test_an_unknown_image_encoder_is_an_error(name: str) -> None:
    with pytest.raises(InputError, match="unknown image encoder"):
        make_image_encoder(name)


def test_make_image_encoder_finds_patches_by_name() -> None:
    assert make_image_encoder("patches").fingerprint == PatchEncoder().fingerprint


def test_loading_dino_prints_nothing(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    DinoEncoder(tiny)
    assert capfd.readouterr() == ("", "")


def test_patches_and_hashed_words_do_not_import_torch() -> None:
    code = (
        "import sys, numpy as np, recap.features.vision as v, recap.features.language as l;"
        "import recap.features.sam3, recap.features.pretrained;"
        "v.make_image_encoder('patches').encode(np.zeros((1, 8, 8, 3), np.uint8));"
        "l.make_text_encoder('words').encode(['push']);"
        "print({'torch', 'transformers', 'huggingface_hub', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
