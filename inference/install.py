"""Bundles on this host: ``bundle_dir/NAME/``, and ``bundle_dir/current``, the relative link to the one that is live.

The link is moved by a rename, so a reader sees the old or the new one and nothing between. A bundle is made complete in
``bundle_dir/.incoming-*``, on the same file system, and renamed into place; what a killed process leaves there is removed at the next
start. One writer (``smartcache watch``), held by a lock file; any number of readers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from smartcache import lock

from . import bundle as bundles
from .bundle import Bundle, BundleError

CURRENT: Final = "current"
#: What the writer knows of the endpoints, for `smartcache status`.
STATE: Final = ".state.json"
#: What the writer has uploaded to the endpoints, for itself after a restart.
UPLOADS: Final = ".uploads.json"
_INCOMING: Final = ".incoming-"
_LOCK: Final = ".lock"


class InstallError(Exception):
    """``bundle_dir`` cannot be used; the text names the path, the reason and the way out."""


class BundleDir:
    """The folder ``[model] bundle_dir`` of the versions of one model, ``MODEL_vN``."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self._name = re.compile(re.escape(model) + r"_v([0-9]+)")

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Be the one writer; :class:`InstallError` where another is, or the folder cannot be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            taken = lock.take(self.folder / _LOCK)
        except OSError as error:
            raise InstallError(
                f"[model] bundle_dir {self.folder}: cannot be written ({error.strerror}); name a folder of this user"
            ) from error
        except lock.Held as error:
            raise InstallError(
                f"[model] bundle_dir {self.folder}: another `smartcache watch` (process {error.owner}) writes here; "
                "stop it, or name another folder"
            ) from error
        try:
            for left in self.folder.glob(f"{_INCOMING}*"):
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)
            yield
        finally:
            os.close(taken)

    def current(self) -> str | None:
        """The name that the link points to; None where there is none or what it points to is gone."""
        try:
            name = str((self.folder / CURRENT).readlink())
        except OSError:
            return None
        return name if (self.folder / name).is_dir() else None

    def current_number(self) -> int | None:
        """The number of the version that the link points to; None where there is none."""
        return self.number_of(self.current() or "")

    def number_of(self, name: str) -> int | None:
        """The number of the version that has this name; None where it is no version's."""
        found = self._name.fullmatch(name)
        return int(found[1]) if found else None

    def current_since_us(self) -> int | None:
        """When the link was last moved; None where there is none."""
        try:
            return (self.folder / CURRENT).lstat().st_mtime_ns // 1000
        except OSError:
            return None

    def names(self) -> set[str]:
        """The names of the bundles there, whole or not; none where there is no folder."""
        if not self.folder.is_dir():
            return set()
        return {path.name for path in self.folder.iterdir() if self._name.fullmatch(path.name) and path.is_dir()}

    def has_writer(self) -> bool:
        """Whether a process is the writer now."""
        return lock.is_held(self.folder / _LOCK)

    def write_state(self, state: dict[str, Any], file: str = STATE) -> None:
        """Keep what the writer knows; a reader sees the old or the new whole. Raises :class:`OSError`."""
        fresh = self.folder / f"{_INCOMING}{file}"
        fresh.write_text(json.dumps(state, indent=1) + "\n")
        fresh.rename(self.folder / file)

    def read_state(self, file: str = STATE) -> dict[str, Any]:
        """What the writer knew last; empty where there is nothing that can be read."""
        try:
            state = json.loads((self.folder / file).read_text())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def installed(self, name: str) -> Bundle | None:
        """The bundle of that name, None where there is none or it is damaged."""
        try:
            bundle = bundles.read(self.folder / name)
        except BundleError:
            return None
        return bundle if bundle.info.name == name else None

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """An empty folder beside the bundles, removed afterwards."""
        path = self.new_incoming()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def new_incoming(self) -> Path:
        """An empty folder beside the bundles, which the caller removes; else the next writer does."""
        return Path(tempfile.mkdtemp(prefix=_INCOMING, dir=self.folder))

    def place(self, bundle: Bundle) -> Bundle:
        """Move a named bundle from :meth:`incoming` to its place; one that is damaged there is replaced, a live one never."""
        target = self.folder / bundle.info.name
        bundle.folder.chmod(0o755)
        _sync_tree(bundle.folder)
        if target.exists():
            if self.current() == bundle.info.name:
                # Readers may be in it: the link goes first. They keep the model that they have loaded.
                (self.folder / CURRENT).unlink()
            shutil.rmtree(target)
        bundle.folder.rename(target)
        _sync(self.folder)
        return bundles.read(target)

    def make_current(self, name: str) -> None:
        """Have ``current`` name ``name``, in one step that survives a crash of the host."""
        link = self.folder / f"{_INCOMING}link"
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(name)
        link.rename(self.folder / CURRENT)
        _sync(self.folder)

    def drop_current(self) -> None:
        """Have ``current`` name nothing."""
        (self.folder / CURRENT).unlink(missing_ok=True)
        _sync(self.folder)

    def prune(self, keep: int) -> None:
        """Remove all but the current and the ``keep`` - 1 others that were installed last."""
        others = [self.folder / name for name in self.names() - {self.current()}]
        others.sort(key=lambda path: path.stat().st_ctime_ns, reverse=True)
        for path in others[max(keep - 1, 0) :]:
            shutil.rmtree(path, ignore_errors=True)


def digest(folder: Path) -> str:
    """SHA-256 of all that is in a folder: names and contents."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        total.update(f"{len(name.encode())}:{name}".encode())
        if path.is_file():
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def _sync_tree(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    """Have the kernel write a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
