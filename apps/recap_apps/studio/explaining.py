"""Explains a retrieval: matches, their distances by term, and their chunks transformed to the query."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from recap.errors import InputError, RecapError
from recap.features.describer import TermDescriber
from recap.pictures import encode_png
from recap.pool.view import PoolView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import Explanation, explain
from recap.retrieval.presets import find_retrieval, full_name, names, short_name, usual_name
from recap.retrieval.registration import camera_at, refuse_uncalibrated, tools_of
from recap.retrieval.retriever import Retriever
from recap.robot import RobotSpec
from recap.suites import suites
from recap.types import F32, F64, Episode, FrameRef, Frames, Match, Moment
from recap_apps.studio.library import Library
from recap_apps.studio.series import features_of, grouped

MOVED_SIZE = 192  # px of a picture that is rendered again


class Counted(TermDescriber):
    """A describer that counts the demonstrations it has described."""

    def __init__(self, inner: TermDescriber) -> None:
        super().__init__(inner.terms, inner.retargeting)
        self.n = 0

    def describe(self, episode: Frames) -> dict[str, F32]:
        """Describe and count."""
        found = super().describe(episode)
        self.n += 1
        return found


class Explainer:
    """Queries a library with frames of its own demonstrations; one call at a time.

    Args:
        wanted: a retrieval by name or file; by default one that fits the data.
    """

    def __init__(self, library: Library, wanted: str | None = None) -> None:
        self.library = library
        self._wanted = None if wanted is None else full_name(wanted)
        self._retrievers: dict[str, Retriever] = {}
        self._describing: Counted | None = None

    @cached_property
    def usual(self) -> str:
        """The requested retrieval, or the one that fits."""
        if self._wanted is not None:
            return self._wanted
        view = self.library.view()
        return usual_name(view.episode(view.episode_ids[0])) if view.episode_ids else "world"

    @cached_property
    def choices(self) -> list[dict[str, str]]:
        """Retrievals that work with this robot and these demonstrations."""
        view = self.library.view()
        found = [self.usual]
        for name in names():
            if (
                view.episode_ids
                and name not in found
                and self._serves(name, view.episode(view.episode_ids[0]))
            ):
                found.append(name)
        return [{"name": name, "text": short_name(name)} for name in found]

    def progress(self) -> dict[str, int]:
        """How many demonstrations are described for the first query."""
        described = 0 if self._describing is None else self._describing.n
        return {"done": min(described, len(self.library.entries)), "total": len(self.library.entries)}

    def retriever(self, name: str = "") -> Retriever:
        """The retriever over the newest version."""
        name = name or self.usual
        if name not in self._retrievers:
            robot = self.library.robot()
            describer, config = find_retrieval(name, robot)
            config.aligner.refuse(robot, "")
            self._describing = Counted(describer)
            self._retrievers[name] = Retriever(Newest(self.library), self._describing, config, robot)
        found = self._retrievers[name]
        found.index()
        return found

    def explain(self, name: str, at: FrameRef, n: int) -> dict[str, Any]:
        """The retrieval for a frame of one of the pool's demonstrations, without its own scene."""
        retriever = self.retriever(name)
        view = self.library.view()
        if at.episode_id not in view.episode_ids:
            raise InputError(
                f"there is no demonstration {at.episode_id[:200]!a}", code="studio.demonstration"
            )
        episode = view.episode(at.episode_id)
        at = replace(at, t=min(at.t, len(episode) - 1))
        told = explain(retriever, view, at, n)
        confidence = told.retrieval.confidence
        return {
            "retrieval": short_name(name or self.usual),
            "choices": self.choices,
            "chosen": name or self.usual,
            "aligner": retriever.config.aligner.name,
            "query": {
                "id": at.episode_id,
                "t": at.t,
                "n": len(episode),
                "task": episode.task,
                "fps": episode.fps,
            },
            "cameras": [*episode.images],
            "terms": list(told.terms),
            "matches": [_match(view, match) for match in told.retrieval.matches],
            "why": told.compare_with_next(),
            "confidence": None if math.isnan(confidence) else round(confidence, 4),
            "n_candidates": len(told.retrieval.candidates),
            "n_unusable": len(retriever.index().unusable),
            "ms": {key: round(value, 2) for key, value in told.retrieval.timings_ms.items()},
            **self._carried(view, episode, told, retriever),
        }

    def _serves(self, name: str, first: Episode) -> bool:
        robot = self.library.robot()
        try:
            describer, config = find_retrieval(name, robot)
            config.aligner.refuse(robot, first.embodiment)
            return Retriever(Newest(self.library), describer, config, robot).why_unusable(first) is None
        except RecapError:
            return False

    def _carried(
        self, view: PoolView, episode: Episode, told: Explanation, retriever: Retriever
    ) -> dict[str, Any]:
        """The chunks of the matches as they would be executed now, and the demonstration's own actions."""
        robot, config, t = self.library.robot(), retriever.config, told.query.t
        refs = [match.ref for match in told.retrieval.matches]
        features = features_of(robot.act, episode.actions.shape[1], "action")
        if not refs or episode.actions.shape[1] != robot.act.size:
            return {"chunk": None}
        carried: list[F64] = []
        proprio: list[F64] = []
        try:
            for match in told.retrieval.matches:
                seen = moment_at(episode, t, match.symmetry_index)
                given = build_conditioning(view, [match.ref], seen, t, config, robot)
                for found, body, rows in (
                    (carried, robot.act, given.actions[0]),
                    (proprio, robot.body, given.proprio[0]),
                ):
                    out = rows.astype(np.float64)
                    out = out if config.aligner.in_world else body.out_of(given.frame, out)
                    out[~given.valid[0]] = np.nan  # no values after a demonstration's end
                    found.append(out)
        except RecapError as error:
            return {"chunk": None, "chunk_problem": " ".join(str(error).split())}
        shown = np.full((config.chunk_size, robot.act.size), np.nan)
        ahead = episode.actions[t : t + config.chunk_size]
        shown[: len(ahead)] = ahead
        groups = [
            {
                **one,
                "matches": [grouped(features, rows)[number]["lines"] for rows in carried],
            }
            for number, one in enumerate(grouped(features, shown))
        ]
        return {
            "chunk": {"fps": episode.fps, "n": config.chunk_size, "groups": groups},
            "paths": paths(robot, episode, t, proprio),
            "moved": [moved(robot, config, view.episode(ref.episode_id), ref.t, episode, t) for ref in refs],
        }


