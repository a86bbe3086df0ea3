"""What do the agents do in a scene of a task that none was trained on? One row of images per agent.

    python research/benchmarks/dualarm_strip.py place_bread_skillet \\
        --pool runs/arms/pools/ur5e-poses.safetensors \\
        --agent "no retrieval=runs/arms-small-no-retrieval/last" \\
        --agent "co-training=runs/arms-small-co-training/last" --agent replay=replay \\
        --agent ours=dualarm-small --out docs/images/dualarm-strip.png

The same times in every row, from the start to the end of the longest success. If something was retrieved, the
corner shows the head camera of the other robot at the matched frame: its demonstration is executed again in
its own scene and rendered, since the pool holds poses only.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import cv2
import numpy as np

from recap.agent import RetrievalAgent
from recap.assembly import REPLAY, AgentConfig
from recap.cli.one_line import run_script
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.pictures import resize_image, write_png
from recap.pool.opening import open_pool
from recap.types import U8, EpisodeResult, FrameRef
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.suite import DualArmWorld

SIZE_PX, INSET_PX, GAP_PX, CAPTION_PX = 160, 60, 4, 20
FPS = 20.0
INK = (60, 60, 60)


@dataclass
class Row:
    """The recorded episode of one agent."""

    label: str
    result: EpisodeResult | None = None
    frames: list[U8] = field(default_factory=list)
    matched: list[FrameRef | None] = field(default_factory=list)  # match at each frame


def film(name: str, label: str, task: str, seed: int, pool: str) -> Row:
    """Run the agent in the scene with its own retrieval."""
    alone = name != REPLAY and not _retrieves(name)
    row = Row(label)
    spec = EvalSpec(AgentConfig(name), "dualarm", tasks=(task,), seeds=(seed,), pool=pool)
    agent = make_agent(spec)
    assert isinstance(agent, RetrievalAgent)
    (row.result,) = run_trials(agent, spec, spec.trials(), 1, partial(_shoot, row, agent, alone))
    if row.result.outcome == "error":
        raise SystemExit(f"{label}: {row.result.error}")
    row.matched[0] = row.matched[1]  # planned from the first frame, known with the second
    return row


def _retrieves(name: str) -> bool:
    from recap.policies.checkpoint import from_pretrained

    return bool(from_pretrained(name).config.retrieval)


def _shoot(row: Row, agent: RetrievalAgent, alone: bool, world: DualArmWorld) -> None:
    row.frames.append(world.env.draw(SIZE_PX, ("head",))["head"])
    plan = agent.plan(0)
    row.matched.append(
        None if plan is None or alone or plan.conditioning.is_empty else plan.conditioning.refs[0]
    )


@cache
def retrieved_frame(pool: str, ref: FrameRef) -> U8:
    """The head camera's image after executing the demonstration up to that frame."""
    episode = open_pool(pool).view().episode(ref.episode_id)
    _, task, split, seed, embodiment = ref.episode_id.split("/")
    env = DualArmEnv(task, embodiment, split=split, image_size=0)
    env.reset(seed=int(seed))
    for action in episode.actions[: ref.t]:
        env.step(action)
    picture = env.draw(SIZE_PX, ("head",))["head"]
    env.close()
    return picture


def moment(row: Row, t: int, pool: str) -> U8:
    """One image, with the retrieved frame in its corner."""
    t = min(t, len(row.frames) - 1)
    picture, ref = row.frames[t].copy(), row.matched[t]
    if ref is not None:
        inset = resize_image(retrieved_frame(pool, ref), (INSET_PX, INSET_PX))
        framed = np.pad(inset, ((2, 0), (2, 0), (0, 0)), constant_values=255)
        picture[-len(framed) :, -len(framed) :] = framed
    return picture


def caption(words: str, width: int) -> U8:
    """A line of text."""
    line = np.full((CAPTION_PX, width, 3), 255, np.uint8)
    cv2.putText(line, words, (2, CAPTION_PX - 6), cv2.FONT_HERSHEY_SIMPLEX, 0.42, INK, 1, cv2.LINE_AA)
    return line


def sheet(rows: list[Row], n_moments: int, pool: str) -> U8:
    """All rows, each with its name and outcome."""
    done = [row.result.steps for row in rows if row.result and row.result.outcome == "success"]
    longest = max(done) if done else max(len(row.frames) for row in rows) - 1
    moments = np.linspace(0, longest, n_moments).round().astype(int)
    width = n_moments * (SIZE_PX + GAP_PX) - GAP_PX
    parts = []
    for row in rows:
        assert row.result is not None
        how = "done after" if row.result.outcome == "success" else "not done in"
        parts.append(caption(f"{row.label}: {how} {row.result.steps / FPS:.1f} s", width))
        pictures = [
            np.pad(moment(row, t, pool), ((0, 0), (0, GAP_PX), (0, 0)), constant_values=255) for t in moments
        ]
        parts.append(np.concatenate(pictures, axis=1)[:, :width])
    times = [caption(f"{t / FPS:.1f} s", SIZE_PX + GAP_PX) for t in moments]
    parts.append(np.concatenate(times, axis=1)[:, :width])
    return np.concatenate(parts)


def main() -> None:
    """Record every agent, then lay out the images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--seed", type=int, default=500)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--agent", dest="agents", action="append", required=True, metavar="LABEL=NAME")
    parser.add_argument("--moments", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for text in options.agents:
        label, _, name = text.partition("=")
        rows.append(film(name, label, options.task, options.seed, options.pool))
    write_png(options.out, sheet(rows, options.moments, options.pool))


if __name__ == "__main__":
    run_script(main)
