"""Runs the demo: roll out, append, roll out again, film and report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig, assemble_agent
from recap.errors import InputError, RecapError
from recap.evaluation.film import CRF, Recorder, Shown, Trace, compose, make_reel, still
from recap.evaluation.rollouts import run_trials
from recap.evaluation.summary import succeeded
from recap.pictures import write_png
from recap.policies.checkpoint import WEIGHTS, find_checkpoint, from_pretrained, n_parameters
from recap.policies.policy import TrainedPolicy
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.retrieval.explain import observation_at
from recap.retrieval.retriever import Retriever
from recap.retrieval.subtrajectories import source_frame
from recap.run_directory import hold_run_directory, write_whole
from recap.types import EpisodeResult, Query
from recap.video import write_video
from recap_apps.demo.report import EMPTY_POOL, FILM, PAGE, RESULTS, STILL, page
from recap_apps.demo.spec import KEYS, LEARNER, Absorbed, DemoResult, DemoSpec, Stage, best_coverage, gain
from recap_apps.demo.teaching import Progress, collect
from recap_apps.fitting import refuse_other_robot
from recap_worlds.pusht.suite import context_of
from recap_worlds.pusht.tasks import FPS, angle_key

POOL = "pool"
N_PROBES = 50  # layers; they take about 0.1 s


@contextmanager
def _no_bar(what: str) -> Iterator[Progress]:
    yield lambda done, total: None


def _say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True)
class Voice:
    """How the demo prints messages and progress."""

    say: Callable[[str], None] = _say_nothing
    bar: Callable[[str], AbstractContextManager[Progress]] = _no_bar


def run_demo(spec: DemoSpec, out: Path, workers: int = 1, voice: Voice | None = None) -> DemoResult:
    """Run the demo, and write the page with film and numbers to `out`; an older demo there is replaced."""
    voice = voice or Voice()
    started = time.perf_counter()
    policy = load_policy(spec)
    with hold_run_directory(out, {"kind": "recap demo"}), _threads(workers):
        run = _Run(spec, policy, empty_pool(out / POOL), workers, voice)
        result = run.show()
        _film(result, run, out)
        result = replace(result, wall_s=time.perf_counter() - started)
        write_whole(out / RESULTS, json.dumps(result.to_json(), indent=1) + "\n")
        write_whole(out / PAGE, page(result, str(out / POOL)))
    return result


def load_policy(spec: DemoSpec) -> TrainedPolicy:
    """The policy; one that does not retrieve is an error."""
    policy = from_pretrained(spec.policy)
    if not policy.config.retrieval:
        raise InputError(
            f"policy '{spec.policy}' does not retrieve, so appended demonstrations are nothing to it: "
            "give another --policy"
        )
    refuse_other_robot(spec.policy, policy.config.robot)
    return policy


def empty_pool(path: Path) -> Pool:
    """A new pool, or that of an older demo, emptied; its old contents stay in its history."""
    if not path.exists():
        return Pool.create(path)
    pool = Pool.open(path)
    pool.remove(pool.ids())
    for name in pool.files.names("derived"):
        pool.files.remove(name)  # otherwise derived data of the older demo would shorten the measured times
    return pool


class _Run:
    """The state of one demo."""

    def __init__(self, spec: DemoSpec, policy: TrainedPolicy, pool: Pool, workers: int, voice: Voice) -> None:
        self.spec, self.policy, self.pool = spec, policy, pool
        self.workers, self.voice = workers, voice
        self.context = context_of(spec.block, LEARNER)
        # The same agent at every stage; it also acts with an empty pool.
        config = AgentConfig(spec.policy, reaction="ignore")
        self.agent = assemble_agent(config, pool, policy, context=self.context)
        self.retriever = self.agent.retriever
        self.traces: list[list[Trace]] = []  # for each stage, by seed

    def _replay(self) -> RetrievalAgent:
        """An agent that executes the retrieved chunks with the policy's settings, without its network."""
        return RetrievalAgent(
            self.retriever,
            n_action_steps=self.agent.n_action_steps,
            robot=self.policy.config.robot,
            context=self.context,
            reaction="ignore",
        )

    def show(self) -> DemoResult:
        """Run all stages."""
        spec, policy, say = self.spec, self.policy, self.voice.say
        first, count = policy.fingerprint, n_parameters(policy)
        n_bytes = (find_checkpoint(spec.policy) / WEIGHTS).stat().st_size
        say(
            f"Policy {spec.policy}: {sum(count.values()) / 1e6:.1f} M parameters, {n_bytes / 1e6:.0f} MB, "
            f"fingerprint {first}; from here on it is frozen."
        )
        task = f"the {spec.block} at {angle_key(spec.angle)}°, {spec.n_seeds} starts"
        say(f"Task: {task}. Pool {self.pool.uri}: no demonstrations yet.")
        say(EMPTY_POOL)
        stages = [self._stage(None, 0)]
        say(_standing(stages, spec))
        for addition in range(len(spec.additions)):
            absorbed = self._append(addition)
            stages.append(self._stage(absorbed, stages[-1].n_demonstrations + len(absorbed.ids)))
            say(_standing(stages, spec))
        vars(policy).pop("fingerprint")  # cached, so remove it to compute it again
        last = policy.fingerprint
        if last != first:
            raise RecapError(f"the weights have changed, from {first} to {last}: report this")
        say(f"Fingerprint of the weights: {last}, as before. Nothing was trained.")
        return DemoResult(spec, (first, last), count, n_bytes, tuple(stages), film_seed(stages))

    def _append(self, addition: int) -> Absorbed:
        """Collect demonstrations, add them to the pool, and time the first retrieval that uses them."""
        spec = self.spec.collection(addition, self.policy.config.image.camera_size)
        started = time.perf_counter()
        with self.voice.bar(f"{spec.per_angle} demonstrations") as progress:
            episodes = collect(spec, self.workers, progress)
        collect_s = time.perf_counter() - started
        now = observation_at(episodes[0], 0)
        query = Query((now,), now, self.context)
        # First in memory, so that numba's compilation is not included in the measured time.
        Retriever(MemoryPool(episodes), self.retriever.describer, self.retriever.config).retrieve(query)
        began = time.perf_counter()
        version = self.pool.add(episodes)
        added = time.perf_counter()
        found = self.retriever.retrieve(query)
        used = time.perf_counter()
        ids = tuple(episode.id for episode in episodes)
        view = self.retriever.view_of(found)
        if not found.matches or source_frame(view, found.matches[0].ref).episode_id not in ids:
            raise RecapError(f"pool {self.pool.uri} does not answer with what was added: report this")
        absorbed = Absorbed(ids, collect_s, 1000 * (added - began), 1000 * (used - added), version)
        self.voice.say(
            f"The disc shows {len(ids)} demonstrations (collected in {collect_s:.1f} s). Absorbed in "
            f"{absorbed.total_ms:.0f} ms: {absorbed.add_ms:.0f} until safe on disk, "
            f"{absorbed.use_ms:.0f} until retrieved."
        )
        return absorbed

    def _stage(self, absorbed: Absorbed | None, n_demonstrations: int) -> Stage:
        """Roll out the policy, then replay, with the current pool."""
        what = f"{n_demonstrations} demonstrations: "
        policy, traces = self._roll_out(self.agent, what + "policy")
        replay, _ = self._roll_out(self._replay(), what + "replay")
        self.traces.append(traces)
        refs = [ref for trace in traces for plan in trace.plans if plan for ref in plan.conditioning.refs]
        view = self.retriever.source.view()
        retrieved = tuple(sorted({source_frame(view, ref).episode_id for ref in refs}))
        return Stage(n_demonstrations, policy, replay, retrieved, absorbed)

    def _roll_out(self, agent: RetrievalAgent, what: str) -> tuple[tuple[EpisodeResult, ...], list[Trace]]:
        """Roll out all seeds in parallel, so that the policy processes them in one batch."""
        spec, max_steps = self.spec.evaluation(), self.spec.max_steps
        trials = spec.trials()
        n_all, n_done = len(trials) * (max_steps + 1), 0
        results: list[EpisodeResult] = []
        with self.voice.bar(what) as progress:

            def report(n: int) -> None:
                nonlocal n_done
                n_done += n
                progress(n_done, n_all)

            recorder = Recorder(agent, report)
            for result in run_trials(agent, spec, trials, len(trials), recorder):
                if result.outcome == "error":
                    why = (result.error or "").strip().splitlines()[-1:]
                    raise RecapError(f"the rollout of seed {result.seed} failed: {''.join(why)}")
                report(max_steps - result.steps)  # steps that were not needed
                results.append(result)
        return tuple(sorted(results, key=lambda r: r.seed)), recorder.traces()


