"""Write the tables of the pages in measured/ from the JSON files here; `--check` fails when they differ.

A table stands between `<!-- table NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recap.evaluation.statistics import Interval, rate_interval

HERE = Path(__file__).parent
PAGES = HERE / "measured"


def load(name: str) -> Any:
    """A result file."""
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def rate(cell: dict[str, Any]) -> str:
    """Counts, per cent and interval."""
    interval = Interval(cell["low"], cell["high"]).in_per_cent()
    return f"{cell['successes']}/{cell['n']} {100 * cell['successes'] / cell['n']:.1f} {interval}"


def environment() -> str:
    """Steps a second against stock."""
    rows = [
        (
            k,
            f"{r['stock_steps_per_s']:.0f}",
            f"{r['ours_steps_per_s']:.0f}",
            f"**{r['ratio']:.1f}**",
            f"{r['ratio_min']:.1f}",
        )
        for k, r in load("pusht_env")["rows"].items()
    ]
    return table(["observation", "stock, steps/s", "ours, steps/s", "ratio", "worst of 9 rounds"], rows)


def expert() -> str:
    """The expert by pusher and block."""
    data = load("pusht_expert")
    named = [(*k.split(), r) for k, r in data["rows"].items()]
    named += [("both", "tee", data["tee"]), ("both", "the others", data["others"])]
    rows = [
        (p, b, rate(r), f"{r['steps']:.0f}", f"{r['cpu_s']:.2f}", f"{r['speed']:.2f}", f"{r['bend']:.2f}")
        for p, b, r in named
    ]
    return table(["pusher", "block", "solved, % [95 %]", "steps", "CPU-s", "\\|Δa\\|", "\\|Δ²a\\|"], rows)


def still() -> str:
    """Doing nothing against the expert, from the paired comparison."""
    rows = []
    for threshold, part in load("pusht_still_expert")["b_minus_a"].items():
        for group in ("seen", "unseen"):
            pair = part[group]
            n, both, only_a, only_b = (pair[k] for k in ("n", "both", "only_a", "only_b"))
            rows.append((f"{group}, > {threshold}", f"{both + only_a}/{n}", f"{both + only_b}/{n}"))
    return table(["", "still", "expert"], rows)


def command_line() -> str:
    """Start-up time."""
    return table(
        ["", "median of 15, ms"], [(k, f"{v:.0f}") for k, v in load("cli_help")["median_ms"].items()]
    )


def vision() -> str:
    """Pose errors from pixels."""
    data = load("pusht_vision")
    rows = []
    tracked = {f"{k}, by coverage": r for k, r in data["episodes_by_coverage"].items() if "tracked" in k}
    for name, r in [*data["resets"].items(), *tracked.items()]:
        errors = [
            f"{r[k]['median']:.3f} / {r[k]['p99']:.3f}"
            for k in ("block_px", "block_deg", "goal_px", "goal_deg")
        ]
        lost = r["block_not_found"] + r["goal_not_found"] + r["block_gross"] + r["goal_gross"]
        rows.append((name, r["n"], *errors, f"{100 * lost:.1f} %", f"{r['ms']['median']:.1f}"))
    return table(
        ["images", "n", "block px", "block °", "goal px", "goal °", "gross or not found", "ms"], rows
    )


def replay(group: str) -> Callable[[], str]:
    """Replay rows of one group."""

    def rows() -> str:
        out = []
        for row in load("replay")[group]:
            cells = [rate(row["success"][g][t]) for g in ("seen", "unseen") for t in ("0.85", "0.95")]
            name = row["name"].replace(", poses truth", "").replace("pusht-9x100", "900")
            if row.get("retrieval", row.get("mode")) == "published":  # its earlier name
                name = name.replace("candidates all", "candidates 100")
            out.append((name, *cells))
        return table(["replay", "seen > 0.85", "seen > 0.95", "unseen > 0.85", "unseen > 0.95"], out)

    return rows


def stage_2() -> str:
    """Search times."""
    rows = [
        (f"{part['episodes']} × {part['frames']} frames", name, f"{r['p50']:.1f}", f"{r['p99']:.1f}")
        for part in load("retrieval")["stage_2"]
        for name, r in part["us"].items()
    ]
    return table(["pool", "what", "p50, µs", "p99, µs"], rows)


def stage_1() -> str:
    """Times and recall by pool size."""
    data = load("retrieval")["stage_1"]
    names = [k for k in data[-1] if isinstance(data[-1][k], dict)]

    def cell(part: dict[str, Any], name: str) -> str:
        if name not in part:
            return "–"
        recall = part[name].get("recall_at_5")
        return f"{part[name]['ms_p50']:.3f}" + (f" (recall {recall:.3f})" if recall is not None else "")

    rows = [(f"{part['n']:,}", *(cell(part, name) for name in names)) for part in data]
    return table(["scenes", *(f"{name}, ms" for name in names)], rows)


def scale() -> str:
    """A look, the first one and an append, by the size of the pool."""

    def cell(row: dict[str, Any], key: str) -> str:
        return f"{row[key]:.2f}" if key in row else "–"

    rows = [
        (
            f"{row['trajectories']:,} × {row['frames'] // row['trajectories']}",
            *(f"{row[name]['step_ms_p50']:.2f}" for name in ("5", "100", "all")),
            f"{row['exact_ms']:.2f}",
            cell(row, "faiss_alone_ms"),
            cell(row, "lance_ms"),
            f"{row['recall_at_1']:.3f} of {row['n_recalled']}",
            f"{row['all']['first_ms'] / 1000:.1f}",
            f"{row['append_to_visible_s']:.2f}",
            f"{row['memory_mb'] / 1000:.1f} / {row['memory_with_mapped_mb'] / 1000:.1f}",
            f"{row['build_s']:.0f}",
        )
        for row in load("scale")["rows"]
    ]
    looks = ["5", "100", "all", "every frame, search alone", "faiss alone", "Lance alone"]
    rest = ["recall@1", "first, s", "append, s", "memory, GB", "first process, s"]
    return table(["trajectories × frames", *looks, *rest], rows)


def live_scale() -> str:
    """Reading a pool on the disk, by what its view keeps."""
    keys = {
        "open_s": "open, s",
        "first_retrieve_s": "first retrieval, s",
        "memory_open_mb": "memory, opened, MB",
        "memory_mb": "memory, retrieved, MB",
        "add_s": "another process adds one, s",
        "append_to_visible_s": "append to visible, s",
        "episode_ms": "an episode, ms",
    }
    rows = [
        (
            f"{row['trajectories']:,} × {row['frames'] // row['trajectories']}",
            row["build"],
            *(f"{row[key]:g}" for key in keys),
            *(f"{row[n]['step_ms_p50']:g}" if n in row else "–" for n in ("5", "100", "all")),
        )
        for row in sorted(load("scale")["live"], key=lambda row: row["trajectories"])
    ]
    looks = [f"a later retrieval, {n} candidates, ms p50" for n in ("5", "100", "all")]
    return table(["trajectories × frames", "a view keeps", *keys.values(), *looks], rows)


def pairs() -> str:
    """Residuals of training pairs."""
    rows = [
        (
            "yes" if r["twin"] else "no",
            r["n_candidates"] or "all",
            f"{r['action_weight']:g}",
            f"{r['residual_rms_px']:.1f}",
        )
        for r in load("pairs")["rows"]
    ]
    return table(["twin allowed", "candidates", "action weight", "residual RMS, px"], rows)


def live() -> str:
    """Ten demonstrations into a running reader, and growth."""
    data = load("pool_live")
    ten = data["ten_demonstrations"]
    parts = [
        (k.removesuffix("_ms").replace("_", " "), f"{v:.0f} ms") for k, v in ten.items() if k.endswith("_ms")
    ]
    keys = (
        "bulk_episodes_per_s",
        "add_1_ms",
        "add_10_ms",
        "view_after_append_ms",
        "view_unchanged_ms",
        "cold_view_ms",
    )
    growth = [(f"{g['episodes']:,}", *(f"{g[k]:.3g}" for k in keys)) for g in data["growth"]]
    heads = ["episodes", *(k.replace("_", " ").replace(" ms", ", ms").replace(" per s", "/s") for k in keys)]
    return table(["ten demonstrations", "time"], parts) + "\n\n" + table(heads, growth)


def stress() -> str:
    """What was lost: nothing."""
    data = load("pool_stress")
    store = data["object_store"]

    def killed(part: dict[str, Any]) -> str:
        return f"{part['kills']} kills, {part['acknowledged']} demonstrations acknowledged"

    def written(part: dict[str, Any]) -> str:
        return f"{part['writers']} processes × {part['appends_each']} appends"

    rows = [
        ("kill −9 at random times", killed(data["kill"]), data["kill"]),
        ("concurrent writers, with deletes and compactions", written(data["writers"]), data["writers"]),
        ("the same on an object store", written(store["writers"]), store["writers"]),
        ("kill −9 on an object store", killed(store["kills"]), store["kills"]),
    ]
    heads = ["test", "amount", "lost, duplicated or damaged"]
    return table(heads, [(what, size, len(part["problems"])) for what, size, part in rows])


def confidence() -> str:
    """Alarms by group and rate."""
    data = load("confidence")
    rates = [str(rate) for rate in data["rates"]]
    rows = [
        (
            r["name"],
            r["n"],
            *(f"{r['alarms'][k]} ({r['binomial_95'][k][0]}…{r['binomial_95'][k][1]})" for k in rates),
        )
        for r in data["rows"]
    ]
    return table(["moments", "n", *(f"alarms at {rate}" for rate in rates)], rows)


def policies() -> str:
    """Evaluations of policies, with replay in the same protocol."""
    out = []
    for row in load("policy")["rows"]:
        groups = row["success"]
        cells = [
            rate(groups[g][t]) if g in groups else "–" for g in ("seen", "unseen") for t in ("0.85", "0.95")
        ]
        out.append((row["name"], row["seeds"], *cells))
    return table(["run", "seeds", "seen > 0.85", "seen > 0.95", "unseen > 0.85", "unseen > 0.95"], out)


def over_seeds(name: str) -> Callable[[], str]:
    """Means over training seeds, beside replay: plain and at the policy's settings, or the gain over it."""

    def rows() -> str:
        found = load(name)["rows"]
        several = len({r["threshold"] for r in found}) > 1
        body = [
            (
                f"{r['group']} > {r['threshold']}" if several else r["group"],
                r["n"],
                ", ".join(f"{100 * m:.1f}" for m in r["models"]),
                share(r["mean"], r["interval"]),
                *(
                    [f"{100 * r['plain']:.1f}", f"{100 * r['same']:.1f}"]
                    if "same" in r
                    else [f"{100 * r['against']:.1f}", share(r["gain"], r["gain_interval"], "+")]
                ),
            )
            for r in found
        ]
        beside = ["replay, plain", "replay, same settings"] if "same" in found[0] else ["replay", "gain"]
        return table(["success, %", "episodes a seed", "training seeds 0, 1, 2", "mean", *beside], body)

    return rows


