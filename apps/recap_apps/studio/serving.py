"""What the studio serves: a policy of PushT, or replay, and a pool that grows."""

from __future__ import annotations

from recap.assembly import REPLAY, AgentConfig, policy_config, refuse_unknown_policy, retrieval_name
from recap.errors import one_of
from recap.serving.spec import ServeSpec
from recap.suites import Options
from recap_apps.fitting import refuse_other_robot
from recap_apps.studio.running import PUSHER
from recap_worlds.pusht.suite import PushTSuite

CONTACT = "pusht-contact"  # the retrieval that must know who pushes


def studio_spec(pool: str, policy: str = REPLAY, retrieval: str | None = None, port: int = 0) -> ServeSpec:
    """The spec; what PushT cannot use is refused before anything is made.

    Args:
        retrieval: by name, with or without `pusht-` before it; by default the policy's, or PushT's usual one.
    """
    refuse_unknown_policy(policy)
    suite = PushTSuite()
    asked = AgentConfig(policy, retrieval=retrieval or "")
    trained = policy_config(asked)
    if trained is not None:
        refuse_other_robot(policy, trained.robot)
    name = retrieval_name(asked, suite)
    if trained is None:
        one_of("retrieval", name, tuple(suite.retrievals()))
    options: Options = {"pusher": PUSHER} if name == CONTACT else {}
    return ServeSpec(AgentConfig(policy, retrieval=name), pool, options=options, port=port)
