"""Traces for the tests of the simulator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.local import paths


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A Parquet trace of these names; sizes and times by name and row, where they are not given."""

    def make(lfns: list[str], sizes: Any = None, times: Any = None, name: str = "t.parquet") -> Path:
        sizes = [10] * len(lfns) if sizes is None else sizes
        times = np.arange(len(lfns), dtype=np.float64) if times is None else times
        pq.write_table(pa.table({"t": times, "lfn": pa.array(lfns, pa.string()), "size": sizes}), tmp_path / name)
        return tmp_path / name

    return make


@pytest.fixture
def zipf(write: Callable[..., Path]) -> Callable[..., Path]:
    """A trace of many requests, few of the files often."""

    def make(requests: int, files: int = 500, seed: int = 1, name: str = "zipf.parquet") -> Path:
        random = np.random.default_rng(seed)
        chosen = np.minimum(random.zipf(1.2, requests), files) - 1
        sizes = random.integers(1, 1000, files)
        return write([f"/store/{number}" for number in chosen], sizes[chosen], name=name)

    return make


@pytest.fixture(scope="session")
def development_traces() -> Path:
    folder = paths.ROOT.parent / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("no development traces here")
    return folder