def share(value: float, interval: Sequence[float], sign: str = "") -> str:
    """Per cent with its interval."""
    bounds = Interval(*interval)
    return f"{100 * value:{sign}.1f} {bounds.in_points() if sign else bounds.in_per_cent()}"


def tried() -> str:
    """What was tried on development seeds."""
    rows = [
        (r["what"], f"{r['n']}", f"{100 * r['s85']:.1f}", f"{100 * r['s95']:.1f}")
        for r in load("policy_tried")["rows"]
    ]
    return table(["what", "episodes", "> 0.85, %", "> 0.95, %"], rows)


def future() -> str:
    """The predicted future against copying the present."""
    rows = [
        (
            r["what"],
            f"{r['psnr_db']:.2f}",
            f"{r['ink_psnr_db']:.2f}",
            f"{r['block_px']:.2f}",
            f"{r['block_deg']:.2f}",
        )
        for r in load("policy_future")["rows"]
    ]
    return table(
        ["future", "PSNR, dB", "… where something changed, dB", "block, px RMS", "block, ° RMS"], rows
    )


def foresight() -> str:
    """The explained share of the change, by horizon."""
    found: dict[str, dict[int, str]] = {}
    for r in load("foresight")["rows"]:
        found.setdefault(r["what"], {})[r["steps_ahead"]] = share(r["explained"], r["interval"])
    rows = [(what, *(by[far] for far in (2, 4, 8, 16))) for what, by in found.items()]
    return table(["explained, %", "2 steps", "4 steps", "8 steps", "16 steps"], rows)


