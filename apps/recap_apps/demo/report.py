"""The demo's report: a table for the terminal, and a page that only needs its own folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from recap.evaluation.statistics import PairedDifference
from recap.evaluation.summary import Rate
from recap_apps.demo.spec import (
    ANGLE,
    BLOCK,
    ENV,
    KEYS,
    LEARNER,
    POLICY,
    DemoResult,
    DemoSpec,
    Gain,
    Stage,
    against_replay,
    gain,
)
from recap_apps.pages import document, table
from recap_worlds.pusht.tasks import angle_key

if TYPE_CHECKING:
    from rich.console import RenderableType

PAGE, FILM, STILL, RESULTS = "index.html", "demo.mp4", "demo.png", "demo.json"
COLUMNS = (
    "demos",
    *(f"policy > {key}" for key in KEYS),
    *(f"replay > {key}" for key in KEYS),
    "gained",
    "lost",
)
ABSORBED = (
    "appended",
    "collected in",
    "safe on disk after",
    "then retrieved after",
    "absorbed in",
    "demos used",
)
EMPTY_POOL = (
    "With nothing to retrieve an agent holds still, in recap eval, the studio and the server alike. For the "
    "first row it is set to act all the same (--reaction ignore): that is what the weights do alone."
)
LAST_ROW = "tbody tr:last-child > * { color: var(--ink); font-weight: 600; }"
LEGEND = (
    "Successes of the same starts, with 95 % Wilson intervals in per cent. Replay acts out what is "
    "retrieved, with the policy's settings and no network. Gained and lost: starts of the policy against "
    f"the row above, past {' / '.join(KEYS)}."
)


def table_rows(stages: Sequence[Stage]) -> list[list[str]]:
    """One row per stage, as text."""
    rows = []
    for i, stage in enumerate(stages):
        rates = [stage.rate(key, replay=replay) for replay in (False, True) for key in KEYS]
        changes = ["–", "–"]
        if i:
            found = [gain(stages[i - 1], stage, key) for key in KEYS]
            changes = [
                " / ".join(str(len(each.gained)) for each in found),
                " / ".join(str(len(each.lost)) for each in found),
            ]
        rows.append([str(stage.n_demonstrations), *map(_rate, rates), *changes])
    rows[0][0] += " (alone)"
    return rows


def _rate(rate: Rate) -> str:
    return f"{rate.k}/{rate.n} {rate.interval.in_per_cent()}"


def render_stages(stages: Sequence[Stage]) -> RenderableType:
    """The table for a terminal of 80 columns."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        # Two lines per heading, so that the table fits.
        table.add_column(name.replace(" > ", "\n> "), justify="right", no_wrap=True)
    for row in table_rows(stages):
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return Group(table, "", LEGEND)


def conclusion(result: DemoResult) -> str:
    """The result in words that fit any result; replay shows the effect of the pool alone."""
    last = result.stages[-1]
    grown = [f"past {key} {_points(g.pairs)} ({_counted(g)})" for key, g in result.total.items()]
    ahead = [f"past {key} {_points(against_replay(last, key))}" for key in KEYS]
    return (
        f"With {last.n_demonstrations} demonstrations instead of none, the policy's success changes by: "
        f"{'; '.join(grown)}. Against replay with the same settings and no network it then stands at: "
        f"{'; '.join(ahead)}."
    )


def _points(pairs: PairedDifference) -> str:
    return f"{100 * pairs.difference:+.0f} points {pairs.interval.in_points()}"


def _counted(found: Gain) -> str:
    return f"starts gained: {len(found.gained)}, lost: {len(found.lost)}"


