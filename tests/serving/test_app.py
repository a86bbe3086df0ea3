"""The policy server's network interface: websocket, health, metrics, access control and shutdown."""

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
    """A raw socket after a hand-written websocket handshake."""
    head = (
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    peer = raw(server, head.encode())
    assert b"101 Switching" in peer.recv(4096)
    return peer


def test_the_server_sends_metadata_first_and_then_actions(server: Served) -> None:
    with connect(server.ws, compression=None) as socket_:
        metadata = decode_map(socket_.recv(), 2**20)  # type: ignore[arg-type]
        assert (metadata["policy"], metadata["action_horizon"], metadata["action_dim"]) == ("replay", 8, 2)
        assert {"n_action_steps", "camera_size", "control_hz", "reset", "fingerprint"} <= set(metadata)
        socket_.send(encode(MESSAGE))
        reply = decode_map(socket_.recv(), 2**20)  # type: ignore[arg-type]
        assert reply["actions"].shape == (8, 2)
        assert reply["retrieval"]["episode_id"] == "demo/3"
        assert reply["server_timing"]["infer_ms"] > 0


def test_loaded_objects_are_frozen_out_of_garbage_collection(server: Served) -> None:
    """A full collection over a loaded policy would pause every reply for a third of a second."""
    assert gc.get_freeze_count() > 100_000


def test_a_bad_message_gets_a_one_line_error_and_the_connection_stays_open(server: Served) -> None:
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


def test_a_client_that_sends_only_bad_messages_is_disconnected(server: Served) -> None:
    with connect(server.ws, compression=None) as socket_:
        socket_.recv()

        def chatter() -> None:
            for _ in range(100):
                socket_.send(b"\xc1")
                socket_.recv()

        with pytest.raises(ConnectionClosed):
            chatter()


def test_a_too_large_message_closes_only_its_own_connection(server: Served) -> None:
    with connect(server.ws, compression=None, max_size=None) as socket_, PolicyClient(server.ws) as other:
        socket_.recv()
        with pytest.raises(ConnectionClosed) as caught:  # while sending, or afterwards
            socket_.send(bytes(Limits().max_message_bytes + 2**20)) or socket_.recv()
        # The server may reset the connection before its close frame is read, as not all data was sent.
        assert caught.value.rcvd is None or caught.value.rcvd.code == 1009
        assert other.infer(MESSAGE)["actions"].shape == (8, 2)


def test_reset_accepts_known_options_and_refuses_unknown_ones(server: Served) -> None:
    with PolicyClient(server.ws) as client:
        client.reset(seed=5, options={"block": "zed"})
        assert client.infer({**MESSAGE, "reset": True})["actions"].shape == (8, 2)
        with pytest.raises(ServerError, match="did you mean 'zed'"):
            client.reset(options={"block": "zedd"})
        with pytest.raises(ServerError, match="unknown option of env 'pusht' 'colour'"):
            client.reset(options={"colour": "red"})
        assert client.infer(MESSAGE)["actions"].shape == (8, 2), "a refused reset changes nothing"


def test_a_server_without_a_suite_has_no_reset_options() -> None:
    with served(replay_service(agent={"retrieval": "world"})) as server, PolicyClient(server.ws) as client:
        assert client.metadata["option_names"] == []
        with pytest.raises(ServerError, match="takes no options"):
            client.reset(options={"block": "tee"})
        client.reset(seed=5, options={})


def test_stalled_and_vanished_peers_do_not_affect_other_clients(server: Served) -> None:
    frame = b"\x82\xfe\x40\x00AAAA"  # the head of a masked binary frame of 16 kB, never sent in full
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


def test_an_incomplete_request_header_times_out() -> None:
    service = replay_service(limits=Limits(header_timeout_s=0.3))
    with served(service) as server:
        for data in (b"", b"GET / HTTP/1.1\r\nHost: 127"):
            with closing(raw(server, data)) as peer:
                assert peer.recv(100) == b""


def test_health_answers_while_the_policy_is_busy_and_a_full_queue_says_busy() -> None:
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
        assert not go.is_set(), "the policy was busy all this time"
        status, text = server.http("/metrics")
        assert status == 200
        assert b"recap_queue_length 2" in text
        assert b"recap_busy_total 1" in text
        assert b"recap_connections 4" in text
        go.set()
        for thread in threads:
            thread.join(10)
        assert clients[3].infer(MESSAGE)["actions"].shape == (8, 2), "the refused client may ask again"
        for client in clients:
            client.close()


def test_connections_beyond_the_limit_are_refused() -> None:
    with (
        served(replay_service(limits=Limits(max_connections=1))) as server,
        PolicyClient(server.ws) as first,
    ):
        with pytest.raises(BusyError, match="too many connections"):
            PolicyClient(server.ws, retries=1)
        assert first.infer(MESSAGE)["actions"].shape == (8, 2)


def test_every_route_but_health_needs_the_token() -> None:
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


def test_a_token_in_the_url_becomes_a_cookie_and_a_redirect() -> None:
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
def test_requests_with_a_foreign_host_or_origin_are_refused(
    server: Served, headers: dict[str, str], status: int
) -> None:
    assert server.http("/api/pool", headers=headers)[0] == status


def test_a_websocket_with_a_foreign_origin_is_refused(server: Served) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        connect(server.ws, origin=Origin("http://evil.example"))


def test_the_root_page_names_the_policy(server: Served) -> None:
    status, text = server.http("/")
    assert status == 200
    assert b"replay" in text


def test_a_stopping_server_closes_connections_with_code_1001() -> None:
    with ExitStack() as held:
        with served(replay_service()) as server:
            socket_ = held.enter_context(connect(server.ws, compression=None))
            socket_.recv()
        with pytest.raises(ConnectionClosed) as caught:
            socket_.recv(timeout=60)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


def draining(server: Served) -> threading.Thread:
    """Puts the server into draining; the returned thread ends when all robots have disconnected."""
    server.app[SOCKET].leaving = True
    asked = asyncio.run_coroutine_threadsafe(server.app[RUNNING].none(20), server.loop)
    waiting = threading.Thread(target=asked.result)
    waiting.start()
    return waiting


def test_a_draining_server_finishes_episodes_and_starts_none() -> None:
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
        assert isinstance(robot.recv(), bytes), "the running episode continues"
        assert waiting.is_alive()
        robot.send(encode({"reset": True}))
        with pytest.raises(ConnectionClosed) as caught:
            robot.recv(timeout=60)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
        waiting.join(5)
        assert not waiting.is_alive()


def test_a_draining_server_disconnects_a_robot_that_has_not_started() -> None:
    with served(replay_service()) as server, connect(server.ws, compression=None) as robot:
        robot.recv()
        draining(server)
        robot.send(encode(MESSAGE))
        with pytest.raises(ConnectionClosed):
            robot.recv(timeout=60)


def test_a_pending_reply_is_sent_before_the_server_stops() -> None:
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


def test_a_server_that_cannot_read_its_pool_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
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
