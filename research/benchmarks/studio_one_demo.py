"""What does a single demonstration gain? Taught as in the studio, then run from its start and from another.

python research/benchmarks/studio_one_demo.py --json docs/results/studio_one_demo.json

The expert moves the disc in place of a person, through the same teaching session. The T at +30°; a run from
another start uses the demonstration of the previous start. Without a demonstration the triangle holds still.
"""

from __future__ import annotations

from report import arguments, finish

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig, assemble_agent, load_policy
from recap.cli.one_line import run_script
from recap.evaluation.statistics import wilson
from recap.pool.memory import MemoryPool
from recap.types import Episode
from recap_apps.studio.task import DONE, SOLVED, Task
from recap_apps.studio.teaching import Teaching
from recap_worlds.pusht.expert import Expert
from recap_worlds.pusht.robot import IMAGE_SIZE, PUSHT
from recap_worlds.pusht.suite import context_of
from recap_worlds.pusht.tasks import MAX_STEPS

ANGLE = 30.0
N_STARTS, N_QUICK = 16, 3


def teach(task: Task) -> Episode:
    """One demonstration through a teaching session."""
    teaching, expert = Teaching(task), Expert("disc", task.block)
    env = task.open("disc")
    while not teaching.is_over:
        action = expert.act(env.observe())
        teaching.point(float(action[0]), float(action[1]))
        teaching.tick()
        env.step(teaching.last_action)
    return teaching.episode("one", 0, teaching.best_end())


def best_coverage(agent: RetrievalAgent, task: Task) -> float:
    """The best coverage of the triangle on the task."""
    env = task.open("triangle")
    agent.reset(0, task)
    best = env.coverage()
    for _ in range(MAX_STEPS):
        env.step(agent.act([0], [env.observe(IMAGE_SIZE)])[0])
        best = max(best, env.coverage())
        if best > DONE:
            break
    return best


def main() -> None:
    """Teach each start once, then run."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    tasks = [Task("tee", ANGLE, i) for i in range(N_QUICK if options.quick else N_STARTS)]
    shown = {task: teach(task) for task in tasks}
    others = dict(zip(tasks, [*tasks[1:], tasks[0]], strict=True))
    contact = AgentConfig(retrieval="pusht-contact")
    context = context_of("tee", "triangle")
    specs = {
        "pusht-small": AgentConfig("pusht-small"),
        "replay, same settings": AgentConfig(settings_of="pusht-small"),  # also the settings of pusht-nano
        "replay, plain, contact": contact,
        "pusht-nano": AgentConfig("pusht-nano"),
        "replay, plain, aligned": AgentConfig(retrieval="pusht-object"),
    }
    policies = {name: load_policy(spec) for name, spec in specs.items()}
    rows = {}
    for name, spec in specs.items():
        for where in ("the same start", "another start"):
            best = []
            for task in tasks:
                pool = MemoryPool([shown[task]])
                agent = assemble_agent(spec, pool, policies[name], robot=PUSHT, context=context)
                best.append(best_coverage(agent, task if where == "the same start" else others[task]))
            k, n = sum(value > SOLVED for value in best), len(best)
            low, high = wilson(k, n)
            mean = sum(best) / n
            rows[f"{name}, {where}"] = {"successes": k, "n": n, "low": low, "high": high, "mean_best": mean}
            print(f"{name}, {where}: {k}/{n} past {SOLVED}, mean best coverage {mean:.2f}", flush=True)
    finish({"rows": rows, "angle": ANGLE}, options.json)


if __name__ == "__main__":
    run_script(main)
