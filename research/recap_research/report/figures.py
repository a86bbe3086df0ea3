"""A figure of the report: a chart, video or image with a caption and a collapsed section on its source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from recap_research.report.files import Analysis, Run


def provenance(runs: Iterable[Run], extra: Sequence[tuple[str, str]] = ()) -> str:
    """The source of the numbers above, in a collapsed section."""
    blocks = [
        f"<p><strong>{escape(run.label)}</strong></p>{_listed(run.provenance)}" for run in dict.fromkeys(runs)
    ]
    if extra:
        blocks.append(_listed(extra))
    return f'<details class="from"><summary>Source</summary>{"".join(blocks)}</details>'


def _listed(told: Sequence[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{_value(k, v)}</dd>' for k, v in told)}</dl>"


def _value(key: str, text: str) -> str:
    return f"<code>{escape(text)}</code>" if key in ("command", "checkpoint") else escape(text)


def figure(inside: str, caption: str, source: str) -> str:
    """A chart with its caption and its source, both HTML."""
    return f"<figure>{inside}<figcaption>{escape(caption)}</figcaption>{source}</figure>"


def source_of(analysis: Analysis) -> str:
    """The source of an analysis: its command and settings."""
    told = [
        (key, str(analysis.body.get(key) or "not recorded"))
        for key in ("command", "seeds", "pool", "checkpoint")
    ]
    return provenance((), told)
