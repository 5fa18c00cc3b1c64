"""An endpoint that answers to order: well, badly, late or not at all."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable

from smartcache.local.ports import LOOPBACK

ADMIT, BYPASS, EVICT = [0.9, 0.05, 0.05], [0.3, 0.6, 0.1], [0.01, 0.09, 0.9]


def http(body: bytes, status: str = "200 OK", length: int | None = None, headers: str = "") -> bytes:
    """A reply; ``length``: what its head claims where that is not the truth."""
    claimed = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {claimed}\r\n\r\n".encode() + body


class Talk:
    """One request on a connection, to be answered. What is sent after the client has gone is lost without a word."""

    def __init__(self, connection: socket.socket, ordered_anew: threading.Event) -> None:
        self._connection = connection
        self._ordered_anew = ordered_anew

    def send(self, data: bytes) -> bool:
        """False where the client has gone."""
        try:
            self._connection.sendall(data)
        except OSError:
            return False
        return True

    def wait(self, seconds: float | None = None) -> bool:
        """False where meanwhile something else was ordered: time to end."""
        return not self._ordered_anew.wait(seconds)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


class Endpoint:
    """Speaks the TFaaS API and answers every request with what ``of_model`` has for its model, else with ``outputs``, or as :meth:`order`
    says; None: not at all.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.outputs: list[float] | None = ADMIT
        self.of_model: dict[str, list[float]] = {}
        self.requests: list[dict] = []
        self.tls = tls
        #: Connections are accepted, and not a word is said or heard on them.
        self.silent = False
        self.scheme = "http" if tls is None else "https"
        self._answer: Callable[[Talk], object] | None = None
        self._ordered_anew = threading.Event()
        self._connections: set[socket.socket] = set()
        self._fillers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.port = 0
        self.listen()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{LOOPBACK}:{self.port}"

    def order(self, answer: Callable[[Talk], object] | None) -> None:
        """Answer from now on by ``answer``, None: well again. All connections are dropped, so nothing of before is left on one."""
        with self._lock:
            self._answer = answer
            self._ordered_anew.set()
            self._ordered_anew = threading.Event()
        self._drop()

    def listen(self) -> None:
        """Be there (again), at the same port as before."""
        self.vanish()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        thread = threading.Thread(target=self._accept, args=(listener,))
        thread.start()
        self._threads.append(thread)

    def vanish(self) -> None:
        """Refuse connections."""
        while self._fillers:
            self._fillers.pop().close()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join()
            self._threads.clear()
            self._listener.close()
            self._listener = None
        self._drop()

    def absent(self) -> None:
        """As a host that is not there: what asks for a connection hears nothing, because a full queue drops it."""
        self.vanish()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, self.port))
        listener.listen(0)
        self._fillers.append(listener)
        while True:
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._fillers.append(filler)
            filler.settimeout(0.3)
            try:
                filler.connect((LOOPBACK, self.port))
            except TimeoutError:
                return

    def close(self) -> None:
        self.order(None)
        self.vanish()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            with self._lock:
                self._connections.add(connection)
            stack.callback(self._forget, connection)
            with contextlib.suppress(OSError, ValueError):
                if self.silent:
                    self._ordered_anew.wait()
                    return
                talk_over = connection if self.tls is None else stack.enter_context(self._secured(connection))
                self._talk(talk_over)

    def _secured(self, connection: socket.socket) -> ssl.SSLSocket:
        secured = self.tls.wrap_socket(connection, server_side=True)
        with self._lock:
            self._connections.add(secured)
        return secured

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._connections = {each for each in self._connections if each.fileno() >= 0}

    def _talk(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as received:
            while head := self._head(received):
                body = received.read(int(head["content-length"]))
                with self._lock:
                    answer, ordered_anew = self._answer, self._ordered_anew
                request = json.loads(body)
                self.requests.append(request)
                talk = Talk(connection, ordered_anew)
                if answer is not None:
                    answer(talk)
                elif self.outputs is None:
                    talk.wait()
                    return
                else:
                    talk.send(http(json.dumps(self.of_model.get(request["model"], self.outputs)).encode()))

    @staticmethod
    def _head(received: object) -> dict[str, str]:
        """The headers of the next request, names in lower case; none where the client has gone."""
        head: dict[str, str] = {}
        while (line := received.readline().decode()) not in ("\r\n", ""):
            name, _, value = line.partition(":")
            head[name.lower()] = value.strip()
        return head
