"""What a run of the demo is made of: its times, its sizes and its ports. All figures of the demo stand here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..local import paths, xrootd
from ..local.mlflow import uri as mlflow_uri
from ..local.ports import LOOPBACK
from .workload import KIB, MIB, Shape

DEFAULT_PORT_BASE = 21800
#: What comes after the last open: its row reaches the access table, the servers stop, the plots are drawn.
END_S = 30.0
CACHES = ("plain", "smart")


@dataclass(frozen=True)
class Ports:
    """One loopback port for each socket of the demo."""

    kafka: int
    kafka_controller: int
    mlflow: int
    endpoint: int
    origin_plain: int
    origin_smart: int
    cache_plain: int
    cache_smart: int
    gstream: int
    fstream: int
    decision: int
    collector_metrics: int
    summary: int

    @classmethod
    def from_base(cls, base: int, changed: Mapping[str, int] | None = None) -> Ports:
        """Consecutive ports from ``base``, but for those in ``changed`` (name → port); ValueError names an unknown name or a bad port."""
        names = [field.name for field in fields(cls)]
        chosen = {name: base + offset for offset, name in enumerate(names)}
        for name, port in (changed or {}).items():
            if name not in chosen:
                raise ValueError(f"no part has a port {name!r}; they are {', '.join(names)}")
            chosen[name] = port
        for name, port in chosen.items():
            if not 1024 <= port <= 65535:
                raise ValueError(f"port {name} must be 1024 to 65535, not {port}; choose another --port-base")
        if len(set(chosen.values())) < len(chosen):
            raise ValueError(f"ports must differ from each other: {chosen}")
        return cls(**chosen)

    def origin(self, cache: str) -> int:
        """The port of the origin behind ``cache``."""
        return int(getattr(self, f"origin_{cache}"))

    def cache(self, cache: str) -> int:
        """The port of ``cache``."""
        return int(getattr(self, f"cache_{cache}"))


@dataclass(frozen=True)
class Plan:
    """One kind of run. Times in seconds, sizes in bytes.

    The cache is sized against pfc's purge, which looks once a minute at the earliest and spares what was opened since its last look: the
    plain cache keeps a file for one to two minutes. The test part of the training set must last longer than the horizon, or nothing could
    judge the score.
    """

    name: str
    learn_s: float
    decide_s: float
    shape: Shape
    cache: xrootd.CacheSize
    bucket_edges_s: tuple[float, ...]
    horizon_s: float
    half_lives_s: tuple[float, ...]
    #: Shares of the rows that train and that validate; the rest tests.
    train: float
    validate: float
    #: How long the whole run may take: on a machine too slow for it the decide phase is cut short. None: as long as the phases take.
    budget_s: float | None
    #: A run whose parts hang is given up after this long.
    patience_s: float = 90.0

    def decide_until(self, elapsed_s: float) -> float:
        """How much of the decide phase there is time for, ``elapsed_s`` after the start; half of it in any case, or nothing is compared."""
        if self.budget_s is None:
            return self.decide_s
        return min(self.decide_s, max(self.decide_s / 2, self.budget_s - END_S - elapsed_s))


def quick(seed: int, learn_s: float | None = None, decide_s: float | None = None) -> Plan:
    """Five minutes with everything: the one that the tests run.

    Re-runs come so soon that the plain cache still has the files: the smart cache can win by what it does not write, not by what it keeps.
    """
    budget_s = None if learn_s or decide_s else 300.0
    learn_s, decide_s = learn_s or 75.0, decide_s or 70.0
    return Plan(
        name="quick",
        budget_s=budget_s,
        learn_s=learn_s,
        decide_s=decide_s,
        shape=Shape(seed=seed, duration_s=learn_s + decide_s, rate=14, file_size=600 * KIB, rerun_gap_s=12),
        cache=xrootd.CacheSize(base=64 * MIB, nominal=128 * MIB, maximum=160 * MIB),
        bucket_edges_s=(5.0, 10.0, 15.0, 30.0),
        horizon_s=15.0,
        half_lives_s=(5.0, 20.0, 80.0),
        train=0.5,
        validate=0.14,
    )


def full(seed: int, learn_s: float | None = None, decide_s: float | None = None) -> Plan:
    """A quarter of an hour at most: the purge runs several times in each phase, and some re-runs come too late for the plain cache.

    What is learnt from are campaigns, not opens: of small datasets there are enough of them in minutes. The train part lasts three
    horizons, since only opens that were watched for a whole one say what the score is about.
    """
    budget_s = None if learn_s or decide_s else 900.0
    learn_s, decide_s = learn_s or 375.0, decide_s or 180.0
    return Plan(
        name="full",
        budget_s=budget_s,
        learn_s=learn_s,
        decide_s=decide_s,
        shape=Shape(seed=seed, duration_s=learn_s + decide_s, rate=14, file_size=600 * KIB, files_per_dataset=(3, 9), rerun_gap_s=60),
        cache=xrootd.CacheSize(base=128 * MIB, nominal=256 * MIB, maximum=288 * MIB),
        bucket_edges_s=(10.0, 25.0, 45.0, 75.0, 110.0),
        horizon_s=75.0,
        half_lives_s=(10.0, 60.0, 240.0),
        train=0.60,
        validate=0.13,
    )


def scratch(run: Path) -> Path:
    """What the parts write besides data and logs, to be forgotten when they end: Spark's blocks, unpacked libraries, temporary files."""
    return run / "tmp"


