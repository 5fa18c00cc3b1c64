"""What the servers counted, read from outside: never what the plugin believes.

========================  =============================================================================================================
origin bytes              bytes that a cache's own origin sent (``xrd.report``, link counter ``out``: protocol included, about 0.1 %)
delivered bytes           bytes that the cache sent to its clients (the same counter of the cache)
byte hit rate             1 - origin bytes / delivered bytes; reads of parts of blocks cost it, bypassed reads too
bytes written             ``write_bytes`` of the cache's server process in ``/proc/PID/io``: what the kernel was given for the disk
stored bytes, files       a walk over the cache's data folder (allocated blocks, not apparent sizes)
removed files             files that were there at one walk and not at the next: pfc's purge and our evictor
open latency              at the clients' clocks, from sending the open to its answer
========================  =============================================================================================================
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ..local.summary import SummaryListener
from ..local.xrootd import Xrootd
from .clients import Result

SAMPLE_S = 2.0


@dataclass(frozen=True)
class Counters:
    """A cache's totals at one moment."""

    time_s: float
    origin_bytes: int
    delivered_bytes: int
    written_bytes: int

    def since(self, earlier: Counters) -> dict[str, float]:
        """What was added, and the byte hit rate of it."""
        origin = self.origin_bytes - earlier.origin_bytes
        delivered = self.delivered_bytes - earlier.delivered_bytes
        return {
            "seconds": self.time_s - earlier.time_s,
            "origin_bytes": origin,
            "delivered_bytes": delivered,
            "written_bytes": self.written_bytes - earlier.written_bytes,
            "byte_hit_rate": 1 - origin / delivered if delivered else 0.0,
        }


@dataclass(frozen=True)
class Sample:
    """One point of a cache's course of time."""

    cache: str
    time_s: float
    origin_bytes: int
    stored_bytes: int
    stored_files: int
    removed_files: int


class Meter:
    """Reads the counters of the caches, and samples them in the background. Use as a context once the caches run."""

    def __init__(self, listener: SummaryListener, caches: dict[str, Xrootd], origin_ports: dict[str, int]) -> None:
        self._listener = listener
        self._caches = caches
        self._origin_ports = origin_ports
        self._present: dict[str, set[Path]] = {name: set() for name in caches}
        self._removed = dict.fromkeys(caches, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, name="meter", daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def counters(self) -> dict[str, Counters]:
        """The totals of each cache now; waits for reports that the servers write after this call."""
        reports = self._listener.fresh([*self._origin_ports.values(), *(cache.port for cache in self._caches.values())])
        return {
            name: Counters(
                time.time(),
                origin_bytes=reports[self._origin_ports[name]].bytes_out,
                delivered_bytes=reports[cache.port].bytes_out,
                written_bytes=written_bytes(cache.process.pid),
            )
            for name, cache in self._caches.items()
        }

    def removed_files(self, cache: str) -> int:
        """Files that have gone from the cache's disk so far, at the sampler's last look."""
        return self._removed[cache]

    def as_json(self) -> list[dict[str, Any]]:
        """The samples, for the report's file."""
        return [asdict(sample) for sample in self.samples]

    def _sample_all(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            for name in self._caches:
                self._sample(name)

    def _sample(self, name: str) -> None:
        files, stored = stored_files(self._caches[name].data)
        self._removed[name] += len(self._present[name] - files)
        self._present[name] = files
        report = self._listener.latest(self._origin_ports[name])
        if report is not None:
            self.samples.append(Sample(name, time.time(), report.bytes_out, stored, len(files), self._removed[name]))


def written_bytes(pid: int) -> int:
    """What process ``pid`` has given the kernel to write to disks so far."""
    for line in _accounts(Path(f"/proc/{pid}")).splitlines():
        name, _, value = line.partition(": ")
        if name == "write_bytes":
            return int(value)
    raise ValueError(f"/proc/{pid}/io has no write_bytes: this kernel keeps no I/O accounts for processes")


def _accounts(process: Path) -> str:
    try:
        return (process / "io").read_text()
    except PermissionError:
        if os.geteuid() != 0:
            raise
    # Root without CAP_SYS_PTRACE, as in most containers, may not read that of another user's process; who runs it may.
    owner = process.stat()
    argv = ["cat", str(process / "io")]
    return subprocess.run(
        argv, stdout=subprocess.PIPE, text=True, check=True, user=owner.st_uid, group=owner.st_gid, extra_groups=[]
    ).stdout


def stored_files(data: Path) -> tuple[set[Path], int]:
    """The data files in a cache's folder, and the bytes of disk that they take."""
    files, stored = set(), 0
    for path in data.rglob("*.root"):
        try:
            stored += path.stat().st_blocks * 512
        except FileNotFoundError:  # purged while we looked
            continue
        files.add(path)
    return files, stored


def latencies(results: list[Result], cache: str) -> dict[str, float]:
    """Opens and failures at ``cache``, and the median, 99th percentile and mean of its open and total latency in ms."""
    mine = [result for result in results if result.cache == cache]
    good = [result for result in mine if result.ok]
    figures: dict[str, float] = {
        "opens": len(mine),
        "failed": len(mine) - len(good),
        "read_bytes": sum(result.bytes_read for result in good),
    }
    for name, values in (("open_ms", [result.open_ms for result in good]), ("total_ms", [result.total_ms for result in good])):
        values.sort()
        for percent in (50, 99):
            figures[f"{name}_p{percent}"] = percentile(values, percent)
        figures[f"{name}_mean"] = sum(values) / len(values) if values else float("nan")
    return figures


def percentile(ordered: list[float], percent: float) -> float:
    """The nearest-rank percentile of values in rising order; NaN of none."""
    if not ordered:
        return float("nan")
    rank = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[int(rank)]
