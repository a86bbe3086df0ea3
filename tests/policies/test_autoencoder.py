"""The image autoencoder: from images to latents and back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from recap.errors import DatasetError, InputError
from recap.policies.autoencoder import FrameEncoder, build_autoencoder, latent_statistics, to_bytes, to_pixels
from recap.policies.config import ImageConfig
from recap.training.autoencoder import load_autoencoder, psnr, train_autoencoder, unclamped
from recap.training.latent_files import encode_pictures
from recap.types import U8
from toy_policy import toy_encoder


@pytest.fixture
def images() -> U8:
    return np.random.default_rng(0).integers(0, 256, (5, 16, 24, 3), np.uint8)


def test_latents_have_an_eighth_of_each_side_and_16_channels(images: U8) -> None:
    latents = toy_encoder().encode_images(images)
    assert latents.shape == (5, 16, 2, 3)
    assert toy_encoder().decode_images(latents).shape == images.shape


def test_encoding_does_not_depend_on_the_batch(images: U8) -> None:
    together = toy_encoder().encode_images(images)
    alone = np.concatenate([toy_encoder().encode_images(images[i : i + 1]) for i in range(5)])
    assert np.allclose(together, alone, atol=1e-5)


def test_bytes_to_pixels_and_back_is_lossless(images: U8) -> None:
    assert np.array_equal(to_bytes(to_pixels(images)), images)


def test_latents_are_normalised_per_channel(images: U8) -> None:
    network = toy_encoder().network
    raw = network.encode(to_pixels(images)[:, :, None]).latent_dist.mode()[:, :, 0]
    mean, std = latent_statistics(raw)
    own = build_autoencoder(base_dim=8, latents_mean=mean, latents_std=std)
    own.load_state_dict(network.state_dict())
    latents = FrameEncoder(own.eval()).encode_images(images)
    assert np.allclose(latents.mean((0, 2, 3)), 0, atol=1e-3)
    assert np.allclose(latents.std((0, 2, 3), ddof=1), 1, atol=1e-2)


def test_the_unclamped_decoder_equals_the_decoder_before_clamping(images: U8) -> None:
    network = toy_encoder().network
    latent = 30 * torch.randn(2, 16, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        free = unclamped(network, latent)
        assert torch.allclose(free.clamp(-1, 1), network.decode(latent).sample, atol=1e-5)


def test_training_improves_the_reconstruction() -> None:
    pictures = np.zeros((8, 16, 16, 3), np.uint8)
    pictures[::2, 4:12, 4:12] = (255, 40, 40)
    pictures[1::2, :8] = (40, 40, 255)

    def quality(n_iterations: int) -> float:
        encoder = train_autoencoder(
            pictures,
            n_iterations=n_iterations,
            batch_size=4,
            seed=0,
            device=torch.device("cpu"),
            learning_rate=1e-3,
        )
        return psnr(encoder.decode_images(encoder.encode_images(pictures)), pictures)

    assert quality(60) > quality(1) + 8


def test_frozen_latents_hold_every_image_and_its_mirror_image(images: U8) -> None:
    latents = encode_pictures(toy_encoder(), images, torch.device("cpu"))
    assert latents.shape == (5, 2, 16, 2, 3)
    mirrored = toy_encoder().encode_images(np.ascontiguousarray(images[:, :, ::-1]))
    assert np.allclose(latents[:, 1], mirrored, atol=1e-5)


def test_a_folder_without_an_autoencoder_is_an_error(tmp_path: object) -> None:
    with pytest.raises(DatasetError, match="no autoencoder at"):
        load_autoencoder(str(tmp_path), torch.device("cpu"))


def test_encoding_an_array_that_is_no_image_batch_is_an_error() -> None:
    with pytest.raises(InputError):
        toy_encoder().encode_images(np.zeros((1, 16, 16), np.uint8))


def test_a_published_autoencoder_with_missing_or_unknown_weights_is_an_error(tmp_path: Path) -> None:
    torch.manual_seed(3)
    network: Any = build_autoencoder(latents_mean=[0.5] * 16)
    network.save_pretrained(tmp_path / "vae")
    for place in (tmp_path, tmp_path / "vae"):
        encoder = load_autoencoder(str(place), torch.device("cpu"))
        assert all(torch.equal(v, network.state_dict()[k]) for k, v in encoder.network.state_dict().items())
        assert float(encoder.mean[0, 0]) == 0.5
    file = tmp_path / "vae/diffusion_pytorch_model.safetensors"
    weights = load_file(file)
    kept = weights.pop("quant_conv.bias")
    save_file(weights, file)
    with pytest.raises(DatasetError, match=r"lack 'quant_conv.bias'"):
        load_autoencoder(str(tmp_path), torch.device("cpu"))
    save_file({**weights, "quant_conv.bias": kept, "extra": torch.zeros(1)}, file)
    with pytest.raises(DatasetError, match="have an unknown 'extra'"):
        load_autoencoder(str(tmp_path), torch.device("cpu"))


def test_large_images_are_encoded_in_smaller_batches(images: U8, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, counts = toy_encoder(), list[int]()
    whole = encoder.encode_images(images)
    pictures = encoder.decode_images(whole)
    stock = encoder.encode

    def counted(pixels: torch.Tensor) -> torch.Tensor:
        counts.append(len(pixels))
        return stock(pixels)

    monkeypatch.setattr(encoder, "encode", counted)
    monkeypatch.setattr("recap.policies.autoencoder.AT_ONCE", 2 * 16 * 24)
    assert np.allclose(encoder.encode_images(images), whole, atol=1e-5)
    assert counts == [2, 2, 1]
    assert np.abs(encoder.decode_images(whole).astype(int) - pictures).max() <= 1


def test_an_autoencoder_with_another_latent_shape_than_the_policy_is_an_error() -> None:
    toy_encoder().refuse_other(ImageConfig())
    for image in (ImageConfig(channels=48), ImageConfig(scale=16)):
        with pytest.raises(InputError, match="16 channels at 1/8 of the size, the policy's"):
            toy_encoder().refuse_other(image)


@pytest.mark.parametrize("n_frames", [1, 5])
def test_the_single_frame_convolutions_equal_those_of_diffusers(n_frames: int) -> None:
    from diffusers import AutoencoderKLWan

    ours = build_autoencoder(base_dim=8).eval()
    arguments = {key: value for key, value in ours.config.items() if not key.startswith("_")}  # type: ignore[operator, union-attr]
    stock = AutoencoderKLWan(**arguments).eval()
    stock.load_state_dict(ours.state_dict())
    film = torch.randn(2, 3, n_frames, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        latent, wanted = (network.encode(film).latent_dist.mode() for network in (ours, stock))  # type: ignore[operator]
        assert torch.allclose(latent, wanted, atol=1e-5)
        found, wanted = (network.decode(latent).sample for network in (ours, stock))  # type: ignore[operator]
        assert torch.allclose(found, wanted, atol=1e-5)
