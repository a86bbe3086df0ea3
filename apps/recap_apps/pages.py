"""Self-contained HTML pages with a common style: light and dark, wide and narrow."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from recap.errors import InputError

MIME = {".png": "image/png", ".mp4": "video/mp4", ".svg": "image/svg+xml"}


def document(title: str, body: str, style: str = "") -> str:
    """A whole page; `body` is HTML, `title` is plain text."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str = "",
    name: str = "",
    marks: Sequence[str] = (),
) -> str:
    """Columns and rows of plain text, in a box that scrolls on narrow screens.

    Text after a line break in a cell is shown small below it.

    Args:
        caption: the table's caption, also for screen readers.
        name: the table's HTML id.
        marks: a CSS class per row, such as `paper` for numbers of the paper.
    """
    columns = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = []
    for i, row in enumerate(rows):
        mark = f' class="{escape(marks[i])}"' if i < len(marks) and marks[i] else ""
        cells = "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:])
        lines.append(f'<tr{mark}><th scope="row">{_cell(row[0])}</th>{cells}</tr>')
    number = f' id="{escape(name)}"' if name else ""
    # Above the box, not inside the table, so that it stays visible while the table scrolls.
    label = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    scroll = f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
    named = f' aria-label="{escape(caption)}"' if caption else ""
    return (
        f"{label}{scroll}<table{number}{named}><thead><tr>{columns}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    first, *rest = text.split("\n")
    return escape(first) + "".join(f"<br><small>{escape(line)}</small>" for line in rest)


def data_uri(file: Path) -> str:
    """The file's content as a data URI."""
    if file.suffix not in MIME:
        raise InputError(f"cannot put {file.name} into a page: use {', '.join(MIME)}")
    return f"data:{MIME[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"


STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #59616a; --paper: #fcfcfb; --line: #d9dcdf;
  --tint: #f1f3f4; --c1: #1f63d6; --c2: #c2500a; --c3: #217a39; --c4: #7b44d0; --c5: #8a6a00;
  --grey: #9aa2aa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --soft: #a3acb4; --paper: #16181b; --line: #34393e; --tint: #212529;
    --c1: #6ea8fe; --c2: #ff9d5c; --c3: #5fc77a; --c4: #bd95ff; --c5: #e0b93f; --grey: #6d757d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 50rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .6rem; }
.lead { font-size: 1.08rem; }
.note { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: right; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
video, img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; margin: .5rem 0; }
code { font: .9em ui-monospace, monospace; background: var(--tint); padding: .1em .3em; border-radius: 4px;
  overflow-wrap: anywhere; }
li { margin: .3rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { color: var(--soft); }
dd { margin: 0; }
a { color: inherit; }
"""
