"""Policies compared with replay at their own settings, start by start, from the runs of any plan.

    python research/benchmarks/controls.py keep runs/controls runs/lease  # every episode, into outcomes.json
    python research/benchmarks/controls.py compare                        # from that file, into controls.json
    python research/benchmarks/controls.py restore runs/evidence          # run directories, for recap report

Both files are in docs/results. Next to this script, controls.json lists the comparisons and
controls_report.json the parts of the report; controls_page.py makes docs/evidence.html of them. `keep` writes
one digit per episode: 0 failed, 1 past the first threshold, 2 past the second, ! ended in an error. So a
control that is run later can still be paired with a policy whose weights are gone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from recap.assembly import REPLAY, AgentConfig
from recap.errors import InputError
from recap.evaluation.run_directory import INFO, open_run, read_info, read_provenance
from recap.evaluation.settings import SETTINGS, differences
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.summary import summarise
from recap.evaluation.worlds import find_suite
from recap.run_directory import write_whole
from recap.types import EpisodeResult
from recap_research.report.files import MANIFEST
from recap_research.training_seeds import Rolled, gain_of, share_of
from recap_worlds.pusht.tasks import MAX_STEPS, angle_key

RESULTS = Path(__file__).parents[2] / "docs/results"
OUTCOMES, CONTROLS = RESULTS / "outcomes.json", RESULTS / "controls.json"
ROWS = Path(__file__).with_suffix(".json")  # the comparisons
ERROR = "!"
AGENT_KEYS = tuple(f.name for f in fields(AgentConfig) if f.name not in ("policy", "retrieval"))
SPEC_KEYS = tuple(f.name for f in fields(EvalSpec))
# Old names in runs recorded before suites and robots were renamed.
RETRIEVALS = {
    "pusht-single": "pusht-world",
    "pusht-oracle": "pusht-world-oracle",
    "pusht-aligned": "pusht-object",
    "dualarm-single": "dualarm-world",
    "dualarm-aligned": "dualarm-parts",
}
ALIGNERS = {"off": "world"}
KEYS = {"hindsight": "subtrajectories", "half_at": "residual_halflife"}


def read_outcomes() -> dict[str, Any]:
    """The kept outcomes with today's names of settings; the file itself is not changed."""
    body: dict[str, Any] = json.loads(OUTCOMES.read_text("utf-8"))
    for entry in body["runs"].values():
        entry["config"] = today(entry["config"])
    body["settings"] = {key: None if old is None else today(old) for key, old in body["settings"].items()}
    return body


def today(old: Mapping[str, Any]) -> dict[str, Any]:
    """A spec, or the settings of an agent, converted to today's names."""
    if isinstance(old.get("agent"), dict) or ("agent" not in old and "retrieval.align" not in old):
        return dict(old)
    if "agent" not in old:  # these are an agent's settings
        gone = ("retrieval.align", "retrieval.object_name", "retrieval.round_objects", "retrieval.contact")
        new = {key.replace("half_at", KEYS["half_at"]): v for key, v in old.items() if key not in gone}
        align = old["retrieval.align"]
        new["retrieval"] = RETRIEVALS.get(old["retrieval"], old["retrieval"])
        new["retrieval.aligner"] = "contact" if old["retrieval.contact"] else ALIGNERS.get(align, align)
        arms = new["retrieval"].startswith("dualarm-")
        return {**new, "retrieval.auto_scale": False, "retrieval.n_action_steps": 8 if arms else None}
    env, trained = old["env"], old["agent"] != REPLAY or old["settings_of"] is not None
    agent = {KEYS.get(key, key): value for key, value in old.items()}
    agent = {key: agent[key] for key in AGENT_KEYS if key in agent} | {"policy": old["agent"]}
    if not trained:
        own = f"{env}-{old['mode']}"
        agent["retrieval"] = RETRIEVALS.get(own, own).removeprefix(f"{env}-")
    new = {key: old[key] for key in SPEC_KEYS if key in old}
    new["options"] = {key: old[key] for key in find_suite(env).options}
    new["tasks"] = old["tasks"] if "tasks" in old else [angle_key(angle) for angle in old["angles"]]
    new["max_steps"] = None if old.get("max_steps") == MAX_STEPS else old.get("max_steps")
    new["pose_noise"] = [old.get("pose_noise_px", 0.0), old.get("pose_noise_deg", 0.0)]
    return {**new, "agent": agent}


def pack(spec: EvalSpec, results: Sequence[EpisodeResult]) -> dict[str, str]:
    """One line per goal or task, with one digit per start in the order of the seeds."""
    thresholds = [threshold_key(t) for t in spec.thresholds]
    found = {(r.task, r.seed): r for r in results}

    def digit(result: EpisodeResult) -> str:
        passed = sum(result.first_step[t] is not None for t in thresholds)
        return ERROR if result.outcome == "error" else str(passed)

    return {task: "".join(digit(found[task, seed]) for seed in spec.seeds) for task in spec.task_keys}


def unpack(entry: Mapping[str, Any]) -> Rolled:
    """The spec and the results, as far as they were kept."""
    spec = EvalSpec.from_json(entry["config"])
    thresholds = [threshold_key(t) for t in spec.thresholds]
    results = []
    for task, digits in entry["outcomes"].items():
        for seed, digit in zip(spec.seeds, digits, strict=True):
            passed = 0 if digit == ERROR else int(digit)
            outcome = "error" if digit == ERROR else "success" if passed == len(thresholds) else "failure"
            steps = {t: 1 if i < passed else None for i, t in enumerate(thresholds)}  # step unknown
            best = {spec.suite.metric: 0.0}
            results.append(EpisodeResult(task, seed, outcome, 1, best, steps))  # type: ignore[arg-type]
    return spec, results