def configuration(plan: Plan, ports: Ports, run: Path, plugin_textfile: Path) -> dict[str, Any]:
    """What of ``smartcache.toml`` differs in the demo: ports, folders, and time scales of seconds where a site's are hours to weeks."""
    return {
        "features": {"half_lives_s": list(plan.half_lives_s)},
        "model": {
            "bundle_dir": str(run / "models" / "cache"),
            "endpoint_url": f"http://{LOOPBACK}:{ports.endpoint}",
            "poll_s": 0.5,
            # The servers, the clients, Kafka and Spark share two cores here.
            "deadline_ms": 20.0,
        },
        # The caches share one disk. Files come and go within seconds, so they are summed often.
        "evictor": {"capacity_bytes": plan.cache.maximum, "scan_s": 2.0},
        "decision_log": {"host": LOOPBACK, "port": ports.decision},
        "plugin_metrics": {"textfile": str(plugin_textfile), "interval_s": 1.0},
        "collector": {
            "gstream_port": ports.gstream,
            "fstream_port": ports.fstream,
            "decision_port": ports.decision,
            "metrics_port": ports.collector_metrics,
        },
        "spool": {"dir": str(run / "spool")},
        "kafka": {"bootstrap": f"{LOOPBACK}:{ports.kafka}", "partitions": 2},
        "spark": {
            "jars_dir": str(paths.SPARK_JARS),
            "shuffle_partitions": 1,
            "quick_start": True,
            "options": {"spark.local.dir": str(scratch(run)), "spark.sql.warehouse.dir": str(scratch(run) / "warehouse")},
        },
        "streaming": {
            "table": str(run / "access"),
            "jobs": str(run / "jobs"),
            "quarantine": str(run / "quarantine"),
            "checkpoint": str(run / "checkpoint"),
            "trigger_s": 2.0,
            "join_grace_s": 5.0,
            "watermark_s": 600.0,
        },
        "training_set": {"train": plan.train, "validate": plan.validate},
        "training": {
            "bucket_edges_s": list(plan.bucket_edges_s),
            "horizon_s": plan.horizon_s,
            "hidden": [32, 16],
            "epochs": 40,
            "batch": 128,
        },
        "mlflow": {"tracking_uri": mlflow_uri(ports.mlflow), "experiment": f"demo-{plan.name}"},
        "gates": {
            "min_test_rows": 10,
            "replay_capacity_bytes": plan.cache.nominal,
            # As for the deadline: endpoint and promotion share two cores with all the rest.
            "latency_p50_ms": 10.0,
            "latency_p99_ms": 50.0,
        },
        "watch": {"poll_s": 0.5},
        "endpoint": {"port": ports.endpoint, "model_dir": str(run / "models" / "endpoint"), "admin_token_file": str(run / "admin.token")},
    }
