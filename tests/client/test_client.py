"""The policy client: retries, reconnection and errors, beyond openpi's client."""

import socket
import threading
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from served import EPISODES, Served, message_of, replay_service, served

from episodes import observation_of
from recap.errors import InputError, ServerError, WireError
from recap.serving.app import build_app
from recap.serving.spec import Limits
from recap_client.client import PolicyClient

MESSAGE = message_of(observation_of(EPISODES[3], 5))


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as peer:
        return int(peer.getsockname()[1])


def test_an_unreachable_server_is_an_error() -> None:
    with pytest.raises(ServerError, match="is `recap serve` running"):
        PolicyClient(f"127.0.0.1:{free_port()}", retries=2)


def test_a_server_that_never_answers_times_out() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        pytest.raises(ServerError, match="cannot be reached"),
    ):
        PolicyClient(f"127.0.0.1:{silent.getsockname()[1]}", connect_timeout_s=0.3, retries=1)


@pytest.mark.parametrize("url", ["ftp://x", "ws://", "ws://[::1"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="give ws://host:port"):
        PolicyClient(url, retries=0)


def test_the_client_reconnects_after_a_restart_and_repeats_the_reset() -> None:
    port = free_port()
    service = replay_service(port=port)
    server = Served(service, build_app(service))
    client = PolicyClient(f"http://127.0.0.1:{port}", retries=8)
    client.reset(seed=3, options={"block": "zed"})
    first = client.infer(MESSAGE)
    server.stop()
    again = replay_service(port=port)
    seen: list[Any] = []
    serve = again.serve

    def watched(requests: Any) -> Any:
        seen.extend(
            (r.session.pending.seed, r.session.pending.options) for r in requests if r.session.pending
        )
        return serve(requests)

    again.serve = watched  # type: ignore[method-assign]
    late: list[Served] = []
    starter = threading.Timer(0.3, lambda: late.append(Served(again, build_app(again))))
    starter.start()
    second = client.infer(MESSAGE)
    starter.join()
    assert np.array_equal(first["actions"], second["actions"])
    assert client.n_connects == 2
    assert seen == [(3, {"block": "zed"})]
    client.close()
    late[0].stop()


def test_a_busy_reply_is_retried() -> None:
    service = replay_service(limits=Limits(max_waiting=1, max_batch=1))
    serve = service.serve

    def slow(requests: Any) -> Any:
        time.sleep(0.05)
        return serve(requests)

    service.serve = slow  # type: ignore[method-assign]
    with served(service) as server:
        answers: list[int] = []

        def robot() -> None:
            with PolicyClient(server.ws, retries=50) as client:
                answers.extend(len(client.infer(MESSAGE)["actions"]) for _ in range(3))

        robots = [threading.Thread(target=robot) for _ in range(6)]
        for thread in robots:
            thread.start()
        for thread in robots:
            thread.join(30)
        assert answers == [8] * 18
        assert service.metrics.busy.value > 0


def test_a_message_that_cannot_be_encoded_or_lacks_a_state_is_an_error() -> None:
    with served(replay_service()) as server, PolicyClient(server.ws) as client:
        with pytest.raises(WireError):
            client.infer({"observation/state": object()})
        with pytest.raises(ServerError, match="observation/state"):
            client.infer({"prompt": "x"})
        assert client.infer(MESSAGE)["actions"].shape == (8, 2), "the connection stays usable after an error"


def test_importing_the_client_loads_neither_torch_nor_aiohttp() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import recap_client.client; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'aiohttp', 'pyarrow', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
