"""A dataset by its name on the hub; nothing here touches a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from lerobot_files import write_older

from recap.errors import DatasetError
from recap.pool.importers import open_source
from recap.pool.opening import open_demonstrations


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    root = write_older(tmp_path / "cache/set")

    def download(repo: str, *, repo_type: str, revision: str | None) -> str:
        calls.append((repo, repo_type, revision))
        return str(root)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    return calls


def test_a_name_that_is_not_here_is_fetched(asked: list[Any]) -> None:
    assert len(open_source(Path("lerobot/pusht"))) == 3
    assert len(open_demonstrations("some.one/my_set@v2.1").episode_ids) == 3
    assert asked == [("lerobot/pusht", "dataset", None), ("some.one/my_set", "dataset", "v2.1")]


def test_a_folder_here_comes_first(asked: list[Any], tmp_path: Path) -> None:
    write_older(tmp_path / "lerobot/pusht")
    assert open_source(Path("lerobot/pusht"))[0].id == "pusht/0"
    for other in ("/nowhere/x", "a/b/c", "../x/y", "nothing"):
        with pytest.raises(DatasetError, match="does not exist"):
            open_source(Path(other))
    assert asked == []


def test_without_a_network_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(DatasetError, match=r"lerobot/pusht does not exist: .*; and the hub cannot") as caught:
        open_source(Path("lerobot/pusht"))
    assert caught.value.code == "dataset.hub"
    assert "\n" not in str(caught.value)
