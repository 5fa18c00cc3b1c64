"""A training set (contract 4) read into arrays, and everything that can be wrong with one.

A folder of Parquet files, one row per open of a file, beside a ``manifest.json``. Reading is one pass; 1 M rows of 26 features take about
100 MB. Nothing here changes a row except :meth:`Split.as_seen_at`, which takes away what was not known yet at a given time.
"""

from __future__ import annotations

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
FORMAT: Final = 1
SPLITS: Final = ("train", "validate", "test")
COLUMNS: Final = ("cache", "lfn", "t_us", "size", "features", "next_open_s", "censored", "observed_s", "weight", "split")
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

    def known_for_training(self) -> tuple[Split, Split]:
        """Train as it was known when the validate part began, and validate as it was known when the test part began."""
        at = self.manifest["split_at_us"]
        return self.train.as_seen_at(at["validate"]), self.validate.as_seen_at(at["test"])

    def whole(self) -> Split:
        """The rows of all three parts."""
        parts = (self.train, self.validate, self.test)
        return Split(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Split.__dataclass_fields__})

    @property
    def sha256(self) -> str:
        """The SHA-256 of the rows."""
        return str(self.manifest["sha256"])


def read(folder: Path) -> TrainingSet:
    """Read and check the training set in ``folder``. Raises :class:`DatasetError`."""
    manifest = read_manifest(folder)
    table = _read_rows(folder, manifest)
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
    if manifest.get("format") != FORMAT:
        raise DatasetError(f"{path}: format must be {FORMAT}, not {manifest.get('format')!r}; {_AGAIN}")
    for key, kind in (("schema", dict), ("rows", int), ("sha256", str), ("files", list), ("split_at_us", dict)):
        if not isinstance(manifest.get(key), kind):
            raise DatasetError(f"{path}: {key} must be a {kind.__name__}, not {manifest.get(key)!r}; {_AGAIN}")
    for entry in manifest["files"]:
        if not isinstance(entry, dict) or not {"name", "sha256"} <= entry.keys() or Path(str(entry["name"])).name != entry["name"]:
            raise DatasetError(f"{path}: each of files must have the name of a file in this folder and its sha256, not {entry!r}; {_AGAIN}")
    if not manifest["files"]:
        raise DatasetError(f"{path}: files must list at least one file; {_AGAIN}")
    for name in SPLITS[1:]:
        if not isinstance(manifest["split_at_us"].get(name), int):
            raise DatasetError(f"{path}: split_at_us.{name} must be a time, not {manifest['split_at_us'].get(name)!r}; {_AGAIN}")
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


def _read_rows(folder: Path, manifest: dict[str, Any]) -> Any:
    """The needed columns of the files that the manifest lists, a ``pyarrow.Table``; every row is checked against its file's digest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from smartcache.preprocessing.manifest import RowsDigest, digest_of

    tables = []
    digests = []
    for entry in manifest["files"]:
        path = folder / str(entry["name"])
        try:
            table = pq.ParquetFile(path).read()
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{path}: cannot be read as Parquet ({error}); {_AGAIN}") from error
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise DatasetError(f"{path}: column {missing[0]} is missing (it has {', '.join(table.column_names)}); {_AGAIN}")
        digest = RowsDigest()
        for batch in table.to_batches():
            digest.add(batch)
        digests.append(digest.hexdigest())
        if digests[-1] != entry["sha256"]:
            raise DatasetError(f"{path}: SHA-256 of its rows must be {entry['sha256']}, as {MANIFEST} says, is {digests[-1]}; {_AGAIN}")
        tables.append(table.select(COLUMNS))
    total = digest_of(digests)
    if total != manifest["sha256"]:
        raise DatasetError(f"{folder}: SHA-256 of the rows must be {manifest['sha256']}, as {MANIFEST} says, is {total}; {_AGAIN}")
    return pa.concat_tables(tables)


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
