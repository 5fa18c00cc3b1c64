"""Loopback ports: free ones for tests, named ones for the demo, and a clear word when one is taken."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LOOPBACK = "127.0.0.1"
#: What free ports are chosen from. Linux gives outgoing connections ports from 32768 on: those could be taken between choice and use.
CHOICE: Sequence[int] = range(15000, 32000)


#: So many of the last ports that this process has chosen are nobody else's: a server may listen only seconds later.
_KEPT: Final = 1000
_chosen: deque[int] = deque()


class PortInUse(Exception):
    """Somebody else listens there."""


def free_ports(count: int) -> list[int]:
    """``count`` different ports that nobody has now, TCP or UDP, and that neither this process nor another one that still runs has been
    given lately. A program that chooses its ports in another way may still take one before it is used.
    """
    ports: list[int] = []
    chosen = _Choice()
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(CHOICE, len(CHOICE)):
            if chosen.take(port, held):
                ports.append(port)
            if len(ports) == count:
                return ports
    raise PortInUse(f"fewer than {count} ports from {CHOICE[0]} to {CHOICE[-1]} are free")


def free_run(count: int) -> int:
    """The first of ``count`` ports in a row that are free as those of :func:`free_ports` are."""
    chosen = _Choice()
    for first in random.SystemRandom().sample(CHOICE, len(CHOICE)):
        with contextlib.ExitStack() as held:
            if first + count <= CHOICE[-1] and all(chosen.take(port, held) for port in range(first, first + count)):
                return first
    raise PortInUse(f"no {count} ports in a row from {CHOICE[0]} to {CHOICE[-1]} are free")


class _Choice:
    """What processes have chosen: a byte of one file is locked for each port, and is free again when its process ends.

    Where there can be no such file, other processes are not known of.
    """

    _file: int | None = None

    def __init__(self) -> None:
        if _Choice._file is None:
            with contextlib.suppress(OSError):
                # Of this user: nobody else can be kept from locking what they may open.
                place = Path(tempfile.gettempdir()) / f"smartcache-ports-{os.getuid()}"
                _Choice._file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def take(self, port: int, held: contextlib.ExitStack) -> bool:
        """Whether ``port`` is ours now: nobody has it or has chosen it. Nobody can bind it while ``held`` is open."""
        if port in _chosen:
            return False
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                # Of all addresses: xrootd listens at all of them.
                held.enter_context(socket.socket(socket.AF_INET, kind)).bind(("", port))
        except OSError:
            return False
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except OSError:
                return False
        _chosen.append(port)
        if len(_chosen) > _KEPT:
            oldest = _chosen.popleft()
            if self._file is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, oldest)
        return True


def listens(port: int, host: str = LOOPBACK, timeout_s: float = 0.5) -> bool:
    """Whether something accepts TCP connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        # A connection to a port from which Linux dials out may, by chance, be to itself.
        return probe.connect_ex((host, port)) == 0 and probe.getsockname()[1] != port


def require_free(port: int, user: str, how_to_change: str) -> None:
    """Raise :class:`PortInUse` where ``port`` cannot be bound, TCP or UDP, naming the part that wants it and the way out."""
    for kind, name in ((socket.SOCK_STREAM, "TCP"), (socket.SOCK_DGRAM, "UDP")):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise PortInUse(f"{name} port {port}, which {user} needs, is in use ({error.strerror}); {how_to_change}") from error
