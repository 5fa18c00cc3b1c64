"""The features of one cache's opens, as its plugin computed them, across restarts of the server.

Rows come in the order of (`boot_us`, `seq`). Each boot begins with the history that its decisions name: none, which is a new core, or what
an earlier boot had after `history_seq` opens. What that boot was asked later than that was lost with it, for the next one; its own rows
have it still. So where a later boot goes on from (B, S), the core is saved as it is after the last row of B up to S.

Rows of no boot (a cache without decisions, a table of before `boot_us` was in it) have boot -1 and one history, which begins empty. A boot
whose history is of a moment that is not among the rows (it lies before the window, or B was never heard of) begins empty and is counted
in `unknown`: its features are not those that were served. So is one that is said to go on from a later one, as where the clock was set
back between them.

Each row is given the side table that it was answered with, as long as that version is kept.

In memory: one core. What is saved waits in files of a folder, each until the last boot that wants it has begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .core import core
from .side_tables import NO_TABLE, SideTables

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Boot of rows that have none.
NO_BOOT = -1
#: After how many opens of which boot: (boot_us, seq).
Moment = tuple[int, int]


class Replay:
    """One cache. ``text`` configures the core, ``origins`` says of boots what they went on from, ``folder`` is for what is saved.

    ``tables``: the side tables that are kept.
    """

    def __init__(self, text: str, origins: Iterable[tuple[int, int, int]], folder: Path, tables: SideTables | None = None) -> None:
        self._text = text
        self._origins: dict[int, Moment] = {boot: (of, seq) for boot, of, seq in origins}
        #: How many boots that have not begun yet go on from a moment.
        self._wanted = Counter(self._origins.values())
        self._folder = folder
        self.tables = tables or SideTables(lambda _: None)
        self._core = core(text)
        self._boot: int | None = None
        #: Moments of this boot that are still to come, the next one last.
        self._coming: list[Moment] = []
        #: Boots whose history is not known.
        self.unknown: set[int] = set()

    def features(
        self,
        boot_us: NDArray[np.int64],
        seq: NDArray[np.int64],
        t_us: NDArray[np.int64],
        lfn: list[str],
        on_disk: NDArray[np.bool_],
        size: NDArray[np.int64],
        fill: NDArray[np.float32],
        read_share: NDArray[np.float32],
        side_table: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """Of the next rows: one row of features each. ``side_table``: versions, or NO_TABLE; None: no row has one."""
        versions = np.full(len(lfn), NO_TABLE) if side_table is None else side_table
        others = [*(np.flatnonzero(np.diff(versions)) + 1).tolist(), len(lfn)]  # where another table begins, the next one last
        others.reverse()
        parts: list[Any] = []
        start = 0
        while start < len(lfn):
            if boot_us[start] != self._boot:
                self._begin(int(boot_us[start]))
            while self._coming and seq[start] > self._coming[-1][1]:
                self._save(self._coming.pop())
            end = start + int(np.searchsorted(boot_us[start:] != self._boot, True))
            if self._coming:
                end = start + int(np.searchsorted(seq[start:end], self._coming[-1][1], side="right"))
            end = min(end, others[-1])
            if end == others[-1]:
                others.pop()
            rows = slice(start, end)
            table = self.tables.get(int(versions[start]), end - start)
            parts.append(self._core.replay(t_us[rows], lfn[rows], on_disk[rows], size[rows], fill[rows], read_share[rows], table))
            start = end
        return np.concatenate(parts)

    def _begin(self, boot: int) -> None:
        origin = self._origins.get(boot)
        # A server that was stopped in peace: the next one goes on from the last open, and so does the core.
        goes_on = origin is not None and self._coming == [origin] and self._wanted[origin] == 1
        if not goes_on:
            while self._coming:
                self._save(self._coming.pop())
            if origin is None or not self._file(origin).exists():
                if origin is not None:
                    self.unknown.add(boot)
                self._core = core(self._text)
            else:
                self._core.restore(self._file(origin).read_bytes())
        if origin is not None:
            self._wanted[origin] -= 1
            if not self._wanted[origin]:
                self._file(origin).unlink(missing_ok=True)
        self._boot = boot
        self._coming = sorted((moment for moment, boots in self._wanted.items() if moment[0] == boot and boots), reverse=True)

    def _save(self, moment: Moment) -> None:
        if self._wanted[moment]:
            self._file(moment).write_bytes(self._core.save())

    def _file(self, moment: Moment) -> Path:
        return self._folder / f"{moment[0]}-{moment[1]}"
