"""Traces that are odd but whole, under both sets of rules: a right answer. What cannot be used at all: ``test_trace.py``."""

import threading

import numpy as np
import pytest

from smartcache.config import load
from smartcache.training.simulate import policies, report
from smartcache.training.simulate.compare import Plan, compare
from smartcache.training.simulate.policies import LEARNED, Rules
from smartcache.training.simulate.rules import NAMES


@pytest.fixture(params=NAMES)
def run(request, tmp_path):
    """All policies of one set of rules but the one that trains, which needs more requests than these."""
    (tmp_path / "site.toml").touch()
    rules = Rules.of(request.param, load(tmp_path / "site.toml"))
    chosen = [name for name in policies.defaults(rules) if name != LEARNED]

    def compared(path, *capacities, windows=3, changes=False):
        plan = Plan(chosen, [], list(capacities), windows, 0.0, 1, False, rules)
        done = compare([path], plan, None, "the command", threading.Event(), lambda _: None)
        for line in done.figures:
            assert 0 <= line.bytes_written <= line.wan_bytes
            # A stored copy whose file grows is larger without having been written, under the rules of the literature.
            assert changes or 0 <= line.bytes_written - line.bytes_deleted <= line.capacity_bytes
            assert sum(window.requests for window in done.windows if window.policy == line.policy) == line.requests * len(capacities)
        # Whatever the figures are, there is something to show.
        assert [report.cells(mean) for mean in done.means]
        return {line.policy: line for line in done.figures}

    return compared


#: Those that try not to store, or store at the second request: they miss more where all fits.
HESITANT = ("scdl", "uses2+lru")


def test_one_object_only(write, run):
    for name, line in run(write(["/a"] * 10), 1000).items():
        assert line.object_miss == pytest.approx(0.1) or name in HESITANT
        assert line.object_miss >= 0.1


def test_nothing_is_used_again(write, run):
    for line in run(write([f"/{number}" for number in range(200)]), 100).values():
        assert (line.object_miss, line.byte_miss, line.wan_bytes) == (1, 1, 2000)
        assert line.gap_closed is None


def test_a_cache_larger_than_everything(write, run):
    for name, line in run(write([f"/{number % 50}" for number in range(500)]), 2**62).items():
        assert (line.object_miss, line.bytes_deleted) == (pytest.approx(0.1), 0) or name in HESITANT


def test_a_cache_smaller_than_every_file(write, run):
    for line in run(write([f"/{number % 5}" for number in range(50)]), 9).values():
        assert (line.object_miss, line.bytes_written, line.bytes_deleted, line.wan_bytes) == (1, 0, 0, 500)


def test_sizes_that_change_at_each_request(write, run):
    random = np.random.default_rng(2)
    files, sizes = random.integers(0, 30, 2000), random.integers(0, 500, 2000)
    lines = run(write([f"/{number}" for number in files], sizes), 2000, changes=True)
    assert {line.bytes_requested for line in lines.values()} == {int(sizes.sum())}


def test_sizes_as_large_as_they_may_be(write, run):
    large = 2**60
    for line in run(write(["/a", "/b", "/a", "/b"][:3], [large, large, large]), 2**61, windows=2).values():
        assert line.bytes_requested == 3 * large


def test_all_at_one_moment(write, run):
    path = write([f"/{number % 20}" for number in range(200)], times=[5.0] * 200)
    for line in run(path, 50).values():
        assert line.requests == 200
        assert (line.origin_bytes_per_s, line.origin_wait_s) == (None, None)
