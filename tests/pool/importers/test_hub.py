"""Datasets by their name on the Hugging Face hub; no test uses the network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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


def test_a_name_without_a_local_folder_is_downloaded(asked: list[Any]) -> None:
    assert len(open_source(Path("lerobot/pusht"))) == 3
    assert len(open_demonstrations("some.one/my_set@v2.1").episode_ids) == 3
    assert asked == [("lerobot/pusht", "dataset", None), ("some.one/my_set", "dataset", "v2.1")]


def test_a_local_folder_is_preferred_to_the_hub(asked: list[Any], tmp_path: Path) -> None:
    write_older(tmp_path / "lerobot/pusht")
    assert open_source(Path("lerobot/pusht"))[0].id == "pusht/0"
    for other in ("/nowhere/x", "a/b/c", "../x/y", "nothing"):
        with pytest.raises(DatasetError, match="does not exist"):
            open_source(Path(other))
    assert asked == []


def test_a_download_without_a_network_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(DatasetError, match=r"lerobot/pusht does not exist: .*; and the hub cannot") as caught:
        open_source(Path("lerobot/pusht"))
    assert caught.value.code == "dataset.hub"
    assert "\n" not in str(caught.value)


class Hub(BaseHTTPRequestHandler):
    """The routes of a hub that huggingface_hub requests for one dataset."""

    root: Path
    sha = "a" * 40

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = urlsplit(self.path).path
        code = 200
        resolved = f"/datasets/lerobot/tiny/resolve/{self.sha}/"
        if path == "/api/datasets/lerobot/tiny/revision/v2.1":
            found = json.dumps({"id": "lerobot/tiny", "sha": self.sha}).encode()
        elif path == f"/api/datasets/lerobot/tiny/tree/{self.sha}":
            files = [file for file in self.root.rglob("*") if file.is_file()]
            names = [(str(file.relative_to(self.root)), file.stat().st_size) for file in files]
            rows = [{"type": "file", "path": name, "size": size, "oid": name} for name, size in names]
            found = json.dumps(rows).encode()
        elif path.startswith(resolved) and (self.root / path[len(resolved) :]).is_file():
            found = (self.root / path[len(resolved) :]).read_bytes()
        else:
            found, code = b"", 404
        self.send_response(code)
        if code == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(found)))
        self.send_header("ETag", f'"{hashlib.sha256(found).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.sha)
        self.end_headers()
        if body:
            self.wfile.write(found)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def test_huggingface_hub_downloads_from_a_local_hub_server(tmp_path: Path) -> None:
    here = type("Here", (Hub,), {"root": write_older(tmp_path / "set")})
    with ThreadingHTTPServer(("127.0.0.1", 0), here) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = dict(os.environ) | {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "HF_HOME": str(tmp_path / "home"),
        }
        command = [sys.executable, "-m", "recap", "pool", "inspect"]
        done, refused = (
            subprocess.run([*command, name], cwd=tmp_path, env=env, capture_output=True, text=True)
            for name in ("lerobot/tiny@v2.1", "lerobot/other")
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert "lerobot/tiny@v2.1 (lerobot)" in done.stdout
    assert refused.returncode == 2
    assert "no such dataset" in refused.stderr
    assert refused.stderr.strip().count("\n") == 0
