"""A cache of the image latents of retrieved frames, encoded when they are first retrieved."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import numpy as np

from recap.errors import InputError
from recap.pool.view import PoolView
from recap.types import F32, F64, U8, Conditioning, Episode, FrameRef

if TYPE_CHECKING:
    from recap.policies.policy import TrainedPolicy

MAX_BYTES = 256 << 20  # of the cache: latents are small, but some policies use pixels
Key: TypeAlias = tuple[FrameRef, int, int, str, str]  # match, its content, offset, encoder/camera, alignment


class RetrievedLatents:
    """Latents by frame, offset, encoder and alignment; the least recently used are evicted first."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Key, F32] = OrderedDict()

    def forget(self) -> None:
        self._cache.clear()

    def add(
        self, policy: TrainedPolicy, retrieved: Sequence[tuple[PoolView, Conditioning]]
    ) -> list[Conditioning]:
        """Each conditioning with its latents; missing latents are encoded in one batch.

        Args:
            retrieved: each conditioning with the pool view that it was retrieved from.
        """
        keys = [
            [] if given.is_empty else _keys(policy, given, view.episode(given.refs[0].episode_id))
            for view, given in retrieved
        ]
        missing: dict[Key, tuple[U8, F64, str]] = {}
        for (view, given), needed in zip(retrieved, keys, strict=True):
            for key in needed:
                if key not in self._cache and key not in missing:
                    image, camera = _frame_of(view.episode(key[0].episode_id), key)
                    missing[key] = (image, given.frames[0], camera)
        if missing:
            images, frames, cameras = zip(*missing.values(), strict=True)
            self._cache.update(zip(missing, policy.encode_frames(images, frames, cameras), strict=True))
        results = []
        for (_, given), needed in zip(retrieved, keys, strict=True):
            for key in needed:
                self._cache.move_to_end(key)
            latents = np.stack([self._cache[key] for key in needed]) if needed else None
            results.append(replace(given, latents=latents))
        each = next(iter(self._cache.values())).nbytes if self._cache else 0  # one policy: equal sizes
        while each * len(self._cache) > MAX_BYTES:
            self._cache.popitem(last=False)
        return results


def _keys(policy: TrainedPolicy, given: Conditioning, shown: Episode) -> list[Key]:
    """Cache keys of the frames of a match that the policy sees, one per offset and camera."""
    from recap.policies.layout import frame_offsets

    config = policy.config
    # A checksum, because a demonstration may be removed and another added under the same name.
    content = crc32(given.frames[0].tobytes() + given.actions[0].tobytes() + given.proprio[0].tobytes())
    if config.image.view == "camera":  # camera images do not depend on the alignment
        content = crc32(np.ascontiguousarray(shown.actions).tobytes())
    return [
        (given.refs[0], content, offset, f"{policy.fingerprint}/{camera}", config.retrieval_name)
        for offset in frame_offsets(config)
        for camera in config.image.retrieved
    ]


def _frame_of(episode: Episode, key: Key) -> tuple[U8, str]:
    ref, offset, camera = key[0], key[2], key[3].split("/", 1)[1]
    if camera not in episode.images:
        raise InputError(
            f"the policy looks through camera '{camera}', and demonstration {episode.id} has "
            f"{sorted(episode.images) or 'none'}: use a pool with images"
        )
    return episode.images[camera][min(ref.t + offset, len(episode) - 1)], camera