def foresight_short() -> str:
    """After 8 steps: with and without the present image beside, and the trainings that were rolled out."""
    data = load("foresight")
    parts = {**data["short"], **data["next_state"]["foreseen"]}
    ways = [r["what"] for r in data["rows"] if r["steps_ahead"] == 8 and "samples in" in r["what"]]
    ways.insert(0, "jointly, a sample in 5 steps")
    rows = []
    for name, part in parts.items():
        of = {r["what"]: share(r["explained"], r["interval"]) for r in part["rows"]}
        rows.append((name, *(of[way] for way in ways)))
    return table(["explained, %", *ways], rows)


def next_state() -> str:
    """Successes with and without the next state."""
    rows = []
    for name, run in load("foresight")["next_state"]["rollouts"].items():
        best = {key: goal for key, goal in run["coverage"].items() if abs(float(key)) != 45}
        values = np.array(list(best.values())).T  # starts, goals
        cells = []
        for least in (0.85, 0.95):
            past = (values > least).astype(np.float64)
            told = f"{100 * past.mean():.1f} {rate_interval(past[None]).in_per_cent()}"
            cells.append(f"{past.sum():.0f}/{past.size} {told}")
        rows.append((name, run["sampling"]["n_steps"] if name != "replay" else "–", *cells))
    return table(["run", "denoising steps", "unseen goals > 0.85, %", "> 0.95, %"], rows)


def big_network(name: str) -> Callable[[], str]:
    """The 2B network on one GPU."""

    def made() -> str:
        rows = []
        for r in load(name)["rows"]:
            if "ms" not in r:
                continue
            extra = f"{r['error']:.1e}" if "error" in r else ""
            if "samples_per_s" in r:
                extra = (
                    f"{r['samples_per_s']:.0f} samples/s, {r['tokens_per_s']:.0f} tokens/s, "
                    f"{r['peak_gib']:.0f} GiB, "
                    f"MFU {100 * r['mfu_goal']:.1f} %, of computed products {100 * r['mfu_executed']:.1f} %"
                )
            rows.append((r["name"], f"{r['ms']:.1f}", f"{r['floor_ms']:.1f}", extra))
        return table(["what", "ms, median", "floor, ms", "error, or rates"], rows)

    return made


def small_network() -> str:
    """One chunk on the CPU."""
    data = load("policy_cpu")

    def row(name: str, r: dict[str, Any]) -> tuple[str, str, str, str]:
        floor = f"{r['floor_ms']:.1f}" if r.get("floor_ms") else ""
        return name, f"{r['p50_ms']:.1f}", f"{r['p90_ms']:.1f}", floor

    rows = [row(name, r) for name, r in data["parts"].items()]
    for r in data["chunks"]:
        latents = f"retrieved latents {r['retrieved_latents']}"
        rows.append(row(f"whole chunk, batch {r['batch']}, {r['n_steps']} steps, {latents}", r))
    return table(["what", "p50, ms", "p90, ms", "floor, ms"], rows)


