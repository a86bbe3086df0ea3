"""Run a served policy with LeRobot's tools: lerobot-eval, and lerobot-rollout with the simulated robot.

    python research/scripts/lerobot_run.py --venv .lerobot-venv --episodes 50 --rollouts 5

A missing environment is created (Python 3.12; about 12 minutes and 6 GB), with LeRobot 0.6.1, recap-client
and the two plugins of this repository. Environments of `lerobot-eval`, which is LeRobot's own PushT, have the
seeds 500, 501, …; so have rollouts. Results are written to a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from recap.cli.one_line import run_script
from recap.errors import InputError
from recap.evaluation.statistics import wilson

ROOT = Path(__file__).parents[2]
LEROBOT = "lerobot[dataset,evaluation,pusht,async,viz]==0.6.1"
OURS = ("client", "integrations/lerobot_policy_recap", "integrations/lerobot_robot_recap_sim")
SEED = 500


def make_environment(venv: Path, python: str) -> None:
    """Install LeRobot, and always our three packages in their current state."""
    if not (venv / "bin" / "lerobot-eval").exists():
        print(f"Installing LeRobot into {venv} (about 12 minutes, 6 GB) …", flush=True)
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "-q", LEROBOT], check=True)
    packages = [str(ROOT / place) for place in OURS]
    pip = [venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--force-reinstall", "--no-deps", *packages], check=True)
    subprocess.run([*pip, *packages], check=True)


@contextmanager
def serving(policy: str, out: Path) -> Iterator[str]:
    """Run `recap serve` in the background; LeRobot's pusher is a disc."""
    with closing(socket.create_server(("127.0.0.1", 0))) as peer:
        port = peer.getsockname()[1]
    command = [sys.executable, "-m", "recap", "serve", policy, "--env.pusher", "disc", "--port", str(port)]
    with (out / "serve.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            for _ in range(240):
                if server.poll() is not None:
                    raise InputError(f"recap serve ended: see {out / 'serve.log'}")
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
                    break
                except (urllib.error.URLError, TimeoutError):
                    time.sleep(0.5)
            yield f"ws://127.0.0.1:{port}"
        finally:
            server.terminate()


def tool(venv: Path, out: Path, log: str, *words: str) -> None:
    """Run a command of LeRobot, or ours, in its environment."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    with (out / f"{log}.log").open("a") as file:
        ran = subprocess.run(
            [venv / "bin" / words[0], *words[1:]], env=environment, cwd=out, stdout=file, stderr=file
        )
    if ran.returncode:
        raise InputError(f"{words[0]} ended with {ran.returncode}: see {out / log}.log")


def rate(successes: list[bool]) -> dict[str, Any]:
    """Counts with Wilson's interval."""
    interval = wilson(sum(successes), len(successes))
    return {"successes": sum(successes), "n": len(successes), "low": interval.low, "high": interval.high}


def evaluate(venv: Path, out: Path, n: int, batch: int) -> dict[str, Any]:
    """`lerobot-eval` on LeRobot's own PushT: pixels 96x96 and the pusher's position."""
    words = ["--policy.path=checkpoint", "--env.type=pusht", f"--eval.n_episodes={n}", f"--seed={SEED}"]
    words += [f"--eval.batch_size={batch}", "--eval.use_async_envs=false", "--output_dir=eval"]
    tool(venv, out, "eval", "lerobot-eval", *words)
    info = json.loads((out / "eval" / "eval_info.json").read_text("utf-8"))
    metrics = info["per_task"][0]["metrics"]
    lost = [SEED + i for i, won in enumerate(metrics["successes"]) if not won]
    mean = sum(metrics["max_rewards"]) / n
    return {**rate(metrics["successes"]), "failed_seeds": lost, "mean_max_reward": mean}


def roll_out(venv: Path, out: Path, n: int, url: str, rate_hz: float | None) -> dict[str, Any]:
    """`lerobot-rollout`, or `recap-client run` at a rate, with the simulated robot; one episode per seed."""
    name = "rollout" if rate_hz is None else "client"
    for seed in range(SEED, SEED + n):
        if rate_hz is not None:
            words = ["recap-client", "run", "--robot", "lerobot:recap_sim", "--url", url, "--steps", "300"]
            words += ["--robot.seed", str(seed), "--robot.report", f"{name}.jsonl", "--seed", str(seed)]
            words += ["--rate", str(rate_hz), "--json", f"client-{seed}.json"]
        else:
            words = ["lerobot-rollout", "--strategy.type=base", "--policy.path=checkpoint"]
            words += ["--robot.type=recap_sim", f"--robot.seed={seed}", f"--robot.report={name}.jsonl"]
            words += [
                "--fps=10",
                "--duration=45",
                "--return_to_initial_position=false",
                "--play_sounds=false",
            ]
        tool(venv, out, name, *words)
    lines = [json.loads(line) for line in (out / f"{name}.jsonl").read_text("utf-8").splitlines()]
    figures = {**rate([bool(line["is_success"]) for line in lines]), "episodes": lines}
    if rate_hz is not None:
        runs = [json.loads(file.read_text("utf-8")) for file in sorted(out.glob("client-*.json"))]
        figures["rate_hz"] = rate_hz
        figures["latency_p50_ms"] = [round(run["latency_p50_ms"]) for run in runs]
        figures["missed_share"] = sum(run["misses"] for run in runs) / sum(run["periods"] for run in runs)
    return figures


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=Path(".lerobot-venv"))
    parser.add_argument("--python", default="python3.12", help="to make it with")
    parser.add_argument("--policy", default="pusht-nano")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--rollouts", type=int, default=5)
    parser.add_argument("--rate", type=float, default=10.0, help="Hz of recap-client; less on a slow machine")
    parser.add_argument("--out", type=Path, default=Path("runs/lerobot"))
    parser.add_argument("--json", type=Path, help="where the figures go  [default: in --out]")
    given = parser.parse_args()
    venv, out = given.venv.absolute(), given.out.absolute()
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty: give another --out")
    out.mkdir(parents=True, exist_ok=True)
    make_environment(venv, given.python)
    figures: dict[str, Any] = {
        "lerobot": LEROBOT.partition("==")[2],
        "policy": given.policy,
        "first_seed": SEED,
    }
    with serving(given.policy, out) as url:
        tool(venv, out, "checkpoint", "lerobot-policy-recap", "checkpoint", "--url", url)
        if given.episodes:
            figures["eval"] = evaluate(venv, out, given.episodes, given.batch)
            print("lerobot-eval:", figures["eval"], flush=True)
        if given.rollouts:
            figures["rollout"] = roll_out(venv, out, given.rollouts, url, None)
            print("lerobot-rollout:", figures["rollout"], flush=True)
            figures["client"] = roll_out(venv, out, given.rollouts, url, given.rate)
            print("recap-client run:", figures["client"], flush=True)
    file = given.json or out / "lerobot.json"
    file.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    print(f"Figures: {file}")


if __name__ == "__main__":
    run_script(main)
