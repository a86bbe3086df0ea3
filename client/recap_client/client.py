"""A policy client like openpi's, with a connect timeout, resets and retries."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from recap_client.errors import BusyError, InputError, ServerError, UnreachableError
from recap_client.wire import decode_map, encode

T = TypeVar("T")

MAX_REPLY_BYTES = 64 * 2**20
CLOSE_TIMEOUT_S = 1.0
UPLOAD_TIMEOUT_S = 120.0
FIRST_WAIT_S, MAX_WAIT_S = 0.05, 2.0


class PolicyClient:
    """A client of a policy server. It reconnects if the connection is lost, which begins a new episode.

    Args:
        url: `ws://host:port`, or just `host:port`.
        token: the server's token, if it needs one.
        connect_timeout_s: timeout of one attempt to connect.
        reply_timeout_s: timeout of one reply.
        retries: number of retries if the connection is lost or the server is busy.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        connect_timeout_s: float = 5.0,
        reply_timeout_s: float = 30.0,
        retries: int = 5,
    ) -> None:
        self.url = url if url.startswith(("ws://", "wss://")) else f"ws://{url.removeprefix('http://')}"
        if "://" in url and not url.startswith(("ws://", "wss://", "http://")):
            raise InputError(f"'{url}' is no address of a policy server: give ws://host:port")
        self.connect_timeout_s, self.reply_timeout_s = connect_timeout_s, reply_timeout_s
        self.retries = retries
        self.n_connects = 0
        self._headers = {"Authorization": f"Api-Key {token}"} if token else {}
        self._episode: dict[str, Any] = {}  # the last reset, repeated after a reconnection
        self._socket: Any = None
        self._held = ExitStack()  # closes the socket
        self._metadata: dict[str, Any] = {}
        self._patiently(lambda: None)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the server."""
        return self._metadata

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Request actions for an observation."""
        data = encode(dict(observation))
        return self._patiently(lambda: self._exchange(data))

    def reset(
        self,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        success: bool | None = None,
    ) -> None:
        """Begin a new episode.

        Args:
            options: options of the server's suite, if it has one.
            success: the outcome of the episode that ends here, for the server's log.
        """
        given = {"seed": seed, "options": dict(options) if options else None}
        self._episode = {"reset": True, **{key: value for key, value in given.items() if value is not None}}
        data = encode(self._episode if success is None else {**self._episode, "success": success})
        self._patiently(lambda: self._exchange(data))

    def upload(self, episode: Mapping[str, Any]) -> int:
        """Add a demonstration to the server's pool; returns the new version, used from the next reply on."""
        url = "http" + self.url.removeprefix("ws").rstrip("/") + "/api/pool"
        headers = {**self._headers, "Content-Type": "application/msgpack"}
        request = urllib.request.Request(url, encode(dict(episode)), headers)
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=UPLOAD_TIMEOUT_S) as reply:
                return int(json.load(reply)["version"])
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(10_000).decode("utf-8", "replace")
            try:
                told = json.loads(told)["error"]
            except (ValueError, KeyError, TypeError):
                told = f"status {error.code}"
            raise ServerError(f"policy server {self.url} does not take the demonstration: {told}") from error
        except (OSError, ValueError, KeyError) as error:
            raise UnreachableError(f"policy server {self.url} cannot be reached ({error})") from error

    def close(self) -> None:
        """Close the connection."""
        self._socket = None
        self._held.close()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Try, and retry with increasing waits if the connection is lost or the server is busy."""
        wait_s = FIRST_WAIT_S
        for left in range(self.retries, -1, -1):
            try:
                if self._socket is None:
                    self._connect()
                return attempt()
            except BusyError:
                if not left:
                    raise
            except (OSError, EOFError) as error:  # timeouts are OSErrors
                self.close()
                if not left:
                    why = " ".join(str(error).split()) or type(error).__name__
                    raise UnreachableError(
                        f"policy server {self.url} cannot be reached ({why}): is `recap serve` running?"
                    ) from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)
        raise AssertionError

    def _connect(self) -> None:
        from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException
        from websockets.sync.client import connect

        try:
            self._socket = self._held.enter_context(
                connect(
                    self.url,
                    additional_headers=self._headers,
                    open_timeout=self.connect_timeout_s,
                    close_timeout=CLOSE_TIMEOUT_S,
                    compression=None,
                    max_size=MAX_REPLY_BYTES,
                    proxy=None,
                )
            )
            self._metadata = decode_map(self._socket.recv(timeout=self.reply_timeout_s), MAX_REPLY_BYTES)
        except (InvalidURI, ValueError) as error:
            raise InputError(f"'{self.url}' is no address of a policy server: give ws://host:port") from error
        except InvalidHandshake as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == 503:
                raise BusyError(f"policy server {self.url} is busy: it has too many connections") from error
            if status in (401, 403):
                raise ServerError(
                    f"policy server {self.url} refuses ({status}): check the token and the address"
                ) from error
            raise ConnectionError(" ".join(str(error).split())) from error
        except WebSocketException as error:
            raise ConnectionError(" ".join(str(error).split())) from error
        self.n_connects += 1
        if self._episode:
            self._exchange(encode(self._episode))

    def _exchange(self, data: bytes) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed

        try:
            self._socket.send(data)
            reply = self._socket.recv(timeout=self.reply_timeout_s)
        except ConnectionClosed as error:
            raise ConnectionError(" ".join(str(error).split())) from error
        if isinstance(reply, str):
            if reply.startswith("busy"):
                raise BusyError(f"policy server {self.url}: {reply}")
            raise ServerError(f"policy server {self.url}: {reply}")
        return decode_map(reply, MAX_REPLY_BYTES)
