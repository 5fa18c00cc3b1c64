"""How many g-stream records a second the collector takes on one core without losing one, without a broker and with one that writes.

The real collector process, held to one core with all its threads; a generator process on the others sends packets over loopback, at rates
that rise until a packet or a record is lost or Kafka is not kept up with. The highest rate before that counts once it has held for every
repetition.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import tomli_w

from ..local import kafka
from ..local.ports import LOOPBACK, free_ports
from ..local.process import Process, ProcessError, http_ok, interrupts_ignored, line_in, stop_all
from . import results
from .gstream_load import RECORDS_PER_PACKET

NAME = "collector"
ROUNDS = 7
SECONDS = 3.0
#: What the rates are held against, records a second.
BAR_PER_S = 50_000
#: Where the rates start, and what each is times the one before.
START_PER_S = 25_000
RISE = 1.15
#: A search without an end is no search.
MAX_PER_S = 1_000_000
#: After the last packet Kafka must have all records within this time: else they were piled up, not delivered.
KEPT_UP_S = 1.0
#: Rates shown but not judged: how long the spool may take to be empty before the next one.
_EMPTY_S = 120.0
#: A collector that has not counted a packet for so long has no more to count: a busy disk may hold its spool up for a while.
_SETTLE_S = 1.0


@dataclass(frozen=True)
class Step:
    """One rate, held for a while.

    ``lost_packets`` never reached the collector; ``missing_records`` were in packets that did, and are not in its spool, or, with a broker,
    not at Kafka. ``late_s``: how long after the last packet Kafka had everything (with a broker).
    """

    offered_per_s: float
    records_per_s: float
    lost_packets: int
    missing_records: int
    cpu_us_per_record: float
    late_s: float

    @property
    def held(self) -> bool:
        """Whether each record is where it belongs, once, and nothing piled up."""
        return not self.lost_packets and not self.missing_records and self.late_s <= KEPT_UP_S


def run(rounds: int, seconds: float, command: str, tell: Callable[[str], None]) -> Path:
    """Measure and keep the result. Raises ProcessError or MissingPart, naming what failed."""
    where = results.machine()
    modes, buffer_bytes = {}, 0
    for mode, broker in (("spool only", False), ("broker writing", True)):
        with tempfile.TemporaryDirectory() as folder:
            parts: list[Process] = []
            try:
                site = _Site(Path(folder), parts, broker)
                tell(f"{mode}:")
                modes[mode] = _search(site, rounds, seconds, tell)
                buffer_bytes = site.buffer_bytes
            finally:
                with interrupts_ignored():
                    stop_all(parts[-1:], parts[:-1])
    figures = {
        "rounds": rounds,
        "seconds": seconds,
        "bar_per_s": BAR_PER_S,
        "receive_buffer_bytes": buffer_bytes,
        "rows": table(modes),
        "steps": _plain(modes),
    }
    return results.save(NAME, command, where, figures)


def table(modes: dict[str, tuple[list[Step], list[Step]]]) -> list[dict[str, Any]]:
    """One row a mode: the highest rate that held, medians over its repetitions; then what ended the search."""
    rows = []
    for mode, (rising, repeated) in modes.items():
        failed = next((step for step in rising if not step.held), None)
        rows.append(
            {
                "mode": mode,
                "records_per_s": min((step.records_per_s for step in repeated), default=0.0),
                "cpu_us_per_record": statistics.median(step.cpu_us_per_record for step in repeated) if repeated else None,
                "late_s": max((step.late_s for step in repeated), default=None),
                "lost_at_per_s": failed.records_per_s if failed else None,
                "lost_packets": failed.lost_packets if failed else None,
                "missing_records": failed.missing_records if failed else None,
            }
        )
    return rows


def verdicts(result: dict[str, Any]) -> list[str]:
    """Each mode against the bar, in words."""
    bar = result["bar_per_s"]
    return [
        f"{row['mode']}: {row['records_per_s']:,.0f} records/s without loss, the bar is {bar:,}: "
        f"{'met' if row['records_per_s'] >= bar else 'MISSED'}."
        for row in result["rows"]
    ]


def _plain(modes: dict[str, tuple[list[Step], list[Step]]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    return {
        mode: {"rising": [asdict(step) for step in rising], "repeated": [asdict(step) for step in repeated]}
        for mode, (rising, repeated) in modes.items()
    }


def _search(site: _Site, rounds: int, seconds: float, tell: Callable[[str], None]) -> tuple[list[Step], list[Step]]:
    """Rates that rise until one does not hold; then the highest that held, again and again, one lower whenever it does not."""
    rising: list[Step] = []
    rate = float(START_PER_S)
    site.hold(rate / 2, seconds)  # the first packets meet cold caches
    while rate < MAX_PER_S:
        rising.append(site.hold(rate, seconds))
        tell(_text(rising[-1]))
        if not rising[-1].held:
            break
        rate *= RISE
    for candidate in sorted((step.offered_per_s for step in rising if step.held), reverse=True):
        repeated: list[Step] = []
        while len(repeated) < rounds:
            step = site.hold(candidate, seconds)
            tell(f"again: {_text(step)}")
            if not step.held:
                break
            repeated.append(step)
        else:
            return rising, repeated
    return rising, []


def _text(step: Step) -> str:
    late = f", all at Kafka after {step.late_s:.2f} s" if step.late_s else ""
    cost = f"{step.cpu_us_per_record:.1f} µs of processor a record"
    missing = f", {step.missing_records} records of the others missing" if step.missing_records else ""
    return f"{step.records_per_s:,.0f} records/s, {step.lost_packets} packets lost{missing}, {cost}{late}"


_SPOOL_BYTES = 32 << 30


class _Site:
    """A collector on one core; a broker, where wanted, and the generator on the others."""

    def __init__(self, folder: Path, parts: list[Process], broker: bool) -> None:
        gstream, fstream, decision, metrics, kafka_port, controller = free_ports(6)
        self._gstream, self._broker, self._sent = gstream, broker, 0
        self._url = f"http://{LOOPBACK}:{metrics}"
        self._opener = build_opener(ProxyHandler({}))
        cores = os.sched_getaffinity(0)
        own = min(cores)  # of those that we may use: a container may not have core 0
        self._others = sorted(cores - {own}) or sorted(cores)
        if broker:
            # Threads inherit it: the broker and all of its threads stay off the collector's core.
            os.sched_setaffinity(0, self._others)
            try:
                kafka.start(folder / "kafka", kafka_port, controller, register=parts.append)
            finally:
                os.sched_setaffinity(0, cores)
        config = folder / "collector.toml"
        settings = {
            "collector": {"gstream_port": gstream, "fstream_port": fstream, "decision_port": decision, "metrics_port": metrics},
            "kafka": {"bootstrap": f"{LOOPBACK}:{kafka_port}"},
            # Without a broker all of it stays there to the end: some GB.
            "spool": {"dir": str(folder / "spool"), "max_bytes": _SPOOL_BYTES},
        }
        config.write_text(tomli_w.dumps(settings))
        argv = ["taskset", "--cpu-list", str(own), sys.executable, "-m", "smartcache", "collect", "--config", str(config)]
        self._process = Process("collector", argv, folder / "collector.log")
        parts.append(self._process)
        self._process.start().wait_ready(http_ok(f"{self._url}/healthz"), "healthy", 60)
        if broker:
            self._process.wait_ready(line_in(self._process.log, "ready:"), "ready", 60)

    @property
    def buffer_bytes(self) -> int:
        """What the kernel granted for packets that the collector has not read yet."""
        return round(self._metrics()["buffer"])

    def hold(self, records_per_s: float, seconds: float) -> Step:
        """Send at this rate for so long, wait until what came is through, and say what became of it."""
        before = self._metrics()
        argv = [sys.executable, "-m", "smartcache.bench.gstream_load", LOOPBACK, self._gstream, self._sent]
        argv += [records_per_s / RECORDS_PER_PACKET, seconds]
        done = subprocess.run(
            ["taskset", "--cpu-list", ",".join(map(str, self._others)), *map(str, argv)], check=True, stdout=subprocess.PIPE, text=True
        )
        ended = time.monotonic()
        load = json.loads(done.stdout)
        self._sent += load["sent"]
        packets, records, late_s = self._settle(before, load["sent"], ended)
        after = self._metrics()
        return Step(
            offered_per_s=records_per_s,
            records_per_s=load["sent"] * RECORDS_PER_PACKET / load["seconds"],
            lost_packets=load["sent"] - packets,
            missing_records=packets * RECORDS_PER_PACKET - records,
            cpu_us_per_record=(after["cpu_s"] - before["cpu_s"]) * 1e6 / max(packets * RECORDS_PER_PACKET, 1),
            late_s=late_s,
        )

    def _settle(self, before: dict[str, float], sent: int, ended: float) -> tuple[int, int, float]:
        """Wait until all is where it belongs, or nothing comes any more; packets, records, and with a broker how long after the end."""
        reached, moved = (0, 0), time.monotonic()
        while True:
            self._process.require_running()
            now = self._metrics()
            packets, records = (round(now[name] - before[name]) for name in ("received", "kept"))
            if (packets, records) != reached:
                reached, moved = (packets, records), time.monotonic()
            whole = packets >= sent and records >= packets * RECORDS_PER_PACKET
            if whole or (time.monotonic() - moved > _SETTLE_S and not (self._broker and now["lag"])):
                return packets, records, moved - ended if self._broker else 0.0
            if time.monotonic() - ended > _EMPTY_S:
                raise ProcessError(f"collector: {now['lag']:.0f} records still wait after {_EMPTY_S:.0f} s\n{self._process.last_words()}")
            time.sleep(0.02)

    def _metrics(self) -> dict[str, float]:
        with self._opener.open(f"{self._url}/metrics", timeout=10) as answer:
            text = answer.read().decode()

        def total(name: str) -> float:
            """Over all labels, where ``name`` has none itself."""
            return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))

        return {
            "received": total("smartcache_collector_packets_received_total"),
            # Of g-stream records alone: a dead letter is none.
            "kept": total(f'smartcache_collector_records_{"delivered" if self._broker else "spooled"}_total{{cause="",stream="gstream"}}'),
            "lag": total("smartcache_collector_lag_records"),
            "buffer": total('smartcache_collector_receive_buffer_bytes{stream="gstream"}'),
            "cpu_s": total("process_cpu_seconds_total"),
        }
