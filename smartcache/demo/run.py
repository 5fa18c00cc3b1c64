"""One run of the demo: learn, train and promote, decide, report."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ..inference.cli import REFUSED
from ..local import paths
from ..local.ports import LOOPBACK
from ..local.process import Process, ProcessError
from ..local.summary import SummaryListener
from ..preprocessing.access import read_access_table
from . import clients, measure, plugin_metrics
from .folder import claim
from .plan import CACHES, Plan, Ports
from .progress import Say, Steps
from .site import Site
from .workload import Open, generate

_POLL_S = 0.25
#: Opens that come later than this are worth a note: the workload is not the planned one.
_LATE_S = 2.0
#: What the steps beside the phases take, for the progress bar only.
_FILES_S, _START_S, _TRAIN_S, _DRAIN_S = 5, 30, 45, 12


class DemoError(Exception):
    """The demo cannot go on; the text says why and where to look."""


@dataclass
class Phase:
    """A part of the workload: which opens, and what was counted meanwhile."""

    name: str
    opens: list[Open]
    results: list[clients.Result] = field(default_factory=list)
    #: By cache: what :meth:`measure.Counters.since` says.
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    began_s: float = 0.0
    ended_s: float = 0.0


class Demo:
    """Runs a plan in a folder. One object, one run."""

    def __init__(self, plan: Plan, ports: Ports, run: Path, console: Console) -> None:
        self._plan = plan
        self._ports = ports
        self._run = run
        self._site = Site(plan, ports, run)
        self._steps = Steps(console, _FILES_S + _START_S + plan.learn_s + _TRAIN_S + plan.decide_s + 2 * _DRAIN_S)
        #: Successful opens of the clients so far, by cache.
        self._opened: Counter[str] = Counter()
        self._notes: list[str] = []
        self._began, self._started = time.time(), time.monotonic()

    def __call__(self) -> dict[str, Any]:
        """Run it all; returns what was measured, as the report takes it. Every process that was started has ended on return."""
        paths.require(paths.PLUGIN_FILE, "the plugin")
        paths.require(paths.ENDPOINT, "the endpoint")
        with claim(self._run, self._site.require), self._steps, SummaryListener(self._ports.summary) as listener, self._site:
            return self._phases(listener)

    def _phases(self, listener: SummaryListener) -> dict[str, Any]:
        learn, decide = self._workload()
        step = self._steps.step
        with step("write the origin's files", _FILES_S):
            self._write_files([learn, decide])
        with step("start the servers", _START_S) as say:
            self._site.start(say)
        with measure.Meter(listener, self._site.caches, {name: self._ports.origin(name) for name in CACHES}) as meter:
            with step("learn: clients read", self._plan.learn_s):
                self._read(learn, meter)
            with step("learn: opens reach the access table", _DRAIN_S):
                self._drain()
            with step("train and promote", _TRAIN_S) as say:
                model = self._train(say)
            self._keep_to_budget(decide)
            with step("decide: clients read", self._plan.decide_s):
                self._read(decide, meter)
            with step("decide: opens reach the access table", _DRAIN_S):
                self._drain()
            self._check_accounts(decide)
            return self._measured([learn, decide], meter, model)

    # --- the phases -------------------------------------------------------------------------------------------------------------

    def _workload(self) -> tuple[Phase, Phase]:
        """One stream of opens, cut in two: the second half goes on where the first stopped."""
        opens = generate(self._plan.shape)
        cut_s = self._plan.learn_s
        learn = [one for one in opens if one.time_s < cut_s]
        decide = [replace(one, time_s=one.time_s - cut_s) for one in opens if one.time_s >= cut_s]
        return Phase("learn", learn), Phase("decide", decide)

    def _keep_to_budget(self, decide: Phase) -> None:
        """Leave out what would come too late on a machine where everything else took longer than planned."""
        until_s = self._plan.decide_until(time.monotonic() - self._started)
        kept = [one for one in decide.opens if one.time_s < until_s]
        if len(kept) < len(decide.opens):
            self._notes.append(
                f"decide: cut to {until_s:.0f} of {self._plan.decide_s:.0f} s, {len(kept)} of {len(decide.opens)} opens, or this machine "
                f"would not have been done within {self._plan.budget_s:.0f} s; --decide-s sets a length that is kept whatever it takes"
            )
            decide.opens = kept

    def _write_files(self, phases: list[Phase]) -> None:
        files = {one.file for phase in phases for one in phase.opens}
        written = sum(clients.write_file(file, self._site.origin_data) for file in files)
        self._steps.say(f"{written / 1e9:.2f} GB in {len(files)} files")

    def _read(self, phase: Phase, meter: measure.Meter) -> None:
        schedule, results = (self._run / f"{phase.name}.{kind}.jsonl" for kind in ("schedule", "results"))
        clients.write_schedule(phase.opens, schedule)
        addresses = {name: f"{LOOPBACK}:{self._ports.cache(name)}" for name in CACHES}
        log = self._run / "logs" / f"clients-{phase.name}.log"
        before = meter.counters()
        phase.began_s = time.time()
        self._finish(clients.process(schedule, results, addresses, log), phase.opens[-1].time_s + self._plan.patience_s)
        phase.ended_s = time.time()
        phase.results = clients.read_results(results)
        if len(phase.results) != len(phase.opens) * len(CACHES):
            raise DemoError(f"the clients made {len(phase.results)} opens of {len(phase.opens)} planned at {len(CACHES)} caches; see {log}")
        self._opened.update(result.cache for result in phase.results if result.ok)
        phase.counters = {name: after.since(before[name]) for name, after in meter.counters().items()}
        failed = [result for result in phase.results if not result.ok]
        self._steps.say(f"{len(phase.results)} opens at {len(CACHES)} caches, {len(failed)} failed")
        late_s = measure.percentile(sorted(result.late_s for result in phase.results), 99)
        if late_s > _LATE_S:
            self._notes.append(f"{phase.name}: this machine fell behind: 1 % of the opens came {late_s:.1f} s later than planned, or more")
        if failed:
            self._notes.append(f"{phase.name}: {len(failed)} opens failed, the first with: {failed[0].error}")

    def _drain(self) -> None:
        """Wait until each successful open of the clients is a row of the access table; go on with a note where some do not come."""
        deadline = time.monotonic() + self._plan.patience_s
        while (rows := self._rows()) != self._opened:
            self._site.require_running()
            if time.monotonic() > deadline:
                self._notes.append(f"the access table has {dict(rows)} rows where the clients made {dict(self._opened)} opens")
                break
            time.sleep(_POLL_S * 4)
        self._steps.say(f"{sum(rows.values())} rows in the access table")

    def _rows(self) -> Counter[str]:
        """Rows of the access table by cache."""
        by_id = Counter(self._column("cache"))
        return Counter({name: rows for name in CACHES if (rows := sum(by_id[cache] for cache in by_id if self._is(cache, name)))})

    def _is(self, cache: str, name: str) -> bool:
        """Whether a cache id is that of our cache ``name``: its port tells, the host name is the one that XRootD found for this machine."""
        return cache.endswith(f":{self._ports.cache(name)}")

    def _column(self, name: str) -> list[Any]:
        """A column of the access table."""
        values: list[Any] = read_access_table(self._run / "access", columns=[name])[name].to_pylist()
        return values

    # --- train and promote ------------------------------------------------------------------------------------------------------

    def _train(self, say: Say) -> dict[str, Any]:
        say("training set")
        self._finish(self._site.job("build-dataset", "--output", str(self._run / "dataset"), "--cache", self._cache_id("smart")))
        say("train, register")
        self._finish(self._site.job("train", "--dataset", str(self._run / "dataset")))
        say("gates")
        promotion = self._finish(self._site.job("promote"), allowed=(0, REFUSED))
        if promotion.returncode == REFUSED:
            self._notes.append("the gates refused the model: the smart cache went on without one\n" + promotion.last_words())
            return {"promoted": False}
        say("goes live")
        name = self._wait_for_model()
        self._steps.say(f"model {name} answers")
        bundle = json.loads((self._run / "models" / "cache" / name / "bundle.json").read_text())
        return {"promoted": True, "name": name} | {part: bundle[part] for part in ("metrics", "thresholds", "bucket_edges_s")}

    def _cache_id(self, name: str) -> str:
        """How monitoring names our cache."""
        for cache in self._column("cache"):
            if self._is(cache, name):
                return str(cache)
        raise DemoError(f"no open at the {name} cache has reached the access table; see {self._run}/logs/stream.log and collect.log")

    def _wait_for_model(self) -> str:
        """Wait until the plugin says that it asks a promoted model; its name."""
        deadline = time.monotonic() + self._plan.patience_s
        while not (name := plugin_metrics.read(self._site.plugin_textfile).model):
            self._site.require_running()
            if time.monotonic() > deadline:
                where = f"{self._run}/logs/watch.log and {self._run}/smart/smart/xrootd.log"
                raise DemoError(f"the plugin took no model within {self._plan.patience_s:.0f} s; see {where}")
            time.sleep(_POLL_S)
        return name

    def _finish(self, job: Process, timeout_s: float | None = None, *, allowed: tuple[int, ...] = (0,)) -> Process:
        """Run ``job`` to its end, while the servers are watched."""
        limit = timeout_s or 2 * self._plan.patience_s
        deadline = time.monotonic() + limit
        try:  # an interrupt while it is being started is raised once it has: it must be stopped then, too
            job.start()
            while job.running:
                self._site.require_running()
                if time.monotonic() > deadline:
                    raise ProcessError(f"{job.name} still runs after {limit:.0f} s\n{job.last_words()}")
                time.sleep(_POLL_S)
            if job.returncode not in allowed:
                raise ProcessError(f"{job.name} failed with status {job.returncode}\n{job.last_words()}")
        finally:
            job.stop()
        return job

    def _check_accounts(self, phase: Phase) -> None:
        """A kernel that counts no writes (the folder is on a memory file system) must not look like a cache that writes nothing."""
        for name, counted in phase.counters.items():
            if counted["written_bytes"] == 0 and counted["origin_bytes"] > 0:
                self._notes.append(
                    f"{name}: the kernel counted no writes to disk: is {self._run} in memory (tmpfs)? Its writes are unknown"
                )

    # --- what was measured ------------------------------------------------------------------------------------------------------

    def _measured(self, phases: list[Phase], meter: measure.Meter, model: dict[str, Any]) -> dict[str, Any]:
        plugin = plugin_metrics.read(self._site.plugin_textfile)
        removed = {name: meter.removed_files(name) for name in CACHES}
        return {
            "plan": self._plan.name,
            "seed": self._plan.shape.seed,
            "revision": revision(),
            "began": self._began,
            "seconds": time.time() - self._began,
            "cache": {"nominal_bytes": self._plan.cache.nominal, "maximum_bytes": self._plan.cache.maximum},
            "model": model,
            "phases": {
                phase.name: {
                    "began": phase.began_s,
                    "ended": phase.ended_s,
                    "caches": {name: phase.counters[name] | measure.latencies(phase.results, name) for name in CACHES},
                    "answers": self._answers(phase),
                    "open_ms": {name: [round(r.open_ms, 3) for r in phase.results if r.ok and r.cache == name] for name in CACHES},
                }
                for phase in phases
            },
            "client_opens": dict(self._opened),
            "access_rows": dict(self._rows()),
            "removed_files": removed,
            "evicted_files": plugin.evicted,
            "samples": meter.as_json(),
            "notes": self._notes + self._site.lost(),
        }

    def _answers(self, phase: Phase) -> list[dict[str, Any]]:
        """How often the plugin gave which answer for which reason in a phase, and how many of those had a score, from the access table."""
        table = read_access_table(self._run / "access", columns=["open_us", "answer", "reason", "score"])
        rows = [row for row in table.to_pylist() if row["answer"] and phase.began_s * 1e6 <= row["open_us"] <= phase.ended_s * 1e6]
        counts = Counter((row["answer"], row["reason"]) for row in rows)
        scored = Counter((row["answer"], row["reason"]) for row in rows if row["score"] is not None)
        return [
            {"answer": answer, "reason": reason, "opens": count, "scored": scored[answer, reason]}
            for (answer, reason), count in sorted(counts.items())
        ]


def revision() -> str:
    """The code's git revision, "" outside a checkout."""
    argv = ["git", "-C", str(paths.ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
