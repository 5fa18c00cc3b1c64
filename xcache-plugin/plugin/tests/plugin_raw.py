"""A client that sends a path as it is, byte for byte: XRootD's own clients take a URL, and change or refuse what is none.

The wire format is that of the XRootD protocol specification, version 5 (https://xrootd.org/doc/dev56/XRdv520.htm): big-endian, requests of
24 bytes and data, answers of 8 bytes and data.
"""

from __future__ import annotations

import socket
import struct
import time

from smartcache.local.ports import LOOPBACK

CLOSE, LOGIN, OPEN, READ = 3003, 3007, 3010, 3013
OK, MORE, ERROR, WAIT = 0, 4000, 4003, 4005
OPEN_READ = 0x0010
TIMEOUT_S = 60


class Refused(Exception):
    """The server's answer is an error; its text is the server's."""


class RawClient:
    """A session with the server at ``port``. One thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), TIMEOUT_S)
        self._socket.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012))
        self._answer()
        self._ask(LOGIN, struct.pack(">i8s4B", 1, b"raw", 0, 0, 4, 0))

    def content(self, path: bytes, size: int, offset: int = 0) -> bytes:
        """Open ``path``, read ``size`` bytes from ``offset`` on, or what there is of them, close. Raises :class:`Refused`."""
        handle = self._ask(OPEN, struct.pack(">HH12x", 0, OPEN_READ), path)[:4]
        data = self._ask(READ, struct.pack(">4sqi", handle, offset, size))
        self._ask(CLOSE, struct.pack(">4s12x", handle))
        return data

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _ask(self, request: int, parameters: bytes, data: bytes = b"") -> bytes:
        while True:
            self._socket.sendall(struct.pack(">2sH16si", b"\0\1", request, parameters, len(data)) + data)
            status, answer = self._answer()
            while status == MORE:
                status, more = self._answer()
                answer += more
            if status == ERROR:
                raise Refused(answer[4:].rstrip(b"\0").decode(errors="replace"))
            if status == OK:
                return answer
            assert status == WAIT, f"answer {status} to request {request}"
            time.sleep(struct.unpack(">i", answer[:4])[0])  # as the server asks for

    def _answer(self) -> tuple[int, bytes]:
        _, status, length = struct.unpack(">2sHi", self._exactly(8))
        return status, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                raise ConnectionError("the server has hung up")
            got += more
        return got