def serving() -> str:
    """The server before a crowd."""
    rows = []
    for r in load("serve_load")["rows"]:
        few, many = r["replies_a_robot"]
        low, high = r["rss_mib"]
        rows.append(
            (
                f"{r['name']}, {r['seconds']:.0f} s",
                f"{r['replies_per_s']:.1f} ({r['replies_per_cpu_s']:.1f})",
                f"{r['batch_mean']:.1f}",
                f"{r['latency_p50_s']:.1f} / {r['latency_p99_s']:.1f}",
                f"{few}…{many}",
                f"{r['longest_queue']:.0f}",
                r["busy"],
                r["errors"],
                f"{r['health_p50_ms']:.1f} / {r['health_p99_ms']:.0f} / {r['health_max_ms']:.0f}",
                f"{r['idle_p50_ms']:.1f} / {r['idle_p99_ms']:.0f} / {r['idle_max_ms']:.0f}"
                if "idle_p50_ms" in r
                else "–",
                f"{low:.0f} → {high:.0f}",
            )
        )
    heads = ["server", "replies/s (a CPU-second)", "mean batch", "reply p50 / p99, s", "replies a client"]
    heads += [
        "longest queue",
        "busy",
        "errors",
        "health p50 / p99 / max, ms",
        "idle server, ms",
        "memory, MiB",
    ]
    return table(heads, rows)


def delay() -> str:
    """A slow reply, by how it is bridged."""
    rows = [
        (
            r["agent"],
            f"{r['delay_ms']} ms",
            r["way"],
            *(rate(r["success"][t]) for t in ("0.85", "0.95")),
            f"{r['steps']:.0f}",
            f"{r['acceleration']:.1f}",
            f"{r['jerk']:.1f}",
            f"{100 * r['misses'] / r['periods']:.0f} %",
        )
        for r in load("serve_delay")["rows"]
    ]
    heads = ["agent", "delay", "robot", "> 0.85", "> 0.95", "periods", "\\|Δ²a\\|", "\\|Δ³a\\|", "held"]
    return table(heads, rows)


def delay_clock() -> str:
    """The same by the clock."""
    rows = [
        (
            f"{r['delay_ms']:.0f} ms",
            r["periods"],
            f"{r['seconds']:.1f}",
            f"{r['latency_p50_ms']:.0f} / {r['latency_p99_ms']:.0f}",
            r["misses"],
            r["overruns"],
            f"{r['jerk']:.1f}",
        )
        for r in load("serve_delay")["clock"]
    ]
    heads = ["delay added", "periods", "seconds", "reply p50 / p99, ms", "misses", "overruns", "\\|Δ³a\\|"]
    return table(heads, rows)


def fuzz() -> str:
    """What malformed input did: nothing."""
    data = load("serve_fuzz")
    frames, bombs, uploads = data["frames"], data["bombs"], data["uploads"]
    taken = f"{frames.get('refused', 0):,} refused, {frames.get('taken', 0):,} accepted"
    answered = ", ".join(f"{n:,} × {status}" for status, n in uploads["statuses"].items())
    low, high = uploads["rss_mib"]
    growth = f"{frames['memory_growth_kib']:+.1f} KiB"
    rows = [
        (f"{frames['frames']:,} frames", taken, f"{frames['slowest_ms']:.1f}", growth),
        (
            f"{bombs['bombs']} bombs of up to 4 MiB",
            "refused",
            f"{bombs['slowest_ms']:.1f}",
            f"peak {bombs['memory_peak_mib']:.2f} MiB",
        ),
        (
            f"{uploads['uploads']:,} uploads",
            answered,
            f"{uploads['slowest_ms']:.0f}",
            f"{low:.0f} → {high:.0f} MiB",
        ),
    ]
    return table(["what", "answers", "slowest, ms", "memory"], rows)


def soak() -> str:
    """Servers, writers, attackers and robots on one pool for long."""
    r = load("soak")
    attacks = r["attacks"]
    hostile = sum(attacks["hostile"].values())
    begun, ended = r["memory_mib"][1][1:], r["memory_mib"][-1][1:]
    each = [f"{low:.0f} → {high:.0f} MiB" for low, high in zip(begun, ended, strict=True)]
    gently, killed = r["servers_ended"]["SIGTERM: 0"], r["servers_ended"]["SIGKILL: -9"]
    rows = [
        (
            "time",
            f"{r['seconds'] / 60:.0f} minutes, {r['soak']['servers']} servers of `{r['soak']['policy']}`",
        ),
        (
            "replies to 16 robots",
            f"{r['replies']:,}; a robot {r['replies_a_robot'][0]:,} to {r['replies_a_robot'][1]:,}",
        ),
        ("reply p50 / p99", f"{r['latency_p50_ms']:.0f} / {r['latency_p99_ms']:.0f} ms"),
        ("errors seen by a robot; invalid replies", f"{sum(r['errors'].values())}; {r['odd_replies']}"),
        ("reconnections", f"{r['connected_anew']:,}"),
        ("servers stopped by SIGTERM, exit code 0; killed", f"{gently}; {killed}"),
        ("writers killed", f"{r['writers_killed']:,}"),
        ("demonstrations acknowledged; lost; changed", f"{r['acknowledged']:,}; {r['lost']}; {r['changed']}"),
        ("old versions pruned", f"{attacks['house']['versions removed']:,}"),
        ("malformed frames refused", f"{attacks['frames']['refused']:,}"),
        (
            "hostile uploads",
            f"{hostile:,}, of which {attacks['hostile'].get('201', 0)} were accepted, without damage",
        ),
        ("connections that stall, disconnect or do not read", f"{attacks['stalls']['connections']:,}"),
        (
            "memory of the two servers after 30 s and at the end; each was restarted during the run",
            "; ".join(each),
        ),
    ]
    return table(["what", "result"], rows)


