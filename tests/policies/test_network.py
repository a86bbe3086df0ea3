"""The transformer of diffusers: its sizes, and loading of weights."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from diffusers import CosmosTransformer3DModel
from safetensors.torch import save_file
from torch import Tensor, nn

from recap.errors import DatasetError, InputError
from recap.policies.autoencoder import build_autoencoder
from recap.policies.config import NetworkConfig
from recap.policies.network import (
    build_network,
    call_network,
    load_pretrained_network,
    published_part,
    read_weights,
    text_width,
)
from recap.policies.sizes import COSMOS_2B, NANO, TINY


def n_parameters(config: NetworkConfig) -> int:
    with torch.device("meta"):
        network = build_network(config, 16)
    return sum(p.numel() for p in network.parameters())


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return build_network(TINY, 16)


@pytest.fixture
def state(network: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in network.state_dict().items()}


def test_parameter_counts_of_the_papers_network_and_of_nano() -> None:
    assert round(n_parameters(COSMOS_2B) / 1e9, 3) == 2.059
    assert 9e6 < n_parameters(NANO) < 11e6


def test_names_and_shapes_of_the_cosmos_network_are_unchanged() -> None:
    """The network is built by diffusers; no published file is read."""
    with torch.device("meta"):
        found = {key: tuple(v.shape) for key, v in build_network(COSMOS_2B, 16).state_dict().items()}
    # 16 latent channels, the condition mask and the padding mask, in patches of 2 × 2.
    assert found["patch_embed.proj.weight"] == (2048, 72)
    assert found["crossattn_proj.0.weight"] == (1024, 100_352)
    assert found["transformer_blocks.27.attn2.to_k.weight"] == (2048, 1024)
    assert found["time_embed.t_embedder.linear_1.weight"] == (2048, 2048)
    assert found["norm_out.linear_1.weight"] == (256, 2048)
    assert found["proj_out.weight"] == (64, 2048)
    assert text_width(COSMOS_2B) == 100_352


def test_every_slot_has_its_own_noise_level(network: nn.Module) -> None:
    frames, text = torch.randn(1, 16, 3, 2, 2), torch.randn(1, 1, 64)
    given, level = torch.zeros(1, 3), torch.full((1, 3), 0.5)
    with torch.inference_mode():
        out = call_network(network, TINY, frames, given, level, text)
        assert out.shape == frames.shape
        for slot in range(3):
            other = level.clone()
            other[0, slot] = 0.9
            assert not torch.allclose(out, call_network(network, TINY, frames, given, other, text))
        marked = call_network(network, TINY, frames, torch.tensor([[1.0, 0, 0]]), level, text)
    assert not torch.allclose(out, marked), "a given slot is marked"


@pytest.mark.parametrize("folder", ["", "transformer"])
def test_weights_are_loaded_from_a_directory(folder: str, tmp_path: Path, state: dict[str, Tensor]) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    keys = sorted(state)
    for i, part in enumerate((keys[::2], keys[1::2])):  # large weights are published in several files
        save_file({key: state[key] for key in part}, tmp_path / folder / f"part-{i}.safetensors")
    torch.manual_seed(1)
    other = build_network(TINY, 16)
    load_pretrained_network(other, tmp_path)
    assert all(torch.equal(value, state[key]) for key, value in other.state_dict().items())


def test_weights_are_loaded_into_a_network_on_the_meta_device(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    save_file(state, tmp_path / "model.safetensors")
    with torch.device("meta"):
        empty = build_network(TINY, 16)
    load_pretrained_network(empty, tmp_path)
    assert not any(p.is_meta for p in empty.parameters())


def test_weights_that_do_not_fit_are_an_error_that_names_the_key(
    tmp_path: Path, network: nn.Module, state: dict[str, Tensor]
) -> None:
    key = "transformer_blocks.1.attn1.to_q.weight"
    without = {k: v for k, v in state.items() if k != key}
    before = state[key].clone()
    for changed, words in (
        (without, f"lack '{key}': they are of another network"),
        ({**without, "blocks.1.to_q.weight": state[key]}, f"lack '{key}'"),
        ({**state, "extra": torch.zeros(1), "more": torch.zeros(1)}, "have an unknown 'extra' and 1 more"),
        ({**state, key: state[key][:-1].clone()}, f"have another shape of '{key}'"),
    ):
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(DatasetError) as caught:
            load_pretrained_network(network, tmp_path)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert torch.equal(network.state_dict()[key], before), "no weight was loaded"


def test_missing_or_damaged_weights_are_an_error(
    tmp_path: Path, network: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DatasetError, match="no weights in"):
        load_pretrained_network(network, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_pretrained_network(network, tmp_path)
    import huggingface_hub

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(InputError, match="'someone/model@v1' is no directory here, and no network"):
        load_pretrained_network(network, "someone/model@v1")


def test_a_hub_name_may_have_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[object] = []

    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    (tmp_path / "vae").mkdir()
    assert published_part("nvidia/Cosmos@diffusers/base", "vae") == tmp_path / "vae"
    assert published_part("nvidia/Cosmos", "transformer") == tmp_path
    files = ["transformer/*", "vae/*"]
    assert asked == [("nvidia/Cosmos", "diffusers/base", files), ("nvidia/Cosmos", None, files)]


def test_a_diffusers_pipeline_is_loaded_and_another_architecture_is_an_error(tmp_path: Path) -> None:
    """Saved by diffusers: several files, bfloat16, the padding mask counted in in_channels."""
    sizes = replace(TINY, concat_padding_mask=True, use_crossattn_projection=True)
    values = {k: v for k, v in asdict(sizes).items() if k not in ("time_scale", "coordinates", "beside")}
    torch.manual_seed(5)
    stock = CosmosTransformer3DModel(in_channels=17, out_channels=16, extra_pos_embed_type=None, **values)
    stock.to(torch.bfloat16).save_pretrained(tmp_path / "transformer", max_shard_size="200KB")
    assert len(list((tmp_path / "transformer").glob("*.safetensors"))) > 1
    build_autoencoder().save_pretrained(tmp_path / "vae")
    network = build_network(sizes, 16)
    load_pretrained_network(network, tmp_path)
    found, theirs = network.state_dict(), stock.state_dict()
    assert found.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[key].float()) for key, value in found.items())
    config = json.loads((tmp_path / "transformer/config.json").read_text("utf-8"))
    (tmp_path / "transformer/config.json").write_text(json.dumps({**config, "num_attention_heads": 4}))
    with pytest.raises(DatasetError, match="network with num_attention_heads 4, the policy's has 2"):
        load_pretrained_network(network, tmp_path)
    (tmp_path / "transformer/config.json").write_text("{torn")
    with pytest.raises(DatasetError, match=r"config.json cannot be read"):
        load_pretrained_network(network, tmp_path)


def test_two_variants_of_the_same_weights_are_an_error(tmp_path: Path, state: dict[str, Tensor]) -> None:
    save_file(state, tmp_path / "a.safetensors")
    save_file(state, tmp_path / "b.fp16.safetensors")
    with pytest.raises(DatasetError, match="keep one variant"):
        read_weights(tmp_path)
