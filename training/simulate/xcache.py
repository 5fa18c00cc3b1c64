"""Policies under XCache's own rules: one engine, the core's ``CacheReplay``, with the code that the plugin decides by.

``lru``
    XCache as it is: all is admitted, pfc purges by last access.
``uses2+lru`` to ``uses9+lru``
    The same, but a file is stored at its n-th open.
``fallback``
    The plugin without a model: ``[policy]`` always_admit, never_admit and fallback.
``model:FOLDER``
    The plugin with the model of this bundle folder, evaluated in process as the plugin's embedded copy: features, thresholds, pressure of
    the fill, `evict`, and the evictor in front of pfc's purge. Nothing is explored.
``portfolio``, ``portfolio+model:FOLDER``
    The plugin with its portfolio ([portfolio], whether enabled or not), without a model or with this one among its caches; the evictor goes
    by the vote.
``belady``
    The bound: all is admitted, and pfc's purge, at the same times and marks, knows which files are opened again last.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .policies import BOUND, FLOOR, Outcome, Requests, UnknownPolicy
from .rules import Rules

if TYPE_CHECKING:
    from smartcache._core import CacheReplay

FALLBACK: Final = "fallback"
PORTFOLIO: Final = "portfolio"
MODEL: Final = "model:"
_USES: Final = re.compile(rf"uses([2-9])\+{FLOOR}\Z")
#: The core's clock ends with the year 9999; a name's next open that never comes.
_LAST_US: Final = 253402300799999999
_NEVER: Final = np.iinfo(np.int64).max
#: From the core's counters to those of a window.
_COUNTED: Final = {
    "requests": ("opens",),
    "hits": ("hits",),
    "bytes": ("bytes",),
    "written_bytes": ("written_bytes",),
    "deleted_bytes": ("purged_bytes", "evicted_bytes"),
    "objects_deleted": ("removed_files",),
    "fetched_bytes": ("fetched_bytes",),
}


def defaults() -> list[str]:
    """What is compared where nobody chose."""
    return [FLOOR, f"uses2+{FLOOR}", FALLBACK, PORTFOLIO, BOUND]


def resolve(name: str, rules: Rules) -> XcachePolicy:
    """The policy of this name; :class:`~.policies.UnknownPolicy` where there is none, or no bundle in the folder that it names."""
    if name in (FLOOR, FALLBACK, PORTFOLIO, BOUND):
        return XcachePolicy(name, rules)
    if uses := _USES.fullmatch(name):
        return XcachePolicy(FLOOR, rules, admit_at=int(uses[1]))
    if (folder := _folder(name)) is not None:
        _info(folder)
        return XcachePolicy(PORTFOLIO if name.startswith(PORTFOLIO) else MODEL, rules, bundle=folder)
    raise UnknownPolicy(
        f"unknown policy {name!r} under --rules xcache; known are {FLOOR}, uses2+{FLOOR} to uses9+{FLOOR}, {FALLBACK}, {PORTFOLIO}, "
        f"{MODEL}FOLDER (a model's bundle), {PORTFOLIO}+{MODEL}FOLDER and {BOUND}"
    )


def key(name: str, rules: Rules) -> str:
    """What the figures depend on besides the trace and the name: the rules, and what is in a bundle."""
    folder = _folder(name)
    if folder is None:
        return rules.key
    content = b"".join((folder / file).read_bytes() for file in ("bundle.json", "weights.json"))
    return f"{rules.key} {hashlib.blake2b(content, digest_size=8).hexdigest()}"


def _folder(name: str) -> Path | None:
    """Of the bundle that a policy is named with."""
    model = name.removeprefix(f"{PORTFOLIO}+")
    return Path(model.removeprefix(MODEL)) if model.startswith(MODEL) else None


def _info(folder: Path) -> Any:
    from smartcache.inference.bundle import BundleError, read_info

    try:
        return read_info(folder)
    except (BundleError, OSError) as error:
        raise UnknownPolicy(f"{MODEL}{folder}: {error}") from error


@dataclass(frozen=True)
class XcachePolicy:
    """A policy of this module; ``name`` is :data:`MODEL` or :data:`PORTFOLIO` where ``bundle`` is the folder of one."""

    name: str
    rules: Rules
    admit_at: int = 1
    bundle: Path | None = None

    def simulate(self, requests: Requests, capacity: int, windows: int) -> Outcome:
        """See :class:`~.policies.Policy`."""
        cache = self._cache(capacity)
        cache.name(requests.name_text, requests.name_ends)
        t_us = np.clip((requests.times - min(0.0, float(requests.times[0]))) * 1e6, 0, _LAST_US).astype(np.int64)
        next_us = next_times(requests.objects, t_us) if self.name == BOUND else np.full(len(t_us), _NEVER)
        columns = (requests.objects, t_us, requests.sizes, requests.bytes_read, next_us)
        total = len(requests.objects)
        counted: dict[str, list[int]] = {}
        before: dict[str, int] = {}
        began = time.perf_counter()
        for window in range(windows):
            rows = slice(total * window // windows, total * (window + 1) // windows)
            cache.replay(*(np.ascontiguousarray(column[rows]) for column in columns))
            now = _counts(cache)
            for name, value in now.items():
                counted.setdefault(name, []).append(value - before.get(name, 0))
            before = now
        return Outcome(counted, time.perf_counter() - began)

    def _cache(self, capacity: int) -> CacheReplay:
        from smartcache import _core

        pfc = self.rules
        rules = _core.ReplayRules(
            block_bytes=pfc.block_bytes,
            purge_interval_s=pfc.purge_interval_s,
            purge_high=pfc.purge_high,
            purge_low=pfc.purge_low,
            fallback=self.name == FALLBACK,
            admit_at=self.admit_at,
            foresight=self.name == BOUND,
            portfolio=self.name == PORTFOLIO,
        )
        # Rules of [policy] are the plugin's: an XCache without it has none.
        toml = pfc.core_toml if self.name in (FALLBACK, MODEL, PORTFOLIO) else ""
        if self.bundle is None:
            return _core.CacheReplay(toml, capacity, rules=rules)
        info = _info(self.bundle)
        thresholds = (info.thresholds.admit, info.thresholds.evict)
        return _core.CacheReplay(toml, capacity, str(self.bundle), info.bucket_edges_s, info.horizon_buckets, *thresholds, rules=rules)


def next_times(objects: NDArray[np.uint32], t_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each request when its file is requested next; the largest number where it is not."""
    order = np.argsort(objects, kind="stable")
    following = np.full(len(objects), _NEVER)
    same = objects[order[1:]] == objects[order[:-1]]
    following[order[:-1][same]] = t_us[order[1:][same]]
    return following


def _counts(cache: CacheReplay) -> dict[str, int]:
    counters: Any = cache.counters()
    now = {name: sum(counters[part] for part in parts) for name, parts in _COUNTED.items()}
    return now | {"hit_bytes": counters["bytes"] - counters["missed_bytes"]}