def one_demonstration() -> str:
    """What a pool of one is worth."""
    rows = [(name, rate(r), f"{r['mean_best']:.2f}") for name, r in load("studio_one_demo")["rows"].items()]
    return table(["agent and start", "> 0.85 [95 %]", "mean best coverage"], rows)


def dual_arm() -> str:
    """Experts and replay of the dual-arm suite, by task."""
    data = load("dualarm")
    keys = ("viperx", "ur5e", "same", "cross")
    rows = [
        (task, *(f"{row[key]['successes']}/{row[key]['n']}" for key in keys), f"{row['steps']:.0f}")
        for task, row in data["tasks"].items()
    ]
    head = ["task", "expert, ViperX", "expert, UR5e", "replay, same scene", "replay, other scene", "steps"]
    return table(head, rows)


def dual_arm_replay() -> str:
    """What retrieval alone reaches with two arms, by task."""
    modes = load("dualarm_replay")["modes"]

    def cell(counts: dict[str, Any]) -> str:
        low, high = counts["interval"]
        return f"{counts['successes']}/{counts['n']} {Interval(low, high).in_per_cent()}"

    def lost(counts: dict[str, Any]) -> str:
        return f"{counts['failed_untouched']} + {counts['failed_moved']}"

    single, aligned = modes["single"], modes["aligned"]
    pairs = [(task, single["tasks"][task], counts) for task, counts in aligned["tasks"].items()]
    pairs.append(("all", single["all"], aligned["all"]))
    rows = [(t, cell(a), lost(a), cell(b), lost(b), f"{b['steps']:.0f}") for t, a, b in pairs]
    head = ["task", "single", "lost: untouched + moved", "aligned", "lost: untouched + moved", "steps"]
    return table(head, rows)


def dual_arm_replay_rows() -> str:
    """What fewer demonstrations, other words and other choices do."""
    data = load("dualarm_replay")
    rows = []
    for group in ("words", "demonstrations", "choices"):
        for name, row in data.get(group, {}).items():
            counts = row["all"]
            low, high = counts["interval"]
            told = f"{counts['successes']}/{counts['n']} {Interval(low, high).in_per_cent()}"
            worst = min(row["tasks"], key=lambda t: row["tasks"][t]["successes"] / row["tasks"][t]["n"])
            of = row["tasks"][worst]
            rows.append((name, told, f"{worst} {of['successes']}/{of['n']}", f"{counts['steps']:.0f}"))
    return table(["replay", "success", "worst task", "steps"], rows)


def dual_arm_speed() -> str:
    """What a step and a demonstration cost."""
    speed = load("dualarm")["speed"]
    rows = [
        (robot, *(f"{speed[f'{robot} {size}'][key]:.0f}" for size in (0, 128) for key in ("median", "worst")))
        for robot in ("viperx", "ur5e")
    ]
    head = ["robot", "no pictures", "worst task", "three of 128 px", "worst task"]
    return table(head, rows)


def settings(title: str) -> Callable[[], str]:
    """What the trained rows of a part of the baselines have in common, from their configs."""

    def rows() -> str:
        from recap_research.sweep.settings import as_markdown, compare_settings
        from recap_research.sweep.sweep import Sweep

        sys.path.insert(0, str(HERE.parents[1] / "research" / "sweeps"))
        sweep = Sweep(Path("runs/evidence"))
        importlib.import_module("baselines").build(sweep)
        (part,) = (part for part in sweep.parts if part.title == title)
        return as_markdown(compare_settings(sweep, part.names))

    return rows


TITLES = {"fresh": ", fresh starts", "pixels": ", poses from pixels", "none": ", nothing retrieved"}


def plan(name: str, device: str = "GPU") -> Callable[[], str]:
    """The rows of a plan: success over training seeds, beside what it cost."""

    def rows() -> str:
        found = load(name)["rows"]
        kinds = list(found[0]["success"])
        return table(
            ["", "training seeds", "starts", *(f"{kind}, %" for kind in kinds), f"{device}, s"],
            [
                (
                    row["label"] + TITLES.get(row["evaluation"], ""),
                    row["seeds"] if row["gpu_s"] is not None else "–",
                    row["success"][kinds[-1]]["n"] // 7,
                    *(row["success"][kind]["text"] for kind in kinds),
                    "–" if row["gpu_s"] is None else f"{row['gpu_s']:.0f}",
                )
                for row in found
            ],
        )

    return rows


