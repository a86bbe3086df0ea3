"""Self-contained HTML pages: escaped text and embedded files."""

from pathlib import Path

import pytest

from recap.errors import InputError
from recap_apps.pages import data_uri, document, table


def test_text_in_pages_is_escaped() -> None:
    text = table(["<i>"], [["<b>\n<u>", "&"]], caption="<s>", name="x", marks=["paper"])
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;b&gt;<br><small>&lt;u&gt;</small>" in text
    assert '<tr class="paper">' in text
    assert "<title>&lt;b&gt;</title>" in document("<b>", "")


def test_a_table_has_row_and_column_headers() -> None:
    text = table(["goal", "n"], [["0", "5"]], caption="Counts", name="counts")
    assert '<th scope="col">goal</th>' in text
    assert '<th scope="row">0</th><td>5</td>' in text
    assert 'id="counts" aria-label="Counts"' in text


def test_a_file_becomes_a_data_uri(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"abc")
    assert data_uri(tmp_path / "a.png") == "data:image/png;base64,YWJj"
    with pytest.raises(InputError, match="cannot put"):
        data_uri(tmp_path / "a.exe")
