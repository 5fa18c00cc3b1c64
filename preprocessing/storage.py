"""Files of a table, by Python alone on a local disk or through Spark on any Hadoop file system.

A reader needs names, texts and copies (:class:`Reader`, from :func:`.session.table_reader`); who changes a table needs :class:`Hadoop`.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reader(Protocol):
    """What reading a table's list of files asks of a file system; `FileNotFoundError` where a file or folder is not there."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder, in no order; without the names that begin with a dot."""

    def text(self, file: str) -> str:
        """A whole file, UTF-8."""

    def on_disk(self, file: str) -> AbstractContextManager[Path]:
        """The file on a disk of this machine, as long as the context lasts."""


class Local:
    """The local disk, without Spark. Thread-safe."""

    def names(self, folder: str) -> list[str]:
        """See :class:`Reader`."""
        return [path.name for path in Path(folder).iterdir() if not path.name.startswith(".")]

    def text(self, file: str) -> str:
        """See :class:`Reader`."""
        return Path(file).read_text(encoding="utf-8")

    def on_disk(self, file: str) -> AbstractContextManager[Path]:
        """See :class:`Reader`: where it is."""
        return nullcontext(Path(file))


@dataclass(frozen=True, slots=True)
class Status:
    """A file or folder that is there; `modified_ms` in Unix time."""

    name: str
    folder: bool
    size: int
    modified_ms: int


class Hadoop:
    """Whatever file system a path names, through the session's own Hadoop. Paths are text, as Spark takes them."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._context = jvm.org.apache.hadoop.fs.FileContext
        self._keep = spark.sparkContext._gateway.new_array(jvm.org.apache.hadoop.fs.Options.Rename, 0)
        self._read = jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray
        self._configuration = spark._jsc.hadoopConfiguration()

    def names(self, folder: str) -> list[str]:
        """See :class:`Reader`."""
        return [each.name for each in self.statuses(folder) if not each.name.startswith(".")]

    def text(self, file: str) -> str:
        """See :class:`Reader`."""
        path = self._path(file)
        files = self._of(path)
        if not files.exists(path):
            raise FileNotFoundError(file)
        stream = files.open(path)
        try:
            return bytes(self._read(stream)).decode()
        finally:
            stream.close()

    @contextmanager
    def on_disk(self, file: str) -> Iterator[Path]:
        """See :class:`Reader`: a copy."""
        source = self._path(file)
        with tempfile.TemporaryDirectory(prefix="smartcache-") as folder:
            copy = Path(folder) / "copy"
            # Raw: without a file of checksums beside it.
            self._of(source).copyToLocalFile(False, source, self._path(copy.as_uri()), True)
            yield copy

    def statuses(self, folder: str) -> list[Status]:
        """What is in a folder; `FileNotFoundError` where there is none."""
        path = self._path(folder)
        files = self._of(path)
        if not files.exists(path):
            raise FileNotFoundError(folder)
        return [
            Status(each.getPath().getName(), each.isDirectory(), each.getLen(), each.getModificationTime())
            for each in files.listStatus(path)
        ]

    def size(self, file: str) -> int:
        """Bytes of a file."""
        path = self._path(file)
        return int(self._of(path).getFileStatus(path).getLen())

    def make_folder(self, folder: str) -> None:
        """With all above it; nothing where it is there."""
        path = self._path(folder)
        self._of(path).mkdirs(path)

    def move(self, file: str, to: str) -> None:
        """Give a file another name. Where something has that name already, an error of Hadoop's, and nothing is changed."""
        source = self._path(file)
        self._context.getFileContext(source.toUri(), self._configuration).rename(source, self._path(to), self._keep)

    def write_new(self, file: str, text: str) -> None:
        """A new file, whole or not at all; an error of Hadoop's where there is one of this name."""
        folder, _, name = file.rpartition("/")
        draft = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        path = self._path(draft)
        out = self._of(path).create(path, False)
        try:
            out.write(bytearray(text.encode()))
        finally:
            out.close()
        self.move(draft, file)

    def delete(self, path: str, *, folder: bool = False) -> bool:
        """A file, or a folder with all in it; whether it was there."""
        where = self._path(path)
        return bool(self._of(where).delete(where, folder))

    def _of(self, path: Any) -> Any:
        return path.getFileSystem(self._configuration)
