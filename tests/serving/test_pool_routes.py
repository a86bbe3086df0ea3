"""The pool over HTTP: list, add, remove, tag, roll back; changes are used from the next step on."""

import gzip
import io
import json
import socket
import struct
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from served import Served, message_of, replay_service, replay_spec, served

from episodes import observation_of, random_episode
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.serving.spec import Limits
from recap.types import Episode
from recap_client.client import PolicyClient
from recap_client.wire import encode
from toy_policy import drawn

ZIP = {"Content-Type": "application/zip"}
WIRE = {"Content-Type": "application/msgpack"}
DEMOS = [drawn(random_episode(f"demo/{i}", i, n=12)) for i in range(6)]
LIMITS = Limits(max_upload_bytes=2**20, max_unpacked_bytes=2**22, max_members=50, upload_stall_s=0.3)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    Pool.create(tmp_path / "pool").add(DEMOS[:3])
    spec = replay_spec(pool=str(tmp_path / "pool"), limits=LIMITS)
    with served(Service.open(spec)) as running:
        yield running


def as_message(episode: Episode, **changes: Any) -> bytes:
    """One episode as a client sends it."""
    message: dict[str, Any] = {
        "id": episode.id,
        "task": episode.task,
        "embodiment": episode.embodiment,
        "fps": episode.fps,
        "proprio": episode.proprio,
        "actions": episode.actions,
        "objects": dict(episode.objects),
        "goal": episode.goal,
        "images": {"top": np.stack(list(episode.images["top"]))},
        "attributes": dict(episode.attributes),
    }
    message.update(changes)
    return encode({key: value for key, value in message.items() if value is not None})


def zipped(folder: Path, prefix: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, prefix + str(file.relative_to(folder)))
    return out.getvalue()


def dataset(folder: Path, *episodes: Episode) -> Path:
    for i, episode in enumerate(episodes):
        stage_episode(folder / "staging", i, episode)
    assemble(folder / "staging", len(episodes), folder / "data")
    return folder / "data"


def path_of(episode_id: str) -> str:
    return f"/api/pool/{quote(episode_id, safe='')}"


def test_episodes_are_listed_newest_first_with_filters_and_pages(server: Served) -> None:
    status, found = server.json("/api/pool")
    assert status == 200
    assert (found["version"], found["total"], found["writable"]) == (2, 3, True)
    assert [row["id"] for row in found["episodes"]] == ["demo/2", "demo/1", "demo/0"]
    row = found["episodes"][0]
    assert (row["task"], row["embodiment"], row["length"], row["success"]) == (
        "push the block",
        "disc",
        12,
        True,
    )
    assert row["goal"][:2] == [256, 256]
    assert row["attributes"] == {"symmetry": 1, "block": "tee"}
    assert not {"block", "goal_angle", "seed"} & set(row)
    assert found["attributes"] == {"block": ["tee"], "symmetry": ["1"]}
    assert found["unusable"] == {}
    assert [r["id"] for r in server.json("/api/pool?offset=1&limit=1")[1]["episodes"]] == ["demo/1"]
    for query, n in (
        ("q=DEMO/1", 1),
        ("embodiment=triangle", 0),
        ("task=push%20the%20block", 3),
        ("success=false", 0),
        ("attribute.block=tee", 3),
        ("attribute.block=zed", 0),
        ("attribute.symmetry=1&attribute.block=tee", 3),
        ("attribute.colour=red", 0),
    ):
        assert server.json(f"/api/pool?{query}")[1]["total"] == n
    for query in ("offset=-1", "limit=0", "limit=x", "limit=99999", "tag=none", "version=77"):
        status, answer = server.json(f"/api/pool?{query}")
        assert status == 400
        assert "\n" not in answer["error"]