def film_seed(stages: Sequence[Stage]) -> int:
    """The start to film: a gained one, if possible at the last threshold; otherwise the most improved one."""
    for key in reversed(KEYS):
        if gained := gain(stages[0], stages[-1], key).gained:
            return gained[0]
    pairs = zip(stages[0].policy, stages[-1].policy, strict=True)
    return max(pairs, key=lambda pair: best_coverage(pair[1]) - best_coverage(pair[0]))[1].seed


def _standing(stages: Sequence[Stage], spec: DemoSpec) -> str:
    """The result of the last stage in one line."""
    stage = stages[-1]
    policy, replay = ([stage.rate(key, replay=r).k for key in KEYS] for r in (False, True))
    line = (
        f"{stage.n_demonstrations} demonstrations: of {spec.n_seeds} starts the policy solves "
        f"{policy[0]} past {KEYS[0]} and {policy[1]} past {KEYS[1]}; replay with its settings "
        f"{replay[0]} and {replay[1]}"
    )
    if len(stages) > 1:
        found = gain(stages[-2], stage, KEYS[0])
        line += f" (gained {len(found.gained)}, lost {len(found.lost)} past {KEYS[0]})"
    return line + "."


def _film(result: DemoResult, run: _Run, out: Path) -> None:
    """Write the video of one start before and after, and its still."""
    spec, stages = result.spec, result.stages
    at = spec.seeds.index(result.film_seed)
    reels = []
    with run.voice.bar("film") as progress:
        for done, i in enumerate((0, len(stages) - 1)):
            progress(done, 3)
            episode = stages[i].policy[at]
            reel = make_reel(run.traces[i][at], run.agent)
            label = (
                f"after: {stages[i].n_demonstrations} demonstrations" if i else "before: the weights alone"
            )
            ending = f"best coverage {best_coverage(episode):.2f}"
            reels.append(Shown(label, ending, succeeded(episode, KEYS[0]), reel))
        progress(2, 3)
        write_video(out / FILM, compose(reels), 2 * FPS, crf=CRF)
        write_png(out / STILL, still(reels))
        progress(3, 3)


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Within the block torch uses `most` cores or one, whichever is faster."""
    import torch

    before = torch.get_num_threads()
    # Threads wait for each other at every layer: if other programs run, one thread is much faster.
    torch.set_num_threads(min({1, most}, key=_probe))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _probe(n_threads: int) -> float:
    """Time of a few layers with this number of threads."""
    import torch

    torch.set_num_threads(n_threads)
    rows, weights = torch.ones(1024, 256), torch.ones(1024, 256)
    torch.nn.functional.linear(rows, weights)  # the first call starts the threads
    started = time.perf_counter()
    for _ in range(N_PROBES):
        torch.nn.functional.linear(rows, weights)
    return time.perf_counter() - started