def keep(folders: Iterable[Path]) -> None:
    """Add the runs below these folders to the file, under the names `plan/name`."""
    body = json.loads(OUTCOMES.read_text("utf-8")) if OUTCOMES.exists() else {"settings": {}, "runs": {}}
    for info in sorted(info for folder in folders for info in folder.rglob(INFO)):
        run = info.parent
        spec, results = read_info(run)
        settings = read_provenance(run).get(SETTINGS)
        text = json.dumps(settings, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        body["settings"][key] = settings
        plan = run.parent.parent.name if run.parent.name == "evaluations" else run.parent.name
        origin = {k: v for k, v in read_provenance(run).items() if k != SETTINGS}
        config = spec.to_json()
        del config["agent"]["device"]
        config["pool"] = config["pool"] and Path(config["pool"]).name
        told = {"config": config, "settings": key, **origin, "outcomes": pack(spec, results)}
        body["runs"][f"{plan}/{run.name}"] = told
    lines = [f"  {json.dumps(name)}: {json.dumps(run)}" for name, run in sorted(body["runs"].items())]
    known = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(body["settings"].items())]
    text = "{\n" + f' "settings": {{\n{_joined(known)}\n }},\n "runs": {{\n{_joined(lines)}\n }}\n' + "}\n"
    write_whole(OUTCOMES, text)
    print(f"{len(body['runs'])} runs in {OUTCOMES}")


def _joined(lines: Sequence[str]) -> str:
    return ",\n".join(lines)


def restore(folder: Path) -> None:
    """Write run directories of the kept outcomes, and the report.json."""
    body = read_outcomes()
    for name, entry in body["runs"].items():
        spec, results = unpack(entry)
        origin = {key: entry[key] for key in entry if key not in ("config", "settings", "outcomes")}
        settings = body["settings"][entry["settings"]]
        with open_run(folder / name, spec) as run:
            for result in results:
                run.append(result)
            run.write_info(summarise(spec, results).to_json(), {**origin, SETTINGS: settings})
    (folder / MANIFEST).write_text(ROWS.with_name("controls_report.json").read_text("utf-8"), "utf-8")


@dataclass(frozen=True)
class Row:
    """A policy and its controls, by the names of their runs."""

    part: str
    what: str
    policy: list[str]  # one run per training
    same: str  # replay with the policy's settings
    plain: str | None = None  # replay with its own settings
    group: str = "unseen"


def compare() -> None:
    """Pair every row. A control with other settings than its policy is an error."""
    body = read_outcomes()
    runs, settings = body["runs"], body["settings"]
    found = []
    for row in (Row(**entry) for entry in json.loads(ROWS.read_text("utf-8"))):
        missing = [name for name in (*row.policy, row.same) if name not in runs]
        if missing:
            print(f"left out, not run: {', '.join(missing)}")
            continue
        check(row, runs, settings)
        found.append(_compared(row, runs))
    write_whole(CONTROLS, json.dumps({"rows": found}, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(found)} comparisons in {CONTROLS}")


def check(row: Row, runs: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise an error if the control has other settings than its policy."""
    control = EvalSpec.from_json(runs[row.same]["config"]), settings[runs[row.same]["settings"]]
    for name in row.policy:
        policy = EvalSpec.from_json(runs[name]["config"]), settings[runs[name]["settings"]]
        # Only settings that both have are compared.
        differ = set(differences(control, policy).of_the_run) - {"tasks", "seeds"}
        if differ:
            raise InputError(f"{row.same} is no equal control of {name}: {', '.join(sorted(differ))} differ")


def _compared(row: Row, runs: Mapping[str, Any]) -> dict[str, Any]:
    ours = [unpack(runs[name]) for name in row.policy]
    sides = {"same": row.same} | ({} if row.plain is None else {"plain": row.plain})
    told: dict[str, Any] = {"part": row.part, "what": row.what, "group": row.group, "trainings": len(ours)}
    told["runs"] = {"policy": list(row.policy), **sides}
    told["thresholds"] = {}
    for threshold in map(threshold_key, ours[0][0].thresholds):
        cell: dict[str, Any] = {}
        for side, name in sides.items():
            other = _on_the_starts_of(ours[0], unpack(runs[name]))
            cell[side] = _told([other], row.group, threshold)
            gain = gain_of(ours, [other], row.group, threshold)
            assert gain is not None
            cell[f"over_{side}"] = {
                "difference": gain.difference,
                "interval": gain.interval,
                "text": str(gain),
            }
        cell["policy"] = _told(ours, row.group, threshold)
        told["thresholds"][threshold] = cell
    return told


def _on_the_starts_of(run: Rolled, other: Rolled) -> Rolled:
    """The episodes of the other run that this run also has."""
    wanted = {(r.task, r.seed) for r in run[1]}
    return other[0], [r for r in other[1] if (r.task, r.seed) in wanted]


def _told(runs: Sequence[Rolled], group: str, threshold: str) -> dict[str, Any]:
    share = share_of(runs, group, threshold)
    assert share is not None
    counts = [round(rate * share.n) for rate in share.models]
    return {"successes": counts, "n": share.n, "interval": share.interval, "text": str(share)}


def main() -> None:
    """Run `keep`, `compare` or `restore`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("keep").add_argument("folders", nargs="+", type=Path)
    actions.add_parser("compare")
    actions.add_parser("restore").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.action == "keep":
        keep(options.folders)
    elif options.action == "compare":
        compare()
    else:
        restore(options.folder)
        print(f"Next: recap report {options.folder} --out evidence.html")


if __name__ == "__main__":
    from recap.cli.one_line import run_script

    run_script(main)