def test_an_episode_has_a_video_a_thumbnail_and_a_trajectory(server: Served) -> None:
    path = path_of("demo/1")
    assert server.json(path)[1]["cameras"] == ["top"]
    status, film = server.http(f"{path}/video")
    assert status == 200
    assert film[4:8] == b"ftyp"
    status, part = server.http(f"{path}/video", headers={"Range": "bytes=0-99"})
    assert (status, len(part)) == (206, 100)
    status, still = server.http(f"{path}/thumbnail?t=3")
    assert status == 200
    assert still.startswith(b"\x89PNG")
    assert struct.unpack(">II", still[16:24]) == (96, 96)
    trajectory = server.json(f"{path}/trajectory")[1]
    assert np.allclose(trajectory["proprio"], DEMOS[1].proprio)
    assert np.allclose(trajectory["objects"]["block"], DEMOS[1].objects["block"])
    assert trajectory["fps"] == 10
    for what in ("", "/video", "/thumbnail", "/trajectory"):
        status, answer = server.json(path_of("demo/99") + what)
        assert status == 404
        assert "no episode" in answer["error"]
    assert server.json(f"{path}/thumbnail?camera=wrist")[0] == 400
    assert server.json("/api/nothing")[0] == 404


def test_an_uploaded_episode_is_used_from_the_next_step_on(server: Served) -> None:
    message = message_of(observation_of(DEMOS[5], 4))
    with PolicyClient(server.ws) as client:
        before = client.infer(message)
        assert before["retrieval"]["episode_id"] != "demo/5"
        status, body = server.http("/api/pool", as_message(DEMOS[5]), WIRE)
        assert status == 201
        assert json.loads(body) == {"version": 3, "added": ["demo/5"]}
        after = client.infer(message)
        assert (after["retrieval"]["episode_id"], after["pool_version"]) == ("demo/5", 3)
        assert server.json(path_of("demo/5"), method="DELETE") == (200, {"version": 4, "was": 3})
        gone = client.infer(message)
        assert gone["retrieval"]["episode_id"] != "demo/5"
        assert server.json("/api/pool/rollback", {"version": 3, "expect": 4})[1]["version"] == 5
        assert client.infer(message)["retrieval"]["episode_id"] == "demo/5"
    kept = server.service.store.get("demo/5")
    assert np.array_equal(kept.actions, DEMOS[5].actions)
    assert kept.timestamps[1] == pytest.approx(0.1)


def test_an_uploaded_lerobot_zip_is_used_from_the_next_step_on(server: Served, tmp_path: Path) -> None:
    folder = dataset(tmp_path, DEMOS[3], DEMOS[4])
    status, body = server.http("/api/pool", zipped(folder, "my-data/"), ZIP)
    assert status == 201, body
    assert json.loads(body)["added"] == ["demo/3", "demo/4"]
    with PolicyClient(server.ws) as client:
        assert client.infer(message_of(observation_of(DEMOS[4], 4)))["retrieval"]["episode_id"] == "demo/4"
    status, body = server.http("/api/pool", zipped(folder), ZIP)
    assert status == 409
    assert b"already" in body
    status, body = server.http("/api/pool?skip_existing=1&name=my-data", zipped(folder), ZIP)
    assert (status, json.loads(body)) == (200, {"version": 3, "added": []})
    assert server.http("/api/pool?name=../up", zipped(folder), ZIP)[0] == 400
    assert server.json("/api/pool")[1]["total"] == 5


