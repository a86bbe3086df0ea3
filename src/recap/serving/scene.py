"""The scene of a server: the options of its suite, and estimation of poses that clients do not send."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from recap.errors import InputError
from recap.features.estimators import RECORDED, estimator_of, with_poses
from recap.retrieval.explain import observation_at
from recap.robot import RobotSpec
from recap.suites import Options, PoseEstimator, Suite
from recap.types import NO_CONTEXT, Episode, Requires, TaskContext


@dataclass(frozen=True)
class Scene:
    """Context and pose estimators from a suite, or without one from the robot's description."""

    suite: Suite | None
    robot: RobotSpec
    options: Options  # defaults, which a reset can change

    def check(self, options: Options | None) -> None:
        """Refuse options of a reset that the suite does not have."""
        if options and self.suite is None:
            raise InputError("this server takes no options: send reset without them")
        if options and self.suite is not None:
            self.suite.check(options)

    def context(self, options: Options) -> TaskContext:
        """The context that observations do not show."""
        if self.suite is None:
            return NO_CONTEXT
        merged = {**self.options, **options}
        self.suite.check(merged)
        return self.suite.context(merged)

    def estimates(self, requires: Requires) -> bool:
        """True if missing poses can be estimated from images."""
        named = [self.robot.objects.get(name) for name in requires.objects]
        found = any(o is not None and o.source != RECORDED for o in named)
        if found and self.suite is None:
            estimator_of(self.robot)  # refuses an unusable estimator before a client connects
        return found

    def estimator(self, options: Options) -> PoseEstimator | None:
        if self.suite is None:
            return estimator_of(self.robot)
        return self.suite.estimator({**self.options, **options})

    def complete(self, episode: Episode, requires: Requires) -> Episode:
        """Add the poses that retrieval needs to a demonstration, estimated from its images if not sent."""
        if not episode.images or requires.missing(episode.objects, episode.goal) is None:
            return episode
        if self.suite is None:
            return with_poses(episode, self.robot)
        known = {name: episode.attributes[name] for name in self.suite.options if name in episode.attributes}
        estimator = self.suite.estimator({**self.options, **known})
        seen = [estimator.estimate(observation_at(episode, t)) for t in range(len(episode))]
        found = {
            name: np.array([o.objects[name] for o in seen], np.float32)
            for name in requires.objects
            if all(name in o.objects for o in seen)
        }
        goal = seen[0].goal if episode.goal is None else episode.goal
        goal = None if goal is None else np.asarray(goal, np.float32)
        return replace(episode, objects={**found, **episode.objects}, goal=goal)
