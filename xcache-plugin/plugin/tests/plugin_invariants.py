"""What must hold whatever is broken: the one judge of every fault.

    with watched(site, clients, deadline_ms=10, reasons={"deadline"}) as watch:
        watch.open(lfns)

While the block runs, a file is held open and the decision log is heard; at its end it is judged that
- every open went well and gave what the origin holds, the held file included, which is still the same file on disk;
- a file on disk was never answered bypass;
- each reason that was expected was given, and no other; the counters say the same as the log;
- the deadline held: half of the answers came within deadline + 1 ms, and none was later than by the time that the server's threads,
  ready to run, waited for a processor (the kernel counts it; a thread that waits with a lock makes others late that wait for it);
- the server is the same process, left no core, and wrote no line into its log that was not expected;
- neither memory nor file descriptors grew with the number of opens, where the block soaks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from plugin_client import Clients
from plugin_site import HELD_FOLDER, Site, wait_until

SLACK_US = 1000
#: What the kernel counts stolen time in, cut.
_TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
#: What a healthy server writes: clients come and go. And pfc, without the plugin too, reads a .cinfo while it is being written for the
#: file's last reader.
USUAL = (
    r"XrootdXeq: \S+ (pvt|pub) \S+ login",
    r"XrootdXeq: \S+ disc ",
    r"terminated handshake not received",
    # XRootD 6 says what 5 does not: nobody listens for the f-stream here.
    r"XrootdNetMsg: Unable to send to 127\.0\.0\.1; connection refused",
    r"XrdPfc_CInfo: (error|warning) Read\(\) .+\.cinfo (Checksum|Oss Read failed)",
    # The first open starts a scan of the disk, which is said once at its beginning and its end.
    r"SmartCache_Config: history: (the files on disk are scanned|\d+ of \d+ files on disk learnt)",
    r"XrdPfc_Purge: warning \S+ can't open or read .+\.cinfo",
    # Where this machine's disk is nearly full.
    r"SmartCache_Config: evictor: \S+ % used, but the cache has only .* something else fills the disk",
)
SOAK_OPENS = 200
ENOUGH_FOR_A_MEDIAN = 50
#: Opens that leak nothing still move the heap about. What one open leaks at least (a connection, a reply) is many times as much.
LEAK_BYTES_PER_OPEN = 4000
LEAK_DESCRIPTORS = 20
#: In each of them but the first a leak must have shown to be called one.
SOAK_ROUNDS = 8
HELD = f"{HELD_FOLDER}0.root"


def _least_growth(readings: Sequence[int]) -> float:
    """The smallest step from one round to the next; infinite before there was one."""
    return min((after - before for before, after in itertools.pairwise(readings)), default=math.inf)


def anonymous_bytes(pid: int) -> int:
    """Bytes of the process's own, in RAM."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous: +(\d+) kB", rollup, re.MULTILINE)[1]) * 1024


class Watch:
    """See the module."""

    def __init__(self, site: Site, clients: Clients, deadline_ms: float) -> None:
        self.site = site
        self.clients = clients
        self.deadline_us = deadline_ms * 1000
        self.decisions: list[dict] = []
        #: Known at the end of the block: opens of a file that somebody has open are not asked about.
        self.answers = 0

    def open(self, lfns: Sequence[str], *, users: int = 1, threads: int = 1) -> None:
        """Open, read and compare each; all must go well."""
        results = self.clients.open(lfns, users=users, threads=threads)
        problems = [f"{lfn}: {problem}" for lfn, problem in zip(lfns, results, strict=True) if problem]
        assert not problems, problems

    def soak(self, lfns: Sequence[str], opens: int = SOAK_OPENS, threads: int = 4) -> None:
        """Open so often that a leak shows: it grows in every round. What is needed once (threads, buffers) mostly comes in the first, and
        may, with few opens or on a busy machine, come later; so a round that grows is judged by those that follow it.
        """
        memory, descriptors = [], []
        for _ in range(SOAK_ROUNDS):
            self.open([lfns[i % len(lfns)] for i in range(opens)], users=threads, threads=threads)
            memory.append(self.memory())
            descriptors.append(self.descriptors())
            if _least_growth(memory) < opens * LEAK_BYTES_PER_OPEN and _least_growth(descriptors) < LEAK_DESCRIPTORS:
                return
        raise AssertionError(f"after each {opens} opens there were {memory} bytes and {descriptors} file descriptors")

    def memory(self) -> int:
        return anonymous_bytes(self.site.cache.process.pid)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.site.cache.process.pid}/fd").iterdir()))

    def reasons(self) -> Counter[str]:
        return Counter(decision["reason"] for decision in self.decisions)


