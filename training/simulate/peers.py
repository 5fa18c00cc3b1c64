"""``lcs:NAME``: the policies of libCacheSim, where PyPI's ``libcachesim`` is installed (extra ``peers``).

They are called request by request: hits are its own, bytes written and deleted what its occupied bytes say. Its rules are its own too: a
file whose size changes keeps its first one while it is stored, and what is random there draws as it likes, not by our seed. A file of no
bytes counts there as one of one byte, which it needs. A policy that ends its process, as some do on some traces, is an error that names it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .policies import COUNTERS, PEER, Outcome, Requests, UnknownPolicy

#: libCacheSim's for "never again".
_NEVER: Final = np.iinfo(np.int64).max
#: Asks for a class of the user's own.
_NOT_BY_NAME: Final = {"CacheBase", "PluginCache"}


def names() -> list[str]:
    """The names of its policies, in lower case; :class:`~.policies.UnknownPolicy` where the package is not installed."""
    return sorted(_classes())


def resolve(name: str) -> PeerPolicy:
    """The policy of this name, in whatever case; :class:`~.policies.UnknownPolicy` where there is none, or no package."""
    known = _classes()
    asked = name.removeprefix(PEER).lower().replace("-", "")
    if asked not in known:
        near = difflib.get_close_matches(asked, known, n=2)
        listed = " or ".join(PEER + each for each in near) if near else f"one of {', '.join(sorted(known))} after {PEER}"
        raise UnknownPolicy(f"unknown policy {name!r} of libCacheSim; did you mean {listed}?")
    return PeerPolicy(asked)


def _classes() -> dict[str, Any]:
    try:
        module: Any = importlib.import_module("libcachesim")
    except ImportError as error:
        raise UnknownPolicy(f"{PEER}NAME needs libCacheSim ({error}): pip install 'smartcache[peers]'") from error
    found = inspect.getmembers(module, lambda each: inspect.isclass(each) and issubclass(each, module.CacheBase))
    return {name.lower(): each for name, each in found if name not in _NOT_BY_NAME}


@dataclass(frozen=True)
class PeerPolicy:
    """One of libCacheSim's classes, by its name in lower case."""

    name: str

    def simulate(self, requests: Requests, capacity: int, windows: int) -> Outcome:
        """See :class:`~.policies.Policy`."""
        import libcachesim

        total = len(requests.objects)
        buckets = max(12, int(requests.objects.max()).bit_length() + 1)
        cache = _classes()[self.name](cache_size=capacity, hashpower=buckets)
        request = libcachesim.Request()
        seconds = (requests.times - requests.times[0]).clip(0, 2**31).astype(np.int64).tolist()
        columns = (requests.objects.tolist(), requests.sizes.tolist(), seconds, next_positions(requests.objects).tolist())
        ends = {total * (window + 1) // windows for window in range(windows)}
        began = time.perf_counter()
        try:
            counted = _replay(cache, request, columns, ends)
        except RuntimeError as error:
            raise ValueError(f"libCacheSim {version()}: {error}") from error
        return Outcome(counted, time.perf_counter() - began)


def version() -> str:
    """That of the package: figures of another may differ."""
    return metadata.version("libcachesim")


def _replay(cache: Any, request: Any, columns: tuple[list[int], ...], ends: set[int]) -> dict[str, list[int]]:
    """All requests; what was counted by window. ``ends``: the numbers of the last request of each."""
    counted: dict[str, list[int]] = {name: [] for name in COUNTERS}
    counts = dict.fromkeys(COUNTERS, 0)
    occupied = stored = 0
    for number, (file, size, second, again) in enumerate(zip(*columns, strict=True), start=1):
        request.obj_id, request.obj_size, request.clock_time, request.next_access_vtime = file, max(size, 1), second, again
        counts["requests"] += 1
        counts["bytes"] += size
        if cache.get(request):
            counts["hits"] += 1
            counts["hit_bytes"] += size
        else:
            kept = bool(cache.find(request, False))
            counts["written_bytes"] += size * kept
            counts["objects_deleted"] += stored + kept - cache.get_n_obj()
            counts["deleted_bytes"] += occupied + max(size, 1) * kept - cache.get_occupied_byte()
            occupied, stored = cache.get_occupied_byte(), cache.get_n_obj()
        if number in ends:
            for name in COUNTERS:
                counted[name].append(max(0, counts[name]))
            counts = dict.fromkeys(COUNTERS, 0)
    return counted


def next_positions(objects: NDArray[np.uint32]) -> NDArray[np.int64]:
    """For each request the position of its file's next one; the largest number where there is none."""
    order = np.argsort(objects, kind="stable")
    following = np.full(len(objects), _NEVER)
    same = objects[order[1:]] == objects[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following
