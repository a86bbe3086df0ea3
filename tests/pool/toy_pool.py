"""Toy episodes and describers, and a writer that tests run as a separate process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from recap.types import F32, Episode


def toy_episode(name: str, t: int = 8, *, images: bool = False) -> Episode:
    """A random episode, seeded by its name."""
    rng = np.random.default_rng(list(name.encode("utf-8", "surrogatepass")) or [0])

    def noise(*shape: int) -> F32:
        return rng.normal(size=shape).astype(np.float32)

    film = rng.integers(0, 255, (t, 32, 32, 3), dtype=np.uint8)
    return Episode(
        id=name,
        scene_id=f"scene of {name}",
        task="push",
        embodiment="disc",
        fps=10.0,
        timestamps=np.arange(t) / 10,
        proprio=noise(t, 2),
        actions=noise(t, 2),
        objects={"z": noise(t, 3), "a": noise(t, 1)},
        goal=noise(3),
        images={"top": film} if images else {},
        attributes={"angle": 0.1, "seed": 3, "clean": True, "note": "ü"},
    )


@dataclass
class ToyDescriber:
    """Returns two terms and records which episodes it was asked for."""

    fingerprint: str = "toy-1"
    scale: float = 1.0
    dims: Mapping[str, int] = field(default_factory=lambda: {"proprio": 2, "object": 3})
    asked: list[str] = field(default_factory=list)

    def describe(self, episode: Episode) -> dict[str, F32]:
        """The scaled proprioception and one object's pose."""
        self.asked.append(episode.id)
        scale = np.float32(self.scale)
        return {"proprio": episode.proprio * scale, "object": episode.objects["z"] * scale}


def same_episode(a: Episode, b: Episode) -> bool:
    """True if equal bit for bit; of images only the camera names are compared."""
    plain = ("id", "scene_id", "task", "embodiment", "fps", "action_space", "success", "source")
    arrays = ("timestamps", "proprio", "actions")
    return (
        all(getattr(a, key) == getattr(b, key) for key in plain)
        and all(_same_bits(getattr(a, key), getattr(b, key)) for key in arrays)
        and list(a.objects) == list(b.objects)
        and all(_same_bits(a.objects[key], b.objects[key]) for key in a.objects)
        and (a.goal is None) == (b.goal is None)
        and (a.goal is None or b.goal is None or _same_bits(a.goal, b.goal))
        and list(a.attributes.items()) == list(b.attributes.items())
        and list(map(type, a.attributes.values())) == list(map(type, b.attributes.values()))
        and list(a.images) == list(b.images)
    )


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def main() -> None:
    """URI PREFIX N [ACTION]: add N episodes one by one and print each; "mixed" also removes and compacts."""
    from recap.errors import InputError
    from recap.pool.store import Pool

    uri, prefix, n, action = (*sys.argv[1:], "add")[:4]
    pool = Pool.open(uri)
    print("open", flush=True)
    for i in range(int(n)):
        name = f"{prefix}{i}"
        try:
            if action == "mixed" and i % 3 == 2:
                pool.remove([f"{prefix}{i - 1}"])
                print(f"removed {prefix}{i - 1}", flush=True)
                pool.compact()
                pool.tag(f"tag {prefix}", move=True)
            pool.add([toy_episode(name, images=action == "films")])
            print(f"added {name}", flush=True)
        except InputError:
            print(f"refused {name}", flush=True)


if __name__ == "__main__":
    main()
