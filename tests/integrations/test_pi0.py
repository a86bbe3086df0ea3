"""The π0-type network of transformers: sizes, tokens, and loading of published weights."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from recap.errors import DatasetError, InputError
from recap_pi0.config import PI0_BASE, PI0_DEBUG, PI0_TINY
from recap_pi0.pi0 import (
    BEGIN,
    NO_WORD,
    build_pi0,
    hashed_ids,
    load_pretrained_pi0,
    published_tokenizer,
    tokenized_ids,
)
from recap_pi0.vla import VisionLanguageActionModel

EXPERT = "paligemma_with_expert.gemma_expert.model.layers.0.mlp.up_proj.weight"


def network_of(seed: int, **changes: Any) -> nn.Module:
    torch.manual_seed(seed)
    return build_pi0(replace(PI0_DEBUG, **changes), 16, 8)


def test_pi0_base_has_the_published_shapes_and_pi0_tiny_is_small() -> None:
    with torch.device("meta"):
        stock = transformers.PI0ForConditionalGeneration(transformers.PI0Config(chunk_size=8))
        base, tiny = build_pi0(PI0_BASE, 224, 8), build_pi0(PI0_TINY, 64, 8)
    shapes = {key: value.shape for key, value in stock.state_dict().items()}
    assert shapes == {key: value.shape for key, value in base.state_dict().items()}
    assert 3e6 < sum(p.numel() for p in tiny.parameters()) < 5e6


# --- tokens ---


def test_words_are_hashed_into_token_ids() -> None:
    one, same, other = hashed_ids(["Push the block", "push the BLOCK", "push the disc"], PI0_DEBUG)
    assert one.tolist()[4:] == [NO_WORD] * 4
    assert torch.equal(one, same)
    assert (one != other).tolist() == [False, False, False, True, False, False, False, False]
    assert one.max() < PI0_DEBUG.n_words
    assert (one[1:4] > BEGIN).all(), "no word gets the id of a special token"
    long = hashed_ids(["on " * 40, ""], PI0_DEBUG)
    assert long.shape == (2, 8), "a long instruction is truncated"
    assert long[1].tolist() == [BEGIN] + [NO_WORD] * 7, "an empty instruction still has the begin token"


def test_a_published_tokenizer_gives_begin_text_and_newline(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<unk>": 0, "<bos>": 1, "push": 2, "block": 3, "disc": 4, "\n": 5}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")  # type: ignore[assignment]
    inner.add_tokens(["\n"])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<bos>", unk_token="<unk>")
    made.save_pretrained(tmp_path)
    tokenizer, said = published_tokenizer(str(tmp_path)), VisionLanguageActionModel.said("push block")
    assert tokenized_ids([said], tokenizer, PI0_DEBUG)[0].tolist() == [1, 2, 3, 5] + [NO_WORD] * 4
    with pytest.raises(DatasetError, match="has id 5, the network 4: use its own"):
        tokenized_ids(["push disc\n"], tokenizer, replace(PI0_DEBUG, n_words=4))
    with pytest.raises(InputError, match="tokenizer '/nowhere' does not exist"):
        published_tokenizer("/nowhere")


# --- published weights ---


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Weights as transformers saves them, under the published names."""
    network: Any = network_of(7)
    network.save_pretrained(tmp_path / "published")
    return tmp_path / "published"


def weights_with(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def test_weights_under_the_published_names_are_loaded(published: Path) -> None:
    names = set(load_file(published / "model.safetensors"))
    assert {EXPERT, "action_in_proj.weight", "state_proj.bias"} <= names, (
        "the published names are not our module names"
    )
    ours, theirs = network_of(0), network_of(7).state_dict()
    load_pretrained_pi0(ours, str(published))
    assert all(torch.equal(value, theirs[key]) for key, value in ours.state_dict().items())


def test_weights_in_lerobots_format_are_loaded(published: Path) -> None:
    """Names with the prefix `model.`, vision tower names of transformers 4, and LeRobot's config.json."""
    weights = load_file(published / "model.safetensors")
    theirs = {
        f"model.{k.replace('vision_tower.', 'vision_tower.vision_model.')}": v for k, v in weights.items()
    }
    save_file(theirs, published / "model.safetensors")
    (published / "config.json").write_text('{"type": "pi0", "chunk_size": 50}')
    ours, wanted = network_of(0), network_of(7).state_dict()
    load_pretrained_pi0(ours, str(published))
    assert all(torch.equal(value, wanted[key]) for key, value in ours.state_dict().items())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (weights_with(lambda w: w.pop(EXPERT)), r"lack 'model.dit.layers.0.mlp.up_proj.weight'"),
        (weights_with(lambda w: w.update({f"{EXPERT}s": w.pop(EXPERT)})), "lack 'model.dit"),
        (weights_with(lambda w: w.update(extra=torch.ones(1))), "have an unknown 'extra'"),
        (weights_with(lambda w: w.update({EXPERT: w[EXPERT][:-1].clone()})), "have another shape of"),
        (lambda p: (p / "model.safetensors").write_bytes(b"torn"), "cannot be read"),
        (lambda p: (p / "config.json").write_text("{torn"), "cannot be read"),
    ],
)
def test_weights_that_do_not_fit_are_a_one_line_error(
    damage: Callable[[Path], None], words: str, published: Path
) -> None:
    network = network_of(0)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    damage(published)
    with pytest.raises(DatasetError, match=words) as caught:
        load_pretrained_pi0(network, str(published))
    assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


def test_a_different_architecture_is_refused_even_if_its_shapes_fit(published: Path) -> None:
    with pytest.raises(DatasetError, match=r"with text.num_attention_heads 2, the policy's has 1"):
        load_pretrained_pi0(network_of(0, num_attention_heads=1, attention_head_dim=64), str(published))
    with pytest.raises(DatasetError, match=r"with vision.num_hidden_layers 1, the policy's has 2"):
        load_pretrained_pi0(network_of(0, vision_layers=2), str(published))
    file = published / "config.json"
    body = json.loads(file.read_text("utf-8"))
    body["vlm_config"]["vision_config"]["num_attention_heads"] = 4
    file.write_text(json.dumps(body), "utf-8")
    with pytest.raises(DatasetError, match=r"with vision.num_attention_heads 4, the policy's has 2"):
        load_pretrained_pi0(network_of(0), str(published))
    with pytest.raises(InputError, match=r"π0-type network './nowhere' does not exist"):
        load_pretrained_pi0(network_of(0), "./nowhere")
