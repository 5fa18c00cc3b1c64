"""A training set (contract 4) read into arrays, and everything that can be wrong with one.

A folder of Parquet files, one row per open of a file, beside a ``manifest.json``. Reading is one pass; 1 M rows of 26 features take about
100 MB. Nothing here changes a row except :meth:`Split.as_seen_at`, which takes away what was not known yet at a given time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]

MANIFEST: Final = "manifest.json"
SPLITS: Final = ("train", "validate", "test")
COLUMNS: Final = ("t_us", "size", "features", "next_open_s", "censored", "observed_s", "weight", "split")
_AGAIN = "write it again with `smartcache build-dataset`"


class DatasetError(Exception):
    """A training set that cannot be trained on; the text names thing, rule, value and fix."""


@dataclass(frozen=True)
class Split:
    """The rows of one part of the time window, in time order. All arrays have length N."""

    #: [N, F], in schema order.
    features: Floats
    t_us: Longs
    #: Seconds to the next open of the same file; NaN where ``censored``.
    next_open_s: Doubles
    #: No further open was seen.
    censored: Bools
    #: For how long after ``t_us`` the file was watched; may be NaN where not censored.
    observed_s: Doubles
    #: What the row counts, in bytes; see :func:`.survival.temper`.
    weight: Doubles

    def __len__(self) -> int:
        return len(self.t_us)

    @property
    def uncensored(self) -> int:
        """Rows whose next open was seen."""
        return int(np.count_nonzero(~self.censored))

    def as_seen_at(self, end_us: int) -> Split:
        """The same rows as somebody at ``end_us`` would have known them: opens after that have not happened yet.

        What a model was trained on must have been known when the part that judges it began; without this, the labels of the train rows
        would look into the test part.
        """
        watched = np.maximum((end_us - self.t_us) / 1e6, 0.0)
        with np.errstate(invalid="ignore"):
            later = ~self.censored & (self.next_open_s > watched)
        return Split(
            features=self.features,
            t_us=self.t_us,
            next_open_s=np.where(later, np.nan, self.next_open_s),
            censored=self.censored | later,
            observed_s=np.fmin(self.observed_s, watched),
            weight=self.weight,
        )


@dataclass(frozen=True)
class TrainingSet:
    """A training set in memory."""

    folder: Path
    manifest: dict[str, Any]
    train: Split
    validate: Split
    test: Split

    @property
    def schema(self) -> dict[str, Any]:
        """The feature schema: ``version``, ``names``, ``hash``, ``text`` (contract 3)."""
        schema: dict[str, Any] = self.manifest["schema"]
        return schema

    @property
    def names(self) -> list[str]:
        """Feature names, in the order of the columns of ``features``."""
        return [str(name) for name in self.schema["names"]]

    @property
    def sha256(self) -> str:
        """The SHA-256 that the manifest gives for the rows."""
        return str(self.manifest["sha256"])


def read(folder: Path) -> TrainingSet:
    """Read and check the training set in ``folder``. Raises :class:`DatasetError`."""
    manifest = read_manifest(folder)
    table = _read_rows(folder)
    if len(table) != manifest["rows"]:
        raise DatasetError(f"{folder}: the manifest says {manifest['rows']} rows, the Parquet files hold {len(table)}; {_AGAIN}")
    features = _features(folder, table, manifest["schema"]["names"])
    rows = _checked_rows(folder, table, features)
    order = np.argsort(rows.t_us, kind="stable")
    part = np.asarray(table["split"].to_pylist(), dtype=object)
    unknown = set(part.tolist()) - set(SPLITS)
    if unknown:
        raise DatasetError(f"{folder}: column split must be one of {', '.join(SPLITS)}, not {sorted(map(str, unknown))}; {_AGAIN}")
    parts = {name: _take(rows, order[part[order] == name]) for name in SPLITS}
    return TrainingSet(folder, manifest, **parts)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check ``manifest.json`` alone. Raises :class:`DatasetError`."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read ({error.strerror}); --dataset must name a folder that `smartcache build-dataset` wrote"
        ) from error
    except ValueError as error:
        raise DatasetError(f"{path}: not JSON ({error}); {_AGAIN}") from error
    if not isinstance(manifest, dict):
        raise DatasetError(f"{path}: must be a JSON object, not {type(manifest).__name__}; {_AGAIN}")
    for key, kind in (("schema", dict), ("rows", int), ("sha256", str)):
        if not isinstance(manifest.get(key), kind):
            raise DatasetError(f"{path}: {key} must be a {kind.__name__}, not {manifest.get(key)!r}; {_AGAIN}")
    _check_schema(path, manifest["schema"])
    return manifest


def _check_schema(path: Path, schema: dict[str, Any]) -> None:
    names = schema.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DatasetError(f"{path}: schema.names must be a list of feature names, not {names!r}; {_AGAIN}")
    if len(set(names)) != len(names):
        raise DatasetError(f"{path}: schema.names must differ from each other, not {names!r}; {_AGAIN}")
    digest = schema.get("hash")
    if not isinstance(digest, str) or len(digest) != 16 or set(digest) - set("0123456789abcdef"):
        raise DatasetError(f"{path}: schema.hash must be 16 hex digits, not {digest!r}; {_AGAIN}")


def _read_rows(folder: Path) -> Any:
    """The needed columns of all Parquet files, a ``pyarrow.Table``; files in order of their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith(("_", ".")))
    if not files:
        raise DatasetError(f"{folder}: holds no Parquet file; {_AGAIN}")
    tables = []
    for path in files:
        try:
            columns = pq.read_schema(path).names
            # `split` may be the folder's name (split=train/), as Spark writes a partition.
            wanted = [name for name in COLUMNS if name in columns]
            table = pq.ParquetFile(path).read(columns=wanted)
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{path}: cannot be read as Parquet ({error}); {_AGAIN}") from error
        if "split" not in columns:
            value = next((part.removeprefix("split=") for part in path.parts if part.startswith("split=")), None)
            if value is not None:
                table = table.append_column("split", pa.array([value] * len(table), pa.string()))
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise DatasetError(f"{path}: column {missing[0]} is missing (it has {', '.join(columns)}); {_AGAIN}")
        tables.append(table.select(COLUMNS))
    return pa.concat_tables(tables, promote_options="permissive")


