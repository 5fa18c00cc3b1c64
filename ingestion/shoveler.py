"""What XRootD's monitoring shoveler sends on: each UDP packet of a server as a JSON object, through the collector's own parsers.

The object is ``{"remote": "HOST:PORT", "version": "…", "data": "base64 of the packet"}`` (github.com/opensciencegrid/
xrootd-monitoring-shoveler, ``packageudp.go``). The shoveler sends it to a message bus and, by UDP, to each of its `outputs.destinations`.
``remote`` is the server's address as the shoveler saw or mapped it: the packet is handled as if it had come from there, so a server that
also sends here directly is the same one. g-stream and f-stream packets come mixed; the first byte tells. Not thread-safe.
"""

from __future__ import annotations

import base64
import binascii

from .counters import Counters
from .errors import ParseError
from .jsontext import decode_object, is_text
from .output import Handler, Output

STREAM = "shoveler"
#: The stream whose dead letters take what is no message of a shoveler: most of what it sends is of it.
DEAD_LETTERS = "fstream"


def parse(message: bytes) -> tuple[bytes, str]:
    """The packet in a message and the address that it came from; :class:`ParseError` for anything else."""
    fields = decode_object(message.decode("utf-8", "replace"))
    remote, data = fields.get("remote"), fields.get("data")
    if not is_text(remote) or not is_text(data):
        raise ParseError("field", "remote and data must be text")
    # Go writes an IPv6 address without brackets here; what follows the last colon is the port.
    host, colon, port = str(remote).rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise ParseError("field", "remote must be HOST:PORT")
    try:
        packet = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ParseError("base64", f"data is no base64: {error}") from None
    return packet, host.removeprefix("[").removesuffix("]")


class ShovelerHandler:
    """Messages of any number of shovelers to the handlers of the streams that are in them; those are closed by whoever made them."""

    def __init__(self, output: Output, counters: Counters, gstream: Handler, fstream: Handler) -> None:
        self._output = output
        self._counters = counters
        self._gstream = gstream
        self._fstream = fstream

    def handle(self, raw: bytes, source: str, recv_us: int) -> None:
        """See :class:`.output.Handler`; ``source``, the shoveler's address, is not used."""
        try:
            packet, remote = parse(raw)
        except ParseError as error:
            self._counters.add("dead_letters", STREAM, error.cause)
            # Its beginning only: what is in a packet may name users.
            self._output.dead_letter(DEAD_LETTERS, f"{STREAM}: {error}", raw[:8], recv_us)
            return
        if packet[:1] == b"<":
            self._counters.add("records_ignored", STREAM, "summary")  # XML of `xrd.report`
        elif packet[:1] == b"{":
            self._gstream.handle(packet, remote, recv_us)
        else:
            self._fstream.handle(packet, remote, recv_us)

    def close(self, recv_us: int) -> None:
        """Nothing waits here."""