def fine_tune() -> str:
    """A fine-tune a task beside a frozen policy that retrieves, and what each asks for."""

    def seconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.0f}"

    rows = []
    for row in load("plan_fine_tune")["rows"]:
        where = {"0": ", at 0°", "ell": ", the L"}.get(row["evaluation"], "")
        cells = [next(v for k, v in row["success"].items() if k.endswith(t)) for t in ("> 0.85", "> 0.95")]
        costs = (row["target_demonstrations_s"], row["pool_demonstrations_s"], row["gpu_s"])
        rows.append((row["label"] + where, cells[0]["n"], *(c["text"] for c in cells), *map(seconds, costs)))
    head = ["", "episodes", "> 0.85, %", "> 0.95, %", "robot's demonstrations, s", "pool's, s", "CPU, s"]
    return table(head, rows)


def snapshots(name: str) -> Callable[[], str]:
    """One pool that grows by goals."""
    keys = [(group, threshold) for group in ("seen", "unseen") for threshold in ("0.85", "0.95")]

    def made() -> str:
        rows = [
            (row["label"], row["demonstrations"], *(rate(row["groups"][g][t]) for g, t in keys))
            for row in load(name)["rows"]
        ]
        return table(["goals in the pool", "demonstrations", *(f"{g} > {t}" for g, t in keys)], rows)

    return made


def weighed_nano() -> str:
    """How many of the same episodes succeed: replay, the whole residual, and the weighed one."""
    data = load("weighed_nano")["rows"]
    who = {"replay": "replay, same settings", "whole": "pusht-nano", "weighed": "pusht-nano, half at 20 px"}
    rows = [
        (f"{row['pool']}, > {t}", row["whole"]["n"], *(row[key][t] for key in who))
        for row in data
        for t in ("0.85", "0.95")
    ]
    return table(["pool", "episodes", *who.values()], rows)


def residual_rules() -> str:
    """Ways to let less of the residual count, past 0.95, beside replay on the same starts."""
    names = {
        "replay": "replay, same settings",
        "whole": "the whole residual",
        "samples": "by the agreement of two samples",
        "cold": "the whole residual, temperature 0",
        "ratio": "by the better prediction of the block's pose",
    }
    pools = {"ell-200": "200 of the L", "tee-50": "50 of the T"}
    rows = []
    for row in load("residual_rules")["rows"]:
        found, over = row["0.95"], "–"
        if "over_replay" in found:
            points = Interval(*found["over_replay_interval"]).in_points()
            over = f"{100 * found['over_replay']:+.1f} {points}"
        share = f"{100 * found['successes'] / found['n']:.1f} {Interval(*found['interval']).in_per_cent()}"
        rule = f"{row['rule']} px".replace("half", "half at ").replace("usual", "by the usual error, ")
        rule = names.get(row["rule"], rule)
        rows.append((f"{row['policy']}, {pools[row['pool']]}", rule, found["n"], share, over))
    return table(["policy and pool", "rule", "episodes", "> 0.95, %", "difference to replay"], rows)


def controls(*wanted: str) -> Callable[[], str]:
    """Policies beside replay at their settings, start by start; of these parts, or of all others."""

    def cells(row: dict[str, Any], side: str) -> str:
        found = [part.get(side) for part in row["thresholds"].values()]
        if None in found:
            return "–"
        return " / ".join(f"{100 * sum(c['successes']) / len(c['successes']) / c['n']:.1f}" for c in found)

    def rows() -> str:
        found = [row for row in load("controls")["rows"] if row["part"] in wanted]
        plain = any("plain" in part for row in found for part in row["thresholds"].values())
        sides = ["plain", "same", "policy"] if plain else ["same", "policy"]
        body = []
        for row in found:
            several = f", {row['trainings']} trainings" if row["trainings"] > 1 else ""
            name = row["what"] if "900" in row["part"] else f"{row['part']}: {row['what']}"
            first, *_ = row["thresholds"].values()
            gains = [part["over_same"]["text"] for part in row["thresholds"].values()]
            body.append((name + several, first["policy"]["n"], *(cells(row, side) for side in sides), *gains))
        head = ["", "episodes", *(["replay, plain"] if plain else []), "replay, same settings", "policy"]
        return table([*head, "policy − same, > 0.85", "> 0.95"], body)

    return rows


def gate() -> str:
    """Stopping when unsure."""
    rows = [
        (f"{p['value']:g}", f"{100 * p['abstained']:.0f}", f"{100 * p['> 0.85 of the rest']:.0f}")
        for p in load("gate")["points"]
    ]
    return table(["least confidence", "abstained, %", "> 0.85 among the rest, %"], rows)


def masking(name: str) -> Callable[[], str]:
    """What stays a success, and what becomes one, when the action slot may not look."""

    def made() -> str:
        body = load(f"masking_{name}")
        found = {row["name"]: row for row in body["rows"]}
        subsets = ("successes", "failures")

        def kept(*names: str) -> list[str]:
            return [" · ".join(str(found[one][s]["successes"]) for one in names) for s in subsets]

        rows = [("other noise, nothing blocked", *kept("other noise"))]
        for layer in (*(f"layer {n}" for n in body["layers"]), "all layers"):
            rows.append((f"{layer}: blocked · sham", *kept(f"retrieved blocked, {layer}", f"sham, {layer}")))
        return table(["", *(f"of {found['other noise'][s]['n']} {s}" for s in subsets)], rows)

    return made


