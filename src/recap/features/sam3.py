"""Finds objects by a phrase, with SAM3: their position and size in the image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.features.images import check_frames, normalise, resample, resize
from recap.features.pretrained import PublishedNetwork
from recap.types import F32, F64, U8

HALF = (0.5, 0.5, 0.5)  # mean and deviation of SAM3's training images


def mask_extent(mask: NDArray[np.bool_]) -> F64 | None:
    """Centre of mass x, y and width, height of a mask (h, w), in pixels; None if the mask is empty.

    Pixel i covers i to i + 1, so a mask of the whole image has its centre at w / 2 and width w.
    """
    rows, columns = np.nonzero(mask)
    if not len(rows):
        return None
    return np.array(
        [columns.mean() + 0.5, rows.mean() + 0.5, np.ptp(columns) + 1, np.ptp(rows) + 1], np.float64
    )


def best_instance(logits: F32, presence: float, threshold: float) -> int | None:
    """Index of the query (q,) with the best score, given the presence logit; None below the threshold."""
    if not len(logits):
        return None
    best = int(np.argmax(logits))
    score = _sigmoid(float(logits[best])) * _sigmoid(presence)
    return best if score > threshold else None


def _sigmoid(value: float) -> float:
    return float(0.5 * (1 + np.tanh(0.5 * value)))  # never overflows


class Sam3Objects(PublishedNetwork):
    """Finds the best instance of each object by its phrase.

    Args:
        prompts: object -> the phrase that describes it, such as {"block": "grey T-shaped block"}.
        threshold: minimum score of an instance, 0..1.
    """

    def __init__(self, path_or_name: str | Path, prompts: Mapping[str, str], threshold: float = 0.3) -> None:
        if not prompts or not all(phrase.strip() for phrase in prompts.values()):
            raise InputError("SAM3 needs a phrase for each object: give such as {'block': 'grey block'}")
        if not 0 <= threshold < 1:
            raise InputError(f"threshold {threshold} is not a score: give 0 to 1, such as 0.3")
        super().__init__(
            path_or_name,
            "SAM3 model",
            # The published checkpoint is the video model, which contains the image model as its detector.
            ("sam3", "sam3_video"),
            "Sam3Model",
            {"finder": "sam3", "settings": (sorted(prompts.items()), threshold, "float32")},
            reads=True,
        )
        self.prompts, self.threshold = dict(prompts), threshold
        self._size = int(self._model.config.image_size)
        self._tokens = self._tokenised()

    def _tokenised(self) -> dict[str, Any]:
        """Object -> input_ids and attention_mask, padded to the length SAM3 was trained with."""
        length = int(self._model.config.text_config.max_position_embeddings)
        tokens = {}
        for name, phrase in self.prompts.items():
            given = self._tokenizer(phrase, padding="max_length", max_length=length, return_tensors="pt")
            if given["input_ids"].shape[1] > length:
                raise InputError(f"the phrase for '{name}' is too long for SAM3: keep under {length} tokens")
            tokens[name] = {key: given[key] for key in ("input_ids", "attention_mask")}
        return tokens

    def find(self, image: U8) -> dict[str, F64]:
        """Name -> centre x, centre y, width, height in pixels of the frame (h, w, 3), for objects found."""
        frame = check_frames(np.asarray(image)[None])
        height, width = frame.shape[1:3]
        pixels = normalise(resize(frame, self._size), HALF, HALF)
        found: dict[str, F64] = {}
        with self._torch.inference_mode():
            given = self._torch.from_numpy(pixels).permute(0, 3, 1, 2)
            seen = self._model.get_vision_features(pixel_values=given)  # once for all phrases
            for name, tokens in self._tokens.items():
                answer = self._model(vision_embeds=seen, **tokens)
                logits = answer.pred_logits[0].numpy()
                best = best_instance(logits, float(answer.presence_logits[0, 0]), self.threshold)
                if best is None:
                    continue
                likely = answer.pred_masks[0, best].sigmoid().numpy()
                extent = mask_extent(resample(likely, height, width) > 0.5)
                if extent is not None:
                    found[name] = extent
        return found
