"""SAM3: boxes of masks, and the real network at a tiny size with random weights, saved and loaded."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, CLIPTokenizer, Sam3Config, Sam3Model

from recap.errors import DatasetError, InputError
from recap.features.images import normalise, resize
from recap.features.sam3 import Sam3Objects, best_instance, mask_extent

torch.set_num_threads(1)

PROMPTS = {"block": "grey block", "pusher": "blue disc"}


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# Masks to boxes.


@given(x=st.integers(0, 20), y=st.integers(0, 20), width=st.integers(1, 20), height=st.integers(1, 20))
def test_mask_extent_of_a_rectangle_is_its_centre_and_size(x: int, y: int, width: int, height: int) -> None:
    mask = np.zeros((40, 50), bool)
    mask[y : y + height, x : x + width] = True
    np.testing.assert_allclose(mask_extent(mask), [x + width / 2, y + height / 2, width, height])


def test_mask_extent_of_a_full_and_an_empty_mask() -> None:
    np.testing.assert_allclose(mask_extent(np.ones((6, 10), bool)), [5, 3, 10, 6])
    assert mask_extent(np.zeros((6, 10), bool)) is None


def test_mask_extent_uses_the_centre_of_mass() -> None:
    mask = np.zeros((10, 10), bool)
    mask[0, :9] = True  # an L: nine across, one down
    mask[9, 0] = True
    np.testing.assert_allclose(mask_extent(mask), [(sum(range(9)) / 10) + 0.5, 0.9 + 0.5, 9, 10])


def test_the_best_instance_must_pass_the_threshold() -> None:
    logits = np.array([-2.0, 1.0, 0.5], np.float32)
    score = 1 / (1 + np.exp(-1))
    assert best_instance(logits, 100.0, score - 1e-3) == 1
    assert best_instance(logits, 100.0, score + 1e-3) is None
    assert best_instance(logits, 0.0, 0.3) == 1  # half the score, because the presence score is 0.5
    assert best_instance(logits, 0.0, 0.4) is None
    assert best_instance(np.array([-2000.0, 1000.0], np.float32), 1000.0, 0.99) == 1
    assert best_instance(np.zeros(0, np.float32), 0.0, 0.1) is None


# The network.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sam3")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(letter + "</w>" for letter in letters)]
    CLIPTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[]).save_pretrained(directory)
    part = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, "num_layers": 1}
    vit = {"model_type": "sam3_vit_model", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    vit |= {"num_attention_heads": 2, "image_size": 56, "patch_size": 14, "window_size": 2}
    vit |= {"global_attn_indexes": [0], "pretrain_image_size": 28}
    text = {
        "model_type": "clip_text_model",
        "vocab_size": len(words),
        "hidden_size": 32,
        "projection_dim": 16,
    }
    text |= {"intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "eos_token_id": 1}
    text |= {"max_position_embeddings": 32, "bos_token_id": 0, "pad_token_id": 1}
    config = Sam3Config(
        vision_config={
            "backbone_config": vit,
            "fpn_hidden_size": 32,
            "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
        },
        text_config=text,
        geometry_encoder_config=part,
        detr_encoder_config=part,
        detr_decoder_config={**part, "num_queries": 5},
        mask_decoder_config={"hidden_size": 32, "num_attention_heads": 2},
    )
    torch.manual_seed(0)
    model = Sam3Model(config)
    with torch.no_grad():  # the initial weights give the same output for every image
        for weight in model.parameters():
            weight.mul_(2)
    model.save_pretrained(directory)
    return directory


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def expected(directory: Path, image: np.ndarray, phrase: str) -> tuple[float, np.ndarray]:
    """The best score and its box, calculated with torch from the network's output."""
    model = Sam3Model.from_pretrained(directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    pixels = torch.from_numpy(normalise(resize(image[None], 56), (0.5,) * 3, (0.5,) * 3)).permute(0, 3, 1, 2)
    tokens = tokenizer(phrase, padding="max_length", max_length=32, return_tensors="pt")
    with torch.inference_mode():
        out = model(
            pixel_values=pixels, input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]
        )
        scores = (out.pred_logits.sigmoid() * out.presence_logits.sigmoid())[0]
        best = int(scores.argmax())
        masks = torch.nn.functional.interpolate(
            out.pred_masks[:, best, None].sigmoid(), image.shape[:2], mode="bilinear", align_corners=False
        )
    y, x = np.nonzero(masks[0, 0].numpy() > 0.5)
    box = [x.mean() + 0.5, y.mean() + 0.5, x.max() - x.min() + 1, y.max() - y.min() + 1]
    return float(scores[best]), np.array(box)