def _features(folder: Path, table: Any, names: list[str]) -> Floats:
    import pyarrow.compute as pc

    column = table["features"]
    if column.null_count:
        raise DatasetError(f"{folder}: column features must not be null, {column.null_count} rows are; {_AGAIN}")
    widths = set(pc.unique(pc.list_value_length(column)).to_pylist())
    if widths - {len(names)}:
        raise DatasetError(f"{folder}: features must have one value per name of the schema, {len(names)}, not {sorted(widths)}; {_AGAIN}")
    features = np.asarray(pc.list_flatten(column).to_numpy(), dtype=np.float32).reshape(len(table), len(names))
    finite = np.isfinite(features)
    if not finite.all():
        row, feature = np.argwhere(~finite)[0]
        raise DatasetError(f"{folder}: features must be finite, {names[feature]} of row {row} is {features[row, feature]}; {_AGAIN}")
    return features


def _checked_rows(folder: Path, table: Any, features: Floats) -> Split:
    def doubles(name: str) -> Doubles:
        return np.asarray(table[name].cast("float64").to_numpy(), dtype=np.float64)

    if table["censored"].null_count or table["t_us"].null_count:
        raise DatasetError(f"{folder}: columns censored and t_us must not be null; {_AGAIN}")
    rows = Split(
        features=features,
        t_us=np.asarray(table["t_us"].cast("int64").to_numpy(), dtype=np.int64),
        next_open_s=doubles("next_open_s"),
        censored=np.asarray(table["censored"].to_numpy(), dtype=np.bool_),
        observed_s=doubles("observed_s"),
        weight=doubles("weight"),
    )
    with np.errstate(invalid="ignore"):
        rules = {
            "next_open_s must be null where censored, and a number >= 0 elsewhere": np.where(
                rows.censored, np.isnan(rows.next_open_s), rows.next_open_s >= 0
            ),
            "observed_s must be a number >= 0 where censored": ~rows.censored | (rows.observed_s >= 0),
            "weight must be a number >= 0": np.isfinite(rows.weight) & (rows.weight >= 0),
        }
    for rule, holds in rules.items():
        if not holds.all():
            row = int(np.argmin(holds))
            values = ("next_open_s", "censored", "observed_s", "weight")
            is_ = ", ".join(f"{name} {getattr(rows, name)[row]}" for name in values)
            raise DatasetError(f"{folder}: {rule}; row {row} has {is_}; {_AGAIN}")
    return rows


def _take(rows: Split, index: npt.NDArray[np.intp]) -> Split:
    return Split(
        rows.features[index], rows.t_us[index], rows.next_open_s[index], rows.censored[index], rows.observed_s[index], rows.weight[index]
    )


def files_sha256(folder: Path) -> str:
    """SHA-256 over the Parquet files' bytes, in order of their paths: says whether two folders are the same copy."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.parquet")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
