"""Name service that misbehaves to order, for one server alone: it runs in a mount namespace where /etc/resolv.conf names ours."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from smartcache.local import xrootd
from smartcache.local.ports import LOOPBACK

#: On loopback, and nobody else's.
ADDRESS = "127.53.53.53"
#: How long a resolver waits for an answer.
PATIENCE_S = 3
_NAMESPACE = ("unshare", "--user", "--map-current-user", "--keep-caps", "--mount")
_HEAD = struct.Struct(">HHHHHH")


class NameServer:
    """Answers as ``mode`` says: "silent", "unknown" (no such name), "failing", "garbage", "known" (every name is this machine).

    Whatever it says, that goes for names of smartcache alone: XRootD asks for others when it starts.
    """

    def __init__(self, folder: Path) -> None:
        """Skips the test where this machine does not allow it."""
        user = {"user": xrootd.SERVER_USER} if os.geteuid() == 0 else {}
        if subprocess.run([*_NAMESPACE, "true"], capture_output=True, **user).returncode != 0:
            pytest.skip("this machine allows no user and mount namespaces")
        self.mode = "silent"
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((ADDRESS, 53))
        except PermissionError:
            self._socket.close()
            pytest.skip("this user may not listen at port 53")
        self._file = folder / "resolv.conf"
        # Less patience than the usual 10 s, and still more than a server may take to start.
        self._file.write_text(f"nameserver {ADDRESS}\noptions timeout:{PATIENCE_S} attempts:1\n")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def wrapper(self) -> list[str]:
        """Runs a command that asks this name server, and no other."""
        return [*_NAMESPACE, "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(self._file)]

    def close(self) -> None:
        self.mode = "closed"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", (ADDRESS, 53))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while self.mode != "closed":
            query, client = self._socket.recvfrom(4096)
            self.asked += 1
            if reply := self._reply(query):
                with contextlib.suppress(OSError):
                    self._socket.sendto(reply, client)

    def _reply(self, query: bytes) -> bytes:
        if self.mode == "closed":
            return b""
        number, question = _HEAD.unpack_from(query)[0], query[_HEAD.size :]
        question = question[: question.index(b"\0") + 5]
        mode = self.mode if b"smartcache" in question else "unknown"
        if mode == "silent":
            return b""
        if mode == "garbage":
            return query[:2] + os.urandom(100)
        if mode != "known":
            return _HEAD.pack(number, 0x8180 | {"unknown": 3, "failing": 2}[mode], 1, 0, 0, 0) + question
        is_a = question[-4:-2] == b"\0\1"
        record = struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(LOOPBACK) if is_a else b""
        return _HEAD.pack(number, 0x8180, 1, int(is_a), 0, 0) + question + record