@contextlib.contextmanager
def watched(
    site: Site,
    clients: Clients,
    *,
    deadline_ms: float,
    reasons: set[str],
    beside: frozenset[str] = frozenset({"deadline"}),
    log: Sequence[str] = (),
    noise: Sequence[str] = (),
    heard: bool = True,
) -> Iterator[Watch]:
    """Judge what happens in the block.

    ``reasons``: each must be given, a single one at least a tenth of the time. ``beside``: may be given, too: on a busy machine anybody may
    be late. ``log``: patterns of lines of ours to expect in the server's log; ``noise``: of XRootD's own that may come. ``heard`` is false
    where no datagram can come: then the counters alone say which reasons were given, and how long that took on the average.
    """
    watch = Watch(site, clients, deadline_ms)
    with unharmed(site, clients, log, noise):
        before = counted(site)
        pid = site.cache.process.pid
        waiting = Waiting(pid)
        dropped = site.decisions_dropped()
        stored = _stored(site)
        with _heard(site, watch.decisions) if heard else contextlib.nullcontext():
            yield watch
            given = Counter({key: count - before[key] for key, count in counted(site).items()})
            counts = answers(given)
            watch.answers = counts.total()
            if heard:
                unheard = counts.total() - (site.decisions_dropped() - dropped)
                wait_until(lambda: len(watch.decisions) >= unheard, f"heard {unheard} of {counts.total()} answers", 10)
        waited_us = waiting.so_far_us()

    # By what the plugin saw, and by the disk itself: what was there before and after was there all the time.
    stored = {lfn for lfn, inodes in _stored(site).items() if stored.get(lfn) == inodes}
    lost = [d for d in watch.decisions if (d["on_disk"] or d["lfn"] in stored) and d["answer"] == "bypass"]
    assert not lost, f"on disk and bypassed: {lost[0]}"
    assert reasons <= set(counts) <= reasons | beside, f"reasons {dict(counts)}, expected {reasons}, and perhaps {set(beside)}"
    assert len(reasons) > 1 or counts.total() <= 10 * counts[next(iter(reasons))], dict(counts)
    if heard:
        assert watch.reasons() <= counts, "the counters say something else than the log"
        judge_latency([d["latency_us"] for d in watch.decisions], watch.deadline_us, waited_us)
    else:
        mean = given["smartcache_decide_seconds_sum"] * 1e6 / counts.total()
        assert mean <= watch.deadline_us + SLACK_US + waited_us / counts.total()


