"""A comparison for people: what stands in its tables and remarks, and all of it as one HTML file that needs no network."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean

from smartcache import page
from smartcache.page import amount, share

from . import ablation, plots
from .compare import Comparison, Facts
from .figures import Figures
from .policies import BOUND, FLOOR
from .rules import XCACHE
from .seeds import Mean

REPORT = "report.html"
HEAD = (
    "policy",
    "object miss",
    "byte miss",
    "gap closed",
    "WAN",
    "written",
    "deleted",
    "throughput",
    "cost",
    "origin",
    "of link",
    "wait, s",
    "CPU eff.",
    "decisions/s",
    "training, s",
)
MEANINGS = (
    "object miss: requests whose file was not in the cache, of all; byte miss: the same weighted by size",
    f"gap closed: how much of the difference in bytes missed between {FLOOR} (0 %) and {BOUND} (100 %) a policy saves; below 0 it misses "
    f"more than {FLOOR}. {BOUND} removes what is requested again last, the best there is for files of one size: more than 100 % can be",
    "WAN: bytes that had to be fetched; written: bytes stored in the cache; deleted: bytes that were removed to make room",
    "throughput: (bytes read on hits - bytes written) / cache size; cost: (bytes written + bytes deleted) / cache size",
    "origin: bytes a second from there, on average; of link: the same over what the link carries; wait: mean seconds that a byte waits "
    "for it, where what is fetched faster than it carries is queued (a fluid queue, fed evenly within each window of a trace)",
    "CPU eff.: CPU time over wall time of the readers, by what INFN measured through a warm cache, a cold one and past it, with equal CPU "
    "time for each byte read; the wait for the link is not in it",
    "decisions/s: requests of the whole simulation a second, with others running beside it; training: seconds spent on learning",
)
ABLATION_NOTES = (
    "Shares of the gap in bytes missed between LRU and Belady, means over all cells (cache sizes of traces) with all of these runs; after "
    "± half of the 95 % interval of the mean over the cells, which are not independent of each other. Kinds say the same in part: what is "
    "lost without one is less than what it closes alone, and the losses do not add up.",
    "Without a kind the model sees those features as unknown, in training too. The first table judges the whole policy, where simple rules "
    "take over where the model is worse; the second judges the cache that does what the model says. What the policies here miss at each "
    "size is in summary.csv.",
)
_NONE = "-"
#: How the rows of the two bounds look.
_CLASSES = {FLOOR: "floor", BOUND: "bound"}


def by_size(comparison: Comparison, trace: str) -> list[tuple[str, list[Mean]]]:
    """For each cache size of a trace a title and its runs, those that miss the fewest bytes first."""
    own = [mean for mean in comparison.means if mean.line.trace == trace]
    groups = groupby(own, key=lambda mean: (mean.line.cache_fraction, mean.line.capacity_bytes))
    return [
        (
            f"cache of {share(fraction)} of the unique bytes, {amount(capacity)}",
            sorted(means, key=lambda mean: (mean.line.wan_bytes, mean.line.requests)),
        )
        for (fraction, capacity), means in groups
    ]


def cells(mean: Mean) -> tuple[str, ...]:
    """A policy as a row under :data:`HEAD`; what several seeds differ in, with half its 95 % interval."""
    line, half = mean.line, mean.half
    return (
        line.policy,
        _fixed(line.object_miss, half.get("object_miss")),
        _fixed(line.byte_miss, half.get("byte_miss")),
        _percent(line.gap_closed, half.get("gap_closed")),
        amount(line.wan_bytes),
        amount(line.bytes_written),
        amount(line.bytes_deleted),
        f"{line.throughput:.2f}",
        f"{line.cost:.2f}",
        _NONE if line.origin_bytes_per_s is None else f"{amount(line.origin_bytes_per_s)}/s",
        _NONE if line.origin_share is None else f"{100 * line.origin_share:.1f} %",
        _NONE if line.origin_wait_s is None else f"{line.origin_wait_s:.3g}",
        _fixed(line.cpu_efficiency, half.get("cpu_efficiency")),
        f"{line.requests_per_s:,.0f}",
        f"{line.training_s:.1f}",
    )


def described(facts: Facts) -> str:
    """A trace in a sentence."""
    resized = f"; {facts.resized} files change their size, and count with the largest" if facts.resized else ""
    return (
        f"{facts.name}: {facts.requests:,} requests of {facts.files:,} files over {_span(facts.seconds)}; "
        f"{amount(facts.requested_bytes)} requested, {amount(facts.unique_bytes)} unique{resized}"
    )


def remarks(comparison: Comparison) -> list[str]:
    """How the figures came about, and what they do not say."""
    said = []
    warmed = {facts.warm_requests > 0 for facts in comparison.traces}
    if warmed == {False}:
        said.append("Every cache was empty at the beginning, and all requests are judged: first requests are misses for every policy.")
    else:
        said.append(
            f"Every cache was empty at the beginning. The first {share(comparison.plan.warm)} of the requests of each trace (as whole "
            "windows) warmed it and are not judged: every policy saw the same ones, by the same rules, and is judged on the same rest."
        )
    said.append(f"No policy knows what is still to come, but {BOUND}, which is the bound. {_rules_of(comparison)}")
    site = comparison.plan.site
    if site.origin_bytes_per_s:
        said.append(f"The link to the origin carries {amount(site.origin_bytes_per_s)}/s.")
    if any(mean.seeds > 1 for mean in comparison.means):
        said.append(
            f"Policies that are random were run with {comparison.plan.seeds} seeds: the figures are means, after ± is half of the mean's "
            "95 % interval (Student's t). It says what chance does within a policy, and nothing of other traces."
        )
    if any(line.gap_closed is None for line in comparison.figures):
        said.append(f"Where no gap is shown, {FLOOR} or {BOUND} was not among the policies, or {BOUND} missed no fewer bytes than {FLOOR}.")
    return said


def _rules_of(comparison: Comparison) -> str:
    rules = comparison.plan.rules
    if rules.name != XCACHE:
        return "Each fetches, and stores, whole files."
    return (
        f"The rules are XCache's: admission at open; blocks of {rules.block_bytes} bytes, fetched as far as a file is read, which is from "
        f"its beginning, as a trace does not say where; each {rules.purge_interval_s:g} s a purge by last access from "
        f"{share(rules.purge_high)} to {share(rules.purge_low)} of the cache ({BOUND}: by next open); a full disk stores no more."
    )


def overall(comparison: Comparison) -> list[tuple[str, ...]]:
    """For each policy over all traces and sizes: gap closed, bytes missed (mean, worst, best) and written against LRU."""
    cells_of: defaultdict[tuple[str, int], dict[str, Figures]] = defaultdict(dict)
    lines = [mean.line for mean in comparison.means]
    for line in lines:
        cells_of[line.trace, line.capacity_bytes][line.policy] = line
    rows: list[tuple[float, tuple[str, ...]]] = []
    for policy in comparison.plan.policies:
        gaps = [line.gap_closed for line in lines if line.policy == policy and line.gap_closed is not None]
        pairs = [(cell[policy], cell[FLOOR]) for cell in cells_of.values() if policy in cell and FLOOR in cell]
        missed = [own.wan_bytes / floor.wan_bytes - 1 for own, floor in pairs if floor.wan_bytes]
        written = [own.bytes_written / floor.bytes_written for own, floor in pairs if floor.bytes_written]
        if not missed:
            continue
        mean_gap = fmean(gaps) if gaps else float("-inf")
        row = (
            policy,
            f"{100 * mean_gap:.1f} %" if gaps else _NONE,
            f"{100 * fmean(missed):+.2f} %",
            f"{100 * max(missed):+.2f} %",
            f"{100 * min(missed):+.2f} %",
            f"{fmean(written):.2f}" if written else _NONE,
            str(len(missed)),
        )
        rows.append((-mean_gap, row))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


ABLATION_HEAD = ("kind of features", "all kinds", "without it", "lost without it", "only it", "cells")


def ablations(comparison: Comparison) -> list[tuple[str, list[tuple[str, ...]]]]:
    """What each kind of feature closes of the gap, as tables with titles; none where no such runs are there."""
    worths = ablation.worths(comparison.means)
    tables: list[tuple[str, list[tuple[str, ...]]]] = []
    for alone, judged in ((False, "the portfolio that follows the model"), (True, "the model's own cache")):
        rows: list[tuple[str, ...]] = [
            (
                worth.kind,
                _percent(worth.all_kinds, None),
                _percent(worth.without, None),
                _percent(worth.lost, worth.lost_half if worth.cells > 1 else None),
                _percent(worth.only, None),
                str(worth.cells),
            )
            for worth in worths
            if worth.alone == alone
        ]
        if rows:
            tables.append((f"{ablation.TITLE}: {judged}", rows))
    return tables


def write(comparison: Comparison, folder: Path) -> Path:
    """Write the report into ``folder``, with the plots inside it: it can be mailed or archived as one file. Returns its path."""
    path = folder / REPORT
    path.write_text(_page(comparison), encoding="utf-8")
    return path


def _fixed(value: float | None, half: float | None = None) -> str:
    return _NONE if value is None else f"{value:.4f}" + (f" ± {half:.4f}" if half is not None else "")


def _percent(value: float | None, half: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f}" + (f" ± {100 * half:.1f}" if half is not None else "") + " %"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _page(comparison: Comparison) -> str:
    title = f"Cache policies on {len(comparison.traces)} {'trace' if len(comparison.traces) == 1 else 'traces'}"
    parts = [page.paragraphs(remarks(comparison))]
    if len(comparison.traces) > 1:
        parts.append(page.contents(facts.name for facts in comparison.traces))
    summary = [row for row in overall(comparison) if not (ablations(comparison) and ablation.is_variant(row[0]))]
    if summary:
        head = (
            "policy",
            "gap closed, mean",
            f"bytes missed against {FLOOR}, mean",
            "worst",
            "best",
            f"bytes written / {FLOOR}, mean",
            "cells",
        )
        parts.append(page.table("All traces and sizes", head, summary, _CLASSES))
        note = "A cell is one cache size of one trace; those of one trace are not independent of each other."
        parts.append(page.paragraphs([note], small=True))
    tables = ablations(comparison)
    if tables:
        parts.append(page.heading(ablation.TITLE))
        parts.append(page.image(plots.ablation(ablation.worths(comparison.means))))
        parts += [page.table(name, ABLATION_HEAD, rows) for name, rows in tables]
        parts.append(page.paragraphs(ABLATION_NOTES, small=True))
        # They have been shown; in the tables and plots of each trace they would hide the others.
        comparison = replace(comparison, figures=[line for line in comparison.figures if not ablation.is_variant(line.policy)])
    for facts in comparison.traces:
        parts += _trace(comparison, facts)
    parts.append(page.heading("What the columns mean"))
    parts.append(page.paragraphs(f"{meaning}." for meaning in MEANINGS))
    created = sorted({line.created for line in comparison.figures})
    kept = f" · {comparison.kept} results of earlier commands" if comparison.kept else ""
    span = f"smartcache {comparison.version} · simulated {created[0]} to {created[-1]}{kept}"
    return page.document(title, parts, [span, comparison.command])


def _trace(comparison: Comparison, facts: Facts) -> list[str]:
    own = [mean for mean in comparison.means if mean.line.trace == facts.name]
    windows = [line for line in comparison.windows if line.trace == facts.name]
    first = own[0].line
    judged = facts.requests - facts.warm_requests
    parts = [
        page.heading(facts.name),
        page.paragraphs([described(facts) + "."]),
        page.paragraphs(
            [f"Digest {facts.digest}; judged on the last {judged:,} requests, the last {_span(first.window_to_s - first.window_from_s)}."],
            small=True,
        ),
    ]
    pictures = (*plots.against_size(own), *plots.over_time(own, windows, comparison.plan.site.origin_bytes_per_s))
    parts += [page.image(picture) for picture in pictures]
    for title, means in by_size(comparison, facts.name):
        parts.append(page.table(title[0].upper() + title[1:], HEAD, [cells(mean) for mean in means], _CLASSES))
    return parts
