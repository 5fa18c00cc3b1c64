"""A cache's whole tree of ``.cinfo`` files, in one pass: each becomes a record, a dead letter or a count, and none is lost in silence.

The cache lives on meanwhile. A file or folder that vanishes is counted; a ``.cinfo`` that changes while it is read is read again, and where
it does not come to rest (or does not parse and was written a moment ago) it is left to the next scan. Links to files are followed (pfc
keeps them where a cache has several disks), links to folders are not. Memory: the folders not yet entered and 8 bytes a file.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import cinfo
from .errors import ParseError
from .known import Known, signature
from .output import Output

#: More than any .cinfo has: as in the plugin (kLargestCinfo).
MAX_BYTES = 256 << 20
#: What a dead letter quotes of a .cinfo.
QUOTED_BYTES = 64 << 10
#: A file written later than this before it was read may be in the midst of it, and may change again without its times showing it.
SETTLED_S = 1.0
#: The clock of the disk's server may be ahead of ours by so much.
CLOCKS_DIFFER_S = 60.0
#: How often a file that changes while it is read is read.
_READS = 3


@dataclass(slots=True)
class Counts:
    """What a scan has met so far: files ending in ``.cinfo`` by what became of them, and folders that could not be read."""

    found: int = 0
    records: int = 0
    unchanged: int = 0
    #: Dead letters by cause.
    refused: dict[str, int] = field(default_factory=dict)
    vanished: int = 0
    #: Still being written; the next scan takes them.
    changing: int = 0
    unreadable: int = 0
    folders: int = 0
    folders_unreadable: int = 0
    #: Path and error of the first file or folder of these.
    first_unreadable: str = ""

    def line(self) -> str:
        """For a person."""
        parts = [f"{self.found} .cinfo files in {self.folders} folders", f"{self.records} records", f"{self.unchanged} unchanged"]
        refused = ", ".join(f"{count} {cause}" for cause, count in sorted(self.refused.items()))
        if refused:
            parts.append(f"{sum(self.refused.values())} refused ({refused})")
        for count, what in (
            (self.vanished, "vanished"),
            (self.changing, "being written: scan again"),
            (self.unreadable, "unreadable"),
            (self.folders_unreadable, "folders unreadable"),
        ):
            if count:
                parts.append(f"{count} {what}")
        return ", ".join(parts)


class Scan:
    """One pass. ``run`` once; what it has seen is in ``counts`` and ``seen``."""

    def __init__(
        self, folder: Path, cache: str, output: Output, known: Known, *, prefix: str = "/", stop: threading.Event | None = None
    ) -> None:
        """``folder`` holds the files whose LFN begins with ``prefix``; ``known`` are the files that are passed over. ``stop`` ends it."""
        self._root = os.fsencode(folder)
        self._prefix = os.fsencode(prefix.strip("/"))
        self._cache = cache
        self._output = output
        self._known = known
        self._stop = stop or threading.Event()
        self.counts = Counts()
        #: Signatures of the files that need not be read again.
        self.seen: array[int] = array("Q")

    def run(self) -> Iterator[Counts]:
        """Scan; yields after each file, so that the caller can show and save. Stops early where ``stop`` is set."""
        for path in self._walk():
            if self._stop.is_set():
                return
            self._take(path)
            yield self.counts

    def _walk(self) -> Iterator[bytes]:
        folders = [self._root]
        while folders:
            folder = folders.pop()
            self.counts.folders += 1
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if _is_folder(entry):
                            folders.append(entry.path)
                        elif entry.name.endswith(cinfo.SUFFIX) and len(entry.name) > len(cinfo.SUFFIX):
                            yield entry.path
            except OSError as error:
                if isinstance(error, FileNotFoundError) and folder != self._root:
                    self.counts.vanished += 1
                    continue
                self.counts.folders_unreadable += 1
                self._name_unreadable(folder, error)

    def _take(self, path: bytes) -> None:
        counts = self.counts
        counts.found += 1
        try:
            status = os.stat(path)  # noqa: PTH116  (the path is bytes)
            mark = signature(path, status)
            if mark in self._known:
                counts.unchanged += 1
                self.seen.append(mark)
                return
            content, status = _read(path)
        except FileNotFoundError:
            counts.vanished += 1
            return
        except _Refused as error:
            self._refuse(path, ParseError(error.cause, str(error)), b"")
            self.seen.append(mark)
            return
        except _Changing:
            counts.changing += 1
            return
        except OSError as error:
            counts.unreadable += 1
            self._name_unreadable(path, error)
            return
        now_s = time.time()
        # A time far ahead of now is a wrong clock's; it would hold the file back for good.
        settled = not any(-CLOCKS_DIFFER_S <= now_s - when <= SETTLED_S for when in (status.st_ctime, status.st_mtime))
        try:
            self._output.record(cinfo.STREAM, cinfo.parse(self._lfn(path), content, self._cache, int(now_s * 1e6)))
        except ParseError as error:
            if not settled:
                counts.changing += 1
                return
            self._refuse(path, error, content)
        else:
            counts.records += 1
        if settled:
            self.seen.append(signature(path, status))

    def _name_unreadable(self, path: bytes, error: OSError) -> None:
        self.counts.first_unreadable = self.counts.first_unreadable or f"{os.fsdecode(path)} ({error.strerror})"

    def _lfn(self, path: bytes) -> bytes:
        below = path[len(self._root) :].strip(b"/").removesuffix(cinfo.SUFFIX)
        return b"/" + (self._prefix + b"/" if self._prefix else b"") + below

    def _refuse(self, path: bytes, error: ParseError, content: bytes) -> None:
        self.counts.refused[error.cause] = self.counts.refused.get(error.cause, 0) + 1
        name = path.decode("utf-8", "replace")
        cut = f" (its first {QUOTED_BYTES} of {len(content)} bytes are here)" if len(content) > QUOTED_BYTES else ""
        self._output.dead_letter(
            cinfo.STREAM, f"{error.cause}: {name}: {error.detail}{cut}", content[:QUOTED_BYTES], time.time_ns() // 1000
        )


class _Changing(Exception):
    """It was written while it was read."""


class _Refused(Exception):
    """No file to be read."""

    cause = "record"


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _read(path: bytes) -> tuple[bytes, os.stat_result]:
    """The file's bytes and its status, which was the same before and after. Never waits for what is no file (a pipe)."""
    for _ in range(_READS):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.closing(os.fdopen(handle, "rb", buffering=0)) as file:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                raise _Refused("it is no regular file")
            if before.st_size > MAX_BYTES:
                raise _Refused(f"it has {before.st_size} bytes, more than {MAX_BYTES}")
            content = file.read(MAX_BYTES + 1)
            after = os.fstat(handle)
        same = (before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (after.st_size, after.st_mtime_ns, after.st_ctime_ns)
        if same and len(content) == after.st_size:
            return content, after
    raise _Changing
