"""What the site does beyond MkDocs: folders in the navigation, links out of docs/, nothing from outside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
OF_THE_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOREIGN = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_config(config: Any) -> Any:
    """Spell out the entries of the navigation that end with `*`."""
    docs = Path(config.docs_dir)
    named = set(_names(config.nav))
    config.nav = _expanded(config.nav, docs, named)
    return config


def on_files(files: Any, config: Any) -> Any:
    """The repository's own files, and its notebooks, as pages."""
    for name in OF_THE_ROOT:
        text = (Path(config.docs_dir).parent / name).read_text("utf-8").replace("](docs/", "](../")
        files.append(File.generated(config, f"project/{name.lower()}", content=text))
    for file in sorted((Path(config.docs_dir).parent / "examples/notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"tutorials/{file.stem}_notebook.md", content=_notebook(file)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A link to a file of the repository that is no page of the site becomes its name."""
    docs = Path(config.docs_dir).resolve()
    here = (docs / page.file.src_uri).parent

    def plain(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = (here / target).resolve()
        if path.is_relative_to(docs):
            return match[0]
        name = path.relative_to(docs.parent).as_posix()
        return text if name in text else f"{text} (`{name}`)"

    return LINK.sub(plain, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that would load something from another host."""
    if found := FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads from outside: {found[0][:120]}")
    return output


def _notebook(file: Path) -> str:
    """Its cells and what they printed, as a page."""
    parts = []
    for cell in json.loads(file.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join(line for output in cell.get("outputs", []) for line in output["text"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join([*parts, f"The notebook is `examples/notebooks/{file.name}`."]) + "\n"


def _names(entries: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += _names(value) if isinstance(value, list) else [value]
    return found


def _expanded(entries: list[Any], docs: Path, named: set[str]) -> list[Any]:
    spelt: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            title, value = next(iter(entry.items()))
            inside = _expanded(value, docs, named) if isinstance(value, list) else value
            if inside:
                spelt.append({title: inside})
        elif entry.endswith("*"):
            pages = sorted(page.relative_to(docs).as_posix() for page in docs.glob(f"{entry}.md"))
            spelt += [page for page in pages if page not in named]
        else:
            spelt.append(entry)
    return spelt
