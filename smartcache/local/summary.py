"""What XRootD servers count themselves: their summary reports (``xrd.report``), received by UDP on loopback.

The link counters are the bytes that went over the connections that the server accepted, protocol included: for an origin, ``out`` is what
its cache fetched; for a cache, ``out`` is what its clients got.
"""

from __future__ import annotations

import socket
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from .ports import LOOPBACK


@dataclass(frozen=True)
class LinkCounters:
    """One report of one server."""

    #: When the server wrote it, Unix seconds (whole).
    time_s: int
    bytes_in: int
    bytes_out: int
    connections: int


class SummaryListener:
    """Keeps the newest report of each server, by its port. A thread of its own receives; safe to read from any thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOOPBACK, port))
        self._socket.settimeout(0.2)
        self._latest: dict[int, LinkCounters] = {}
        self._received = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="summary", daemon=True)
        #: Packets that were no report.
        self.malformed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def latest(self, port: int) -> LinkCounters | None:
        """The newest report of the server at ``port``."""
        with self._received:
            return self._latest.get(port)

    def fresh(self, ports: Iterable[int], *, timeout_s: float = 60) -> dict[int, LinkCounters]:
        """A report of each server, written after this call began; :class:`TimeoutError` names those that send none."""
        since = int(time.time()) + 1
        wanted = set(ports)

        def late() -> set[int]:
            return {port for port in wanted if port not in self._latest or self._latest[port].time_s < since}

        with self._received:
            if not self._received.wait_for(lambda: not late(), timeout_s):
                last = ", ".join(
                    f"{port} (last {since - self._latest[port].time_s} s before)" if port in self._latest else f"{port} (none at all)"
                    for port in sorted(late())
                )
                raise TimeoutError(
                    f"no summary report for {timeout_s:.0f} s from the xrootd servers at ports {last}; "
                    f"{len(wanted - late())} others sent one, {self.malformed} packets were none"
                )
            return {port: self._latest[port] for port in wanted}

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                packet = self._socket.recv(65536)
            except TimeoutError:
                continue
            try:
                port, counters = parse(packet)
            except ValueError:
                self.malformed += 1
                continue
            with self._received:
                self._latest[port] = counters
                self._received.notify_all()


def parse(packet: bytes) -> tuple[int, LinkCounters]:
    """The port of the server that sent ``packet``, and its counters; ValueError where it is no summary report."""
    if b"<!" in packet:
        raise ValueError("a summary report has no declarations")
    try:
        root = ElementTree.fromstring(packet.rstrip(b"\0").decode())  # noqa: S314 - no entities without a declaration
        port = int(root.attrib["src"].rpartition(":")[2])
        link = next(part for part in root.iter("stats") if part.get("id") == "link")
        number = {name: int(link.findtext(name, "")) for name in ("in", "out", "tot")}
        return port, LinkCounters(int(root.attrib["tod"]), number["in"], number["out"], number["tot"])
    except (ElementTree.ParseError, KeyError, StopIteration, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"not a summary report: {error!r}") from error