def test_versions_tags_diff_and_rollback(server: Served) -> None:
    assert server.json("/api/pool/tags", {"name": "before"})[1] == {"version": 2}
    server.json(path_of("demo/0"), method="DELETE")
    versions = server.json("/api/pool/versions")[1]
    assert versions["head"] == 3
    assert [v["op"] for v in versions["versions"]] == ["create", "add", "remove"]
    assert versions["versions"][1]["tags"] == ["before"]
    assert server.json("/api/pool/diff?from=before&to=3")[1] == {
        "added": [],
        "removed": ["demo/0"],
        "changed": [],
    }
    tagged = server.json("/api/pool?tag=before")[1]
    assert tagged["total"] == 3
    assert tagged["episodes"][0]["tags"] == ["before"]
    assert server.http(f"{path_of('demo/0')}/thumbnail?version=before")[0] == 200
    assert server.json("/api/pool/rollback", {"version": "before", "expect": 2})[0] == 409
    assert server.json("/api/pool/rollback", {"version": "before"}) == (200, {"version": 4, "was": 3})
    assert server.json("/api/pool")[1]["total"] == 3
    assert server.json("/api/pool/tags", {"name": "before"})[0] == 400, "a tag moves only with move"
    assert server.json("/api/pool/tags", {"name": "before", "move": True})[1] == {"version": 4}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("rollback", {}),
        ("rollback", {"version": 99}),
        ("rollback", {"version": True}),
        ("rollback", {"version": 1, "expect": "x"}),
        ("rollback", [1]),
        ("tags", {}),
        ("tags", {"name": ""}),
        ("tags", {"name": "x", "colour": "red"}),
        ("diff", None),
    ],
)
def test_a_wrong_body_is_a_one_line_error(server: Served, path: str, body: object) -> None:
    status, answer = server.json(f"/api/pool/{path}", body)
    assert status == 400
    assert "\n" not in answer["error"]
    assert server.service.store.version == 2


