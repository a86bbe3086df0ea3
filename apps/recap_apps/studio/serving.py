"""The PushT studio's serve spec: a PushT policy or replay, and a live pool."""

from __future__ import annotations

from recap.assembly import REPLAY, AgentConfig, policy_config, refuse_unknown_policy, retrieval_name
from recap.errors import one_of
from recap.serving.spec import ServeSpec
from recap.suites import Options
from recap_apps.fitting import refuse_other_robot
from recap_apps.studio.running import PUSHER
from recap_worlds.pusht.suite import PushTSuite

CONTACT = "pusht-contact"  # a retrieval that depends on the pusher


def studio_spec(pool: str, policy: str = REPLAY, retrieval: str | None = None, port: int = 0) -> ServeSpec:
    """The serve spec; settings that PushT cannot use are errors.

    Args:
        retrieval: name, with or without `pusht-`; by default the policy's, or PushT's default.
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