def moment_at(episode: Episode, t: int, symmetry_index: int) -> Moment:
    """A recorded frame with its past, in one of the object's symmetric poses."""
    past = slice(0, t + 1)
    return Moment(
        episode.task,
        episode.timestamps[past],
        episode.proprio[past],
        {name: poses[past] for name, poses in episode.objects.items()},
        episode.goal,
        episode.images,
        episode.context,
        symmetry_index,
    )


class Newest:
    """A library as a pool source."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def view(self) -> PoolView:
        """The newest version."""
        return self._library.view()


def _match(view: PoolView, match: Match) -> dict[str, Any]:
    episode = view.episode(match.ref.episode_id)
    return {
        "id": episode.id,
        "t": match.ref.t,
        "n": len(episode),
        "task": episode.task,
        "distance": match.distance,
        "total": sum(match.costs.values()),
        "costs": dict(match.costs),
        "cameras": [*episode.images],
    }


def paths(
    robot: RobotSpec, episode: Episode, t: int, proprio: Sequence[F64]
) -> dict[str, list[list[list[float]]]]:
    """Camera -> for each match the path of each tool, as shares of the picture's width and height."""
    found: dict[str, list[list[list[float]]]] = {}
    for camera, frames in episode.images.items():
        try:
            refuse_uncalibrated(camera, robot)
            size = np.asarray(frames[t]).shape[:2]
            lens = camera_at(camera, robot, episode.proprio[t], size)
        except (RecapError, KeyError):
            continue
        lines: list[list[list[float]]] = []
        for rows in proprio:
            own: list[list[float]] = []
            for tool in tools_of(robot):
                rows_xyz = rows[:, tool.proprio : tool.proprio + 3]
                pixels, ahead = lens.project(rows_xyz[np.isfinite(rows_xyz).all(axis=1)])
                own.append([round(float(x), 4) for x in (pixels[ahead] / [size[1], size[0]]).ravel()])
            lines.append(own)
        found[camera] = lines
    return found


def moved(
    robot: RobotSpec, config: RetrievalConfig, shown: Episode, at: int, episode: Episode, t: int
) -> str | None:
    """The match's scene, transformed to the current frame and drawn if a suite can do so; a data URL."""
    aligner = config.aligner
    if aligner.in_world:
        return None
    try:
        own, here = aligner.frame(shown, at), aligner.frame(episode, t)
        if len(own) != 3:
            return None

        def carry(pose: F64) -> F64:
            placed = robot.body.out_of(here, robot.body.into(own, pose[None]))
            return np.asarray(placed[0])

        turn = here[2] - own[2]
        objects = {name: _pose(own, here, turn, poses[at : at + 1]) for name, poses in shown.objects.items()}
        one = replace(
            shown,
            timestamps=np.zeros(1),
            proprio=carry(shown.proprio[at].astype(np.float64))[None].astype(np.float32),
            actions=shown.actions[at : at + 1],
            objects=objects,
            goal=None if shown.goal is None else _pose(own, here, turn, shown.goal[None])[0],
            images={},
        )
        drawn = (suite.draw(one, MOVED_SIZE) for suite in suites().values())
        frames = next((found for found in drawn if found is not None), None)
    except (RecapError, ValueError, IndexError, KeyError):
        return None
    return None if frames is None else "data:image/png;base64," + b64encode(encode_png(frames[0])).decode()


def _pose(own: F64, here: F64, turn: float, poses: F32) -> F32:
    """Planar poses (n, 3) transformed from one frame to another; other poses are unchanged."""
    from recap.geometry import into_frame, out_of_frame

    if poses.shape[1] != 3:
        return poses
    out = np.array(poses, np.float64)
    out[:, :2] = out_of_frame(here, into_frame(own, out[:, :2]))
    out[:, 2] += turn
    return out.astype(np.float32)
