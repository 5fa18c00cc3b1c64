"""What a policy's name stands for.

All that a runner knows of a policy is :class:`Policy`, so that a learned one is a name like any other.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import smartcache

from .rules import OBJECT_RULES, XCACHE, Rules

#: The two that the share of the gap is measured between: XCache's order, and the bound that knows the future.
FLOOR, BOUND = "lru", "belady"
#: Stored at the second request only, by the policy that follows.
SECOND_USE = "uses2+"
#: Simple rules as shadows that vote.
PORTFOLIO = "portfolio"
#: Learns online, with boosted trees; what may stand behind it, :mod:`.ablation` says.
LEARNED = "learned-trees"
#: A policy of libCacheSim, see :mod:`.peers`.
PEER = "lcs:"
#: Of the object rules those that draw from a seed, also behind an admission.
RANDOM = ("hyperbolic", "scdl", LEARNED)
#: What every policy counts in each window; all but the first, second and last are bytes.
COUNTERS = ("requests", "hits", "bytes", "hit_bytes", "written_bytes", "deleted_bytes", "objects_deleted")
#: From the origin, rounded up to blocks where a cache has them. Where a policy does not count it, the bytes that were not hit.
FETCHED = "fetched_bytes"
ALL_COUNTERS = (*COUNTERS, FETCHED)


@dataclass(frozen=True)
class Requests:
    """What a policy is shown, in order: dense numbers of the files, and their sizes in bytes at each request; times in seconds.

    ``groups`` is by file: dense numbers of their datasets. ``bytes_read`` is what each request read of its file, -1 where it is not known.
    ``name_text``: the bytes of the files' names one after the other; ``name_ends``: where each ends.
    """

    objects: NDArray[np.uint32]
    sizes: NDArray[np.int64]
    times: NDArray[np.float64]
    groups: NDArray[np.uint32]
    bytes_read: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    name_text: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    name_ends: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Outcome:
    """One simulation: :data:`COUNTERS` by window, :data:`FETCHED` where that differs; its seconds, those of training among them."""

    windows: dict[str, list[int]]
    seconds: float
    training_s: float = 0.0


class Policy(Protocol):
    """A cache's rules of admission and eviction, simulated from an empty cache."""

    def simulate(self, requests: Requests, capacity: int, windows: int) -> Outcome:
        """Every request against a cache of ``capacity`` bytes, counted in ``windows`` parts of equally many requests."""
        ...


class UnknownPolicy(ValueError):
    """There is no policy of this name; the text says which are meant or known."""


@dataclass(frozen=True)
class CorePolicy:
    """One of the C++ core's object-cache policies. A file that is missed is fetched, and stored, whole."""

    name: str
    seed: int = 1

    def simulate(self, requests: Requests, capacity: int, windows: int) -> Outcome:
        """See :class:`Policy`. The interpreter is free meanwhile."""
        from smartcache import _core

        began = time.perf_counter()
        counted: Mapping[str, Any] = _core.simulate_objects(self.name, requests.objects, requests.sizes, capacity, windows, self.seed)
        seconds = time.perf_counter() - began
        return Outcome({name: [int(value) for value in counted[name]] for name in COUNTERS}, seconds)


def names() -> list[str]:
    """All policies without a prefix, in the core's order."""
    from smartcache import _core

    return list(_core.cache_policies())


def defaults(rules: Rules = OBJECT_RULES) -> list[str]:
    """What is compared where nobody chose: :func:`names`, LRU with admission at the second use, what learns; the bound last."""
    if rules.name == XCACHE:
        from . import xcache

        return xcache.defaults()
    known = names()
    return [*(name for name in known if name != BOUND), SECOND_USE + FLOOR, LEARNED, *(name for name in known if name == BOUND)]


def is_random(name: str, rules: Rules = OBJECT_RULES) -> bool:
    """Whether another seed may give another outcome."""
    return rules.name != XCACHE and name.rpartition("+")[2].partition(":")[0] in RANDOM


def resolve(name: str, rules: Rules = OBJECT_RULES, seed: int = 1) -> Policy:
    """The policy of this name under ``rules``; :class:`UnknownPolicy` where there is none. ``seed``: of one that is random."""
    if rules.name == XCACHE:
        from . import xcache

        return xcache.resolve(name, rules)
    known = names()
    if name.removeprefix(SECOND_USE) in known:
        return CorePolicy(name, seed)
    if name.startswith(PEER):
        from . import peers

        return peers.resolve(name)
    if _learns(name):
        from . import ablation
        from .learned import LearnedPolicy

        choice = ablation.parse(name)
        return LearnedPolicy(seed, choice.left_out, choice.alone)
    near = difflib.get_close_matches(name, [*known, LEARNED, *(SECOND_USE + each for each in known)], n=2)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"known are {', '.join(known)}, these also as {SECOND_USE}NAME, {LEARNED}, and {PEER}NAME"
    )
    raise UnknownPolicy(f"unknown policy {name!r}; {hint}")


def key(name: str, rules: Rules) -> str:
    """What the figures of a policy depend on besides the trace, its name and the version."""
    if rules.name == XCACHE:
        from . import xcache

        return xcache.key(name, rules)
    if name.startswith(PEER):
        from . import peers

        return f"{rules.key} libcachesim {peers.version()}"
    if _learns(name):
        with contextlib.suppress(metadata.PackageNotFoundError):  # without it nothing is simulated
            return f"{rules.key} lightgbm {metadata.version('lightgbm')}"
    return rules.key


def _learns(name: str) -> bool:
    return name.partition(":")[0] == LEARNED


def completed(outcome: Outcome) -> Outcome:
    """With all of :data:`ALL_COUNTERS`."""
    windows = outcome.windows
    if FETCHED in windows:
        return outcome
    fetched = [asked - hit for asked, hit in zip(windows["bytes"], windows["hit_bytes"], strict=True)]
    return replace(outcome, windows=windows | {FETCHED: fetched})


@cache
def version() -> str:
    """The package's version and a hash of the compiled core and of what drives it: figures of another version may differ."""
    from smartcache import _core, traces

    from . import learned, peers, trace, xcache

    modules: list[Any] = [_core, learned, peers, trace, traces, xcache]
    content = b"".join(Path(module.__file__).read_bytes() for module in modules)
    return f"{smartcache.__version__}+core.{hashlib.blake2b(content, digest_size=4).hexdigest()}"
