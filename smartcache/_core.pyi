"""The decision core, compiled: dataset names, history and features of opens, exactly as the plugin computes them."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

class Schema(TypedDict):
    version: int
    names: list[str]
    hash: str
    text: str

def schema(config_toml: str = "") -> Schema: ...

class Core:
    def __init__(self, config_toml: str = "") -> None: ...
    def dataset_of(self, lfn: str) -> str: ...
    def observe(self, t_us: int, lfn: str, on_disk: bool, size: int, fill: float) -> NDArray[np.float32]: ...
    def replay(
        self,
        t_us: NDArray[np.int64],
        lfn: list[str],
        on_disk: NDArray[np.bool_],
        size: NDArray[np.int64],
        fill: NDArray[np.float32],
    ) -> NDArray[np.float32]: ...
    @property
    def files(self) -> int: ...
    @property
    def datasets(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
