"""The object-cache rules: what the binding promises, and that they agree with libCacheSim, here and on the development traces."""

import threading
from pathlib import Path
from typing import NamedTuple

import libcachesim
import numpy as np
import pyarrow.parquet as pq
import pytest

from smartcache import _core

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.4)
PEERS = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "lfu": libcachesim.LFU,
    "gdsf": libcachesim.GDSF,
    "s3-fifo": libcachesim.S3FIFO,
    "sieve": libcachesim.Sieve,
    "belady": libcachesim.Belady,
}
# GDSF: priorities that differ in the last bit only, since libCacheSim multiplies by a million first, may change an order.
TOLERANCE = {"gdsf": 0.0005}


class Trace(NamedTuple):
    objects: np.ndarray
    sizes: np.ndarray

    @property
    def unique_bytes(self) -> int:
        return int(self.sizes[np.unique(self.objects, return_index=True)[1]].sum())


def synthetic(n: int = 30_000, objects: int = 3_000, seed: int = 11) -> Trace:
    """Zipf-like requests that drift, in between scans of what is requested once; sizes from 1 byte to megabytes."""
    rng = np.random.default_rng(seed)
    popular = rng.zipf(1.1, n) % objects + (np.arange(n) // 10_000) * 500
    once = objects * 2 + np.arange(n)
    _, dense = np.unique(np.where(rng.random(n) < 0.2, once, popular), return_inverse=True)
    sizes = np.exp(rng.uniform(0, np.log(4e6), dense.max() + 1)).astype(np.int64)
    return Trace(dense.astype(np.uint32), sizes[dense])


def development_trace(path: Path) -> Trace:
    """A trace of the shared folder. libCacheSim's sizes have 32 bits: those of HEP files are scaled to MiB, as in peer_policies.csv."""
    table = pq.read_table(path, columns=["lfn", "size"])
    objects = table["lfn"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.uint32)
    sizes = table["size"].to_numpy().astype(np.int64)
    return Trace(objects, sizes if sizes.max() < 2**32 else np.maximum(1, sizes // 2**20))


def write_oracle_general(trace: Trace, path: Path) -> Path:
    """libCacheSim's binary format: time, object, size, position of the object's next request or -1."""
    n = len(trace.objects)
    rows = np.zeros(n, dtype=[("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
    rows["object"], rows["size"], rows["next"] = trace.objects, trace.sizes, -1
    order = np.argsort(trace.objects, kind="stable")
    again = trace.objects[order[1:]] == trace.objects[order[:-1]]
    rows["next"][order[:-1][again]] = order[1:][again]
    rows.tofile(path)
    return path


def simulated(policy: str, trace: Trace, capacity: int) -> tuple[float, float]:
    """Object and byte miss ratio."""
    counts = _core.simulate_objects(policy, trace.objects, trace.sizes, capacity)
    return 1 - counts["hits"][0] / counts["requests"][0], 1 - counts["hit_bytes"][0] / counts["bytes"][0]


def peer(policy: str, path: Path, capacity: int) -> tuple[float, float]:
    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    return PEERS[policy](cache_size=capacity, hashpower=16).process_trace(reader)


def assert_agreement(trace: Trace, policy: str, folder: Path) -> None:
    path = write_oracle_general(trace, folder / "trace.oracleGeneral.bin")
    for fraction in FRACTIONS:
        capacity = int(trace.unique_bytes * fraction)
        ours, theirs = simulated(policy, trace, capacity), peer(policy, path, capacity)
        assert ours == pytest.approx(theirs, rel=0, abs=TOLERANCE.get(policy, 1e-9)), f"{policy} at {fraction}"


@pytest.mark.parametrize("policy", PEERS)
def test_agrees_with_libcachesim(policy, tmp_path):
    assert_agreement(synthetic(), policy, tmp_path)


@pytest.mark.parametrize("policy", PEERS)
@pytest.mark.parametrize("name", ["hep_synthetic_a", "nasa_web", "cloudphysics_block", "tencent_block_a", "tencent_block_b"])
def test_agrees_with_libcachesim_on_the_development_traces(name, policy, tmp_path):
    path = TRACES / f"{name}.parquet"
    if not path.is_file():
        pytest.skip("no development traces here")
    assert_agreement(development_trace(path), policy, tmp_path)


def test_names_are_those_of_the_contract() -> None:
    expected = "lru fifo lfu lfu-da gdsf s3-fifo sieve slru arc lirs w-tinylfu hyperbolic scdl portfolio belady"
    assert _core.cache_policies() == expected.split()


@pytest.mark.parametrize("policy", [*_core.cache_policies(), "uses2+lru", "uses3+lirs"])
def test_windows_sum_to_the_whole_and_a_second_run_is_equal(policy):
    trace = synthetic(5_000, 500)
    whole = _core.simulate_objects(policy, trace.objects, trace.sizes, trace.unique_bytes // 10)
    windows = _core.simulate_objects(policy, trace.objects, trace.sizes, trace.unique_bytes // 10, windows=7)
    assert list(whole) == ["requests", "hits", "bytes", "hit_bytes", "written_bytes", "deleted_bytes", "objects_deleted"]
    for key, counts in windows.items():
        assert counts.shape == (7,)
        assert counts.dtype == np.int64
        assert counts.sum() == whole[key].sum(), key
    assert whole["requests"] == len(trace.objects)
    assert whole["bytes"] == trace.sizes.sum()


@pytest.mark.parametrize("policy", sorted(set(_core.cache_policies()) - {"belady", "slru"}))
def test_lies_between_belady_and_no_cache(policy):
    """With objects of one size none misses less than Belady, and all gain something."""
    trace = synthetic(20_000, 1_000)
    ones = np.ones_like(trace.sizes)
    capacity = len(np.unique(trace.objects)) // 10
    hits = {name: int(_core.simulate_objects(name, trace.objects, ones, capacity)["hits"][0]) for name in (policy, "belady")}
    assert 0.5 * hits["belady"] < hits[policy] <= hits["belady"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "lru2"}, r'policy: must be one of lru, .*is "lru2"; did you mean lru'),
        ({"capacity": 0}, r"capacity: must be above 0 bytes, is 0"),
        ({"capacity": -5}, r"capacity: must be above 0 bytes, is -5"),
        ({"windows": 0}, r"windows: must be 1 to the number of requests, 3, is 0"),
        ({"windows": -1}, r"windows: .*is -1"),
        ({"windows": 4}, r"windows: .*is 4"),
        ({"sizes": np.array([1, 1], np.int64)}, r"sizes: must be as many as objects, 3, are 2"),
        ({"sizes": np.array([1, -1, 1], np.int64)}, r"sizes\[1\]: must not be negative, is -1"),
        ({"sizes": np.array([2**62, 2**62, 1], np.int64)}, r"sizes: must sum to less than 2\^63"),
        ({"objects": np.array([0, 1, 3], np.uint32)}, r"objects\[2\]: must be dense ids from 0, so below the number of requests, 3, is 3"),
    ],
)
def test_errors_name_argument_rule_and_value(change, message):
    arguments = {"policy": "lru", "objects": np.array([0, 1, 0], np.uint32), "sizes": np.ones(3, np.int64), "capacity": 10}
    _core.simulate_objects(**arguments)
    with pytest.raises(ValueError, match=message):
        _core.simulate_objects(**(arguments | change))


def test_other_threads_run_meanwhile() -> None:
    """Whoever simulates lets go of the GIL: a thread that counts goes on."""
    trace = synthetic(200_000, 20_000)
    done, beats = threading.Event(), 0

    def simulate() -> None:
        for _ in range(5):
            _core.simulate_objects("hyperbolic", trace.objects, trace.sizes, trace.unique_bytes // 10)
        done.set()

    thread = threading.Thread(target=simulate)
    thread.start()
    while not done.is_set():
        beats += 1
    thread.join()
    assert beats > 1000