SLOTS = {"frame": "present view", "retrieved_frame_0": "first retrieved frame"}
SLOTS |= {"retrieved_frame_1": "last retrieved frame", "future_frame": "predicted frame"}
REGIONS = {
    "t_block": "block now",
    "t_block_next": "block at the chunk's end",
    "predicted_end": "predicted end",
}


def attention_regions() -> str:
    """Where the action slot's attention lies on the block: the layer at which it peaks."""
    from recap_research.published import ROI_PEAKS

    ours, alone = (load(name)["roi"] for name in ("attention_nano", "attention_alone"))

    def told(found: Any) -> str:
        if found is None:
            return "–"
        peak = found["peak"]
        return f"layer {peak['layer']}: {peak['ratio']:.2f} [{peak['low']:.2f}, {peak['high']:.2f}]"

    rows = []
    for key in ours:
        slot, region = key.split(">")
        layer, ratio = ROI_PEAKS.get(key, (None, None))
        paper = "–" if layer is None else f"layer {layer} of 28: {ratio}"
        rows.append((f"{SLOTS[slot]} on {REGIONS[region]}", told(ours[key]), told(alone.get(key)), paper))
    return table(["", "ours, single", "no retrieval", "paper"], rows)


def attention_shares() -> str:
    """Of the action slot's attention, by layer, mean of the heads."""
    mass = load("attention_nano")["mass"]
    rows = [
        (slot.replace("_", " "), *(f"{sum(heads) / len(heads):.2f}" for heads in layers))
        for slot, layers in mass.items()
    ]
    return table(["", *(f"layer {n}" for n in range(len(next(iter(mass.values())))))], rows)


def dual_arm_policy(name: str) -> Callable[[], str]:
    """Every agent's success by task."""

    def made() -> str:
        rows = load(name)["rows"]
        tasks = [*rows[0]["tasks"]]
        groups = [*rows[0]["success"]]
        body = [(task, *(counts(row["tasks"][task]) for row in rows)) for task in tasks]
        body += [
            (f"**{group}**", *(counts(next(iter(row["success"][group].values()))) for row in rows))
            for group in groups
        ]
        return table(["", *(row["name"] for row in rows)], body)

    return made


def dual_arm_settings() -> str:
    """The policy beside replay, scene by scene, in one setting a row."""
    rows = []
    for row in load("dualarm_settings")["rows"]:
        pairs, whole = row["groups"], row["groups"]["all"]
        cells = []
        for group in ("seen", "unseen"):
            pair = pairs[group]
            cells += [f"{pair['both'] + pair[only]}/{pair['n']}" for only in ("only_a", "only_b")]
        difference = share(whole["difference"], (whole["low"], whole["high"]), "+")
        setting = SETTINGS[row["name"].removeprefix("dualarm-small").lstrip("-")]
        rows.append((setting, row["seeds"], *cells, difference, whole["only_a"], whole["only_b"]))
    head = ["setting", "scenes", "seen: replay", "seen: ours", "unseen: replay", "unseen: ours"]
    return table([*head, "ours − replay, points", "only replay", "only ours"], rows)


def dual_arm_untouched() -> str:
    """Ten further tasks: the policy beside replay at its settings, scene by scene."""
    (found,) = load("dualarm_untouched")["b_minus_a"].values()
    rows = []
    for task, pair in found.items():
        if task == "all":
            continue
        counts = [f"{pair['both'] + pair[only]}/{pair['n']}" for only in ("only_a", "only_b")]
        name = "**all**" if task == "unseen" else task
        gain = share(pair["difference"], (pair["low"], pair["high"]), "+")
        rows.append((name, *counts, gain, pair["only_a"], pair["only_b"]))
    head = ["task", "replay, same settings", "dualarm-small", "policy − replay, points"]
    return table([*head, "only replay", "only the policy"], rows)


def dual_arm_failures() -> str:
    """Where the episodes of each agent stop, by task."""
    agents = load("dualarm_failures")["rows"]
    kinds = {
        "success": "done",
        "reach": "not reached",
        "grasp": "not grasped",
        "transport": "not brought",
        "hand-over": "not handed over",
        "finish": "not finished",
        "confused": "confused",
    }
    rows = []
    for task in agents[0]["tasks"]:
        cells = [" / ".join(str(agent["tasks"][task][kind]) for agent in agents) for kind in kinds]
        rows.append((f"**{task}**" if task == "all" else task, agents[0]["tasks"][task]["episodes"], *cells))
    names = " / ".join(agent["name"] for agent in agents)
    return table([names, "episodes", *kinds.values()], rows)


def counts(cell: dict[str, Any]) -> str:
    """Successes of how many."""
    return f"{cell['successes']}/{cell['n']}"


