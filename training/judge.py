"""How an epoch is judged: by the loss of the validate part, or by what a cache with these weights would have missed and written then.

The second is what the model is for. The opens of the validate part's time, from an access table or a trace, go through the core's
``CacheReplay``, the code that the plugin decides by, as the gate of replay has it (:mod:`smartcache.inference.replay`: whole files, the
marks of ``[evictor]``); those of the time before, at most ``[gates] replay_history_days``, warm cache and history with the same weights and
are not judged. What is minimised is

    cost = (bytes missed + write_price · bytes written) / bytes opened

Nothing after the validate part is looked at: the test part judges what came of it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from smartcache.config import Config
from smartcache.inference import replay
from smartcache.inference.bundle import WEIGHTS, Info
from smartcache.inference.gates import GateError
from smartcache.inference.replay import Figures, Opens
from smartcache.preprocessing.core import REPLAY_SECTIONS, core_schema, core_toml

from .dataset import TrainingSet

_DAY_US: Final = 86_400_000_000
#: The core's clock ends with the year 9999.
_LAST_US: Final = 253402300799999999
#: The figures of an epoch, as they are named in history and metrics.
COST, BYTE_MISS, WRITTEN = "val_replay_cost", "val_replay_byte_miss", "val_replay_written"


class JudgeError(Exception):
    """There is nothing to judge epochs by where it was said to be; the text names thing, rule, value and fix."""


class Judge(Protocol):
    """What decides which epoch's weights are kept: the lowest figure, and of equal ones the lower loss of the validate part."""

    @property
    def name(self) -> str:
        """What is minimised, for a person."""
        ...

    @property
    def origin(self) -> dict[str, Any]:
        """What it depends on; the same gives the same figures."""
        ...

    def due(self, epoch: int, last: bool) -> bool:
        """Whether this epoch (from 1; 0: before the first) is judged."""
        ...

    def figures(self, model: Any) -> dict[str, float]:
        """Named figures of the model as it is now; the first is minimised. Empty: the loss of the validate part alone judges."""
        ...


class ByLoss:
    """The loss of the validate part."""

    name: Final = "the loss of the validate part"

    @property
    def origin(self) -> dict[str, Any]:
        """Nothing else."""
        return {"by": "loss"}

    def due(self, epoch: int, last: bool) -> bool:
        """Every epoch."""
        return True

    def figures(self, model: Any) -> dict[str, float]:
        """None besides."""
        return {}


@dataclass(frozen=True)
class ByReplay:
    """A replay of the validate part's time. Each judgement replays all opens of :attr:`parts`, those that warm too."""

    config: Config
    info: Info
    parts: list[Opens]
    capacities: list[int]
    source: str
    #: Without a model, under the same rules.
    lru: Figures = field(default_factory=Figures)

    @property
    def name(self) -> str:
        """What is minimised, and what :attr:`lru` comes to."""
        price = self.config.training.replay_write_price
        sizes = ", ".join(f"{size / 1e9:.4g} GB" for size in self.capacities)
        judged = sum(len(part.t_us) - part.judged for part in self.parts)
        lru = figures_of(self.lru, self.config)
        return (
            f"(bytes missed + {price:g} * bytes written) / bytes, {judged} opens of {self.source} replayed through {sizes}; "
            f"LRU there: byte miss {lru[BYTE_MISS]:.4f}, written {lru[WRITTEN]:.4f}"
        )

    @property
    def origin(self) -> dict[str, Any]:
        """Where the opens are from, and what they are."""
        rules = hashlib.sha256(core_toml(self.config, REPLAY_SECTIONS).encode()).hexdigest()
        return {"by": "replay", "source": self.source, "sha256": digest(self.parts), "cache_bytes": self.capacities, "rules_sha256": rules}

    def due(self, epoch: int, last: bool) -> bool:
        """Every ``[training] replay_every``-th, and the last."""
        return last or epoch % self.config.training.replay_every == 0

    def figures(self, model: Any) -> dict[str, float]:
        """Cost, and what it is made of; shares of the bytes opened."""
        from smartcache.inference.export import network_of

        with tempfile.TemporaryDirectory(prefix="smartcache-judge-") as scratch:
            (Path(scratch) / WEIGHTS).write_text(json.dumps(network_of(model).to_json(), allow_nan=False))
            return figures_of(self._replayed(Path(scratch)), self.config)

    def without_model(self) -> ByReplay:
        """With :attr:`lru` known."""
        return replace(self, lru=self._replayed(None))

    def _replayed(self, folder: Path | None) -> Figures:
        total = Figures()
        for part, capacity in zip(self.parts, self.capacities, strict=True):
            try:
                cache = replay.cache_of(self.config, capacity, folder, self.info) if folder else replay.cache_of(self.config, capacity)
            except GateError as error:
                raise JudgeError(f"--replay {self.source}: {error}") from error
            before = cache.counters()
            for start, end in replay.chunks(part):
                if start == part.judged:
                    before = cache.counters()
                replay.feed({"": cache}, part, start, end)
            if part.judged < len(part.t_us):
                after = cache.counters()
                total = total.plus({key: after[key] - before[key] for key in after})
        return total