def next_steps(spec: DemoSpec, pool: str) -> list[tuple[str, str]]:
    """Commands to try next, and what each does."""
    policy = [] if spec.policy == POLICY else ["--policy", spec.policy]
    angle = "17" if spec.angle != 17 else angle_key(ANGLE)
    block = "ell" if spec.block != "ell" else BLOCK
    evaluation = ["recap", "eval", spec.policy, "--env", ENV, "--env.pusher", LEARNER]
    evaluation += ["--env.block", spec.block, f"--tasks={angle_key(spec.angle)}"]
    evaluation += ["--pool", pool, "--seeds", "500:520"]
    lists = ["recap", "pool", "ls", pool]
    return [
        (shlex.join(["recap", "demo", "--angle", angle, *policy]), "another goal"),
        (shlex.join(["recap", "demo", "--block", block, *policy]), "another block"),
        (shlex.join(evaluation), "more starts, from the pool that the demo has filled"),
        (shlex.join(lists), "what is in that pool"),
    ]


def page(result: DemoResult, pool: str) -> str:
    """The whole page; film and still are next to it."""
    spec, stages = result.spec, result.stages
    absorbed = [
        [
            str(len(a.ids)),
            f"{a.collect_s:.1f} s",
            *(f"{ms:.0f} ms" for ms in (a.add_ms, a.use_ms, a.total_ms)),
            str(len(stage.retrieved)),
        ]
        for stage in stages
        if (a := stage.absorbed) is not None
    ]
    steps = "".join(
        f"<li><code>{escape(command)}</code>: {escape(why)}.</li>" for command, why in next_steps(spec, pool)
    )
    size = f"{sum(result.n_parameters.values()) / 1e6:.1f} M parameters, {result.n_bytes / 1e6:.0f} MB"
    before, after = result.fingerprints
    task = f"{escape(spec.block)}, goal at {escape(angle_key(spec.angle))}°"
    film = "one that was gained" if _is_gained(result) else "the one that improved most; none was gained"
    body = f"""<h1>A frozen policy and a growing pool</h1>
<p class="lead">{escape(conclusion(result))}</p>

<h2>Same starts, same weights</h2>
{table(COLUMNS, table_rows(stages))}
<p class="note">{escape(LEGEND)} {escape(EMPTY_POOL)}</p>

<h2>One start, before and after</h2>
<video src="{FILM}" poster="{STILL}" controls muted loop playsinline></video>
<p class="note">Start {result.film_seed}, {film}; before above, after below, at twice the real speed. The
video shows from left to right, and the picture in rows: the board; if the policy sees images, the future
that it predicts, over the faded board; the retrieved moment of the pool.</p>
<img src="{STILL}" alt="Moments of the episode before and after, with the predicted future and the
retrieved frames">

<h2>What was done</h2>
<ol>
<li>The policy <code>{escape(spec.policy)}</code> ({escape(size)}) was loaded and not trained further.</li>
<li>The triangle was rolled out from {spec.n_seeds} starts (seeds {spec.seeds[0]} to {spec.seeds[-1]}) on
the task: {task}. Its pool was empty, and it was set to act on its weights alone.</li>
<li>The disc, another pusher, showed the task: demonstrations by a scripted expert, from other starts,
were appended to the live pool.</li>
<li>The same starts were rolled out again after each addition.</li>
</ol>
{table(ABSORBED, absorbed)}
<p class="note">Absorbed: from the call that adds them to the first retrieval that uses one. Demos used: how
many of the pool's demonstrations the policy was given a moment of.</p>
<dl>
<dt>Fingerprint of the weights, first</dt><dd><code>{escape(before)}</code></dd>
<dt>Fingerprint of the weights, last</dt><dd><code>{escape(after)}</code></dd>
<dt>Time in all</dt><dd>{result.wall_s:.0f} s</dd>
</dl>

<h2>What to try next</h2>
<ul>{steps}</ul>
<p class="note">All numbers are in <a href="{RESULTS}">{RESULTS}</a>. A handful of starts shows how it
works, not how well: for that, evaluate more of them.</p>
"""
    return document(f"ReCAP demo: {spec.block}, goal at {angle_key(spec.angle)}°", body, LAST_ROW)


def _is_gained(result: DemoResult) -> bool:
    return any(result.film_seed in found.gained for found in result.total.values())
