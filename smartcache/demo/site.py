"""The servers of the demo: started in the order that they need each other, watched, and stopped together."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import tomli_w

from ..local import kafka, mlflow, paths, xrootd
from ..local.ports import require_free
from ..local.process import START_LIMIT_S, Process, interrupts_ignored, line_in, stop_all
from .plan import CACHES, Plan, Ports, configuration, scratch

#: The parts that others send to: they are stopped last, so that nothing that was seen is lost on the way.
_RECEIVERS = ("kafka", "mlflow")
#: Called with the name of the part that is being started.
Progress = Callable[[str], None]


class Site:
    """Everything that runs during the demo. Use as a context: leaving it stops every process it started, last one first."""

    def __init__(self, plan: Plan, ports: Ports, run: Path) -> None:
        self.plan = plan
        self.ports = ports
        self.run = run
        self.config_file = run / "smartcache.toml"
        self.origin_data = run / "files"
        self.caches: dict[str, xrootd.Xrootd] = {}
        self._endpoint: Process | None = None
        self._parts: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Those who send stop before those who receive.
        receivers = [part for part in self._parts if part.name in _RECEIVERS]
        with interrupts_ignored():
            stop_all([part for part in self._parts if part not in receivers], receivers)

    def require(self) -> None:
        """Raise, before anything is started, PortInUse where another program has one of our ports, naming the part that wants it, and
        ProcessError where the servers' user cannot get at the run folder or the plugin.
        """
        for part, port in vars(self.ports).items():
            require_free(port, f"the demo's {part}", f"stop that program, or choose with --port {part}=N or --port-base N")
        xrootd.require_access(self.run, paths.PLUGIN_FILE, paths.ROOT)

    def start(self, progress: Progress) -> None:
        """Start every part; returns when all are ready. ProcessError names the one that did not come up, with its last words."""
        self._write_configuration()
        # MLflow's imports take the longest: the others come up meanwhile.
        progress("MLflow, Kafka")
        tracking = mlflow.launch(self.run / "mlflow", self.ports.mlflow, register=self._parts.append)
        kafka.start(self.run / "kafka", self.ports.kafka, self.ports.kafka_controller, register=self._parts.append)
        progress("Spark stream, collector, endpoint")
        stream = self._launch("stream")
        # Before the caches: it must hear them introduce themselves.
        collector = self._launch("collect")
        self._endpoint = self._launch("endpoint")
        self._wait_ready(collector)
        progress("origins and caches")
        for name in CACHES:
            self._start_cache(name)
        self._wait_ready(self._endpoint)
        self._wait_ready(stream)
        progress("MLflow")
        mlflow.wait_ready(tracking, self.ports.mlflow)
        progress("promotion watcher")
        self._wait_ready(self._launch("watch"))

    def require_running(self) -> None:
        """Raise ProcessError with the last words of a part that has ended by itself.

        Not of the endpoint: without it the plugin goes on with its own copy of the model, and so does the demo. See :meth:`lost`.
        """
        for part in self._parts:
            if part is not self._endpoint:
                part.require_running()

    def lost(self) -> list[str]:
        """What of the parts that the site can do without has ended by itself, in words."""
        part = self._endpoint
        if part is None or part.running:
            return []
        return [f"{part.name} ended by itself with status {part.returncode}: from then on the plugin asked its own copy of the model"]

    def job(self, name: str, *arguments: str) -> Process:
        """``smartcache NAME …`` with the demo's configuration, not started: a job that the caller runs to its end."""
        argv = [sys.executable, "-m", "smartcache", name, *arguments, "--config", str(self.config_file)]
        return Process(name, argv, self.run / "logs" / f"{name}.log", env=self._scratch_env())

    def _scratch_env(self) -> dict[str, str]:
        """Temporary files under the run folder: Python's, and those of Spark's JVM, which knows no $TMPDIR."""
        folder = scratch(self.run)
        options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={shlex.quote(str(folder))}".strip()
        return {"TMPDIR": str(folder), "SPARK_SUBMIT_OPTS": options}

    @property
    def plugin_textfile(self) -> Path:
        """Where the plugin writes its counters: in the cache's folder, which its user may write to."""
        return self.run / "smart" / "plugin.prom"

    def _write_configuration(self) -> None:
        for folder in ("models/cache", "models/endpoint", "logs", "files/store"):
            (self.run / folder).mkdir(parents=True, exist_ok=True)
        scratch(self.run).mkdir(exist_ok=True)
        token = self.run / "admin.token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe(32))
        self.config_file.write_text(tomli_w.dumps(configuration(self.plan, self.ports, self.run, self.plugin_textfile)))

    def _start_cache(self, name: str) -> None:
        # One origin for each cache, both serving the same files: an origin's own counters then say what its cache fetched.
        xrootd.start_origin(
            self.run / f"origin-{name}",
            self.ports.origin(name),
            data=self.origin_data,
            name=f"origin-{name}",
            report_port=self.ports.summary,
            register=self._parts.append,
        )
        smart = name == "smart"
        cache = xrootd.start_cache(
            self.run / name,
            self.ports.cache(name),
            origin_port=self.ports.origin(name),
            size=self.plan.cache,
            monitoring=xrootd.Monitoring(self.ports.gstream, self.ports.fstream),
            plugin=paths.PLUGIN if smart else None,
            plugin_config=self.config_file if smart else None,
            name=name,
            report_port=self.ports.summary,
            register=self._parts.append,
        )
        self.caches[name] = cache

    def _launch(self, name: str) -> Process:
        part = self.job(name)
        # Before it starts: an interrupt in between must find it here.
        self._parts.append(part)
        return part.start()

    def _wait_ready(self, part: Process) -> None:
        part.wait_ready(line_in(part.log, "ready:"), "ready", START_LIMIT_S)
