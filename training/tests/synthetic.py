"""Synthetic training sets with a known signal: what a model can learn from them is known beforehand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smartcache._core import Core
from smartcache.config import Config
from smartcache.preprocessing.core import core_schema, core_toml
from smartcache.preprocessing.manifest import RowsDigest, digest_of

NAMES = ["signal", "noise", "constant", "large"]
SCHEMA: dict[str, Any] = {"version": 1, "names": NAMES, "hash": hashlib.sha256(b"synthetic").hexdigest()[:16], "text": "synthetic"}
START_US = 1_700_000_000_000_000
DAY_S = 86400.0
TYPES: dict[str, pa.DataType] = {
    "cache": pa.string(),
    "lfn": pa.string(),
    "t_us": pa.int64(),
    "size": pa.int64(),
    "features": pa.list_(pa.float32()),
    "next_open_s": pa.float64(),
    "censored": pa.bool_(),
    "observed_s": pa.float64(),
    "weight": pa.float64(),
    "split": pa.string(),
}


def columns(rows: int, seed: int = 0, days: float = 60.0) -> dict[str, Any]:
    """Opens over ``days``; where ``signal`` > 0 the file is opened again after about an hour, else after a month or never."""
    rng = np.random.default_rng(seed)
    t_s = np.sort(rng.uniform(0, days * DAY_S, rows))
    signal = rng.standard_normal(rows)
    features = np.stack([signal, rng.standard_normal(rows), np.full(rows, 3.0), rng.lognormal(10, 2, rows)], axis=1).astype(np.float32)
    gap_s = np.where(signal + 0.2 * rng.standard_normal(rows) > 0, rng.exponential(3600, rows), rng.exponential(40 * DAY_S, rows))
    watched_s = days * DAY_S - t_s
    censored = gap_s > watched_s
    return {
        "cache": ["cache:1094"] * rows,
        "lfn": [f"/store/{number % 97}" for number in range(rows)],
        "t_us": (START_US + t_s * 1e6).astype(np.int64),
        "size": rng.integers(1, 10**9, rows),
        "features": list(features),
        "next_open_s": [None if cut else float(gap) for cut, gap in zip(censored, gap_s, strict=True)],
        "censored": censored,
        "observed_s": watched_s,
        "weight": rng.lognormal(18, 2, rows),
        "split": np.array(["train", "validate", "test"])[np.searchsorted([0.7, 0.85], t_s / (days * DAY_S))],
    }


def opens(rows: int, seed: int = 0, days: float = 60.0) -> dict[str, Any]:
    """Opens for a replay: datasets of one directory are read again and again, each file of the others once or twice."""
    rng = np.random.default_rng(seed)
    t_us = START_US + np.sort(rng.uniform(0, days * DAY_S * 1e6, rows)).astype(np.int64)
    hot = rng.random(rows) < 0.5
    numbers = np.where(hot, rng.integers(0, 40, rows), rng.integers(0, rows, rows))
    lfn = [f"/store/{'hot' if is_hot else 'cold'}/A/B/C/f{number}" for is_hot, number in zip(hot, numbers, strict=True)]
    return {"t_us": t_us, "lfn": lfn, "size": np.where(hot, 3_000_000, 1_000_000) + numbers % 40 * 1000}


def write_opens(folder: Path, made: dict[str, Any], config: Config, days: float = 60.0) -> Path:
    """The training set of these opens, with the features that the core gives them."""
    core, schema = core_toml(config), core_schema(core_toml(config))
    t_us, lfn, size = made["t_us"], made["lfn"], made["size"]
    rows = len(t_us)
    unknown = np.full(rows, -1, np.int64)
    features = Core(core).replay(t_us, lfn, np.zeros(rows, np.bool_), unknown, unknown.astype(np.float32))
    following: dict[str, int] = {}
    next_us: list[int | None] = [None] * rows
    for row in range(rows - 1, -1, -1):
        next_us[row] = following.get(lfn[row])
        following[lfn[row]] = int(t_us[row])
    gaps = [None if then is None else (then - int(now)) / 1e6 for then, now in zip(next_us, t_us, strict=True)]
    replaced = {
        "lfn": lfn,
        "t_us": t_us,
        "size": size,
        "features": list(features),
        "next_open_s": gaps,
        "censored": [gap is None for gap in gaps],
        "observed_s": (START_US + days * DAY_S * 1e6 - t_us) / 1e6,
        "weight": size.astype(np.float64),
        "split": np.array(["train", "validate", "test"])[np.searchsorted([0.7, 0.85], (t_us - START_US) / (days * DAY_S * 1e6))],
    }
    return write(folder, rows, days=days, schema=schema, **replaced)


def write_trace(path: Path, made: dict[str, Any]) -> Path:
    """The same opens as a trace."""
    pq.write_table(pa.table({"t": made["t_us"] / 1e6, "lfn": made["lfn"], "size": made["size"]}), path)
    return path


def write(folder: Path, rows: int = 1000, seed: int = 0, days: float = 60.0, schema: dict[str, Any] | None = None, **replaced: Any) -> Path:
    """Write a training set to ``folder``; ``replaced`` columns are written instead of those drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    content = columns(rows, seed, days) | replaced
    table = pa.table({name: pa.array(values, TYPES[name]) for name, values in content.items() if values is not None})
    pq.write_table(table, folder / "part-00000.parquet")
    digest = RowsDigest()
    if not set(TYPES) - set(table.column_names):
        for batch in table.to_batches():
            digest.add(batch)
    end_us = START_US + int(days * DAY_S * 1e6)
    manifest = {
        "format": 1,
        "schema": schema or SCHEMA,
        "window": {"from_us": START_US, "to_us": end_us},
        "split_at_us": {name: START_US + int(share * days * DAY_S * 1e6) for name, share in (("validate", 0.7), ("test", 0.85))},
        "rows": rows,
        "files": [{"name": "part-00000.parquet", "cache": "cache:1094", "rows": rows, "sha256": digest.hexdigest()}],
        "sha256": digest_of([digest.hexdigest()]),
        "command": "synthetic",
        "configuration": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def change_manifest(folder: Path, **changes: Any) -> None:
    """Overwrite keys of the manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
