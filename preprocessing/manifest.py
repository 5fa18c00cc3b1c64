"""What a training set says about itself: ``manifest.json``, and the digest of its rows.

The digest does not depend on how rows are cut into batches, files or row groups: of each column, a SHA-256 runs over its values in the
order of the rows (missing values as zeros, a byte of validity for each, lengths of texts and lists apart); the digest of a cache is the
SHA-256 of its columns' digests, that of the training set is the SHA-256 of its caches' digests in the order of the cache ids.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: Column and Spark type, in order (contract 4).
COLUMNS: tuple[tuple[str, str], ...] = (
    ("cache", "string"),
    ("lfn", "string"),
    ("t_us", "long"),
    ("size", "long"),
    ("features", "array<float>"),
    ("next_open_s", "double"),
    ("censored", "boolean"),
    ("observed_s", "double"),
    ("weight", "double"),
    ("split", "string"),
)


class RowsDigest:
    """The digest of one cache's rows, fed batch by batch in the order of the rows."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [hashlib.sha256() for _ in range(3)] for name, _ in COLUMNS}
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows; columns by name."""
        self.rows += batch.num_rows
        for name, hashes in self._columns.items():
            column = batch.column(batch.schema.get_field_index(name))
            _add(column, hashes)

    def hexdigest(self) -> str:
        """64 hex digits."""
        return hashlib.sha256(b"".join(each.digest() for hashes in self._columns.values() for each in hashes)).hexdigest()


def digest_of(caches: list[str]) -> str:
    """The digest of a training set from those of its caches, in the order of the cache ids."""
    return hashlib.sha256("".join(caches).encode()).hexdigest()


def _add(column: pa.Array, hashes: list[Any]) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    values, validity, lengths = hashes
    validity.update(np.ascontiguousarray(pc.is_valid(column).to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.fill_null(column, "").cast(pa.large_string())
        lengths.update(pc.binary_length(column).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        values.update("".join(column.to_pylist()).encode())
        return
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths.update(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
        column = column.flatten()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    values.update(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes())
