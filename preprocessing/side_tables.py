"""The versions of the dataset side table that are kept, so that a training set has each open as the plugin had it.

Each version is kept before it is published, so none that a plugin can name was never there: ``FILE.d/VERSION.gz``, the bytes of the table
compressed, beside the table FILE. The newest [side_table] keep of them stay. Where the table is brought to another machine, its FILE.d need
not be: it is read where `smartcache build-dataset` runs, and Spark takes from there to its workers what the window needs.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smartcache._core import SideTable

#: In place of a version: the open was answered without a table.
NO_TABLE = 0
_SUFFIX = ".gz"
#: Opens of one moment may be of two tables: the one before and the one that has just come.
_AT_HAND = 2
#: A table is text, and small; what unpacks to more than the plugin would read is none.
_MOST_BYTES = 512 << 20


def folder_of(table: Path) -> Path:
    """Where the versions of the table at ``table`` are kept."""
    return table.with_name(f"{table.name}.d")


def kept(table: Path) -> dict[int, Path]:
    """The versions that are there, oldest first."""
    try:
        names = [each.name for each in folder_of(table).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    versions = sorted(
        int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdecimal()
    )
    return {version: folder_of(table) / name_of(version) for version in versions}


def name_of(version: int) -> str:
    """The name of its file."""
    return f"{version}{_SUFFIX}"


def keep(table: Path, version: int, draft: Path, most: int) -> None:
    """Keep ``draft`` as that version of the table, and the newest ``most`` in all; `OSError` where it cannot be: then it is not kept."""
    folder = folder_of(table)
    folder.mkdir(parents=True, exist_ok=True)
    packed = folder / f".{name_of(version)}.{os.getpid()}.tmp"
    try:
        with draft.open("rb") as source, packed.open("wb") as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as target:
                shutil.copyfileobj(source, target, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        packed.replace(folder / name_of(version))
    finally:
        packed.unlink(missing_ok=True)
    for old in [*kept(table)][:-most]:
        (folder / name_of(old)).unlink(missing_ok=True)


class SideTables:
    """Tables by version, the last two at hand. ``path_of`` gives a version's file, None where it is not kept.

    ``unknown`` counts the opens whose table is not there, or cannot be read: their features have none.
    """

    def __init__(self, path_of: Callable[[int], Path | None]) -> None:
        self._path_of = path_of
        self._at_hand: OrderedDict[int, SideTable | None] = OrderedDict()
        self.unknown = 0

    @classmethod
    def of_job(cls, versions: Iterable[int]) -> SideTables:
        """Those that Spark has brought to this worker, ``versions``."""
        from pyspark import SparkFiles

        there = frozenset(versions)
        return cls(lambda version: Path(SparkFiles.get(name_of(version))) if version in there else None)

    def get(self, version: int, opens: int) -> SideTable | None:
        """The table that so many opens were answered with; None for NO_TABLE, and where it is unknown."""
        if version == NO_TABLE:
            return None
        if version not in self._at_hand:
            self._at_hand[version] = self._load(version)
            if len(self._at_hand) > _AT_HAND:
                self._at_hand.popitem(last=False)
        self._at_hand.move_to_end(version)
        table = self._at_hand[version]
        if table is None:
            self.unknown += opens
        return table

    def _load(self, version: int) -> SideTable | None:
        from smartcache._core import SideTable

        path = self._path_of(version)
        if path is None:
            return None
        try:
            with gzip.open(path) as file:
                table = SideTable(file.read(_MOST_BYTES + 1))
        except (OSError, EOFError, zlib.error, ValueError):
            return None
        return table if table.version == version else None
