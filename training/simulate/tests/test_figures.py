"""The figures, against counts whose figures are known."""

import dataclasses

import pytest

from smartcache.training.simulate import figures, report
from smartcache.training.simulate.policies import COUNTERS, FETCHED, Outcome, completed
from smartcache.training.simulate.store import Result, Run
from smartcache.training.simulate.trace import read


@pytest.fixture
def trace(write):
    return read(write(["/a", "/b", "/a", "/b"], [10, 30, 10, 30], [0.0, 1.0, 2.0, 4.0]))


def result(trace, policy, *counts):
    """Of two windows, in the order of COUNTERS."""
    run = Run(trace.name, trace.digest, policy, 0.5, 20, 2, "1", "object")
    windows = {name: list(pair) for name, pair in zip(COUNTERS, zip(*counts, strict=True), strict=True)}
    return Result(run, completed(Outcome(windows, 0.5)).windows, 0.5, 0.25, "cmd", "now")


def test_figures_of_the_whole_trace(trace):
    (line,) = figures.judge(trace, [result(trace, "fifo", (2, 0, 40, 0, 10, 0, 0), (2, 1, 40, 10, 5, 7, 1))], 0.0)
    assert (line.requests, line.object_miss, line.byte_miss) == (4, 0.75, 70 / 80)
    assert (line.wan_bytes, line.bytes_written, line.bytes_deleted, line.objects_deleted) == (70, 15, 7, 1)
    assert line.throughput == (10 - 15) / 20
    assert line.cost == (15 + 7) / 20
    assert line.gap_closed is None
    assert (line.requests_per_s, line.training_s, line.warm_requests) == (8.0, 0.25, 0)
    assert (line.window_from_s, line.window_to_s, line.trace_digest) == (0.0, 4.0, trace.digest)


def test_what_is_fetched_to_fill_blocks_is_wan_and_no_miss(trace):
    counts = result(trace, "fifo", (2, 0, 40, 0, 10, 0, 0), (2, 1, 40, 10, 5, 7, 1))
    counts.counts[FETCHED] = [50, 32]
    (line,) = figures.judge(trace, [counts], 0.0)
    assert (line.byte_miss, line.wan_bytes) == (70 / 80, 82)


def test_what_warmed_the_cache_is_not_judged(trace):
    (line,) = figures.judge(trace, [result(trace, "fifo", (2, 0, 40, 0, 10, 0, 0), (2, 1, 40, 10, 5, 7, 1))], 0.5)
    assert (line.requests, line.object_miss, line.byte_miss, line.warm_requests) == (2, 0.5, 0.75, 2)
    assert (line.bytes_written, line.window_from_s) == (5, 2.0)


def test_the_gap_is_between_lru_and_belady(trace):
    none = (2, 0, 40, 0, 0, 0, 0)
    runs = [
        result(trace, "lru", none, (2, 0, 40, 10, 0, 0, 0)),
        result(trace, "gdsf", none, (2, 0, 40, 15, 0, 0, 0)),
        result(trace, "fifo", none, (2, 0, 40, 5, 0, 0, 0)),
        result(trace, "belady", none, (2, 0, 40, 30, 0, 0, 0)),
    ]
    assert [line.gap_closed for line in figures.judge(trace, runs, 0.0)] == [0.0, 0.25, -0.25, 1.0]


def test_no_gap_where_the_bound_is_no_better(trace):
    runs = [result(trace, name, *2 * [(2, 0, 40, 0, 0, 0, 0)]) for name in ("lru", "belady")]
    assert [line.gap_closed for line in figures.judge(trace, runs, 0.0)] == [None, None]


def test_no_miss_where_nothing_was_asked_for(trace):
    (line,) = figures.judge(trace, [result(trace, "lru", *2 * [(2, 2, 0, 0, 0, 0, 0)])], 0.0)
    assert (line.object_miss, line.byte_miss) == (0.0, None)


@pytest.mark.parametrize(("windows", "warm", "first"), [(50, 0.6, 30), (50, 0.0, 0), (3, 0.6, 2), (1, 0.9, 0), (10, 0.99, 9)])
def test_warm_is_whole_windows_and_leaves_one(windows, warm, first):
    assert figures.warm_windows(windows, warm) == first


def test_windows_have_their_times(trace):
    lines = figures.by_window(trace, result(trace, "lru", (2, 0, 40, 0, 0, 0, 0), (2, 1, 40, 10, 0, 0, 0)), 0.5)
    assert [(line.from_s, line.to_s, line.judged) for line in lines] == [(0.0, 1.0, False), (2.0, 4.0, True)]


def test_all_columns_have_a_meaning_for_parquet():
    from smartcache.training.simulate import tables

    for kind in (figures.Figures, figures.Window):
        assert {str(field.type) for field in dataclasses.fields(kind)} <= set(tables._TYPES)
    assert set(tables.SUMMARY_COLUMNS) <= set(figures.COLUMNS)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (1500, "1.5 kB"), (-2e9, "-2 GB"), (5e20, "500 EB")]
)
def test_amounts(count, text):
    assert report.amount(count) == text
