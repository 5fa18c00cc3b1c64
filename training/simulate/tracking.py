"""A comparison in MLflow: a run for the command, with tables and report, and in it one for each simulation, to be compared there."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smartcache.config import Config
from smartcache.inference.registry import Registry, RegistryError, quiet_mlflow, translated
from smartcache.page import share

from . import report, tables
from .compare import Comparison
from .figures import Window

#: As many as one request to the server may have.
_BATCH = 1000
_PARAMETERS = ("trace", "cache_fraction", "capacity_bytes", "policy", "windows", "seed", "rules", "trace_digest")
_METRICS = (
    "requests",
    "object_miss",
    "byte_miss",
    "wan_bytes",
    "bytes_written",
    "bytes_deleted",
    "throughput",
    "cost",
    "gap_closed",
    "origin_bytes_per_s",
    "origin_share",
    "origin_wait_s",
    "cpu_efficiency",
    "requests_per_s",
    "training_s",
)


def require_server(config: Config) -> None:
    """Raise :class:`~smartcache.inference.registry.RegistryError` where MLflow does not answer: before hours of simulation."""
    Registry(config.mlflow.tracking_uri, config.mlflow.model).require_server()


def log(comparison: Comparison, config: Config, folder: Path | None) -> str:
    """Write the comparison to ``[mlflow]``; the run's id. ``folder`` is where tables and report are, None where they are nowhere yet.

    Raises :class:`~smartcache.inference.registry.RegistryError`; the run is FAILED then.
    """
    quiet_mlflow()
    from mlflow import MlflowClient

    uri = config.mlflow.tracking_uri
    with translated(uri):
        client: Any = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(config.mlflow.experiment)
        experiment = found.experiment_id if found else client.create_experiment(config.mlflow.experiment)
        tags = {"smartcache.command": comparison.command, "smartcache.version": comparison.version, "smartcache.kind": "simulate"}
        name = f"simulate {', '.join(facts.name for facts in comparison.traces)}"
        parent = client.create_run(experiment, tags=tags, run_name=name[:200]).info.run_id
    try:
        with translated(uri):
            _fill(client, parent, comparison, folder)
            _children(client, experiment, parent, comparison)
            client.set_terminated(parent, "FINISHED")
    except RegistryError as error:
        try:
            with translated(uri):
                client.set_terminated(parent, "FAILED")
        except RegistryError:
            raise error from None
        raise
    return str(parent)


def _fill(client: Any, run: str, comparison: Comparison, folder: Path | None) -> None:
    plan = comparison.plan
    for key, value in {
        "traces": ", ".join(f"{facts.name} {facts.digest}" for facts in comparison.traces),
        "policies": ", ".join(plan.policies),
        "fractions": ", ".join(map(str, plan.fractions)),
        "capacities": ", ".join(map(str, plan.capacities)),
        "windows": plan.windows,
        "warm": plan.warm,
        "rules": plan.rules.name,
        "seeds": plan.seeds,
    }.items():
        client.log_param(run, key, str(value)[:6000])
    with tempfile.TemporaryDirectory(prefix="smartcache-simulate-") as scratch:
        if folder is None:
            folder = Path(scratch)
            tables.write(comparison, folder)
            report.write(comparison, folder)
        for name in (tables.SUMMARY, tables.RUNS, tables.WINDOWS, report.REPORT):
            client.log_artifact(run, str(folder / name))


def _children(client: Any, experiment: str, parent: str, comparison: Comparison) -> None:
    from mlflow.entities import Metric, Param, RunTag

    curves: defaultdict[tuple[str, float, str, int], list[Window]] = defaultdict(list)
    for window in comparison.windows:
        curves[window.trace, window.cache_fraction, window.policy, window.seed].append(window)
    for line in comparison.figures:
        now_ms = time.time_ns() // 1_000_000
        values = asdict(line)
        metrics = [Metric(name, float(values[name]), now_ms, 0) for name in _METRICS if values[name] is not None]
        for window in curves[line.trace, line.cache_fraction, line.policy, line.seed]:
            if window.bytes:
                metrics.append(Metric("window_byte_miss", 1 - window.hit_bytes / window.bytes, now_ms, window.window))
        child = client.create_run(experiment, run_name=f"{line.policy} {share(line.cache_fraction)} {line.trace}"[:200]).info.run_id
        parameters = [Param(name, str(values[name])) for name in _PARAMETERS]
        tags = [
            RunTag("mlflow.parentRunId", parent),
            RunTag("smartcache.version", line.version),
            RunTag("smartcache.command", line.command),
        ]
        client.log_batch(child, metrics[:_BATCH], parameters, tags)
        for begin in range(_BATCH, len(metrics), _BATCH):
            client.log_batch(child, metrics[begin : begin + _BATCH])
        client.set_terminated(child, "FINISHED")
