"""The notebooks run and print their stored outputs; RECAP_NOTEBOOKS=write stores new outputs."""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def run(notebook: dict[str, Any]) -> None:
    """Runs every code cell in order, as a kernel does, and stores what it prints as its output."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        text = printed.getvalue().splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []


@pytest.mark.long
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_prints_its_stored_outputs(file: Path) -> None:
    shown = json.loads(file.read_text("utf-8"))
    ran = json.loads(file.read_text("utf-8"))
    run(ran)
    if os.environ.get("RECAP_NOTEBOOKS") == "write":
        file.write_text(json.dumps(ran, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return
    assert ran["cells"] == shown["cells"]


def test_both_notebooks_have_every_code_cell_executed() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["first_pool", "your_robot"]
    for file in NOTEBOOKS:
        cells = json.loads(file.read_text("utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert any(cell["outputs"] for cell in code)
