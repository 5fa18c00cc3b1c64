"""The decision core, compiled: dataset names, history, features, the embedded model, as the plugin computes them; and cache rules."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

class Schema(TypedDict):
    version: int
    names: list[str]
    hash: str
    text: str

class CinfoAccess(TypedDict):
    attach_s: int
    detach_s: int
    duration_s: int
    clients: int
    times: int
    hit: int
    missed: int
    bypassed: int

class Cinfo(TypedDict):
    version: int
    block_bytes: int
    file_bytes: int
    created_s: int
    no_checksum_s: int
    checksums: int
    blocks: int
    blocks_present: int
    accesses: int
    records: list[CinfoAccess]

class ObjectCounts(TypedDict):
    requests: NDArray[np.int64]
    hits: NDArray[np.int64]
    bytes: NDArray[np.int64]
    hit_bytes: NDArray[np.int64]
    written_bytes: NDArray[np.int64]
    deleted_bytes: NDArray[np.int64]
    objects_deleted: NDArray[np.int64]

def cache_policies() -> list[str]: ...
def simulate_objects(
    policy: str, objects: NDArray[np.uint32], sizes: NDArray[np.int64], capacity: int, windows: int = 1, seed: int = 1
) -> ObjectCounts: ...
def reuse_features() -> list[str]: ...
def reuse_feature_kinds() -> list[str]: ...

class LearnedCache:
    def __init__(self, capacity: int, groups: NDArray[np.uint32], seed: int = 1, left_out: list[str] = ...) -> None: ...
    def replay(self, objects: NDArray[np.uint32], sizes: NDArray[np.int64]) -> None: ...
    def counters(self, alone: bool = False) -> dict[str, int]: ...
    def labelled(self, most: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]: ...
    def use_trees(
        self,
        feature: NDArray[np.int32],
        threshold: NDArray[np.float32],
        left: NDArray[np.int32],
        right: NDArray[np.int32],
        leaf: NDArray[np.float32],
        roots: NDArray[np.int32],
    ) -> None: ...
    @property
    def horizon(self) -> float: ...
    @property
    def now(self) -> float: ...
    @property
    def weight(self) -> float: ...

def parse_cinfo(bytes: bytes) -> Cinfo: ...
def schema(config_toml: str = "") -> Schema: ...

class SideTable:
    def __init__(self, bytes: bytes) -> None: ...
    @property
    def version(self) -> int: ...
    @property
    def until_us(self) -> int: ...
    @property
    def datasets(self) -> int: ...

class Core:
    def __init__(self, config_toml: str = "") -> None: ...
    def dataset_of(self, lfn: str) -> str: ...
    def observe(
        self,
        t_us: int,
        lfn: str,
        on_disk: bool,
        size: int,
        fill: float,
        read_share: float = -1.0,
        side_table: SideTable | None = None,
    ) -> NDArray[np.float32]: ...
    def replay(
        self,
        t_us: NDArray[np.int64],
        lfn: list[str],
        on_disk: NDArray[np.bool_],
        size: NDArray[np.int64],
        fill: NDArray[np.float32],
        read_share: NDArray[np.float32] | None = None,
        side_table: SideTable | None = None,
    ) -> NDArray[np.float32]: ...
    def save(self) -> bytes: ...
    def restore(self, bytes: bytes) -> None: ...
    @property
    def files(self) -> int: ...
    @property
    def datasets(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

class ReplayCounts(TypedDict):
    opens: int
    hits: int
    bytes: int
    missed_bytes: int
    fetched_bytes: int
    written_bytes: int
    bypassed: int
    evicted: int
    refused: int
    purged_bytes: int
    evicted_bytes: int
    removed_files: int

class ReplayRules:
    def __init__(
        self,
        *,
        block_bytes: int = ...,
        purge_interval_s: float = ...,
        purge_high: float = ...,
        purge_low: float = ...,
        fallback: bool = ...,
        admit_at: int = ...,
        foresight: bool = ...,
        portfolio: bool = ...,
    ) -> None: ...

class CacheReplay:
    def __init__(
        self,
        config_toml: str,
        capacity: int,
        bundle_folder: str = "",
        bucket_edges_s: list[float] = ...,
        horizon_buckets: int = 0,
        admit: float = 0.0,
        evict: float = 0.0,
        rules: ReplayRules = ...,
    ) -> None: ...
    def open(
        self,
        t_us: NDArray[np.int64],
        lfn: list[str],
        size: NDArray[np.int64],
        b_read: NDArray[np.int64],
        asked: NDArray[np.bool_],
    ) -> None: ...
    def name(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> None: ...
    def replay(
        self,
        file: NDArray[np.uint32],
        t_us: NDArray[np.int64],
        size: NDArray[np.int64],
        b_read: NDArray[np.int64],
        next_us: NDArray[np.int64],
    ) -> None: ...
    def counters(self) -> ReplayCounts: ...

class EmbeddedModel:
    def __init__(self, bundle_folder: str) -> None: ...
    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]: ...
    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def mean(self) -> NDArray[np.float32]: ...
    @property
    def scale(self) -> NDArray[np.float32]: ...
