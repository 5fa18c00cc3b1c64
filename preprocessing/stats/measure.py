"""All figures of ``smartcache stats``: Spark's sums of single days, put together to windows of days here.

On the driver there is one row for each day, cache and data tier (for jobs: each day and place of the input), whatever the number of opens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from ..access import access_schema
from ..records import JOB, KINDS
from ..table import NoTable, read
from . import jobs, opens
from .moving import Values, running, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from smartcache.config import Config

Progress = Callable[[str], None]
Key = tuple[Any, ...]
#: The line for all caches together.
ALL = "all"
_DAY = timedelta(days=1)


class StatsError(Exception):
    """There is nothing to say anything about; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to look at: the days from ``first`` to ``last`` (None: [stats] days until the newest one), ``caches`` (none: all)."""

    first: date | None = None
    last: date | None = None
    caches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Figures by day: each row holds for the window that ends with its day. Columns are named with their unit."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def dicts(self, **where: Any) -> list[dict[str, Any]]:
        """Rows by column name, those where these columns have these values."""
        names = [name for name, _ in self.columns]
        rows = (dict(zip(names, row, strict=True)) for row in self.rows)
        return [row for row in rows if all(row[name] == value for name, value in where.items())]


@dataclass(frozen=True, slots=True)
class Measured:
    """The tables, and what they are of."""

    tables: dict[str, Table]
    first: date
    last: date
    width: int
    #: What there was nothing of, in sentences.
    missing: tuple[str, ...]


def measure(spark: SparkSession, config: Config, request: Request, progress: Progress = lambda _: None) -> Measured:
    """All tables; :class:`StatsError` where there is neither an open nor a job in those days, or no day."""
    from pyspark.sql import functions as F

    width = config.stats.window_days
    missing: list[str] = []
    progress("reading the tables")
    accesses = _table(spark, config.streaming.table, access_schema(), missing, "access table")
    states = _table(spark, config.streaming.jobs, KINDS[JOB].schema().add("day", "date"), missing, "jobs table")
    if accesses is not None and request.caches:
        accesses = accesses.where(F.col("cache").isin(*request.caches))
    last = request.last or max((day for day in map(_newest, (accesses, states)) if day), default=None)
    if last is None:
        raise StatsError(f"there is neither an open nor a job: {'; '.join(missing) or 'both tables are empty'}")
    first = request.first or last - (config.stats.days - 1) * _DAY
    if first > last:
        raise StatsError(f"the days begin with {first}, after they end with {last}: give an earlier --from or a later --to")
    days = [first + number * _DAY for number in range((last - first).days + 1)]
    since = first - (width - 1) * _DAY
    tables: list[Table] = []
    if accesses is not None:
        progress("adding up opens")
        tables += _of_opens(accesses.where(F.col("day").between(since, last)), config, days)
    if states is not None:
        progress("adding up jobs")
        tables += _of_jobs(jobs.jobs(states, since, last), days, width)
    if not any(table.rows for table in tables):
        raise StatsError(f"there is neither an open nor a job from {since} to {last}")
    return Measured({table.name: table for table in tables}, first, last, width, tuple(missing))


def _table(spark: SparkSession, path: str, schema: StructType, missing: list[str], name: str) -> DataFrame | None:
    from pyspark.errors import AnalysisException

    try:
        return read(spark, path, schema)
    except NoTable:
        missing.append(f"no {name} yet ({path})")
    except AnalysisException:
        missing.append(f"no {name} ({path})")
    return None


def _newest(table: DataFrame | None) -> date | None:
    from pyspark.sql import functions as F

    if table is None:
        return None
    newest: date | None = table.agg(F.max("day")).collect()[0][0]
    return newest


def _of_opens(accesses: DataFrame, config: Config, days: list[date]) -> list[Table]:
    from pyspark import StorageLevel

    width = config.stats.window_days
    # On the disk: it is read five times, and need not fit into memory.
    prepared = opens.prepared(accesses, config.privacy.user_paths).persist(StorageLevel.DISK_ONLY)
    try:
        named = opens.with_tiers(prepared, config.stats.tiers)
        sums = _moved(opens.added(named), ("cache", "tier"), lambda by_day: windows(by_day, days, width, opens.ADDED))
        once = _moved(opens.unique(named, width), ("cache", "tier"), lambda by_day: running(by_day, days, opens.ONCE))
        parts = _moved(opens.parts_read(prepared), ("cache", "tenth"), lambda by_day: windows(by_day, days, width, ("opens",)))
        since = days[-1] - (width - 1) * _DAY
        blocks = _moved(
            opens.blocks(prepared, since), ("cache", "blk_size"), lambda by_day: windows(by_day, days, width, opens.ADDED_BLOCKS)
        )
        fills = {(row["cache"], row["day"]): row["fill"] / row["answers"] / opens.PARTS for row in opens.fills(prepared).collect()}
    finally:
        prepared.unpersist()
    both = {key: {day: {**sums[key][day], **once[key][day]} for day in days} for key in sums}
    return [
        _requests("caches", "cache", {**_by(both, 0), **_all(both)}, days, fills),
        _requests("tiers", "tier", _by(both, 1), days),
        _parts(parts, days),
        _blocks(blocks, days, config.stats.waste),
    ]


def _of_jobs(ran: DataFrame, days: list[date], width: int) -> list[Table]:
    from pyspark import StorageLevel

    ran = ran.persist(StorageLevel.DISK_ONLY)
    try:
        by_input = _moved(jobs.by_input(ran), ("input",), lambda by_day: windows(by_day, days, width, jobs.JOBS))
        wanted = _moved(jobs.by_popularity(ran, width), ("at_least",), lambda by_day: running(by_day, days, jobs.DATASETS))
    finally:
        ran.unpersist()
    efficiency = Table("jobs", (("day", "day"), ("input", "text"), *((name, "int") for name in jobs.JOBS), ("cpu_efficiency", "share")))
    for day in days:
        for place in jobs.INPUTS:
            values = by_input.get((place,), {}).get(day)
            if values and values["jobs"]:
                numbers = [values[name] for name in jobs.JOBS]
                efficiency.rows.append((day, place, *numbers, _share(values["cpu_ms"], values["core_ms"])))
    popularity = Table("workflows", (("day", "day"), ("at_least", "int"), *((name, "int") for name in jobs.DATASETS)))
    for day in days:
        for least in jobs.AT_LEAST:
            if (least,) in wanted:
                popularity.rows.append((day, least, *(wanted[least,][day][name] for name in jobs.DATASETS)))
    return [efficiency, popularity]


def _moved(
    sums: DataFrame, keys: tuple[str, ...], move: Callable[[dict[date, Values]], dict[date, Values]]
) -> dict[Key, dict[date, Values]]:
    """Sums of single days (or steps), by key, as they are in the windows."""
    found: defaultdict[Key, dict[date, Values]] = defaultdict(dict)
    for row in sums.collect():
        values = row.asDict()
        key, day = tuple(values.pop(name) for name in keys), values.pop("day")
        found[key][day] = {name: int(value) for name, value in values.items()}
    return {key: move(by_day) for key, by_day in found.items()}


def _by(both: dict[Key, dict[date, Values]], place: int) -> dict[str, dict[date, Values]]:
    """Added up over the other part of the key."""
    groups: defaultdict[str, list[dict[date, Values]]] = defaultdict(list)
    for key, by_day in both.items():
        groups[key[place]].append(by_day)
    return {name: _total(group) for name, group in groups.items()}


def _all(both: dict[Key, dict[date, Values]]) -> dict[str, dict[date, Values]]:
    return {ALL: _total(list(both.values()))} if both else {}


def _total(group: Sequence[dict[date, Values]]) -> dict[date, Values]:
    return {day: {name: sum(each[day][name] for each in group) for name in group[0][day]} for day in group[0]}


def _requests(
    name: str, key: str, found: dict[str, dict[date, Values]], days: Iterable[date], fills: dict[Key, float] | None = None
) -> Table:
    """``fills``: how full a disk was, by key and day; None where what ``found`` is about has no disk."""
    sums = (*opens.ADDED, *opens.ONCE)
    shares = ("part_read", "reopened", "reported_hit_rate", "true_hit_rate")
    table = Table(name, (("day", "day"), (key, "text"), *((each, "int") for each in sums), *((each, "share") for each in shares)))
    if fills is not None:
        table = replace(table, columns=(*table.columns, ("fill", "share")))
    for day in days:
        for of in sorted(found, key=lambda each: (each != ALL, each)):
            v = found[of][day]
            if v["opens"]:
                missed = _share(v["fetched_bytes"], v["delivered_bytes"])
                figures = (
                    _share(v["sized_read_bytes"], v["sized_bytes"]),
                    1 - v["unique_files"] / v["opens"],
                    _share(v["hit_bytes"], v["counted_bytes"]),
                    None if missed is None else 1 - missed,
                )
                disk = () if fills is None else (fills.get((of, day)),)
                table.rows.append((day, of, *(v[each] for each in sums), *figures, *disk))
    return table


def _parts(found: dict[Key, dict[date, Values]], days: Iterable[date]) -> Table:
    table = Table("parts", (("day", "day"), ("cache", "text"), ("tenth", "int"), ("opens", "int")))
    for day in days:
        table.rows.extend((day, *key, found[key][day]["opens"]) for key in sorted(found) if found[key][day]["opens"])
    return table


def _blocks(found: dict[Key, dict[date, Values]], days: Iterable[date], waste: float) -> Table:
    columns = ("lives", "disk_bytes", "used_bytes")
    head = (("day", "day"), ("cache", "text"), ("blk_size", "int"), *((name, "int") for name in columns))
    table = Table("blocks", (*head, ("fetched_per_used", "ratio"), ("advice", "text")))
    for day in days:
        for key in sorted(found):
            values = found[key][day]
            if values["lives"]:
                disk, used = values["disk_bytes"], values["used_bytes"]
                advice = opens.advice(disk, used, key[1], waste)
                table.rows.append((day, *key, *(values[name] for name in columns), _share(disk, used), advice))
    return table


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
