"""The figures of a comparison, from the counts of each run.

A run begins with an empty cache. Its first windows may be left out of the figures: they warmed the cache. All policies of a comparison are
judged on the same requests. Under the object rules the bytes of a request are the file's size, and a file is fetched, and stored, as a
whole; under XCache's they are what was read, where the trace knows it, and fetched are whole blocks.

- object miss = 1 - hits / requests, byte miss = 1 - hit bytes / bytes; WAN bytes: fetched from the origin
- throughput = (hit bytes - written bytes) / capacity, cost = (written bytes + deleted bytes) / capacity
- bandwidth used, wait at the link to the origin, CPU efficiency: :mod:`.costs`
- gap closed = (WAN bytes of LRU - those of the policy) / (those of LRU - those of Belady): 0 is LRU, 1 the bound, negative worse than LRU.
  Belady's rule, the file that is requested again last goes first, is the best there is for files of one size only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from .costs import Site, cpu_efficiency, link
from .policies import ALL_COUNTERS, BOUND, FETCHED, FLOOR
from .store import Result
from .trace import Trace

#: A link without a bound, and reads that nobody waits for.
NOWHERE = Site()


@dataclass(frozen=True)
class Figures:
    """One run, judged. None where there is nothing to divide by, or no run to compare with. Seconds and bytes; shares from 0 to 1."""

    trace: str
    cache_fraction: float
    capacity_bytes: int
    policy: str
    requests: int
    object_miss: float | None
    byte_miss: float | None
    bytes_requested: int
    wan_bytes: int
    bytes_written: int
    bytes_deleted: int
    objects_deleted: int
    throughput: float
    cost: float
    gap_closed: float | None
    origin_bytes_per_s: float | None
    origin_share: float | None
    origin_wait_s: float | None
    cpu_efficiency: float | None
    requests_per_s: float
    training_s: float
    warm_requests: int
    window_from_s: float
    window_to_s: float
    windows: int
    trace_digest: str
    seed: int
    rules: str
    version: str
    command: str
    created: str


COLUMNS = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True)
class Window:
    """One window of a run; ``judged`` says whether it is in the figures."""

    trace: str
    cache_fraction: float
    policy: str
    seed: int
    window: int
    from_s: float
    to_s: float
    judged: bool
    requests: int
    hits: int
    bytes: int
    hit_bytes: int
    written_bytes: int
    deleted_bytes: int
    objects_deleted: int
    fetched_bytes: int


def warm_windows(windows: int, warm: float) -> int:
    """How many windows a share of the requests is, rounded; at least one is left to be judged."""
    return min(round(windows * warm), windows - 1)


def judge(trace: Trace, results: Sequence[Result], warm: float, site: Site = NOWHERE) -> list[Figures]:
    """The figures of one trace's runs, in their order."""
    judged = [(result, _sums(result, warm_windows(result.run.windows, warm))) for result in results]
    wan = {(result.run.capacity, result.run.policy): sums[FETCHED] for result, sums in judged if result.run.policy in (FLOOR, BOUND)}
    return [
        _figures(trace, result, sums, *(wan.get((result.run.capacity, name)) for name in (FLOOR, BOUND)), warm=warm, site=site)
        for result, sums in judged
    ]


def by_window(trace: Trace, result: Result, warm: float) -> list[Window]:
    """The windows of a run that have requests, the first at 0."""
    first_judged = warm_windows(result.run.windows, warm)
    lines, at = [], 0
    for number in range(result.run.windows):
        counts = {name: result.counts[name][number] for name in ALL_COUNTERS}
        begin, at = at, at + counts["requests"]
        if at > begin:
            moments = (float(trace.times[begin]), float(trace.times[at - 1]))
            run = result.run
            lines.append(Window(trace.name, run.fraction, run.policy, run.seed, number, *moments, number >= first_judged, **counts))
    return lines


def _sums(result: Result, first: int) -> dict[str, int]:
    return {name: sum(result.counts[name][first:]) for name in ALL_COUNTERS}


def _figures(
    trace: Trace, result: Result, sums: dict[str, int], floor: int | None, bound: int | None, *, warm: float, site: Site
) -> Figures:
    run = result.run
    used = link(by_window(trace, result, warm), site.origin_bytes_per_s)
    first = warm_windows(run.windows, warm)
    warming = sum(result.counts["requests"][:first])
    wan = sums[FETCHED]
    gap = None if floor is None or bound is None or floor <= bound else (floor - wan) / (floor - bound)
    return Figures(
        trace=trace.name,
        cache_fraction=run.fraction,
        capacity_bytes=run.capacity,
        policy=run.policy,
        requests=sums["requests"],
        object_miss=_share(sums["requests"] - sums["hits"], sums["requests"]),
        byte_miss=_share(sums["bytes"] - sums["hit_bytes"], sums["bytes"]),
        bytes_requested=sums["bytes"],
        wan_bytes=wan,
        bytes_written=sums["written_bytes"],
        bytes_deleted=sums["deleted_bytes"],
        objects_deleted=sums["objects_deleted"],
        throughput=(sums["hit_bytes"] - sums["written_bytes"]) / run.capacity,
        cost=(sums["written_bytes"] + sums["deleted_bytes"]) / run.capacity,
        gap_closed=gap,
        origin_bytes_per_s=used.bytes_per_s,
        origin_share=used.share,
        origin_wait_s=used.wait_s,
        cpu_efficiency=cpu_efficiency(sums, site),
        requests_per_s=len(trace) / max(result.seconds, 1e-9),
        training_s=result.training_s,
        warm_requests=warming,
        window_from_s=float(trace.times[min(warming, len(trace) - 1)]),
        window_to_s=float(trace.times[-1]),
        windows=run.windows,
        trace_digest=run.digest,
        seed=run.seed,
        rules=run.rules,
        version=run.version,
        command=result.command,
        created=result.created,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
