"""The expert in the role of a person who watches a policy and corrects it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.geometry import wrap_angle
from recap.types import F64, Observation
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.tasks import THRESHOLDS

NO_PROGRESS = 40  # steps after which the person takes over
MIN_PROGRESS = 5.0  # px that count as progress
TURN_PX = 60.0  # px per radian of the block's rotation
MAX_STEPS = 80  # of a correction


def left(seen: Observation) -> float:
    """The block's distance from its goal, px."""
    block, goal = seen.objects["block"], seen.goal
    assert goal is not None
    return float(np.hypot(*(block[:2] - goal[:2])) + TURN_PX * abs(wrap_angle(float(block[2] - goal[2]))))


@dataclass
class Corrector:
    """Takes over if there is no progress, and returns control when half of the remaining distance is done.

    The remaining distance is the block's distance from the goal in px, plus 60 px per radian of rotation. The
    person takes over if it has not decreased by 5 px in the last 40 steps. The policy continues when it is
    half of its value at the takeover, when coverage exceeds 0.95, or after 80 steps.
    """

    expert: Expert
    least: float = np.inf
    since: int = 0  # steps without progress
    driving: int = 0  # steps since the takeover; 0: the policy drives
    at_takeover: float = 0.0

    def takeover(self, seen: Observation, coverage: float) -> F64 | None:
        """The person's action; None while the policy drives."""
        now = left(seen)
        if self.driving:
            enough = now <= self.at_takeover / 2 or self.driving >= MAX_STEPS
            if enough or coverage > THRESHOLDS[-1]:
                self.driving, self.least, self.since = 0, now, 0
                return None
        else:
            progress = now < self.least - MIN_PROGRESS
            self.least, self.since = (now, 0) if progress else (self.least, self.since + 1)
            if self.since < NO_PROGRESS:
                return None
            self.at_takeover = now
            self.expert.reset(0)
        self.driving += 1
        return self.expert.act(seen)
