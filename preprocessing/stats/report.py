"""The tables of ``smartcache stats`` for people: plots over the days, figures of the last window, in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from smartcache import page
from smartcache.page import Picture, amount, share

from . import jobs, opens
from .measure import ALL, Measured
from .tables import replace

REPORT = "report.html"
_NONE = "-"
_COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#1864ab", "#868e96", "#f08c00", "#087f5b", "#862e9c")
#: Lines in one plot; caches and tiers beyond that are in the tables.
_DRAWN = 8
_HOUR_MS = 3_600_000

MEANINGS = (
    "requested: the sizes of the files, each time that one was opened; read: what clients read of them; unique: each file once in the "
    "window, what a cache would hold that held everything that was asked for in it; stored: what was "
    "written to the cache's disk in the window, not the volume that it holds",
    "disk filled: the share of the cache's disk that was in use when its plugin was asked, the mean of that day alone",
    "reported hit rate: pfc's b_hit of all that it counts. It counts a byte as a hit though the same open had it fetched a moment before",
    "true hit rate: 1 - fetched / delivered, by what came in over the network (blocks as they are stored, and what was passed by) and what "
    "the clients of the same opens read. Below zero: more was fetched than read",
    "part read: bytes read of the bytes of the files opened, at most once each in an open; reopened: opens of a file that was opened "
    "before in the window",
    "fetched per used: bytes fetched to store a file that was not on the disk, for each of its bytes that was read then, at least",
    "local and remote: whether the job ran at a site that has its input; CPU efficiency: CPU time of the time that its cores were held",
    "hits of a dataset: different workflows with jobs on it in the window",
)


def write(measured: Measured, folder: Path, footer: Sequence[str]) -> Path:
    """Write the page into ``folder``, whole or not at all; its path."""
    text = page.document(f"Site statistics, {measured.first} to {measured.last}", _parts(measured), footer)
    return replace(folder / REPORT, lambda path: _put(path, text))


def _put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _parts(measured: Measured) -> list[str]:
    window = f"Each day stands for the {measured.width} days that end with it." if measured.width > 1 else "Each day stands for itself."
    parts = [page.paragraphs([window, *(f"There is {each}." for each in measured.missing)])]
    if measured.tables.get("caches"):
        parts += _of_opens(measured)
    if measured.tables.get("jobs"):
        parts += _of_jobs(measured)
    return [*parts, page.heading("What the words mean"), page.paragraphs(f"{each}." for each in MEANINGS)]


def _of_opens(measured: Measured) -> list[str]:
    tables, last = measured.tables, measured.last
    everything, caches = tables["caches"].dicts(cache=ALL), sorted({row["cache"] for row in tables["caches"].dicts()} - {ALL})
    parts = [page.heading("Requests, and what is stored for them")]
    if not everything:
        return [*parts, page.paragraphs(["There were no opens."])]
    volume, counts = (
        {"requested": "opened_bytes", "read": "read_bytes", "unique": "unique_bytes", "stored": "disk_bytes"},
        {"opens": "opens", "different files": "unique_files"},
    )
    parts.append(
        page.image(
            _picture(
                "Requested and stored",
                "All caches.",
                [
                    ("bytes", amount, {name: _series(everything, column) for name, column in volume.items()}),
                    ("count", _count, {name: _series(everything, column) for name, column in counts.items()}),
                ],
            )
        )
    )
    head = ("cache", "opens", "requested", "read", "unique", "stored", "part read", "reopened", "reported hit rate", "true hit rate")
    filled = {cache: _series(tables["caches"].dicts(cache=cache), "fill") for cache in _most(measured, "caches", "cache", caches)}
    filled = {cache: points for cache, points in filled.items() if any(value is not None for _, value in points)}
    if filled:
        parts.append(page.image(_picture("Disk filled", "The mean of each day, by cache.", [("filled", share, filled)])))
    rows = [(*_requests(row, "cache"), _rate(row["fill"])) for row in tables["caches"].dicts(day=last)]
    parts.append(page.table(f"The window that ends with {last}", (*head, "disk filled"), rows))

    parts.append(page.heading("Hit rate"))
    rates = {"reported": _series(everything, "reported_hit_rate"), "true": _series(everything, "true_hit_rate")}
    by_cache = {
        cache: _series(tables["caches"].dicts(cache=cache), "true_hit_rate") for cache in _most(measured, "caches", "cache", caches)
    }
    parts.append(
        page.image(
            _picture("Hit rate", "Left: all caches. Right: the true one by cache.", [("all", share, rates), ("true", share, by_cache)])
        )
    )

    parts.append(page.heading("Part of each file that is read"))
    tenths = tables["parts"].dicts(day=last)
    histogram = [sum(row["opens"] for row in tenths if row["tenth"] == tenth) for tenth in range(10)]
    parts.append(
        page.image(
            _picture(
                "Part read",
                f"Left: bytes read of the bytes opened. Right: opens by the part that they read, in the window that ends with {last}.",
                [("part read", share, {"all": _series(everything, "part_read")})],
                bars=("opens", [f"{10 * tenth}" for tenth in range(10)], histogram, "at least so many % of the file"),
            )
        )
    )

    parts.append(page.heading("Block size"))
    lines = [
        (
            *(row["cache"], opens.size_text(row["blk_size"]), f"{row['lives']:,}", amount(row["disk_bytes"])),
            *(amount(row["used_bytes"]), _ratio(row["fetched_per_used"]), row["advice"]),
        )
        for row in tables["blocks"].dicts(day=last)
    ]
    if lines:
        columns = ("cache", "block size", "files brought in", "fetched", "used of it", "fetched per used", "advice")
        parts.append(page.table(f"The window that ends with {last}", columns, lines))
        sizes = sorted({(row["cache"], row["blk_size"]) for row in tables["blocks"].dicts()})
        drawn = {
            f"{cache}, {opens.size_text(size)}": _series(tables["blocks"].dicts(cache=cache, blk_size=size), "fetched_per_used")
            for cache, size in sizes[:_DRAWN]
        }
        parts.append(page.image(_picture("Fetched per used", "Bytes fetched for each that was used.", [("ratio", _ratio, drawn)])))
    else:
        parts.append(page.paragraphs(["No file was brought onto a disk, or its pfc record has not come."]))

    parts.append(page.heading("Reuse by data tier"))
    tiers = _most(measured, "tiers", "tier", sorted({row["tier"] for row in tables["tiers"].dicts()}))
    reuse = {tier: _series(tables["tiers"].dicts(tier=tier), "reopened") for tier in tiers}
    times = {tier: [(row["day"], row["opens"] / row["unique_files"]) for row in tables["tiers"].dicts(tier=tier)] for tier in tiers}
    parts.append(
        page.image(
            _picture(
                "Reuse by data tier",
                "Left: opens of files that were opened before in the window. Right: opens of each file.",
                [("reopened", share, reuse), ("opens of a file", _ratio, times)],
            )
        )
    )
    head = ("data tier", *head[1:])
    parts.append(page.table(f"The window that ends with {last}", head, [_requests(row, "tier") for row in tables["tiers"].dicts(day=last)]))
    return parts


def _of_jobs(measured: Measured) -> list[str]:
    efficiency, wanted, last = measured.tables["jobs"], measured.tables["workflows"], measured.last
    parts = [page.heading("Jobs that read locally, and remotely")]
    if not efficiency.rows:
        return [*parts, page.paragraphs(["No job has run."])]
    of = {place: efficiency.dicts(input=place) for place in jobs.INPUTS}
    of = {place: rows for place, rows in of.items() if rows}
    hours = {place: [(row["day"], row["wall_ms"] / _HOUR_MS) for row in rows] for place, rows in of.items()}
    processor = {f"{place}, CPU": [(row["day"], row["cpu_ms"] / _HOUR_MS) for row in rows] for place, rows in of.items()}
    rates = {place: _series(rows, "cpu_efficiency") for place, rows in of.items()}
    parts.append(
        page.image(
            _picture(
                "CPU efficiency and time",
                "Left: CPU efficiency. Right: wall time, and CPU time, in hours.",
                [("CPU efficiency", share, rates), ("hours", _count, {**hours, **processor})],
            )
        )
    )
    lines = [
        (
            row["input"],
            f"{row['jobs']:,}",
            _count(row["wall_ms"] / _HOUR_MS),
            _count(row["cpu_ms"] / _HOUR_MS),
            _rate(row["cpu_efficiency"]),
        )
        for row in efficiency.dicts(day=last)
    ]
    head: tuple[str, ...] = ("input", "jobs", "wall time, h", "CPU time, h", "CPU efficiency")
    parts.append(page.table(f"The window that ends with {last}", head, lines))

    parts.append(page.heading("Datasets by the workflows that want them"))
    by = {f"≥{least}": wanted.dicts(at_least=least) for least in jobs.AT_LEAST}
    panels: list[Any] = [
        ("datasets", _count, {name: _series(rows, "datasets") for name, rows in by.items()}),
        ("hits", _count, {name: _series(rows, "hits") for name, rows in by.items()}),
        ("hours", _count, {name: [(row["day"], row["wall_ms"] / _HOUR_MS) for row in rows] for name, rows in by.items()}),
        ("bytes", amount, {name: _series(rows, "input_bytes") for name, rows in by.items()}),
    ]
    caption = (
        "By how many workflows, at least, wanted the dataset: datasets, their hits, wall time of the jobs on them, bytes that those read."
    )
    parts.append(page.image(_picture("Datasets by workflows", caption, panels)))
    lines = [
        (f"≥{row['at_least']}", f"{row['datasets']:,}", f"{row['hits']:,}", _count(row["wall_ms"] / _HOUR_MS), amount(row["input_bytes"]))
        for row in wanted.dicts(day=last)
    ]
    head = ("workflows", "datasets", "hits", "wall time, h", "read")
    parts.append(page.table(f"The window that ends with {last}", head, lines))
    return parts


def _requests(row: dict[str, Any], key: str) -> tuple[str, ...]:
    sizes = (amount(row[name]) for name in ("opened_bytes", "read_bytes", "unique_bytes", "disk_bytes"))
    rates = (_rate(row[name]) for name in ("part_read", "reopened", "reported_hit_rate", "true_hit_rate"))
    return (row[key], f"{row['opens']:,}", *sizes, *rates)


def _most(measured: Measured, table: str, key: str, names: Sequence[str]) -> list[str]:
    """Those that most was read of in the last window."""
    read = {row[key]: row["read_bytes"] for row in measured.tables[table].dicts(day=measured.last)}
    return sorted(names, key=lambda name: (-read.get(name, 0), name))[:_DRAWN]


def _series(rows: Sequence[dict[str, Any]], column: str) -> list[tuple[Any, Any]]:
    return [(row["day"], row[column]) for row in rows]


Panel = tuple[str, Callable[[float], str], dict[str, list[tuple[Any, Any]]]]


def _picture(title: str, caption: str, drawn: Sequence[Panel], bars: tuple[str, list[str], list[int], str] | None = None) -> Picture:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import FuncFormatter

    count = len(drawn) + (bars is not None)
    figure, every = page.panels(count, width=5.2 if count > 1 else 10.4, shared=False)
    for axes, (name, text, series) in zip(every, drawn, strict=False):
        for number, (label, points) in enumerate(series.items()):
            values = [float("nan") if value is None else float(value) for _, value in points]
            marker = "o" if len(points) == 1 else None
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot([day for day, _ in points], values, label=_plain(label), color=colour, marker=marker, linewidth=1.6)
        axes.set_title(name, loc="left")
        locator = AutoDateLocator(minticks=2, maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, text=text: text(value)))
        if len(series) > 1:
            axes.legend(frameon=False, fontsize=8)
    if bars is not None:
        axes = every[len(drawn)]
        axes.bar(bars[1], bars[2], color=_COLOURS[0])
        axes.set_title(bars[0], loc="left")
        axes.set_xlabel(bars[3])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))
    return Picture(title, caption, page.svg(figure))


def _plain(label: str) -> str:
    """A name that somebody else chose, as it is: matplotlib takes dollars for formulas, and hides what begins with an underscore."""
    shown = label if len(label) <= 40 else f"{label[:39]}…"
    return " " + shown.replace("\\", "\\\\").replace("$", r"\$")


def _count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.3g}"


def _rate(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f} %"


def _ratio(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"