def _stored(site: Site) -> dict[str, tuple[int, int]]:
    """The inodes of each file on the cache's disk, and of its .cinfo, by LFN."""
    found = {}
    for cinfo in site.cache.data.rglob("*.cinfo"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            data = cinfo.with_suffix("")
            found[f"/{data.relative_to(site.cache.data)}"] = data.stat().st_ino, cinfo.stat().st_ino
    return found


def require_waited(watch: Watch) -> None:
    """Most opens were of files that are not on disk: they waited for the answer, which others do not."""
    stored = sum(decision["on_disk"] for decision in watch.decisions)
    assert 2 * stored < len(watch.decisions), f"{stored} of {len(watch.decisions)} were on disk"


@contextlib.contextmanager
def unharmed(site: Site, clients: Clients, log: Sequence[str] = (), noise: Sequence[str] = ()) -> Iterator[None]:
    """What can be judged of a server whose plugin counts and logs no answers: the first and the fifth of the module's list."""
    pid = site.cache.process.pid
    clients.hold(HELD)
    held_file = (site.cache.data / HELD.lstrip("/")).stat().st_ino
    written = len(site.server_log())
    yield
    assert (site.cache.data / HELD.lstrip("/")).stat().st_ino == held_file, "a file was evicted while it was open"
    clients.release(HELD)
    require_alive(site, pid)
    require_expected_log(site, written, log, noise)


def require_alive(site: Site, pid: int) -> None:
    """The server is the same process, and none of it left a core."""
    assert site.cache.process.running, site.cache.process.last_words()
    assert site.cache.process.pid == pid
    cores = [path for path in (*site.folder.rglob("core"), *site.folder.rglob("core.*")) if path.is_file()]
    assert not cores, cores


def require_expected_log(site: Site, written: int, log: Sequence[str], noise: Sequence[str] = ()) -> None:
    """After its first ``written`` characters the server's log has usual lines, and at least one, but not many, for each of ``log``."""
    lines = [line for line in site.server_log()[written:].splitlines() if line.strip()]
    allowed = re.compile("|".join((*USUAL, *log, *noise)))
    # Where pfc's purge walks by as it is just being made, it takes a .cinfo for a broken one and removes it, with the plugin or without.
    purged = re.findall(r"XrdPfc_Purge: warning \S+ can't open or read (.+)\.cinfo", "\n".join(lines))
    strange = [line for line in lines if not allowed.search(line) and not any(lfn in line for lfn in purged)]
    assert not strange, strange
    for pattern in log:
        assert 1 <= sum(bool(re.search(pattern, line)) for line in lines) <= 2, (pattern, lines)


def answers(given: Counter[str]) -> Counter[str]:
    """How often each reason was given."""
    counts: Counter[str] = Counter()
    for sample, count in given.items():
        if count and (reason := re.match(r'smartcache_answers_total\{.*reason="(\w+)"', sample)):
            counts[reason[1]] += int(count)
    return counts


def judge_latency(latencies_us: Sequence[float], deadline_us: float, delayed_us: float) -> None:
    """The deadline held, seen that the server's threads waited for ``delayed_us`` for processors that others had: nearly nothing, but on a
    machine that is busy otherwise, or where many opens end at the same moment."""
    bar = deadline_us + SLACK_US
    if len(latencies_us) >= ENOUGH_FOR_A_MEDIAN:
        middle, delay = statistics.median(latencies_us), delayed_us / len(latencies_us)
        assert middle <= bar + delay, f"half of the answers took more than {middle} us, deadline {deadline_us}, without a processor {delay}"
    latest = max(latencies_us) - bar
    assert latest <= delayed_us, f"an answer was late by {latest} us, without a processor {delayed_us}"


class Waiting:
    """How long the threads of ``pid`` have been ready to run and had no processor since this was made.

    By thread: one that ended meanwhile takes what it waited before with it, and would count against the others.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._threads_ns = self._by_thread_ns()
        self._stolen_us = self._stolen_by_host_us()

    def so_far_us(self) -> float:
        waited_ns = sum(ns - self._threads_ns.get(thread, 0) for thread, ns in self._by_thread_ns().items())
        return waited_ns / 1000 + self._stolen_by_host_us() - self._stolen_us + _TICK_US

    def _by_thread_ns(self) -> dict[str, int]:
        waited = {}
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
        return waited

    @staticmethod
    def _stolen_by_host_us() -> float:
        stolen = int(Path("/proc/stat").read_text().splitlines()[0].split()[8])
        return stolen * _TICK_US


def counted(site: Site) -> Counter[str]:
    """The counters as of now, when nothing is left to decide."""
    path = site.metrics / "smartcache.prom"
    for _ in range(2):  # the first file that is written after the call may have been made before it
        called = time.time_ns()
        wait_until(lambda called=called: path.exists() and path.stat().st_mtime_ns > called, "the counters written")
    wait_until(lambda: "\nsmartcache_decisions_waiting 0\n" in path.read_text(), "decided")
    samples = (line.rsplit(" ", 1) for line in path.read_text().splitlines() if not line.startswith("#"))
    return Counter({name: float(value) for name, value in samples})


@contextlib.contextmanager
def _heard(site: Site, decisions: list[dict]) -> Iterator[None]:
    """Takes the datagrams of the decision log as they come; those of before are thrown away."""
    ended = threading.Event()
    site.forget_decisions()
    site.log.settimeout(0.1)

    def hear() -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                decisions.append(json.loads(site.log.recv(65536)))

    thread = threading.Thread(target=hear)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        site.log.settimeout(20)
