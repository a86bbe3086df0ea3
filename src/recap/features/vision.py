"""Image encoders: images as unit vectors, by colours and edges, or by DINOv3 or SigLIP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from recap.errors import InputError, did_you_mean, one_of
from recap.features.images import IMAGENET_MEAN, IMAGENET_STD, in_batches, normalise, resize, unit_rows
from recap.features.pretrained import PublishedNetwork, digest_settings, find_model, read_config
from recap.suites import plugins
from recap.types import F32, U8

Token = Literal["cls", "mean"]

PATCHES_REVISION = 1  # increment it if the same pixels give other numbers

# Lightness, red minus green, yellow minus blue; colour has less weight than lightness.
OPPONENTS = np.array([(1 / 3, 1 / 3, 1 / 3), (0.3, -0.3, 0.0), (0.15, 0.15, -0.3)], np.float32)


class ImageEncoder(Protocol):
    """Encodes frames as rows whose cosine distance is half their squared L2 distance."""

    @property
    def fingerprint(self) -> str:
        """Changes with any setting or weight that affects a row."""

    @property
    def dim(self) -> int:
        """Width of a row."""

    def encode(self, images: Sequence[U8] | U8) -> F32:
        """Frames (n, h, w, 3), or any sequence of frames -> (n, dim), rows of length 1."""


@lru_cache(maxsize=8)
def _soft_cells(size: int, n_cells: int) -> F32:
    """Overlapping triangles (n_cells, size), rows of sum 1, so that small shifts give small changes."""
    position = (np.arange(size) + 0.5) / size * n_cells - 0.5
    weights = np.maximum(0.0, 1 - np.abs(position - np.arange(n_cells)[:, None]) / 1.5)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


@dataclass(frozen=True)
class PatchEncoder:
    """Opponent colours and edge directions on two coarse grids; no weights."""

    colour_cells: int = 4  # cells per side of the colour grid
    edge_cells: int = 6
    n_directions: int = 6  # edge directions over half a turn
    edge_weight: float = 2.0  # weight of edges relative to colours

    def __post_init__(self) -> None:
        grids = self.colour_cells, self.edge_cells
        if min(*grids, self.n_directions) < 1 or max(grids) > self.SIZE:
            raise InputError(f"patch grids of {grids[0]} and {grids[1]} cells: give 1 to {self.SIZE}")

    @cached_property
    def _directions(self) -> F32:
        turn = np.arange(self.n_directions) * (2 * np.pi / self.n_directions)  # doubled: edges have no sign
        return np.stack([np.cos(turn), np.sin(turn)], axis=1).astype(np.float32)

    SIZE: ClassVar[int] = 32  # pixels per side; finer images make the rows less stable

    @property
    def fingerprint(self) -> str:
        """Changes with the settings; there are no weights."""
        settings = (self.colour_cells, self.edge_cells, self.n_directions, self.edge_weight, self.SIZE)
        return digest_settings({"encoder": "patches", "revision": PATCHES_REVISION, "settings": settings})

    @property
    def dim(self) -> int:
        """Six rectified colours per colour cell, and one number per direction and edge cell."""
        return 6 * self.colour_cells**2 + self.n_directions * self.edge_cells**2

    def encode(self, images: Sequence[U8] | U8) -> F32:
        rows = [self._encode(batch) for batch in in_batches(images, 32)]
        return np.concatenate(rows) if rows else np.zeros((0, self.dim), np.float32)

    def _encode(self, images: U8) -> F32:
        n, size = len(images), self.SIZE
        pixels = resize(images, size).reshape(n, -1, 3).transpose(0, 2, 1)
        planes = (OPPONENTS @ pixels).reshape(n, 3, size, size)
        edges = self._edges(planes[:, 0])
        contrast = planes - planes.mean(axis=(2, 3), keepdims=True)  # without the mean brightness and colour
        colours = np.concatenate([np.maximum(contrast, 0), np.maximum(-contrast, 0)], axis=1)
        parts = []
        for maps, cells, weight in (
            (colours, self.colour_cells, 1.0),
            (edges, self.edge_cells, self.edge_weight),
        ):
            pool = _soft_cells(size, cells)
            pooled: F32 = np.matmul(pool @ maps, pool.T).reshape(n, -1)
            parts.append(np.float32(weight) * unit_rows(pooled))
        rows = np.concatenate(parts, axis=1)
        # A uniform image has neither contrast nor edges; all such images get the same unit row.
        rows[~rows.any(axis=1), 0] = 1
        return unit_rows(rows)

    def _edges(self, light: F32) -> F32:
        """(n, s, s) -> (n, directions, s, s): strength of the edge times its match to each direction."""
        n, size, _ = light.shape
        across, down = np.zeros_like(light), np.zeros_like(light)
        across[:, :, 1:-1] = light[:, :, 2:] - light[:, :, :-2]
        down[:, 1:-1] = light[:, 2:] - light[:, :-2]
        strength = np.sqrt(across * across + down * down)
        per = 1 / np.maximum(strength, np.float32(1e-6))
        doubled = np.stack([(across * across - down * down) * per, 2 * across * down * per], axis=1)
        fit = np.maximum(self._directions @ doubled.reshape(n, 2, -1), 0).reshape(n, -1, size, size)
        fit *= fit
        fit *= per[:, None]
        return fit


class DinoEncoder(PublishedNetwork):
    """DINOv3 (ViT) from a directory or hub name.

    Args:
        token: `cls`, or `mean` of the patch tokens.
        size: pixels per side of the network's input, a multiple of its patch size.
        batch_size: frames per batch.
    """

    NAME, LABEL, CLASS = "dino", "DINOv3", "AutoModel"
    TYPES: tuple[str, ...] = ("dinov3_vit",)
    UNUSED: tuple[str, ...] = ("embeddings.mask_token",)  # used only for masked patches
    MEAN, STD = IMAGENET_MEAN, IMAGENET_STD  # of its training images

    def __init__(
        self, path_or_name: str | Path, token: Token = "cls", size: int = 224, batch_size: int = 32
    ) -> None:
        one_of("token", token, ("cls", "mean"))
        if batch_size < 1:
            raise InputError(f"batch_size {batch_size} is too small: give 1 or more")
        super().__init__(
            path_or_name,
            f"{self.LABEL} model",
            self.TYPES,
            self.CLASS,
            {"encoder": self.NAME, "settings": (token, size, self.MEAN, self.STD, "float32")},
            unused=self.UNUSED,
        )
        self.token, self.size, self.batch_size = token, size, batch_size
        self.dim = int(self._model.config.hidden_size)
        patch = self._model.config.patch_size
        if size < 1 or any(size % p for p in (patch if isinstance(patch, list | tuple) else (patch,))):
            raise InputError(f"image size {size} is not a multiple of {self.LABEL}'s patch size {patch}")

    def encode(self, images: Sequence[U8] | U8) -> F32:
        rows = [self._encode(batch) for batch in in_batches(images, self.batch_size)]
        return np.concatenate(rows) if rows else np.zeros((0, self.dim), np.float32)

    def _encode(self, images: U8) -> F32:
        pixels = normalise(resize(images, self.size), self.MEAN, self.STD)
        with self._torch.inference_mode():
            given = self._torch.from_numpy(pixels).permute(0, 3, 1, 2)
            return unit_rows(self._row(self._model(pixel_values=given)).numpy())

    def _row(self, answer: Any) -> Any:
        """The rows (n, dim) from the network's output."""
        tokens = answer.last_hidden_state
        if self.token == "cls":
            return tokens[:, 0]
        # The patch tokens follow the class token and the registers.
        return tokens[:, 1 + self._model.config.num_register_tokens :].mean(1)