def figures_of(found: Figures, config: Config) -> dict[str, float]:
    """The named figures of a replay; the first is what is minimised."""
    written = found.written_bytes / found.bytes
    return {COST: found.byte_miss + config.training.replay_write_price * written, BYTE_MISS: found.byte_miss, WRITTEN: written}


def digest(parts: list[Opens]) -> str:
    """SHA-256 of all that a replay depends on in the opens."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps([part.cache, len(part.t_us), part.judged]).encode())
        for column in (part.t_us, part.size, part.b_read, part.asked):
            digest.update(np.ascontiguousarray(column).tobytes())
        digest.update("\n".join(part.lfn).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def by_replay(data: TrainingSet, config: Config, info: Info, source: str, cache_bytes: int | list[int] | None) -> ByReplay:
    """Judge by the opens of ``source``, an access table or a trace; ``cache_bytes``: of each cache, or one by one; else as the gate has it.

    ``info`` is the bundle's, as it will be. Raises :class:`JudgeError`.
    """
    from smartcache import traces

    at = data.manifest["split_at_us"]
    span_us = (int(at["validate"] - config.gates.replay_history_days * _DAY_US), int(at["test"]))
    way_out = "give --replay the access table or the trace that the training set was made of, or leave it out"
    here = core_schema(core_toml(config))["hash"]
    if here != data.schema["hash"]:
        raise JudgeError(
            f"--replay: the training set has the features of schema {data.schema['hash']}, but the core gives those of {here} under this "
            "configuration; use the [dataset] and [features] that it was built with"
        )
    try:
        if traces.kind_of(Path(source)):
            parts = _of_trace(Path(source), span_us, at["validate"])
        else:
            known = {entry.get("cache") for entry in data.manifest["files"]}
            parts = [part for part in replay.between(config, source, span_us, at["validate"], way_out) if part.cache in known]
    except (GateError, traces.SourceError) as error:
        raise JudgeError(f"--replay: {error}") from error
    judged = [part for part in parts if part.judged < len(part.t_us)]
    if sum(int(part.size[part.judged :].sum()) for part in judged) <= 0:
        raise JudgeError(
            f"--replay {source}: has no bytes opened in the time of the validate part, {at['validate']} to {at['test']} µs of Unix time; "
            f"{way_out}"
        )
    capacities = cache_bytes if isinstance(cache_bytes, list) else [cache_bytes or replay.capacity_of(config, part) for part in judged]
    if len(capacities) != len(judged):
        raise JudgeError(f"--replay {source}: has opens of {len(judged)} caches, not of {len(capacities)}; {way_out}")
    return ByReplay(config, info, judged, capacities, source).without_model()


def _of_trace(path: Path, span_us: tuple[int, int], judged_from_us: int) -> list[Opens]:
    from .simulate.trace import read

    trace = read(path)
    t_us = np.clip(np.round(trace.times * 1e6), 0, _LAST_US).astype(np.int64)
    rows = slice(*(int(row) for row in np.searchsorted(t_us, span_us)))
    text = trace.name_text.tobytes()
    begins = np.concatenate([[0], trace.name_ends[:-1]])
    names = [text[begin:end].decode("utf-8", "replace") for begin, end in zip(begins.tolist(), trace.name_ends.tolist(), strict=True)]
    kept = t_us[rows]
    opens = Opens(
        cache=path.name,
        t_us=kept,
        lfn=[names[number] for number in trace.objects[rows].tolist()],
        size=np.ascontiguousarray(trace.sizes[rows]),
        b_read=np.ascontiguousarray(trace.bytes_read[rows]),
        asked=np.ones(len(kept), dtype=np.bool_),
        judged=int(np.searchsorted(kept, judged_from_us)),
    )
    return [opens]
