"""Loopback ports: free ones for tests, named ones for the demo, and a clear word when one is taken."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class PortInUse(Exception):
    """Somebody else listens there."""


def free_ports(count: int) -> list[int]:
    """``count`` different ports on which nothing listens now, TCP or UDP. Another process may still take one before it is used."""
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(tcp)
            tcp.bind((LOOPBACK, 0))
            port = tcp.getsockname()[1]
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            held.append(udp)
            try:
                udp.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    finally:
        for each in held:
            each.close()
    return ports


def listens(port: int, host: str = LOOPBACK, timeout_s: float = 0.5) -> bool:
    """Whether something accepts TCP connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        return probe.connect_ex((host, port)) == 0


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