def test_a_full_disk_is_a_one_line_error_and_robots_are_still_served(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("LanceError(IO): No space left on device (os error 28), /lance/writer.rs:254:9")

    monkeypatch.setattr("recap.pool.table.Table.write", full)
    body = as_message(drawn(random_episode("new", 9, n=12)))
    with PolicyClient(server.ws) as client:
        status, answer = server.http("/api/pool", body, {"Content-Type": "application/msgpack"})
        why = "the server cannot write: No space left on device. Send it again when that is mended"
        assert (status, json.loads(answer)["error"]) == (507, why)
        assert not client.infer(message_of(observation_of(DEMOS[1], 5)))["held"]
    assert "Traceback" not in caplog.text
    assert server.service.store.version == 2
    monkeypatch.undo()
    assert server.http("/api/pool", body, {"Content-Type": "application/msgpack"})[0] == 201


def test_episode_ids_may_be_any_text(server: Served) -> None:
    hostile = [
        "../../etc/passwd",
        "<img src=x onerror=alert(1)>",
        "a%2Fb",
        "ü/ö ä?#&",
        "..",
        "%",
        "{x}",
    ]
    for name in hostile:
        status, body = server.http("/api/pool", as_message(random_and_drawn(name)), WIRE)
        assert status == 201, body
    listed = [row["id"] for row in server.json("/api/pool")[1]["episodes"]]
    assert listed[: len(hostile)] == hostile[::-1]
    for name in hostile:
        if name != "..":  # clients remove it from the path before they send it
            assert server.json(path_of(name))[1]["id"] == name
            assert server.json(path_of(name), method="DELETE")[0] == 200


def random_and_drawn(name: str) -> Episode:
    return drawn(random_episode(name, sum(map(ord, name)), n=12))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": ""}, "id"),
        ({"id": "x" * 501}, "500 characters"),
        ({"id": None}, "lacks 'id'"),
        ({"id": "a\nb"}, "control characters"),
        ({"task": "push \x1b[2J"}, "control characters"),
        ({"embodiment": "di\u202esc"}, "control characters"),
        ({"fps": 0}, "fps"),
        ({"fps": "ten"}, "fps"),
        ({"proprio": np.zeros((12, 2)) + np.nan}, "proprio"),
        ({"proprio": np.zeros((0, 2), np.float32)}, "0 steps"),
        ({"proprio": np.zeros(12)}, "2 dimensions"),
        ({"actions": np.zeros((11, 2))}, "actions"),
        ({"actions": "left"}, "actions"),
        ({"goal": np.array([np.inf, 0, 0])}, "goal"),
        ({"objects": [1]}, "a map"),
        ({"objects": {"block": np.zeros((5, 3))}}, "block"),
        ({"images": {"top": np.zeros((12, 96, 96), np.uint8)}}, "film"),
        ({"images": {"top": np.zeros((12, 95, 95, 3), np.uint8)}}, "odd"),
        ({"images": {"top": np.zeros((11, 96, 96, 3), np.uint8)}}, "top"),
        ({"timestamps": np.zeros(12)}, "time"),
        ({"success": "yes"}, "success"),
        ({"attributes": {"x": [1]}}, "attribute"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_an_unusable_episode_is_refused(server: Served, changes: dict[str, Any], words: str) -> None:
    status, body = server.http("/api/pool", as_message(DEMOS[5], **changes), WIRE)
    assert status == 400, body
    error = json.loads(body)["error"]
    assert words in error
    assert "\n" not in error
    assert server.service.store.version == 2


def member(name: str, data: bytes = b"x", mode: int = 0, **fields: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = mode << 16
        archive.writestr(info, data)
    return out.getvalue()


def many(n: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for i in range(n):
            archive.writestr(f"f{i}", b"")
    return out.getvalue()


def lying() -> bytes:
    """A zip member that declares 10 bytes and holds a megabyte."""
    data = bytearray(member("meta/info.json", bytes(2**20)))
    size = struct.pack("<I", 2**20)
    at = data.find(size)
    while at >= 0:
        data[at : at + 4] = struct.pack("<I", 10)
        at = data.find(size)
    return bytes(data)


BAD_ZIPS = {
    "no zip": b"PK but not really",
    "empty": b"",
    "no dataset": member("readme.txt"),
    "a bomb": member("meta/info.json", bytes(2**23)),
    "a liar": lying(),
    "too many": many(60),
    "up and out": member("../../outside.txt"),
    "absolute": member("/tmp/outside.txt"),
    "a drive": member("C:/outside.txt"),
    "backslashes": member("..\\outside.txt"),
    "a link": member("meta/info.json", b"/etc/passwd", 0o120777),
    "half": member("meta/info.json", bytes(range(256)) * 64)[:-200],
    "info that is no JSON": member("meta/info.json", b"{"),
    "info that is deep": member("meta/info.json", b"[" * 100_000),
}


@pytest.mark.parametrize("what", BAD_ZIPS)
def test_a_damaged_or_malicious_zip_is_refused(server: Served, what: str, tmp_path: Path) -> None:
    status, body = server.http("/api/pool", BAD_ZIPS[what], ZIP)
    assert status == 400, body
    error = json.loads(body)["error"]
    assert "\n" not in error
    assert "recap-upload" not in error
    assert not list(tmp_path.glob("**/outside.txt"))
    assert not Path("/tmp/outside.txt").exists()
    assert server.service.store.version == 2


def test_uploads_have_a_size_limit_known_types_and_a_timeout(server: Served) -> None:
    assert server.http("/api/pool", b"{}", {"Content-Type": "application/json"})[0] == 400
    assert server.http("/api/pool", bytes(2**20 + 1), ZIP)[0] == 413
    packed = gzip.compress(bytes(2**24))
    assert server.http("/api/pool", packed, {**ZIP, "Content-Encoding": "gzip"})[0] == 413, "a bomb"
    assert server.json("/api/pool/tags", {"name": "x" * 70_000})[0] == 413
    head = (
        f"POST /api/pool HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/zip\r\n"
        "Content-Length: 1000\r\n\r\nPK"
    )
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=60)) as stalled:
        stalled.sendall(head.encode())
        assert b"408" in stalled.recv(4096)


def test_a_snapshot_can_be_read_but_not_changed() -> None:
    service = replay_service(DEMOS[:2])
    with served(service) as server:
        assert server.json("/api/pool")[1]["writable"] is False
        assert server.json("/api/pool/versions")[1] == {"head": 1, "versions": []}
        assert server.http(f"{path_of('demo/0')}/video")[1][4:8] == b"ftyp"
        for path, method in (("/api/pool/rollback", "POST"), (path_of("demo/0"), "DELETE")):
            status, answer = server.json(path, {"version": 1}, method)
            assert status == 400
            assert "snapshot" in answer["error"]
        status, body = server.http("/api/pool", as_message(DEMOS[5]), WIRE)
        assert status == 400
        assert b"snapshot" in body
