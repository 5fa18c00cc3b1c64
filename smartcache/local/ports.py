"""Loopback ports: free ones for tests, named ones for the demo, and a clear word when one is taken."""

from __future__ import annotations

import contextlib
import random
import socket

LOOPBACK = "127.0.0.1"
#: What free ports are chosen from. Linux gives outgoing connections ports from 32768 on: those could be taken between choice and use.
CHOICE = range(15000, 32000)


class PortInUse(Exception):
    """Somebody else listens there."""


def free_ports(count: int) -> list[int]:
    """``count`` different ports that nobody has now, TCP or UDP. Another process may still take one before it is used."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(CHOICE, len(CHOICE)):
            try:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    # Of all addresses: xrootd listens at all of them.
                    held.enter_context(socket.socket(socket.AF_INET, kind)).bind(("", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise PortInUse(f"fewer than {count} ports from {CHOICE.start} to {CHOICE.stop - 1} are free")


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
