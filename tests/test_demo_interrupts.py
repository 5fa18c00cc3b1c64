"""Ctrl-C in each phase of the demo that comes after the first reads, all in one demo: each is interrupted once, and gone through again.

That an interrupt that nobody catches ends the whole demo, with no process left, is ``test_demo_faults.py``'s. Here it is caught where the
phase ends: what the phase had started must be gone then, while the servers run on.
"""

import contextlib
import copy
import gc
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from dataclasses import fields, replace
from unittest import mock

import psutil
import pytest
from rich.console import Console

from smartcache.demo import clients, plan, plugin_metrics, report
from smartcache.demo.run import Demo
from smartcache.local.ports import free_ports
from smartcache.local.xrootd import temporary_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    # A library that is interrupted right after it has opened a file leaves its end to the collector of garbage.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

POLL_S = 0.05
#: A job has half a minute to write what it must, a busy machine another one.
PROMPT_S = 60


def small_plan():
    """Seconds instead of minutes; the test part of the training set is longer than the horizon nonetheless."""
    quick = plan.quick(7, learn_s=24, decide_s=8)
    times = {"bucket_edges_s": (1.0, 2.0, 4.0, 8.0), "horizon_s": 4.0, "half_lives_s": (1.0, 4.0, 16.0), "patience_s": 300.0}
    return replace(quick, shape=replace(quick.shape, rate=28, rerun_gap_s=3), train=0.38, validate=0.34, **times)


def interrupt(what, under_way, action):
    """Do ``action``, which SIGINT has to end as soon as ``under_way`` says that it comes."""
    over = threading.Event()
    sent = []

    def send():
        while not over.wait(POLL_S):
            if under_way():
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
                return

    def do():
        sender.start()
        try:
            action()
        finally:
            over.set()
            sender.join()
        pytest.fail(f"{what} was over before it was interrupted")

    sender = threading.Thread(target=send)
    with pytest.raises(KeyboardInterrupt):
        do()
    assert time.monotonic() - sent[0] < PROMPT_S, what


def assert_files_for_a_time_are_in(run, parts):
    """The stream's JVM keeps its blocks there, and of all that the parts have open or loaded nothing is elsewhere."""
    assert list((run / "tmp").glob("blockmgr-*"))
    used, servers = set(), set()
    mains = [psutil.Process(part.pid) for part in parts]
    for process in [*mains, *(child for main in mains for child in main.children(recursive=True))]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a program that one of them has run
            used |= {file.path for file in [*process.open_files(), *process.memory_maps()]}
            servers |= {word for word in process.cmdline() if word in ("kafka.Kafka", "org.apache.spark.deploy.SparkSubmit")}
    assert len(servers) == 2
    elsewhere = [path for path in used if path.startswith(tempfile.gettempdir()) and not path.startswith(str(run))]
    assert [path for path in elsewhere if "/hsperfdata_" not in path] == []  # the JVM's own counters have one place


class InterruptedDemo(Demo):
    """Interrupts each of its jobs and waits once, when it is well under way."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.interrupted = []
        self._looked_at_the_table = threading.Event()
        self._looks_in_vain = False
        self._under_way = {
            "build-dataset": lambda process: any(child.name() == "java" for child in process.children(recursive=True)),
            "train": lambda process: any("libtensorflow" in mapped.path for mapped in process.memory_maps()),
            "promote": lambda process: bool(process.net_connections("tcp")),
        }

    def _read(self, phase, meter):
        if phase.name == "decide":
            self._under_way["clients"] = lambda _: len(clients.read_results(self._run / "decide.results.jsonl")) > 20
        super()._read(phase, meter)

    def _finish(self, job, *arguments, **options):
        if job.name in self._under_way:
            # Not started yet: a copy is the same job.
            self._finish_interrupted(copy.copy(job), self._under_way.pop(job.name), *arguments, **options)
        return super()._finish(job, *arguments, **options)

    def _finish_interrupted(self, job, under_way, *arguments, **options):
        self.interrupted.append(job.name)
        seen = set()

        def is_under_way():
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process().children():
                    if process.cmdline() == job.argv:
                        seen.update({process, *process.children(recursive=True)})
                        return under_way(process)
            return False

        interrupt(job.name, is_under_way, lambda: super(InterruptedDemo, self)._finish(job, *arguments, **options))
        # By itself or, where a busy machine takes longer than the demo's patience, killed.
        assert psutil.wait_procs(seen, timeout=5)[1] == []
        self._site.require_running()
        if job.name == "clients":
            # What they have opened is in the caches' records, and these are kept.
            results = self._run / "decide.results.jsonl"
            self._opened.update(result.cache for result in clients.read_results(results) if result.ok)
            results.unlink()

    def _rows(self):
        self._looked_at_the_table.set()
        return Counter() if self._looks_in_vain else super()._rows()

    def _drain(self):
        self.interrupted.append("drain")
        self._looked_at_the_table.clear()
        self._looks_in_vain = True  # until it is interrupted: all may be there already
        interrupt("drain", self._looked_at_the_table.is_set, super()._drain)
        self._looks_in_vain = False
        self._site.require_running()
        super()._drain()
        assert_files_for_a_time_are_in(self._run, self._site._parts)

    def _wait_for_model(self):
        self.interrupted.append("goes live")
        with mock.patch.object(plugin_metrics, "read", return_value=plugin_metrics.PluginMetrics()):  # it may be there already
            interrupt("goes live", lambda: True, super()._wait_for_model)
        self._site.require_running()
        return super()._wait_for_model()


def test_ctrl_c_in_each_phase_from_the_first_drain_to_the_report():
    ports = plan.Ports(*free_ports(len(fields(plan.Ports))))
    others = set(psutil.Process().children())  # other tests' servers and sessions
    before = os.umask(0o022)
    try:
        with temporary_folder() as folder:
            demo = InterruptedDemo(small_plan(), ports, folder / "run", Console())
            measured = demo()
            assert set(psutil.Process().children()) - others == set()
            pages = folder / "report"
            interrupt("report", lambda: any(pages.glob("*.png")), lambda: report.write(measured, pages))
            gc.collect()  # here, and not in a test that takes an open file for an error
            assert not (pages / "index.html").exists()
            assert report.write(measured, pages).read_text().endswith("</html>\n")
    finally:
        os.umask(before)
    assert [phase for phase in demo.interrupted if phase != "goes live"] == [
        "drain",
        "build-dataset",
        "train",
        "promote",
        "clients",
        "drain",
    ]
    assert ("goes live" in demo.interrupted) == measured["model"]["promoted"]
    # No open is lost with what was interrupted, and none is counted twice.
    assert measured["client_opens"] == measured["access_rows"]
