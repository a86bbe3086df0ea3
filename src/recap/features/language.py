"""Text encoders: instructions as unit vectors, by hashed words or by a sentence encoder."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from recap.errors import InputError, did_you_mean
from recap.features.images import unit_rows
from recap.features.pretrained import PublishedNetwork, digest_settings
from recap.types import F32

WORDS_REVISION = 1  # increment it if the same words give other numbers

# Numbers keep their sign, since "turn by -45" differs from "turn by 45". An underscore separates words.
WORD = re.compile(r"(?<![^\W_])[+-]?\d+(?:\.\d+)?|[^\W_]+")


# Words that occur in instructions of any task.
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the of to in into on onto at by with and or its it them that this is be for from up off over "
        "out down both two each one using use right left side next then",
    )
)


class TextEncoder(Protocol):
    """Encodes texts as rows whose cosine distance is half their squared L2 distance."""

    @property
    def fingerprint(self) -> str:
        """Changes with any setting or weight that affects a row."""

    @property
    def dim(self) -> int:
        """Width of a row."""

    def encode(self, texts: Sequence[str]) -> F32:
        """Texts -> (n, dim), rows of length 1."""


@dataclass(frozen=True)
class HashedWords:
    """Hashes words and letter n-grams into a row; texts that share words or stems are near each other."""

    dim: int = 256  # width of a row; more means fewer collisions
    letter_weight: float = 0.7  # weight of a word's n-grams together, relative to the word

    def __post_init__(self) -> None:
        if self.dim < 8:
            raise InputError(f"dim {self.dim} is too small for hashed words: give 8 or more")

    @property
    def fingerprint(self) -> str:
        """Changes with the settings; there are no weights."""
        settings = (self.dim, self.letter_weight)
        return digest_settings({"encoder": "words", "revision": WORDS_REVISION, "settings": settings})

    def encode(self, texts: Sequence[str]) -> F32:
        rows = np.zeros((len(_checked(texts)), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            plain = unicodedata.normalize("NFKC", text).casefold().replace("−", "-")
            counts = Counter(word.lstrip("+") for word in WORD.findall(plain))
            for word, count in counts.items():
                for feature, weight in self._features(word):
                    # A stable hash; Python's own differs between processes.
                    code = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")
                    sign = 1 if code >> 63 else -1
                    row[code % self.dim] += sign * weight * (1 + math.log(count))
            if not row.any():
                row[0] = 1  # all texts without words get the same row
        return unit_rows(rows)

    def _features(self, word: str) -> Iterator[tuple[str, float]]:
        # Short words (the, to, a) carry little meaning. Numbers have full weight.
        yield from self._weighed(word, 1.0 if word[-1].isdigit() else min(1.0, len(word) / 5))

    def _weighed(self, word: str, weight: float) -> Iterator[tuple[str, float]]:
        yield f"word {word}", weight
        if word[-1].isdigit():
            return
        marked = f"<{word}>"
        runs = [marked[i : i + n] for n in (3, 4) for i in range(len(marked) - n + 1)]
        for run in runs:
            yield f"letters {run}", weight * self.letter_weight / math.sqrt(len(runs))


class ContentWords(HashedWords):
    """Hashed words without function words (with, both, into); all other words have the same weight.

    Short object names (can, pot) distinguish tasks, and would have less weight than longer words.
    """

    @property
    def fingerprint(self) -> str:
        """Changes with the settings and the function words."""
        settings = (self.dim, self.letter_weight, sorted(FUNCTION_WORDS))
        return digest_settings({"encoder": "content-words", "revision": WORDS_REVISION, "settings": settings})

    def _features(self, word: str) -> Iterator[tuple[str, float]]:
        if word not in FUNCTION_WORDS:
            yield from self._weighed(word, 1.0)


class SentenceEncoder(PublishedNetwork):
    """A text encoder with tokenizer, from a directory or hub name; the mean of the last hidden states.

    Args:
        max_tokens: longer texts are truncated.
        batch_size: texts per batch.
    """

    def __init__(self, path_or_name: str | Path, max_tokens: int = 256, batch_size: int = 32) -> None:
        if min(max_tokens, batch_size) < 1:
            raise InputError(f"max_tokens {max_tokens} and batch_size {batch_size}: give 1 or more")
        super().__init__(
            path_or_name,
            "sentence encoder",
            (),
            "AutoModel",
            {"encoder": "sentence", "settings": (max_tokens, "float32")},
            unused=("pooler.",),  # not used, and many checkpoints lack it
            reads=True,
        )
        self.batch_size = batch_size
        self.max_tokens = min(max_tokens, int(self._tokenizer.model_max_length))
        self.dim = int(self._model.config.hidden_size)

    def encode(self, texts: Sequence[str]) -> F32:
        _checked(texts)
        rows = [
            self._encode(list(texts[start : start + self.batch_size]))
            for start in range(0, len(texts), self.batch_size)
        ]
        return np.concatenate(rows) if rows else np.zeros((0, self.dim), np.float32)

    def _encode(self, texts: list[str]) -> F32:
        given = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        with self._torch.inference_mode():
            states = self._model(**given).last_hidden_state
            mask = given["attention_mask"][:, :, None].float()
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
            return unit_rows(mean.numpy())


def _checked(texts: Sequence[str]) -> Sequence[str]:
    """Refuse a single string, which would be read as a sequence of letters."""
    if isinstance(texts, str):
        raise InputError("texts is a single string: give a list of texts")
    return texts


def make_text_encoder(name: str) -> TextEncoder:
    """`words`, `content-words`, or `sentence:<directory or hub name>`."""
    kind, _, model = name.partition(":")
    if name == "words":
        return HashedWords()
    if name == "content-words":
        return ContentWords()
    if kind == "sentence" and model:
        return SentenceEncoder(model)
    choices = ("words", "content-words", "sentence:<directory or hub name>")
    raise InputError(f"unknown text encoder '{name}': {did_you_mean(name, choices)}")