def dual_arm_levels() -> str:
    """Success on every unseen task as the pool grows; bold from the level on that brings it."""
    from recap_worlds.dualarm.robotwin_tasks import LEVELS, UNSEEN

    data = load("dualarm_levels")
    own = {task: next(n for n, tasks in enumerate(LEVELS, 1) if task in tasks) for task in UNSEEN}
    rows = []
    for agent, levels in data["rows"].items():
        for task in sorted(UNSEEN, key=own.__getitem__):
            cells = [counts(found[task]) for found in levels.values()]
            bold = [f"**{c}**" if n >= own[task] else c for n, c in enumerate(cells, 1)]
            rows.append((agent.rsplit("/", 1)[-1], task, *bold))
    return table(["agent", "unseen task", *(f"level {n}" for n in range(1, 7))], rows)


SETTINGS = {  # of two arms, by what a run's name adds
    "": "as above",
    "fresh": "fresh scenes",
    "every-step": "a new chunk every step",
    "randomised": "other colours, lights and distractors",
    "5mm": "pose noise of 5 mm and 2°",
    "10mm": "pose noise of 10 mm and 4°",
    "1": "one demonstration a task",
    "single": "in the world's frame",
}

FRAMES = ("world's frame", "block's frame", "contact")

TABLES: dict[str, Callable[[], str]] = {
    "environment": environment,
    "controls-frames": controls(
        *(f"{way}, 900 of the T" for way in ("world's frame", "block's frame", "contact"))
    ),
    "controls-sizes": controls("pusht-nano", "pusht-small"),
    "controls-weighed": controls("pusht-small, half at 20 px", "pusht-nano, half at 20 px"),
    "controls-blocks": controls("pusht-small, new blocks"),
    "controls-beyond": controls("pusht-small, pose noise", "pusht-small, 198 at another speed"),
    "controls-fine-tune": controls("pusht-small, compared with a fine-tune"),
    "controls-world-sizes": controls("small, single", "small, oracle"),
    "expert": expert,
    "still": still,
    "command-line": command_line,
    "vision": vision,
    "replay-headline": replay("headline"),
    "replay-equal": replay("equal options"),
    "replay-images": replay("images"),
    "replay-candidates": replay("candidates"),
    "replay-options": replay("options"),
    "replay-frames": replay("frames"),
    "replay-sensitivity": replay("sensitivity"),
    "stage-2": stage_2,
    "stage-1": stage_1,
    "scale": scale,
    "scale-live": live_scale,
    "confidence": confidence,
    "pairs": pairs,
    "live": live,
    "stress": stress,
    "policies": policies,
    "policy-seeds": over_seeds("policy_seeds"),
    "policy-tried": tried,
    "settings-block": settings("Baselines in the block's frame"),
    "settings-world": settings("Baselines in the world's frame"),
    "dual-arm-untouched": dual_arm_untouched,
    "plan-nano": plan("plan_nano"),
    "plan-world": plan("plan_world", "CPU"),
    "plan-sizes": plan("plan_sizes"),
    "plan-ablation": plan("plan_ablation"),
    "plan-pi0": plan("plan_pi0"),
    "plan-premise": plan("plan_premise", "CPU"),
    "plan-fine-tune": fine_tune,
    "gate": gate,
    "attention-regions": attention_regions,
    "attention-shares": attention_shares,
    "masking-residual": masking("residual"),
    "masking-absolute": masking("absolute"),
    "masking-nano": masking("nano"),
    "snapshots": snapshots("snapshots"),
    "snapshots-world": snapshots("snapshots_world"),
    "plan-progression": plan("plan_progression", "CPU"),
    "plan-policy": plan("plan_policy"),
    "plan-contact": plan("plan_contact", "CPU"),
    "plan-beyond": plan("plan_beyond", "CPU"),
    "plan-baselines": plan("plan_baselines"),
    "plan-co-training": plan("plan_co_training", "CPU"),
    "weighed-nano": weighed_nano,
    "plan-weighed": plan("plan_weighed", "CPU"),
    "residual-rules": residual_rules,
    "policy-future": future,
    "foresight": foresight,
    "foresight-short": foresight_short,
    "next-state": next_state,
    "cosmos-2b": big_network("policy_gpu"),
    "cosmos-2b-ours": big_network("policy_gpu_ours"),
    "nano-cpu": small_network,
    "serving": serving,
    "soak": soak,
    "serve-fuzz": fuzz,
    "dual-arm": dual_arm,
    "dual-arm-speed": dual_arm_speed,
    "dual-arm-replay": dual_arm_replay,
    "dual-arm-replay-rows": dual_arm_replay_rows,
    "dual-arm-policy": dual_arm_policy("dualarm_policy"),
    "dual-arm-longer": dual_arm_policy("dualarm_longer"),
    "dual-arm-seeds": over_seeds("dualarm_seeds"),
    "dual-arm-settings": dual_arm_settings,
    "dual-arm-failures": dual_arm_failures,
    "dual-arm-levels": dual_arm_levels,
    "studio-one-demo": one_demonstration,
    "serve-delay": delay,
    "serve-delay-clock": delay_clock,
}


def filled(text: str) -> str:
    """A page with every table made anew."""
    return re.sub(
        r"<!-- table (\S+) -->.*?<!-- end -->",
        lambda match: f"<!-- table {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->",
        text,
        flags=re.DOTALL,
    )


def main() -> int:
    """Write the pages, or check them."""
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text("utf-8")
        if filled(text) != text:
            stale.append(page)
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.name} differs from the files in docs/results: run make reference")
        return int(bool(stale))
    for page in stale:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
