"""UDP sockets, read in batches.

The kernel's receive buffer is all that holds packets while the process is busy, so what the kernel granted is checked.
"""

from __future__ import annotations

import socket

#: The largest datagram there is.
MAX_DATAGRAM = 65_535


class ReceiverError(Exception):
    """A socket cannot be bound; the text names the setting."""


class Receiver:
    """One bound UDP socket of one stream. Not thread-safe."""

    def __init__(self, stream: str, bind: str, port: int, buffer_bytes: int) -> None:
        """Bind; port 0 takes any free one. :class:`ReceiverError` where that fails."""
        self.stream = stream
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._memory = memoryview(bytearray(MAX_DATAGRAM))
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            self._socket.bind((bind, port))
        except OSError as error:
            self._socket.close()
            raise ReceiverError(
                f"UDP {bind}:{port} cannot be bound ({error.strerror}); change [collector] bind or {stream}_port"
            ) from error
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        # The kernel doubles what was asked, for its own bookkeeping, and answers the doubled value.
        self.granted_bytes = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self._wanted_bytes = buffer_bytes

    @property
    def advice(self) -> str:
        """What to do about a receive buffer smaller than asked for; empty where it is as asked."""
        if self.granted_bytes >= self._wanted_bytes:
            return ""
        return (
            f"the kernel gave {self.granted_bytes} of {self._wanted_bytes} bytes of receive buffer to {self.stream}: bursts may be lost; "
            f"`sysctl -w net.core.rmem_max={self._wanted_bytes}`, or lower [collector] receive_buffer_bytes"
        )

    def fileno(self) -> int:
        """For :mod:`selectors`."""
        return self._socket.fileno()

    def receive(self, limit: int) -> list[tuple[bytes, str]]:
        """Up to ``limit`` datagrams that are there now, with the address each came from; empty when there is none. Does not block."""
        batch: list[tuple[bytes, str]] = []
        receive, memory = self._socket.recvfrom_into, self._memory
        while len(batch) < limit:
            try:
                size, address = receive(memory)
            except BlockingIOError:
                break
            batch.append((bytes(memory[:size]), address[0]))
        return batch

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
