"""The server as others meet it: a socket, health, metrics, and a door that is shut to strangers."""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from served import EPISODES, Served, message_of, replay_service, served
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from episodes import observation_of
from recap.errors import BusyError, ServerError
from recap.serving.app import RUNNING, SOCKET, build_app
from recap.serving.spec import Limits
from recap_client.client import PolicyClient
from recap_client.wire import decode_map, encode

MESSAGE = message_of(observation_of(EPISODES[3], 5))
TOKEN = "a-long-secret"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(replay_service()) as running:
        yield running


def raw(server: Served, data: bytes, timeout_s: float = 60.0) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", server.port), timeout=timeout_s)
    peer.sendall(data)
    return peer


def upgraded(server: Served) -> socket.socket:
    """A websocket by hand, after the handshake."""
    head = (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    peer = raw(server, head.encode())
    assert b"101 Switching" in peer.recv(4096)
    return peer


def test_metadata_comes_first_then_actions(server: Served) -> None:
    with connect(server.ws, compression=None) as socket_:
        metadata = decode_map(socket_.recv(), 2**20)  # type: ignore[arg-type]
        assert (metadata["policy"], metadata["action_horizon"], metadata["action_dim"]) == ("replay", 8, 2)
        assert {"n_action_steps", "camera_size", "control_hz", "reset", "fingerprint"} <= set(metadata)
        socket_.send(encode(MESSAGE))
        reply = decode_map(socket_.recv(), 2**20)  # type: ignore[arg-type]
        assert reply["actions"].shape == (8, 2)
        assert reply["retrieval"]["episode_id"] == "demo/3"
        assert reply["server_timing"]["infer_ms"] > 0


def test_what_is_loaded_is_no_work_for_the_garbage_collector(server: Served) -> None:
    """A full collection over a loaded policy would stop everyone for a third of a second."""
    assert gc.get_freeze_count() > 100_000


def test_an_error_is_a_line_of_text_and_the_connection_goes_on(server: Served) -> None:
    before = server.service.metrics.errors.value
    with connect(server.ws, compression=None) as socket_:
        socket_.recv()
        for bad in (b"\xc1", encode([1]), encode({"prompt": "x"}), "text"):
            socket_.send(bad)
            answer = socket_.recv()
            assert isinstance(answer, str)
            assert "\n" not in answer
            assert "Traceback" not in answer
        socket_.send(encode(MESSAGE))
        assert isinstance(socket_.recv(), bytes)
    assert server.service.metrics.errors.value == before + 4


def test_whoever_sends_nothing_but_garbage_is_let_go(server: Served) -> None:
    with connect(server.ws, compression=None) as socket_:
        socket_.recv()

        def chatter() -> None:
            for _ in range(100):
                socket_.send(b"\xc1")
                socket_.recv()

        with pytest.raises(ConnectionClosed):
            chatter()


def test_a_message_that_is_too_large_ends_its_connection_only(server: Served) -> None:
    with connect(server.ws, compression=None, max_size=None) as socket_, PolicyClient(server.ws) as other:
        socket_.recv()
        with pytest.raises(ConnectionClosed) as caught:  # while it is sending, or after
            socket_.send(bytes(Limits().max_message_bytes + 2**20)) or socket_.recv()
        # The server may reset before its goodbye was read, since not all was sent.
        assert caught.value.rcvd is None or caught.value.rcvd.code == 1009
        assert other.infer(MESSAGE)["actions"].shape == (8, 2)


def test_a_reset_and_its_options(server: Served) -> None:
    with PolicyClient(server.ws) as client:
        client.reset(seed=5, options={"block": "zed"})
        assert client.infer({**MESSAGE, "reset": True})["actions"].shape == (8, 2)
        with pytest.raises(ServerError, match="did you mean 'zed'"):
            client.reset(options={"block": "zedd"})
        with pytest.raises(ServerError, match="unknown option of env 'pusht' 'colour'"):
            client.reset(options={"colour": "red"})
        assert client.infer(MESSAGE)["actions"].shape == (8, 2), "a reset that was refused changes nothing"


def test_a_server_of_no_suite_has_no_options() -> None:
    with served(replay_service(agent={"retrieval": "world"})) as server, PolicyClient(server.ws) as client:
        assert client.metadata["option_names"] == []
        with pytest.raises(ServerError, match="takes no options"):
            client.reset(options={"block": "tee"})
        client.reset(seed=5, options={})


def test_peers_that_stall_or_vanish_hurt_nobody(server: Served) -> None:
    frame = b"\x82\xfe\x40\x00AAAA"  # a masked binary frame of 16 kB, of which little follows
    peers = [raw(server, b""), raw(server, b"GET / HT"), raw(server, b"\x00\xff" * 500)]
    for _ in range(8):
        half = upgraded(server)
        half.sendall(frame + b"x" * 100)
        peers.append(half)
    gone = upgraded(server)
    gone.sendall(frame)
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    gone.close()  # a reset in the middle of a frame
    try:
        with PolicyClient(server.ws) as client:
            for _ in range(20):
                assert client.infer(MESSAGE)["actions"].ndim == 2
        assert server.http("/healthz") == (200, b"ok\n")
    finally:
        for peer in peers:
            peer.close()
    until(lambda: server.service.metrics.connections.value == 0)


def until(what: Any, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_head_of_a_request_has_its_time() -> None:
    service = replay_service(limits=Limits(header_timeout_s=0.3))
    with served(service) as server:
        for data in (b"", b"GET / HTTP/1.1\r\nHost: 127"):
            with closing(raw(server, data)) as peer:
                assert peer.recv(100) == b""


def test_health_answers_while_the_policy_is_busy_and_too_many_are_told_so() -> None:
    service = replay_service(limits=Limits(max_waiting=2, max_batch=1))
    go, begun = threading.Event(), threading.Event()
    serve = service.serve

    def slow(requests: Any) -> Any:
        begun.set()
        assert go.wait(20)
        return serve(requests)

    service.serve = slow  # type: ignore[method-assign]
    with served(service) as server:
        clients = [PolicyClient(server.ws, retries=0) for _ in range(4)]
        threads = [threading.Thread(target=c.infer, args=(MESSAGE,)) for c in clients[:3]]
        threads[0].start()
        assert begun.wait(10)
        for thread in threads[1:]:
            thread.start()
        until(lambda: service.metrics.waiting.value == 2)
        with pytest.raises(BusyError, match="busy"):
            clients[3].infer(MESSAGE)
        for _ in range(20):
            assert server.http("/healthz")[0] == 200
        assert not go.is_set(), "all that while the policy was busy"
        status, text = server.http("/metrics")
        assert status == 200
        assert b"recap_queue_length 2" in text
        assert b"recap_busy_total 1" in text
        assert b"recap_connections 4" in text
        go.set()
        for thread in threads:
            thread.join(10)
        assert clients[3].infer(MESSAGE)["actions"].shape == (8, 2), "it may ask again"
        for client in clients:
            client.close()


def test_more_connections_than_allowed_are_turned_away() -> None:
    with (
        served(replay_service(limits=Limits(max_connections=1))) as server,
        PolicyClient(server.ws) as first,
    ):
        with pytest.raises(BusyError, match="too many connections"):
            PolicyClient(server.ws, retries=1)
        assert first.infer(MESSAGE)["actions"].shape == (8, 2)


def test_a_token_is_asked_for_everywhere_but_for_health() -> None:
    with served(replay_service(token=TOKEN)) as server:
        assert server.http("/healthz")[0] == 200
        for path in ("/", "/metrics", "/api/pool"):
            assert server.http(path)[0] == 401
            assert server.http(path, headers={"Authorization": "Bearer wrong-secret"})[0] == 401
            assert server.http(path, headers={"Authorization": f"Basic {TOKEN}"})[0] == 401
            for kind in ("Bearer", "Api-Key"):
                assert server.http(path, headers={"Authorization": f"{kind} {TOKEN}"})[0] == 200
            assert server.http(path, headers={"Cookie": f"recap-token={TOKEN}"})[0] == 200
        for token in (None, "wrong-secret"):
            with pytest.raises(ServerError, match="refuses \\(401\\)"):
                PolicyClient(server.ws, token)
        with PolicyClient(server.ws, TOKEN) as client:
            assert client.metadata["policy"] == "replay"
        assert server.service.metrics.refused.value >= 8


def test_a_browser_may_bring_the_token_once_in_the_address() -> None:
    with served(replay_service(token=TOKEN)) as server:
        with closing(
            raw(server, f"GET /?token={TOKEN}&a=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        ) as peer:
            answer = peer.recv(4096).decode()
        assert answer.startswith("HTTP/1.1 303")
        assert "Location: /?a=1" in answer
        assert "HttpOnly" in answer
        assert "SameSite=Strict" in answer
        assert server.http("/?token=wrong-secret")[0] == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
    ],
)
def test_pages_of_other_sites_are_kept_out(server: Served, headers: dict[str, str], status: int) -> None:
    assert server.http("/api/pool", headers=headers)[0] == status


def test_a_socket_from_another_sites_page_is_refused(server: Served) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        connect(server.ws, origin=Origin("http://evil.example"))


def test_the_root_says_what_this_is(server: Served) -> None:
    status, text = server.http("/")
    assert status == 200
    assert b"replay" in text


def test_a_server_that_ends_says_goodbye() -> None:
    with ExitStack() as held:
        with served(replay_service()) as server:
            socket_ = held.enter_context(connect(server.ws, compression=None))
            socket_.recv()
        with pytest.raises(ConnectionClosed) as caught:
            socket_.recv(timeout=60)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


def draining(server: Served) -> threading.Thread:
    """The server as it is while it stops gently; the thread ends when all robots have gone."""
    server.app[SOCKET].leaving = True
    asked = asyncio.run_coroutine_threadsafe(server.app[RUNNING].none(20), server.loop)
    waiting = threading.Thread(target=asked.result)
    waiting.start()
    return waiting


def test_a_server_that_drains_lets_an_episode_end_and_begins_none() -> None:
    with served(replay_service()) as server, connect(server.ws, compression=None) as robot:
        robot.recv()
        robot.send(encode(MESSAGE))
        robot.recv()
        assert server.http("/readyz") == (200, b"ready\n")
        waiting = draining(server)
        assert server.http("/readyz") == (503, b"stopping\n")
        assert server.http("/healthz")[0] == 200
        with pytest.raises(BusyError):
            PolicyClient(server.ws, retries=0)
        robot.send(encode(MESSAGE))
        assert isinstance(robot.recv(), bytes), "the episode goes on"
        assert waiting.is_alive()
        robot.send(encode({"reset": True}))
        with pytest.raises(ConnectionClosed) as caught:
            robot.recv(timeout=60)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
        waiting.join(5)
        assert not waiting.is_alive()


def test_a_robot_that_has_not_begun_is_sent_elsewhere() -> None:
    with served(replay_service()) as server, connect(server.ws, compression=None) as robot:
        robot.recv()
        draining(server)
        robot.send(encode(MESSAGE))
        with pytest.raises(ConnectionClosed):
            robot.recv(timeout=60)


def test_a_reply_under_way_is_sent_before_the_server_ends() -> None:
    service = replay_service()
    go, begun = threading.Event(), threading.Event()
    serve = service.serve

    def slow(requests: Any) -> Any:
        begun.set()
        assert go.wait(20)
        return serve(requests)

    service.serve = slow  # type: ignore[method-assign]
    server = Served(service, build_app(service))
    ending = threading.Thread(target=server.stop)
    with connect(server.ws, compression=None) as robot:
        robot.recv()
        robot.send(encode(MESSAGE))
        assert begun.wait(10)
        ending.start()
        until(lambda: server.app[SOCKET].leaving)
        go.set()
        assert isinstance(robot.recv(timeout=60), bytes)
        with pytest.raises(ConnectionClosed):
            robot.recv(timeout=60)
    ending.join(20)


def test_a_server_whose_pool_cannot_be_read_asks_for_no_robots(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(replay_service()) as server:
        source = server.service.agent.retriever.source
        view = source.view

        def gone() -> None:
            raise OSError("the store does not answer")

        monkeypatch.setattr(source, "view", gone)
        assert server.http("/readyz") == (503, b"the pool cannot be read\n")
        assert server.http("/healthz")[0] == 200
        monkeypatch.setattr(source, "view", view)
        assert server.http("/readyz")[0] == 200
