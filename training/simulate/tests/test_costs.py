"""The link to the origin and CPU efficiency, against cases that can be worked out by hand."""

import pytest

from smartcache.training.simulate.costs import Site, cpu_efficiency, link
from smartcache.training.simulate.figures import Window


def windows(*given):
    """Of (from, to, fetched, judged)."""
    return [
        Window("t", 0.1, "lru", 1, number, begin, end, judged, 1, 0, fetched, 0, 0, 0, 0, fetched)
        for number, (begin, end, fetched, judged) in enumerate(given)
    ]


def test_below_the_bound_nobody_waits():
    found = link(windows((0, 9, 500, True), (10, 20, 300, True)), 100)
    assert (found.bytes_per_s, found.share, found.wait_s) == (40, 0.4, 0)


def test_what_comes_faster_waits():
    # 200 bytes/s for 10 s over a link of 100: the queue grows to 1000, and is gone 10 s later.
    found = link(windows((0, 9, 2000, True), (10, 30, 0, True)), 100)
    assert found.wait_s == pytest.approx((1000 * 10 / 2 + 1000 * 10 / 2) / 2000)
    assert found.share == pytest.approx(2000 / 30 / 100)


def test_the_end_of_the_trace_does_not_end_the_wait():
    found = link(windows((0, 10, 2000, True)), 100)
    assert found.wait_s == pytest.approx((1000 * 10 / 2 + 1000 * 10 / 2) / 2000)


def test_what_the_unjudged_part_left_in_the_queue_counts():
    found = link(windows((0, 9, 2000, False), (10, 20, 500, True)), 100)
    # From 1000 to 500 in ten seconds, and gone in five.
    assert found.wait_s == pytest.approx((750 * 10 + 500 * 5 / 2) / 500)
    assert found.bytes_per_s == 50


def test_all_at_one_moment():
    found = link(windows((5, 5, 2000, True)), 100)
    assert (found.bytes_per_s, found.share, found.wait_s) == (None, None, None)
    found = link(windows((5, 5, 2000, True), (5, 25, 0, True)), 100)
    assert found.wait_s == pytest.approx(2000 * 20 / 2 / 2000)


def test_no_bound_and_no_windows():
    assert (link(windows((0, 10, 50, True)), 0).bytes_per_s, link(windows((0, 10, 50, True)), 0).wait_s) == (5, None)
    assert link([], 100).bytes_per_s is None
    assert link(windows((0, 10, 0, True)), 100).wait_s == 0


def counts(total, hit, written, fetched):
    return {"bytes": total, "hit_bytes": hit, "written_bytes": written, "fetched_bytes": fetched}


def test_cpu_efficiency_is_cpu_time_over_wall_time():
    site = Site(0, 0.92, 0.87, 0.78)
    assert cpu_efficiency(counts(100, 100, 0, 0), site) == pytest.approx(0.92)
    assert cpu_efficiency(counts(100, 0, 100, 100), site) == pytest.approx(0.87)
    assert cpu_efficiency(counts(100, 0, 0, 100), site) == pytest.approx(0.78)
    # 50 s of CPU take 50 / 0.92, 30 take 30 / 0.87, 20 take 20 / 0.78.
    assert cpu_efficiency(counts(100, 50, 30, 50), site) == pytest.approx(100 / (50 / 0.92 + 30 / 0.87 + 20 / 0.78))
    # What fills blocks is fetched and stored, and nobody reads it.
    assert cpu_efficiency(counts(100, 0, 128, 128), site) == pytest.approx(0.87)
    assert cpu_efficiency(counts(0, 0, 0, 0), site) is None
