"""The gate of replay: the latest opens of the access table through a cache, with the candidate, with the champion, and without a model.

The cache is the core's (``smartcache._core.CacheReplay``): features, network, policy and the worth of a file by the code that the plugin
runs; whole files. Without a model it is an XCache as it is without us, LRU between the same marks, under the same rules of ``[policy]``.
Each cache of the table is replayed on its own; the figures are their sums.

Cache and history begin empty, as many days before the judged ones as the table has, at most ``replay_history_days``: those warm them up.
Where they are fewer than ``replay_warm`` of the judged days, the first opens of these do the rest and are not judged. Nor is the part that
the candidate was trained on, where its bundle knows when that ended. All three are judged on the same opens.

In memory: the opens of the judged days, one day at a time of those before, and for one cache its three histories.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smartcache.config import Config

from .bundle import Bundle, Info
from .gates import PASSED, TAG_GATE, Gate, GateError
from .lineage import SERVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The names of this gate's answers all begin so.
PREFIX: Final = "replay_"
#: The tag of a version that says when they were given.
REPLAYED: Final = "smartcache.replayed"
#: The tag that says which champion it was compared with, as :func:`known_as` names it.
AGAINST: Final = "smartcache.replayed_against"
NOBODY: Final = "none"
#: So many opens are replayed between two looks at whether to stop.
_CHUNK: Final = 32768
_DAY_US: Final = 86400e6
#: Bytes: no file is larger; sizes come over UDP, and one of 2^62 would outweigh all others.
_LARGEST: Final = 1 << 50
#: Bytes of a cache.
_MOST: Final = 1 << 60
_COLUMNS: Final = ("cache", "open_us", "lfn", "size", "b_read", "t_us")

#: Told how many opens have been replayed and how many there are (0 as long as that is not known), with what; it may raise to stop.
Progress = Callable[[int, int, str], None]


class TableUnread(GateError):
    """There is a table, but it cannot be read now: that says nothing of a model, and may pass."""


@dataclass(frozen=True)
class Opens:
    """Opens of one cache in the order of time; those from ``judged`` on count. ``b_read`` -1: not known."""

    cache: str
    t_us: NDArray[np.int64]
    lfn: list[str]
    size: NDArray[np.int64]
    b_read: NDArray[np.int64]
    asked: NDArray[np.bool_]
    judged: int

    @property
    def unique_bytes(self) -> int:
        """The bytes of all files, each with the largest size that it was opened with."""
        largest: dict[str, int] = {}
        for name, size in zip(self.lfn, self.size.tolist(), strict=True):
            largest[name] = max(size, largest.get(name, 0))
        return sum(largest.values())


@dataclass(frozen=True)
class Window:
    """What is replayed: the opens of the last days, a part for each cache, and the days before, whose opens :attr:`day_of` reads."""

    parts: list[Opens]
    days_before: list[date]
    #: The opens of a cache on one of those days; none of them is judged.
    day_of: Callable[[str, date], Opens | None] = lambda _cache, _day: None


@dataclass(frozen=True)
class Figures:
    """What came of the judged opens of all caches; bytes."""

    opens: int = 0
    hits: int = 0
    bytes: int = 0
    missed_bytes: int = 0
    written_bytes: int = 0
    bypassed: int = 0
    evicted: int = 0

    @property
    def byte_miss(self) -> float:
        """The share of the bytes that was missed."""
        return self.missed_bytes / self.bytes if self.bytes else 0.0

    def plus(self, counts: dict[str, int]) -> Figures:
        """With what another cache has counted."""
        return Figures(**{name: value + counts[name] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Replayed:
    """The three replays. ``champion`` is None where ``champion_note`` says why; ``capacities``: bytes, by cache.

    ``warmed_days``: so many days before the judged ones, with ``warmed_opens`` in all, went through the caches first.
    """

    candidate: Figures
    lru: Figures
    champion: Figures | None
    champion_note: str
    capacities: dict[str, int]
    from_us: int
    to_us: int
    warmed_days: int = 0
    warmed_opens: int = 0


@contextmanager
def latest(config: Config, trained_until_us: int | None) -> Iterator[Window]:
    """The opens of the last ``[gates] replay_days``, and of the days before them as long as the context lasts.

    Raises :class:`GateError` where there is no table, it cannot be read, or nothing is in it; in the context too.
    """
    whole = int(config.gates.replay_days) + 1
    way_out = "judge where the table is, or set [gates] replay_days = 0"
    with snapshot_of(config, config.streaming.table, "[streaming] table ", way_out) as snapshot:
        opens = _known(snapshot.read(_COLUMNS, from_day=snapshot.days[-1] - timedelta(days=whole)))
        yield _window(snapshot, opens, config, trained_until_us)


def between(config: Config, table: str, span_us: tuple[int, int], judged_from_us: int, way_out: str) -> list[Opens]:
    """The opens of an access table from the first of ``span_us`` to before the second, a part for each cache. Raises :class:`GateError`."""
    from_us, to_us = span_us
    with snapshot_of(config, table, "access table ", way_out) as snapshot:
        opens = _known(snapshot.read(_COLUMNS, from_day=_date(from_us), to_day=_date(to_us)))
    opens = opens[(opens["open_us"] >= from_us) & (opens["open_us"] < to_us)]
    return [_opens(str(cache), rows, judged_from_us) for cache, rows in opens.groupby("cache", sort=True)]


@contextmanager
def snapshot_of(config: Config, table: str, what: str, way_out: str) -> Iterator[Any]:
    """The files of a table that has opens, as long as the context lasts. Raises :class:`GateError`, in the context too."""
    try:
        from smartcache.preprocessing import access, session
        from smartcache.preprocessing.table import NoTable, TableError
    except ImportError as error:
        raise GateError(f"{error}; install smartcache[promote]") from error
    try:
        with session.table_reader(config, table) as files:
            snapshot = access.Snapshot.of(files, table)
            if not snapshot.days:
                raise GateError(f"{what}{table}: has no opens yet; {way_out}")
            yield snapshot
    except NoTable as error:
        raise GateError(f"{what}{table}: {error}; {way_out}") from error
    except (TableError, OSError, ValueError) as error:  # the last: Arrow, of a damaged file
        raise TableUnread(f"{what}{table}: {error}; {way_out}") from error


def _known(read: Any) -> Any:
    """The opens as a frame, but for those of which nothing is known about bytes, or nothing that can be true."""
    opens = read.to_pandas()
    # A file is worth its size; where only what was read is known, at least that.
    size = opens["size"].where(opens["size"] >= 0, opens["b_read"])
    return opens.assign(size=size)[size.notna() & (size >= 0) & (size <= _LARGEST)]


def _window(snapshot: Any, opens: Any, config: Config, trained_until_us: int | None) -> Window:
    settings = config.gates
    if opens.empty:
        return Window([], [])
    begin_us = opens["open_us"].max() - settings.replay_days * _DAY_US
    first_us = begin_us - settings.replay_history_days * _DAY_US
    before = [day for day in snapshot.days if settings.replay_history_days and _date(first_us) <= day <= _date(begin_us)]
    judged = opens[opens["open_us"] > begin_us]

    def first_open_us(cache: str) -> float:
        """The first open of the days before; a day that is listed may have none, and a file no rows."""
        for day in snapshot.days_of(cache):
            if day in before and len(found := snapshot.read(("open_us",), from_day=day, to_day=day, cache=cache)):
                return float(found["open_us"][0].as_py())
        return float(begin_us)

    def judged_from_us(cache: str, rows: Any) -> int:
        """Where the days before, of this cache, warm it less than ``replay_warm``, its first opens do the rest."""
        covered_us = max(0.0, begin_us - max(first_us, first_open_us(cache)))
        share = max(0.0, settings.replay_warm - covered_us / (settings.replay_days * _DAY_US))
        from_us = np.sort(rows["open_us"].to_numpy())[min(int(len(rows) * share), len(rows) - 1)]
        return max(int(from_us), trained_until_us or 0)

    def day_of(cache: str, day: date) -> Opens | None:
        rows = _known(snapshot.read(_COLUMNS, from_day=day, to_day=day, cache=cache))
        rows = rows[(rows["open_us"] > first_us) & (rows["open_us"] <= begin_us)]
        return None if rows.empty else _opens(cache, rows, None)

    return Window(
        [_opens(str(cache), rows, judged_from_us(str(cache), rows)) for cache, rows in judged.groupby("cache", sort=True)], before, day_of
    )


def _opens(cache: str, rows: Any, judged_from_us: int | None) -> Opens:
    t_us = rows["open_us"].to_numpy(np.int64)
    asked = rows["t_us"].notna().to_numpy()
    return Opens(
        cache=cache,
        t_us=t_us,
        lfn=rows["lfn"].tolist(),
        size=rows["size"].to_numpy(np.int64),
        b_read=rows["b_read"].fillna(-1).to_numpy(np.int64),
        # A cache without decisions had no plugin: it would be asked at each open.
        asked=asked if asked.any() else np.ones(len(rows), dtype=np.bool_),
        judged=len(t_us) if judged_from_us is None else int(np.searchsorted(t_us, judged_from_us)),
    )


def _date(us: float) -> date:
    return datetime.fromtimestamp(us / 1e6, UTC).date()


def trained_until_us(bundle: Bundle) -> int | None:
    """When the part of the data ended that the model was fitted to; None where the bundle does not know."""
    split = bundle.info.provenance.get("split_at_us")
    until = split.get("test") if isinstance(split, dict) else None
    return until if isinstance(until, int) else None


def replay(config: Config, window: Window, candidate: Bundle, champion: Bundle | str, progress: Progress) -> Replayed:
    """All three. ``champion``: a bundle, or why there is none to compare with. Raises :class:`GateError`."""
    # Without a model first: it says least about the candidate, and fails where the configuration does.
    models: dict[str, Bundle | None] = {"LRU": None, "candidate": candidate}
    note = champion if isinstance(champion, str) else ""
    if isinstance(champion, Bundle):
        if champion.info.feature_schema.hash == candidate.info.feature_schema.hash:
            models["champion"] = champion
        else:
            note = f"it has other features, schema {champion.info.feature_schema.hash}"
    capacities = {part.cache: capacity_of(config, part) for part in window.parts}
    total, done = sum(len(part.t_us) for part in window.parts), 0
    figures = dict.fromkeys(models, Figures())
    days: set[date] = set()
    warmed = 0
    for part in window.parts:
        caches = {
            name: cache_of(config, capacities[part.cache], bundle.folder if bundle else None, bundle.info if bundle else None)
            for name, bundle in models.items()
        }
        for day in window.days_before:
            progress(done, total, f"{part.cache}, warmed by {day}")
            if (opens := window.day_of(part.cache, day)) is not None:
                for start, end in chunks(opens):
                    progress(done, total, f"{part.cache}, warmed by {day}")
                    feed(caches, opens, start, end)
                warmed += len(opens.t_us)
                days.add(day)
        before = {name: cache.counters() for name, cache in caches.items()}
        for start, end in chunks(part):
            progress(done, total, part.cache)
            if start == part.judged:
                before = {name: cache.counters() for name, cache in caches.items()}
            feed(caches, part, start, end)
            done += end - start
        if part.judged < len(part.t_us):
            for name, cache in caches.items():
                after = cache.counters()
                figures[name] = figures[name].plus({key: after[key] - before[name][key] for key in after})
    return Replayed(
        candidate=figures["candidate"],
        lru=figures["LRU"],
        champion=figures.get("champion"),
        champion_note=note,
        capacities=capacities,
        from_us=min((int(part.t_us[part.judged]) for part in window.parts if part.judged < len(part.t_us)), default=0),
        to_us=max((int(part.t_us[-1]) for part in window.parts), default=0),
        warmed_days=len(days),
        warmed_opens=warmed,
    )


def feed(caches: Mapping[str, Any], opens: Opens, start: int, end: int) -> None:
    """Have each cache see these rows of ``opens``."""
    rows = slice(start, end)
    for cache in caches.values():
        cache.open(opens.t_us[rows], opens.lfn[rows], opens.size[rows], opens.b_read[rows], opens.asked[rows])


def chunks(part: Opens) -> Iterator[tuple[int, int]]:
    """From row to row; one begins where the judged part does."""
    ends = sorted({*range(0, len(part.t_us), _CHUNK), part.judged, len(part.t_us)} - {0})
    start = 0
    for end in ends:
        if end > start:
            yield start, end
        start = end


def capacity_of(config: Config, part: Opens) -> int:
    """Bytes of the cache that ``part`` is replayed through."""
    settings = config.gates
    share = max(1, round(settings.replay_fraction * part.unique_bytes))
    return settings.replay_capacity_bytes or config.evictor.capacity_bytes or min(share, _MOST)


def cache_of(config: Config, capacity: int, folder: Path | None = None, info: Info | None = None) -> Any:
    """A ``CacheReplay``: as the plugin decides with ``info`` and the ``weights.json`` in ``folder``, so by the portfolio's votes where that
    is enabled; or, without a model, plain LRU. Raises :class:`GateError`.
    """
    try:
        core = importlib.import_module("smartcache._core")
        overlay = importlib.import_module("smartcache.preprocessing.core")
        text = overlay.core_toml(config, overlay.REPLAY_SECTIONS)
        if info is None:
            return core.CacheReplay(text, capacity)
        thresholds = (info.thresholds.admit, info.thresholds.evict)
        rules = core.ReplayRules(portfolio=config.portfolio.enabled)
        return core.CacheReplay(text, capacity, str(folder), info.bucket_edges_s, info.horizon_buckets, *thresholds, rules)
    except ImportError as error:
        raise GateError(f"the C++ core is not installed here ({error}); install smartcache's wheel") from error
    except ValueError as error:
        raise GateError(f"replay: {error}") from error


def check(config: Config, candidate: Bundle, champion: Bundle | str, progress: Progress = lambda *_: None) -> list[Gate]:
    """The gate's answers about ``candidate``; none where ``[gates] replay_days`` is 0. ``champion`` as in :func:`replay`.

    Where there is nothing to replay the gate has failed, and says why. Raises :class:`TableUnread`.
    """
    if not config.gates.replay_days:
        return []
    progress(0, 0, f"reading the last days of {config.streaming.table}")
    try:
        with latest(config, trained_until_us(candidate)) as window:
            return list(judge(config, replay(config, window, candidate, champion, progress)))
    except TableUnread:
        raise
    except GateError as error:
        return [Gate(f"{PREFIX}opens", str(error), f"a replay of the last {config.gates.replay_days:g} days", False)]


def passed_before(tags: Mapping[str, str], days: float, live: str | None) -> bool:
    """Whether a version's tags say that it has passed this gate already: compared with ``live``, and not longer ago than the ``days`` that
    are replayed, or it has served.

    ``live``: what it would be compared with now, as :func:`known_as` names it; None where there is nothing. One that passed against
    another champion may be worse than this one; one that passed long ago did so on opens that are the latest no more.
    """
    answers = [text for key, text in tags.items() if key.startswith(TAG_GATE + PREFIX)]
    if not answers or not all(text.startswith(PASSED) for text in answers):
        return False
    if SERVED in tags:
        return True
    if live is not None and tags.get(AGAINST) != live:
        return False
    try:
        return datetime.now(UTC) - datetime.fromisoformat(tags[REPLAYED]) <= timedelta(days=days)
    except (KeyError, ValueError, TypeError):  # noted by who did not tell when
        return True


def known_as(number: int, run_id: str) -> str:
    """What a version is called that others are compared with: numbers begin anew where a registry is made anew."""
    return f"version {number} of run {run_id}"


def replayed_now(against: str = NOBODY) -> dict[str, str]:
    """The tags of a version that was replayed now, and compared with ``against``."""
    return {REPLAYED: datetime.now(UTC).isoformat(timespec="seconds"), AGAINST: against}


def judge(config: Config, found: Replayed) -> Iterator[Gate]:
    """From figures to answers."""
    settings, mine = config.gates, found.candidate
    span = f"{_day(found.from_us)} to {_day(found.to_us)}" if mine.opens else "none after what the candidate was trained on"
    caches = ", ".join(f"{name} {size / 1e9:.4g} GB" for name, size in found.capacities.items())
    warmed = f"warmed by {found.warmed_days} days before, {found.warmed_opens} opens" if found.warmed_days else "no days before to warm it"
    yield Gate(
        "replay_opens",
        f"{mine.opens} ({span}; {caches}; {warmed})",
        f"at least {settings.min_test_rows} opens that are judged",
        mine.opens >= settings.min_test_rows,
    )
    yield from _against("lru", "LRU's", mine, found.lru, settings.replay_miss_over_lru, settings.replay_written_over_lru)
    if found.champion is not None:
        over = (settings.replay_miss_over_champion, settings.replay_written_over_champion)
        yield from _against("champion", "the champion's", mine, found.champion, *over)
    elif found.champion_note:
        yield Gate("replay_champion", f"not compared: {found.champion_note}", "no worse than the champion, where there is one", True)


def _against(name: str, whose: str, mine: Figures, theirs: Figures, miss_over: float, written_over: float) -> Iterator[Gate]:
    yield Gate(
        f"replay_miss_{name}",
        f"byte miss {mine.byte_miss:.4f}, {whose} {theirs.byte_miss:.4f}",
        f"at most {1 + miss_over:g} of {whose}",
        mine.missed_bytes <= theirs.missed_bytes * (1 + miss_over),
    )
    yield Gate(
        f"replay_written_{name}",
        f"{mine.written_bytes / 1e9:.4g} GB written, {whose} {theirs.written_bytes / 1e9:.4g} GB",
        f"at most {1 + written_over:g} of {whose}",
        mine.written_bytes <= theirs.written_bytes * (1 + written_over),
    )


def _day(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="minutes").removesuffix("+00:00") + "Z"
