"""An access table on disk as the stream leaves it, made of rows, and bundles over the core's own features that answer what a test wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smartcache.config import Config
from smartcache.inference import bundle as bundles
from smartcache.inference.tests.fakes import METRICS
from smartcache.preprocessing.access import COLUMNS
from smartcache.preprocessing.core import core_schema, core_toml

T0_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
ARROW = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}


@dataclass(frozen=True)
class Open:
    """An open of a file; ``asked``: whether the plugin was."""

    t_us: int
    lfn: str
    size: int | None = 100
    b_read: int | None = 100
    asked: bool = False
    cache: str = "host:1094"
    answer: str | None = None
    reason: str | None = None
    score: float | None = None
    model: str | None = None
    on_disk: bool | None = None
    challenger_model: str | None = None
    challenger_answer: str | None = None
    challenger_score: float | None = None
    b_hit: int | None = None
    b_miss: int | None = None
    b_bypass: int | None = None


def write(folder: Path, opens: Sequence[Open]) -> Path:
    """The table ``folder``; one file for each cache and day."""
    listed = []
    for cache in sorted({each.cache for each in opens}):
        for day in sorted({_day(each) for each in opens if each.cache == cache}):
            rows = [each for each in opens if each.cache == cache and _day(each) == day]
            path = folder / f"cache={cache.replace(':', '%3A')}" / f"day={day}" / "part-0.parquet"
            path.parent.mkdir(parents=True)
            names = [name for name, _ in COLUMNS if name in Open.__dataclass_fields__ and name not in ("cache", "t_us")]
            columns: dict[str, list[object]] = {name: [getattr(each, name) for each in rows] for name in names}
            columns["open_id"] = [f"{each.cache}/{each.t_us}/{number}" for number, each in enumerate(rows)]
            columns["open_us"] = [each.t_us for each in rows]
            columns["t_us"] = [each.t_us if each.asked else None for each in rows]
            kinds = {name: ARROW[kind] for name, kind in COLUMNS if name in columns}
            pq.write_table(pa.table({name: pa.array(columns[name], kind) for name, kind in kinds.items()}), path)
            listed.append(json.dumps(_status(path)))
    (folder / "_spark_metadata").mkdir(parents=True)
    (folder / "_spark_metadata" / "0").write_text("\n".join(["v1", *listed]) + "\n")
    return folder


def _status(path: Path) -> dict[str, object]:
    """What Spark's file sink says of a file."""
    known = path.stat()
    return {
        "path": path.as_uri(),
        "size": known.st_size,
        "isDir": False,
        "modificationTime": known.st_mtime_ns // 1_000_000,
        "blockReplication": 1,
        "blockSize": 1 << 25,
        "action": "add",
    }


def _day(each: Open) -> str:
    return datetime.fromtimestamp(each.t_us / 1e6, UTC).date().isoformat()


def bundle(folder: Path, config: Config, outputs: Sequence[float], **provenance: object) -> bundles.Bundle:
    """A bundle of the features under ``config`` whose model gives these three outputs, whatever it is asked."""
    schema = core_schema(core_toml(config))
    (folder / "variables").mkdir(parents=True)
    for name in bundles.SAVED_MODEL:
        (folder / name).write_bytes(b"in place of a SavedModel")
    features = len(schema["names"])
    zeros = np.zeros((features, 3), dtype=np.float32)
    layers = (bundles.Layer(zeros, np.log(np.asarray(outputs, dtype=np.float32)), "softmax"),)
    network = bundles.Network(zeros[:, 0], np.ones(features, dtype=np.float32), layers)
    info = bundles.Info.model_validate(
        {
            "schema": schema,
            "bucket_edges_s": [3600.0, 86400.0],
            "horizon_s": 3600.0,
            "horizon_buckets": 1,
            "thresholds": {"admit": 0.5, "evict": 0.0},
            "metrics": METRICS,
            "provenance": {"run_id": "run-1", **provenance},
        }
    )
    inputs = np.random.default_rng(0).standard_normal((4, features)).astype(np.float32)
    bundles.write_parts(folder, info, network, inputs, np.tile(np.asarray(outputs, dtype=np.float32), (4, 1)))
    return bundles.read(folder)
