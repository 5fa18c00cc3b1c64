"""What a stream's handler is given to work with, and what it is asked: the seam between parsers and the process around them."""

from __future__ import annotations

import base64
from typing import Any, Protocol

Record = dict[str, Any]


def letter(stream: str, reason: str, raw: bytes, recv_us: int) -> Record:
    """A dead letter as it is sent."""
    return {"reason": reason, "stream": stream, "recv_us": recv_us, "raw": base64.b64encode(raw).decode()}


def quotable(raw: bytes, begins: bytes) -> bytes:
    """What of a datagram that cannot be read may stand in a dead letter: all of one that begins as the stream's own do, else 8 bytes.

    A map packet that was sent to the wrong port, or a shoveler's message with one in it, holds identities.
    """
    return raw if raw.startswith(begins) else raw[:8]


class Output(Protocol):
    """Where records go. Called from one thread; neither call raises or blocks."""

    def record(self, stream: str, record: Record) -> None:
        """Take one finished record of ``stream`` (``gstream``, ``fstream``, ``decision``); it has ``cache`` and ``lfn``."""

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """Take what did not parse. ``raw`` must hold no identity of a user."""


class Handler(Protocol):
    """One stream: packets in, records out. Not thread-safe; never raises on what a packet holds."""

    def handle(self, raw: bytes, source: str, recv_us: int) -> None:
        """Take one datagram that came from address ``source`` at ``recv_us`` (microseconds of Unix time)."""

    def close(self, recv_us: int) -> None:
        """Emit what was waiting for packets that will not come any more."""
