"""Results of single simulations, each in a file of its own as soon as it is there: what an interrupted comparison goes on from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .policies import ALL_COUNTERS

_FOLDER = "runs"


@dataclass(frozen=True)
class Run:
    """One simulation. ``fraction`` of the trace's unique bytes is ``capacity``; ``windows`` are at most one a request. ``rules``:
    what else the figures depend on, see :func:`.policies.key`."""

    trace: str
    digest: str
    policy: str
    fraction: float
    capacity: int
    windows: int
    version: str
    rules: str
    seed: int = 1

    @property
    def key(self) -> str:
        """A hash of what the counts depend on, for the name of a file."""
        parts = (self.digest, self.policy, self.capacity, self.windows, self.version, self.rules, self.seed)
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Result:
    """The counts of a run by window, from an empty cache on; how long it took, and the command and the moment that it was made by."""

    run: Run
    counts: dict[str, list[int]]
    seconds: float
    training_s: float
    command: str
    created: str


class Store:
    """Results in ``folder``; without one, none is kept. A file that is damaged counts as absent, and is counted."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder / _FOLDER if folder else None
        self.damaged = 0
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)

    def load(self, run: Run) -> Result | None:
        """The result of this run, where there is one."""
        if not self._folder:
            return None
        try:
            content = json.loads((self._folder / f"{run.key}.json").read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            self.damaged += 1
            return None
        result = _result(run, content)
        self.damaged += result is None
        return result

    def save(self, result: Result) -> None:
        """Keep it: the file is whole, or not there."""
        if not self._folder:
            return
        path = self._folder / f"{result.run.key}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(result)) + "\n")
        new.replace(path)


def _result(run: Run, content: Any) -> Result | None:
    """None where it is not what :meth:`Store.save` wrote of this run; trace and fraction may be called otherwise since."""
    try:
        kept = Run(**content.pop("run"))
        result = Result(run=run, **content)
        counts = result.counts
        lengths = {len(counts[name]) for name in ALL_COUNTERS}
        whole = all(type(value) is int and value >= 0 for name in ALL_COUNTERS for value in counts[name])
    except (TypeError, KeyError, AttributeError):
        return None
    if kept.key != run.key or lengths != {run.windows} or not whole:
        return None
    return result if isinstance(result.seconds, float) and isinstance(result.training_s, float) else None
