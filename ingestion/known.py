"""Which files were seen as they are: 8 bytes a file, kept between two scans.

A signature is a hash of a file's path, inode, size, ctime and mtime. What has the signature of the last scan has not changed. (Of ten
million files one that changed is taken for unchanged with probability 5e-13.)

The state file: one line of JSON, then the signatures, sorted, as 64-bit integers of this machine's byte order. The line says what was
scanned and where the records went: another folder, cache or destination, another version or a file that is damaged begins anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from array import array
from bisect import bisect_left
from pathlib import Path

import numpy as np

_STAT = struct.Struct("<QQqq")
_VERSION = 1


class StateError(Exception):
    """The state file cannot be written; the text names the way out."""


def signature(path: bytes, status: os.stat_result) -> int:
    """64 bits that change when the file does."""
    stat = _STAT.pack(status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns)
    return int.from_bytes(hashlib.blake2b(stat + path, digest_size=8).digest(), sys.byteorder)


class Known:
    """The signatures of one scan. Not thread-safe."""

    def __init__(self, signatures: array[int] | None = None) -> None:
        """``signatures``: sorted."""
        self._sorted = signatures if signatures is not None else array("Q")

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, value: int) -> bool:
        at = bisect_left(self._sorted, value)
        return at < len(self._sorted) and self._sorted[at] == value

    def merged(self, more: array[int]) -> Known:
        """These and ``more``, which need not be sorted."""
        both = np.unique(
            np.concatenate([np.frombuffer(part, np.uint64) if part else np.empty(0, np.uint64) for part in (self._sorted, more)])
        )
        return Known(array("Q", both.tobytes()))

    def save(self, path: Path, identity: dict[str, str]) -> None:
        """Write the state file, whole or not at all. :class:`StateError` where that fails."""
        body = self._sorted.tobytes()
        head = {**_fixed(identity), "count": len(self._sorted), "blake2b": _digest(body)}
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new.open("wb") as file:
                file.write(json.dumps(head).encode() + b"\n" + body)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise StateError(f"the state {path} cannot be written ({error.strerror}); name another file with --state") from error


def require_writable(path: Path) -> None:
    """:class:`StateError` where :meth:`Known.save` would fail for want of a folder or of permission: better before a scan than after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"the state's folder {path.parent} cannot be made ({error.strerror}); name another file with --state") from error
    if not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir():
        raise StateError(f"the state {path} cannot be written; name another file with --state")


def load(path: Path, identity: dict[str, str]) -> tuple[Known, str]:
    """What ``path`` knows, and why that is nothing where it is no state of ``identity``. Nothing, without a word, where it is absent."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return Known(), ""
    except OSError as error:
        return Known(), f"the state {path} cannot be read ({error.strerror})"
    try:
        said = json.loads(head)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("blake2b") != _digest(body) or len(body) % 8:
        return Known(), f"the state {path} is damaged"
    if {name: said.get(name) for name in _fixed(identity)} != _fixed(identity):
        return Known(), f"the state {path} is of another folder, cache or destination"
    return Known(array("Q", body)), ""


def _fixed(identity: dict[str, str]) -> dict[str, str | int]:
    return {"v": _VERSION, "byteorder": sys.byteorder, **identity}


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
