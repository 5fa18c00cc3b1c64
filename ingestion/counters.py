"""Plain counters, cheap enough for every record; :mod:`.metrics` shows them to Prometheus."""

from __future__ import annotations

from collections import defaultdict

#: What is counted, per stream and cause: metric name without prefix and ``_total``, and its help text.
MEANINGS = {
    "packets_received": "Datagrams received",
    "records_parsed": "Records parsed",
    "records_spooled": "Records written to the spool on disk",
    "records_delivered": "Records that Kafka has acknowledged",
    "deliveries_repeated": "Records sent again because their delivery failed: Kafka may have some of them twice",
    "packets_lost": "Packets missing in the sender's numbering when a later one came; by cause; minus packets_late is what stayed lost",
    "packets_late": "Packets that came after a later one and had been counted as lost",
    "packets_duplicate": "Packets received a second time and left out",
    "records_ignored": "Well-formed packets and records that are of no use here, by cause",
    "dead_letters": "Packets and records that did not parse and went to the dead letter topic, by cause",
    "records_dropped": "Records that never reach Kafka, by cause",
    "spool_damaged": "Segments of the spool whose end was cut off (torn) or that were set aside (corrupt)",
    "opens_unclosed": "Client opens sent without their close, by cause",
    "users_forgotten": "User map packets dropped because too many users were logged in",
    "opens_without_user": "Client opens whose user is not known: no map packet of it came, or user monitoring is off",
    "paths_forgotten": "Path map packets dropped because too many waited for their open",
}


class Counters:
    """Counts by (metric, stream, cause). Written by one thread; ``snapshot`` may be called from another."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)

    def add(self, metric: str, stream: str, cause: str = "", count: int = 1) -> None:
        """Count; ``metric`` is a key of :data:`MEANINGS`, ``cause`` a word of a fixed set."""
        self._counts[metric, stream, cause] += count

    def get(self, metric: str, stream: str, cause: str = "") -> int:
        """The count so far."""
        return self._counts.get((metric, stream, cause), 0)

    def total(self, metric: str, stream: str) -> int:
        """The count over all causes."""
        return sum(count for (name, of, _), count in self.snapshot().items() if name == metric and of == stream)

    def snapshot(self) -> dict[tuple[str, str, str], int]:
        """A copy (one C call, so atomic against the writing thread)."""
        return dict(self._counts)
