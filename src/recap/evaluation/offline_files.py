"""Files for one demonstration of an offline evaluation: a film, a strip, and a recording for rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import InputError
from recap.evaluation import film
from recap.evaluation.film import Shown, recorded_reel
from recap.evaluation.offline import POLICY, REPLAYED, Watched
from recap.run_directory import whole_file
from recap.types import F64


def write_film(watched: Watched, out: Path) -> Path | None:
    """Write `episode_<i>.mp4` and `.png`: recorded, predicted and retrieved frames; None without images."""
    episode, agent, looks = watched.episode, watched.agent, watched.looks
    if not episode.images:
        return None
    looking = agent.policy.config.image.cameras if agent.policy is not None else ()
    camera = next((name for name in looking if name in episode.images), next(iter(episode.images)))
    errors = {m: [look.errors[m] for look in looks] for m in (POLICY, REPLAYED) if m in looks[0].errors}
    plans = {look.t: look.plan for look in looks}
    reel = recorded_reel(episode.images[camera], episode.fps, plans, errors, agent)
    label = f"{watched.number}: {episode.task}".encode("ascii", "ignore").decode()
    means = ", ".join(f"{name} {np.mean(values):.2f}" for name, values in errors.items())
    shown = Shown(label, f"error {means}", False, reel)
    return film.write_film(out / f"episode_{watched.number}", shown, episode.fps)[0]


def load_rerun() -> Any:
    """The module, or an error that says how to install it."""
    try:
        import rerun
    except ModuleNotFoundError:
        raise InputError("rerun is not installed: pip install 'recap-robot[rerun]'") from None
    return rerun


def write_rrd(watched: Watched, dataset: str, out: Path) -> Path:
    """Write `<dataset>_episode_<i>.rrd`: pictures, actions, matches and predictions over time."""
    rr = load_rerun()
    episode, agent = watched.episode, watched.agent
    name = f"{dataset}_episode_{watched.number}"
    stream = rr.RecordingStream("recap", recording_id=name)
    pool, body = agent.retriever.source.view(), agent.robot().act

    def at(t: int) -> None:
        stream.set_time("frame", sequence=t)
        stream.set_time("time", duration=t / episode.fps)

    def pictures(what: str, images: Any, t: int) -> None:
        for camera, frames in images.items():
            stream.log([what, camera], rr.Image(frames[t]).compress())

    def numbers(whose: str, action: F64) -> None:
        for feature, columns in body.spans:
            stream.log(["action", whose, feature.name], rr.Scalars(action[columns]))

    with whole_file(out / f"{name}.rrd") as partial:
        stream.save(partial)
        stream.log("task", rr.TextDocument(episode.task), static=True)
        for t in range(len(episode)):
            at(t)
            pictures("query", episode.images, t)
            numbers("recorded", episode.actions[t].astype(np.float64))
        for look in watched.looks:
            at(look.t)
            for method, chunk in look.chunks.items():
                stream.log(["error", method], rr.Scalars(look.errors[method]))
                stream.log(["chunk", method], rr.Tensor(chunk, dim_names=("step", "number")))
            if look.retrieval is not None and look.retrieval.matches:
                match = look.retrieval.matches[0]
                stream.log("match", rr.TextLog(f"{match.ref.episode_id}:{match.ref.t}"))
                stream.log("match/distance", rr.Scalars(match.distance))
                stream.log("match/confidence", rr.Scalars(look.retrieval.confidence))
                pictures("match", pool.episode(match.ref.episode_id).images, match.ref.t)
            latents = None if look.plan is None else look.plan.chunk.predicted_latents
            if latents is not None and agent.policy is not None:
                cameras = agent.policy.config.image.cameras
                for camera, picture in zip(cameras, agent.policy.decode_frames(latents), strict=False):
                    stream.log(["predicted", camera], rr.Image(picture).compress())
            for method in (m for m in (POLICY, REPLAYED) if m in look.chunks):
                for step, action in enumerate(look.chunks[method][: agent.n_action_steps]):
                    at(look.t + step)
                    numbers(method, action)
        stream.flush()
        stream.disconnect()
    return out / f"{name}.rrd"
