"""libCacheSim's policies as ours are called."""

import sys
import threading

import numpy as np
import pytest

from smartcache.training.simulate import peers, policies
from smartcache.training.simulate.compare import Plan, compare
from smartcache.training.simulate.policies import COUNTERS, CorePolicy, Requests
from smartcache.training.simulate.pool import SimulationError


@pytest.fixture
def requests():
    """Of 400 files, sizes of one size each; the largest is over 4 GB."""
    random = np.random.default_rng(1)
    chosen = np.minimum(random.zipf(1.2, 5000), 400)
    _, objects = np.unique(chosen, return_inverse=True)
    sizes = (objects * 37 % 97 + 1) * 50_000_000
    return Requests(objects.astype(np.uint32), sizes.astype(np.int64), np.arange(5000.0), np.zeros(400, np.uint32))


@pytest.mark.parametrize(
    ("ours", "theirs"), [("lru", "lcs:LRU"), ("fifo", "lcs:fifo"), ("s3-fifo", "lcs:s3-fifo"), ("belady", "lcs:belady")]
)
def test_counts_are_those_of_our_own(requests, ours, theirs):
    mine = CorePolicy(ours).simulate(requests, 200 * 10**9, 7).windows
    found = policies.resolve(theirs).simulate(requests, 200 * 10**9, 7).windows
    # Which of those goes first that are never requested again is open.
    compared = [name for name in COUNTERS if ours != "belady" or "deleted" not in name]
    assert {name: found[name] for name in compared} == {name: mine[name] for name in compared}


def test_files_of_no_bytes(requests):
    empty = Requests(requests.objects, requests.sizes * (requests.objects % 3 > 0), requests.times, requests.groups)
    windows = peers.resolve("lcs:lru").simulate(empty, 10**12, 1).windows
    assert windows["requests"] == [5000]
    assert windows["bytes"] == [int(empty.sizes.sum())]
    assert windows["objects_deleted"] == [0]


def test_all_have_a_name_and_the_others_are_told():
    assert {"arc", "twoq", "cacheus", "lecar", "mq"} <= set(peers.names())
    assert not set(peers.names()) & {"cachebase", "plugincache"}
    with pytest.raises(policies.UnknownPolicy, match="did you mean lcs:lecar"):
        policies.resolve("lcs:leca")
    with pytest.raises(policies.UnknownPolicy, match="one of arc, belady"):
        policies.resolve("lcs:")


def test_without_the_package_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "libcachesim", None)
    with pytest.raises(policies.UnknownPolicy, match=r"needs libCacheSim .*pip install 'smartcache\[peers\]'"):
        policies.resolve("lcs:lru")


def test_one_that_fails_is_named(zipf):
    plan = Plan(["lcs:lrb"], [0.1], [], 2, 0.0, 1, False)
    with pytest.raises(SimulationError, match=r"zipf, lcs:lrb, .*libCacheSim 0"):
        compare([zipf(200)], plan, None, "the command", threading.Event(), lambda _: None)


def test_in_a_comparison(zipf):
    plan = Plan(["lru", "lcs:lru", "lcs:cacheus"], [0.1], [], 4, 0.0, 1, False)
    done = compare([zipf(3000)], plan, None, "the command", threading.Event(), lambda _: None)
    ours, theirs, cacheus = done.figures
    assert (ours.object_miss, ours.wan_bytes, ours.bytes_deleted) == (theirs.object_miss, theirs.wan_bytes, theirs.bytes_deleted)
    assert 0 < cacheus.byte_miss < 1
    assert "libcachesim" in theirs.rules
