"""A comparison: every policy at every cache size on every trace, from files to figures."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from smartcache.terminal import counter

from . import figures, policies
from .costs import Site
from .figures import Figures, Window
from .pool import Pool, Task, save_arrays
from .rules import OBJECT_RULES, Rules
from .seeds import Mean, means
from .store import Result, Run, Store
from .trace import Trace, read


@dataclass(frozen=True)
class Plan:
    """What is compared. Cache sizes are ``fractions`` of the unique bytes of each trace, and ``capacities`` in bytes."""

    policies: Sequence[str]
    fractions: Sequence[float]
    capacities: Sequence[int]
    windows: int
    #: The share of the requests that warms the caches and is not judged.
    warm: float
    #: 0: one for each core.
    workers: int
    #: Put the requests of a trace in the order of their times.
    sort: bool
    rules: Rules = OBJECT_RULES
    #: Runs of each policy that is random, with the seeds 1, 2, ...
    seeds: int = 1
    site: Site = figures.NOWHERE


@dataclass(frozen=True)
class Facts:
    """A trace, in numbers."""

    name: str
    digest: str
    requests: int
    files: int
    unique_bytes: int
    requested_bytes: int
    seconds: float
    resized: int
    #: Requests that only warmed the caches.
    warm_requests: int


@dataclass(frozen=True)
class Comparison:
    """What came of a plan. ``kept`` of the runs were results of an earlier command, ``damaged`` such results could not be used."""

    plan: Plan
    command: str
    version: str
    traces: list[Facts]
    figures: list[Figures]
    windows: list[Window]
    kept: int
    damaged: int

    @property
    def means(self) -> list[Mean]:
        """The figures, those of several seeds as one."""
        return means(self.figures)


class Stopped(Exception):
    """Asked to stop before the comparison was whole."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__(f"{done} of {total} simulations are done")
        self.done = done
        self.total = total


def compare(
    paths: Sequence[Path], plan: Plan, output: Path | None, command: str, stop: threading.Event, say: Callable[[str], None]
) -> Comparison:
    """Read all traces, simulate what ``output`` has no result of, and judge. Results are in ``output`` as soon as each is there.

    Raises :class:`~smartcache.traces.SourceError`, :class:`~.policies.UnknownPolicy`, :class:`~.pool.SimulationError`, :class:`Stopped`.
    """
    for name in plan.policies:
        policies.resolve(name, plan.rules)
    store = Store(output)
    with tempfile.TemporaryDirectory(prefix="smartcache-simulate-") as scratch:
        traces = _read(paths, plan, Path(scratch), stop)
        runs = [run for trace in traces for run in _runs(trace, plan)]
        results = {number: result for number, run in enumerate(runs) if (result := store.load(run)) is not None}
        kept = len(results)
        if kept:
            say(f"{kept} of {len(runs)} simulations are in {output} already")
        folders = {trace.digest: Path(scratch) / str(number) for number, trace in enumerate(traces)}
        _simulate(runs, results, folders, plan, store, command, stop)
        if len(results) < len(runs):
            raise Stopped(len(results), len(runs))
        judged: list[Figures] = []
        windows: list[Window] = []
        for trace in traces:
            own = [results[number] for number, run in enumerate(runs) if run.trace == trace.name]
            judged += figures.judge(trace, own, plan.warm, plan.site)
            windows += [window for result in own for window in figures.by_window(trace, result, plan.warm)]
        facts = [_facts(trace, judged) for trace in traces]
    return Comparison(plan, command, policies.version(), facts, judged, windows, kept, store.damaged)


def _read(paths: Sequence[Path], plan: Plan, scratch: Path, stop: threading.Event) -> list[Trace]:
    traces: list[Trace] = []
    with counter("traces", len(paths)) as shown:
        for number, path in enumerate(paths):
            if stop.is_set():
                raise Stopped(0, len(paths) * len(plan.policies) * (len(plan.fractions) + len(plan.capacities)))
            shown.update(number, number, f"reading {path.name}")
            trace = read(path, plan.sort)
            folder = scratch / str(number)
            save_arrays(trace.requests(), folder)
            # One copy for this process and the workers, and none that has to be in memory.
            names = ("objects", "sizes", "times", "bytes_read", "name_text", "name_ends")
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
            traces.append(replace(trace, **arrays))
    return traces


def _runs(trace: Trace, plan: Plan) -> list[Run]:
    sizes = [(fraction, trace.capacity(fraction)) for fraction in plan.fractions]
    sizes += [(capacity / trace.unique_bytes, capacity) for capacity in plan.capacities]
    windows = min(plan.windows, len(trace))
    seeds = {policy: range(1, plan.seeds + 1 if policies.is_random(policy, plan.rules) else 2) for policy in plan.policies}
    keys = {policy: policies.key(policy, plan.rules) for policy in plan.policies}
    return [
        Run(trace.name, trace.digest, policy, fraction, capacity, windows, policies.version(), keys[policy], seed)
        for fraction, capacity in sizes
        for policy in plan.policies
        for seed in seeds[policy]
    ]


def _simulate(
    runs: Sequence[Run],
    results: dict[int, Result],
    folders: dict[str, Path],
    plan: Plan,
    store: Store,
    command: str,
    stop: threading.Event,
) -> None:
    """Add to ``results`` what is not there."""
    missing = [number for number in range(len(runs)) if number not in results]
    if not missing:
        return
    tasks = [
        Task(_title(run), folders[run.digest], run.policy, run.capacity, run.windows, plan.rules, run.seed)
        for run in (runs[number] for number in missing)
    ]
    count = min(plan.workers or len(os.sched_getaffinity(0)), len(tasks))
    with counter("simulations", len(tasks)) as shown, Pool(count) as pool:
        shown.update(0, 0, tasks[0].title)
        for done, (index, outcome) in enumerate(pool.run(tasks, stop), start=1):
            number = missing[index]
            created = datetime.now(UTC).isoformat(timespec="seconds")
            results[number] = Result(runs[number], outcome.windows, outcome.seconds, outcome.training_s, command, created)
            store.save(results[number])
            shown.update(done, done, tasks[index].title)


def _title(run: Run) -> str:
    return f"{run.trace}, {run.policy}, {run.capacity} bytes" + (f", seed {run.seed}" if run.seed > 1 else "")


def _facts(trace: Trace, judged: Sequence[Figures]) -> Facts:
    return Facts(
        name=trace.name,
        digest=trace.digest,
        requests=len(trace),
        files=trace.files,
        unique_bytes=trace.unique_bytes,
        requested_bytes=int(trace.sizes.sum()),
        seconds=float(trace.times[-1] - trace.times[0]),
        resized=trace.resized,
        warm_requests=next(line.warm_requests for line in judged if line.trace == trace.name),
    )