def test_find_returns_the_networks_best_boxes(tiny: Path) -> None:
    image = noise(32, 48, 3)
    found = Sam3Objects(tiny, PROMPTS, threshold=0).find(image)
    assert set(found) == set(PROMPTS)
    for name, phrase in PROMPTS.items():
        assert (found[name].shape, found[name].dtype) == ((4,), np.float64)
        score, box = expected(tiny, image, phrase)
        np.testing.assert_allclose(found[name], box, atol=1e-3)
        assert 0 < box[2] <= 48
        assert 0 < box[3] <= 32
        assert name in Sam3Objects(tiny, {name: phrase}, threshold=score - 1e-3).find(image)
        assert Sam3Objects(tiny, {name: phrase}, threshold=score + 1e-3).find(image) == {}


def test_the_result_depends_on_the_phrase_and_the_image(tiny: Path) -> None:
    finder = Sam3Objects(tiny, PROMPTS, threshold=0)
    first, second = finder.find(noise(32, 48, 3)), finder.find(np.zeros((32, 48, 3), np.uint8))
    assert not np.array_equal(first.get("block"), second.get("block"))
    scores = {phrase: expected(tiny, noise(32, 48, 3), phrase)[0] for phrase in PROMPTS.values()}
    assert len(set(scores.values())) == 2


def test_a_checkpoint_in_the_published_layout_is_read(tiny: Path, copy: Path) -> None:
    """The checkpoint on the Hub is the video model, which contains this network as its detector."""
    detector = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({"model_type": "sam3_video", "detector_config": detector}))
    weights = {f"detector_model.{k}": v for k, v in load_file(copy / "model.safetensors").items()}
    weights["tracker_neck.x"] = torch.zeros(1)
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    image = noise(40, 40, 3)
    found, same = (Sam3Objects(path, PROMPTS, threshold=0).find(image) for path in (copy, tiny))
    assert set(found) == set(PROMPTS)
    assert {name: box.tolist() for name, box in found.items()} == {n: b.tolist() for n, b in same.items()}


def test_the_fingerprint_depends_on_prompts_threshold_and_weights(tiny: Path, copy: Path) -> None:
    base = Sam3Objects(tiny, PROMPTS, 0.3).fingerprint
    assert Sam3Objects(copy, dict(reversed(PROMPTS.items())), 0.3).fingerprint == base
    found = {base, Sam3Objects(tiny, PROMPTS, 0.4).fingerprint}
    found.add(Sam3Objects(tiny, {**PROMPTS, "block": "grey tee"}, 0.3).fingerprint)
    weights = load_file(copy / "model.safetensors")
    weights["text_projection.bias"][0] += 1e-3
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    found.add(Sam3Objects(copy, PROMPTS, 0.3).fingerprint)
    assert len(found) == 4


def test_invalid_arguments_and_models_are_errors(tiny: Path, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="phrase for each object"):
        Sam3Objects(tiny, {})
    with pytest.raises(InputError, match="phrase for each object"):
        Sam3Objects(tiny, {"block": " "})
    with pytest.raises(InputError, match=r"threshold 1\.5"):
        Sam3Objects(tiny, PROMPTS, threshold=1.5)
    with pytest.raises(InputError, match="'block' is too long"):
        Sam3Objects(tiny, {"block": "a very long phrase indeed that goes on and on and on"})
    with pytest.raises(InputError, match="does not exist"):
        Sam3Objects(tmp_path / "missing", PROMPTS)
    with pytest.raises(InputError, match="shape"):
        Sam3Objects(tiny, PROMPTS).find(np.zeros((4, 4), np.uint8))
    (copy / "config.json").write_text('{"model_type": "sam"}')
    with pytest.raises(DatasetError, match="not a SAM3 model"):
        Sam3Objects(copy, PROMPTS)
