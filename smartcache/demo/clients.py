"""Real XRootD clients that make the opens of a schedule at every cache, and check each byte that they get.

Run as a process of its own, ``python -m smartcache.demo.clients SCHEDULE RESULTS CACHE=HOST:PORT…``: one JSON line per open in, one per
open and cache out. Each user has connections of their own, as jobs of different users have. Every open is made at all caches, one after the
other, and the cache that is asked first changes from open to open, so that neither profits from the other's warm-up of the page cache.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from ..local.process import Process
from .workload import MIB, File, Open

#: Opens in flight at once: as many as there are users' jobs on a small node.
WORKERS = 16
#: A client gives up on a server after this long.
TIMEOUT_S = 30
_PATTERN = random.Random(20).randbytes(MIB)  # noqa: S311 - content of files, not a secret


@dataclass(frozen=True)
class Result:
    """What a client saw of one open at one cache."""

    cache: str
    lfn: str
    #: When the open was sent, Unix seconds.
    time: float
    ok: bool
    error: str
    open_ms: float
    #: Open, all reads and close together, without the time between them and without the comparison of the bytes.
    total_ms: float
    bytes_read: int
    #: How much later than planned it began: the machine, not the cache, was busy.
    late_s: float


def content(file: File, offset: int, length: int) -> bytes:
    """The bytes of ``file`` from ``offset``: a pattern of 1 MiB, shifted by the file's serial and by each MiB's number."""
    parts = []
    while length > 0:
        mib, within = divmod(offset, MIB)
        start = (within + 4099 * (file.serial + mib)) % MIB
        take = min(length, MIB - within, MIB - start)
        parts.append(_PATTERN[start : start + take])
        offset += take
        length -= take
    return b"".join(parts)


def write_file(file: File, data: Path) -> int:
    """Write ``file`` under ``data`` if it is not there; the number of bytes written."""
    path = data / file.lfn.lstrip("/")
    if path.exists():
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for offset in range(0, file.size, MIB):
            out.write(content(file, offset, min(MIB, file.size - offset)))
    return file.size


def write_schedule(opens: Iterable[Open], path: Path) -> None:
    """One JSON line per open, as :func:`read_schedule` reads them."""
    with path.open("w") as out:
        out.writelines(json.dumps(asdict(one)) + "\n" for one in opens)


def read_schedule(path: Path) -> Iterator[Open]:
    """The opens that :func:`write_schedule` wrote."""
    with path.open() as lines:
        for line in lines:
            fields = json.loads(line)
            fields["file"] = File(**fields["file"])
            fields["ranges"] = tuple((offset, length) for offset, length in fields["ranges"])
            yield Open(**fields)


def read_results(path: Path) -> list[Result]:
    """The results that a finished or running client process has written; a last line that is not complete is left out."""
    if not path.exists():
        return []
    with path.open() as lines:
        return [Result(**json.loads(line)) for line in lines if line.endswith("\n")]


def process(schedule: Path, results: Path, caches: dict[str, str], log: Path) -> Process:
    """The clients as a process of their own, not started; ``caches``: name → ``host:port``."""
    addresses = [f"{name}={address}" for name, address in caches.items()]
    return Process("clients", [sys.executable, "-m", __name__, str(schedule), str(results), *addresses], log)


class Clients:
    """Makes the opens of a schedule in time with it."""

    def __init__(self, caches: dict[str, str], out: TextIO) -> None:
        """``caches``: name → ``host:port``."""
        self._caches = list(caches.items())
        self._out = out
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make no more opens; those in flight are finished."""
        self._stopped.set()

    def run(self, schedule: Iterable[Open]) -> None:
        """Returns when every open has been made and answered; what went wrong in our own code is raised here."""
        start = time.time()
        with ThreadPoolExecutor(WORKERS) as pool:
            jobs = []
            for number, one in enumerate(schedule):
                if self._stopped.wait(max(0.0, start + one.time_s - time.time())):
                    break
                jobs.append(pool.submit(self._everywhere, number, one, start + one.time_s))
        for job in jobs:
            job.result()

    def _everywhere(self, number: int, one: Open, planned: float) -> None:
        for step in range(len(self._caches)):
            if self._stopped.is_set():
                return
            name, address = self._caches[(number + step) % len(self._caches)]
            result = _open(name, address, one, planned, self._stopped.wait)
            with self._lock:
                self._out.write(json.dumps(asdict(result)) + "\n")
                self._out.flush()


def _open(name: str, address: str, one: Open, planned: float, hold: Callable[[float], object]) -> Result:
    """Open, read, hold and close at one cache; compare what came with what the origin holds. The times are without the holding."""
    from XRootD import client

    file = client.File()
    began, clock = time.time(), time.perf_counter()
    status, _ = file.open(f"root://{one.user}@{address}/{one.file.lfn}", timeout=TIMEOUT_S)
    open_ms = (time.perf_counter() - clock) * 1e3
    error = "" if status.ok else f"open: {status.message}"
    parts: list[tuple[int, bytes]] = []
    total_ms = open_ms
    if status.ok:
        error, parts = _read(file, one)
        total_ms = (time.perf_counter() - clock) * 1e3
        hold(one.held_s)
        clock = time.perf_counter()
        status, _ = file.close(timeout=TIMEOUT_S)
        total_ms += (time.perf_counter() - clock) * 1e3
        error = error or ("" if status.ok else f"close: {status.message}")
    error = error or _compare(one, parts)
    received = sum(len(data) for _, data in parts)
    return Result(name, one.file.lfn, began, not error, error.strip(), open_ms, total_ms, received, began - planned)


def _read(file: Any, one: Open) -> tuple[str, list[tuple[int, bytes]]]:
    """Read the ranges of ``one``, one by one or as a vector: the error ("" if none), the (offset, bytes) that came."""
    parts: list[tuple[int, bytes]] = []
    if one.sequential:
        for offset, length in one.ranges:
            status, data = file.read(offset, length, timeout=TIMEOUT_S)
            if not status.ok:
                return f"read: {status.message}", parts
            parts.append((offset, data))
        return "", parts
    status, answer = file.vector_read(chunks=list(one.ranges), timeout=TIMEOUT_S)
    if not status.ok:
        return f"readv: {status.message}", parts
    return "", [(chunk.offset, chunk.buffer) for chunk in answer.chunks]


def _compare(one: Open, parts: list[tuple[int, bytes]]) -> str:
    """What is wrong with the bytes that came, "" if nothing."""
    if tuple((offset, len(data)) for offset, data in parts) != one.ranges:
        return "read: not the ranges that were asked for"
    for offset, data in parts:
        if data != content(one.file, offset, len(data)):
            return f"read: wrong bytes at {offset}"
    return ""


def main(arguments: list[str]) -> int:
    """Entry point of the process; SIGTERM and SIGINT end it after the opens in flight."""
    schedule, results, *caches = arguments
    with Path(results).open("a") as out:
        clients = Clients(dict(cache.split("=", 1) for cache in caches), out)
        for sign in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sign, lambda *_: clients.stop())
        clients.run(read_schedule(Path(schedule)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