class SiglipEncoder(DinoEncoder):
    """The pooled output of SigLIP's vision model, from a directory or hub name."""

    NAME, LABEL, CLASS = "siglip", "SigLIP", "SiglipVisionModel"
    TYPES, UNUSED = ("siglip", "siglip_vision_model"), ()
    MEAN = STD = (0.5, 0.5, 0.5)

    def __init__(self, path_or_name: str | Path) -> None:
        config = read_config(find_model(path_or_name, "SigLIP model"), self.TYPES, "SigLIP model")
        size = int(config.get("vision_config", config).get("image_size", 224))
        super().__init__(path_or_name, "cls", size)

    def _row(self, answer: Any) -> Any:
        return answer.pooler_output


def make_image_encoder(name: str) -> ImageEncoder:
    """Make `patches`, `dino:PATH`, `dino-mean:PATH` (mean patch token), `siglip:PATH` or an installed one.

    PATH is a directory or a hub name. Packages add encoders by entry points of the group `recap.encoders`:
    functions of the text after the colon.
    """
    kind, _, model = name.partition(":")
    if name == "patches":
        return PatchEncoder()
    makers: dict[str, Callable[[], ImageEncoder]] = {
        "dino": lambda: DinoEncoder(model, "cls"),
        "dino-mean": lambda: DinoEncoder(model, "mean"),
        "siglip": lambda: SiglipEncoder(model),
    }
    if kind in makers and model:
        return makers[kind]()
    installed = plugins("recap.encoders")
    if kind in installed:
        encoder: ImageEncoder = installed[kind].load()(model)
        return encoder
    choices = ("patches", *(f"{maker}:<directory or hub name>" for maker in makers), *installed)
    raise InputError(f"unknown image encoder '{name}': {did_you_mean(name, choices)}")
