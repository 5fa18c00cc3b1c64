"""Running the demo as a person would, and seeing what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from smartcache.demo.plan import Ports
from smartcache.local.paths import ROOT
from smartcache.local.ports import LOOPBACK, free_ports, free_run
from smartcache.local.xrootd import temporary_folder

POLL_S = 0.2
PORTS = tuple(Ports.__dataclass_fields__)
_HTTP = httpx.Client(
    timeout=1, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
)


@dataclass
class RunningDemo:
    """A demo that a test has started, and every process that it was seen to start."""

    process: psutil.Popen
    run: Path
    ports: Ports
    log: Path
    seen: set[psutil.Process] = field(default_factory=set)
    #: The endpoint's page of metrics, as it was seen last.
    endpoint_metrics: str = ""
    #: Where its programs could be reached when that was last asked for: name, address.
    bound: set[tuple[str, str]] = field(default_factory=set)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def look(self) -> None:
        """Remember the processes that belong to the demo now, and what its endpoint says of itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.seen.update(self.process.children(recursive=True))
        with contextlib.suppress(httpx.HTTPError):
            self.endpoint_metrics = _HTTP.get(f"http://{LOOPBACK}:{self.ports.endpoint}/metrics").raise_for_status().text

    def look_where_it_is_bound(self) -> None:
        """TCP that listens, and UDP: what each of its programs can be reached at, from wherever."""
        for process in self.process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # of XRootD's user not every root may know
                reachable = [one for one in process.net_connections("inet") if one.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)]
                self.bound.update((process.name(), one.laddr.ip) for one in reachable if one.laddr)

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for ``condition`` while the demo runs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.look()
            assert self.process.poll() is None, f"the demo ended before {what}:\n{self.output()}"
            assert time.monotonic() < deadline, f"not {what} after {timeout_s} s:\n{self.output()}"
            time.sleep(POLL_S)

    def says(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.output()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; the exit status."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            self.look()
            assert time.monotonic() < deadline, f"the demo still runs after {timeout_s} s:\n{self.output()}"
            time.sleep(POLL_S)
        return self.process.returncode

    def left_over(self) -> list[str]:
        """Processes that it started and that are still there; what has been killed gets a moment to be gone."""
        # Without those that are gone: their numbers may be others' by now, and psutil fails at a thread's.
        _, alive = psutil.wait_procs([process for process in self.seen if process.is_running()], timeout=5)
        left = []
        for process in alive:
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
            except psutil.NoSuchProcess:
                continue
        return left

    def find(self, part: str) -> psutil.Process:
        """The demo's process with ``part`` in its command line."""
        for process in self.process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                if any(part in word for word in process.cmdline()[:4]):
                    return process
        raise AssertionError(f"no process of the demo runs {part}")

    def measured(self) -> dict:
        return json.loads((self.run / "report" / "measurements.json").read_text())


def port_options(ports: Ports) -> list[str]:
    return [word for name, port in vars(ports).items() for word in ("--port", f"{name}={port}")]


@pytest.fixture(scope="session")
def start_demo():
    """Starts demos with ports and folders of their own; ends those that a failed test leaves."""
    started: list[RunningDemo] = []
    with temporary_folder() as folder:

        def start(*options: str, run: Path | None = None, by_make: bool = False) -> RunningDemo:
            """``by_make``: as `make demo QUICK=1` without its set-up, in a process group of its own, as a shell would start it."""
            run = run or folder / f"run{len(started)}"
            log = folder / f"demo{len(started)}.log"
            if by_make:
                base = free_run(len(PORTS))
                ports = Ports.from_base(base)
                argv = ["make", "-C", str(ROOT), "-o", "setup", "demo", "QUICK=1", f"RUN_DIR={run}", f"PORT_BASE={base}"]
            else:
                ports = Ports(*free_ports(len(PORTS)))
                argv = [sys.executable, "-m", "smartcache", "demo", "--quick", "--run-dir", str(run), *port_options(ports), *options]
            with log.open("wb") as out:
                process = psutil.Popen(
                    argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, process_group=0 if by_make else None
                )
            started.append(RunningDemo(process, run, ports, log))
            return started[-1]

        yield start
        for demo in started:
            if demo.process.poll() is None:
                demo.process.terminate()
                demo.process.wait(60)
