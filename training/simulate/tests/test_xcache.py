"""XCache's own rules, with the core that the plugin decides by."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.config import load
from smartcache.inference.tests.tables import bundle
from smartcache.traces import SourceError
from smartcache.training.simulate import policies, xcache
from smartcache.training.simulate.compare import Plan, compare
from smartcache.training.simulate.rules import Rules
from smartcache.training.simulate.trace import read

ALL, NOTHING = (0.8, 0.1, 0.1), (0.1, 0.1, 0.8)


def settings(tmp_path, text=""):
    path = tmp_path / "site.toml"
    path.write_text(text)
    return load(path)


def trace(tmp_path, rows, name="t.parquet"):
    """Of (seconds, file, size, bytes read)."""
    moments, names, sizes, reads = zip(*rows, strict=True)
    columns = {"t": pa.array(moments, pa.float64()), "lfn": names, "size": sizes, "bytes_read": pa.array(reads, pa.int64())}
    pq.write_table(pa.table(columns), tmp_path / name)
    return tmp_path / name


def run(path, config, capacity, *names, windows=1):
    plan = Plan(list(names), [], [capacity], windows, 0.0, 1, False, Rules.of("xcache", config))
    done = compare([path], plan, None, "the command", threading.Event(), lambda _: None)
    return {line.policy: line for line in done.figures}, done


def test_an_xcache_fetches_blocks_and_purges_between_its_marks(tmp_path):
    config = settings(tmp_path, "[simulate]\nblock_bytes = 1000\npurge_high = 0.9\npurge_low = 0.5\npurge_interval_s = 60.0\n")
    rows = [
        (0, "/a/1", 10_000, 1500),  # two blocks
        (1, "/a/1", 10_000, 2000),  # a hit
        (2, "/a/2", 10_000, None),  # not known: all of it
        (3, "/a/3", 6_000, 6000),  # 18000 of 19000: over the mark, but nobody looks
        (59, "/a/1", 10_000, 1000),  # a hit
        (61, "/a/3", 6_000, 6000),  # before it a purge: /a/2, used least lately, goes
        (62, "/a/2", 10_000, 500),  # so this is a miss, of one block
    ]
    figures, _ = run(trace(tmp_path, rows), config, 19_000, "lru", "belady")
    lru = figures["lru"]
    assert (lru.requests, lru.object_miss) == (7, pytest.approx(4 / 7))
    assert lru.bytes_requested == 1500 + 2000 + 10_000 + 6000 + 1000 + 6000 + 500
    assert lru.byte_miss == pytest.approx((1500 + 10_000 + 6000 + 500) / lru.bytes_requested)
    assert lru.wan_bytes == lru.bytes_written == 2000 + 10_000 + 6000 + 1000
    assert lru.bytes_deleted == 10_000
    assert (lru.gap_closed, lru.rules[:6]) == (0 if figures["belady"].wan_bytes < lru.wan_bytes else None, "xcache")


def test_the_bound_keeps_what_is_opened_soon(tmp_path):
    config = settings(tmp_path, "[simulate]\npurge_high = 0.9\npurge_low = 0.5\npurge_interval_s = 10.0\n")
    rows = [(0, "/a/again", 400, None), (1, "/a/never", 550, None), (12, "/a/new", 10, None), (13, "/a/again", 400, None)]
    figures, _ = run(trace(tmp_path, rows), config, 1000, "lru", "belady")
    assert figures["lru"].object_miss == 1
    assert figures["belady"].object_miss == 0.75
    assert figures["belady"].gap_closed == 1


def test_the_nth_open_stores_and_the_plugins_fallback_keeps_its_rules(tmp_path):
    rows = [(moment, "/store/user/1" if moment % 2 else "/store/mc/1", 100, None) for moment in range(8)]
    path = trace(tmp_path, rows)
    config = settings(tmp_path, '[policy]\nnever_admit = ["/store/user/"]\n')
    figures, _ = run(path, config, 10_000, "lru", "uses2+lru", "uses3+lru", "fallback")
    assert [figures[name].object_miss * 8 for name in ("lru", "uses2+lru", "uses3+lru", "fallback")] == [2, 4, 6, 5]
    assert figures["fallback"].bytes_written == 100
    config = settings(tmp_path, '[policy]\nfallback = "bypass"\n')
    assert run(path, config, 10_000, "fallback")[0]["fallback"].bytes_written == 0


def test_windows_add_up(zipf, tmp_path):
    one, _ = run(zipf(3000), settings(tmp_path), 50_000, "lru")
    many, done = run(zipf(3000), settings(tmp_path), 50_000, "lru", windows=7)
    assert one["lru"].wan_bytes == many["lru"].wan_bytes > 0
    assert len(done.windows) == 7
    assert sum(window.fetched_bytes for window in done.windows) == one["lru"].wan_bytes


def test_a_model_by_its_bundle_decides(zipf, tmp_path):
    config = settings(tmp_path)
    folder = bundle(tmp_path / "all", config, ALL).folder
    name, refuses = f"model:{folder}", f"model:{bundle(tmp_path / 'nothing', config, NOTHING).folder}"
    figures, _ = run(zipf(3000), config, 50_000, name, refuses, "lru")
    assert figures[refuses].bytes_written == 0
    assert figures[refuses].byte_miss == 1
    assert 0 < figures[name].byte_miss < 1
    # Its evictor is there before pfc: between other marks, and not by last access.
    assert figures[name].wan_bytes != figures["lru"].wan_bytes
    before = xcache.key(name, Rules.of("xcache", config))
    (folder / "weights.json").write_text((folder / "weights.json").read_text() + " ")
    assert xcache.key(name, Rules.of("xcache", config)) != before


@pytest.mark.parametrize(
    ("name", "said"),
    [("gdsf", "under --rules xcache; known are lru"), ("uses1+lru", "known are"), ("model:/nowhere", "/nowhere")],
)
def test_what_is_no_policy_of_an_xcache(tmp_path, name, said):
    with pytest.raises(policies.UnknownPolicy, match=said):
        policies.resolve(name, Rules.of("xcache", settings(tmp_path)))


def test_other_settings_are_other_results(tmp_path):
    keys = {
        policies.key("lru", Rules()),
        policies.key("lru", Rules.of("xcache", settings(tmp_path))),
        policies.key("lru", Rules.of("xcache", settings(tmp_path, "[simulate]\nblock_bytes = 4096\n"))),
    }
    assert len(keys) == 3


def test_next_times():
    objects, t_us = np.array([0, 1, 0, 2, 1, 0], np.uint32), np.array([1, 2, 3, 4, 5, 6])
    never = np.iinfo(np.int64).max
    assert xcache.next_times(objects, t_us).tolist() == [3, 5, 6, never, never, never]
    assert xcache.next_times(objects[:1], t_us[:1]).tolist() == [never]


@pytest.mark.parametrize(
    ("value", "said"), [(-1, "row 2: bytes_read must be an integer of 0 to"), (2**62, f"the largest is {2**62}, row 2")]
)
def test_bytes_read_that_cannot_be(tmp_path, value, said):
    with pytest.raises(SourceError, match=said):
        read(trace(tmp_path, [(0, "/a", 1, None), (1, "/a", 1, value)]))


def test_bytes_read_as_texts_name_their_row(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("t,lfn,size,bytes_read\n0,/a,9,\n1,/a,9,5\n2,/a,9,\n3,/a,9,all\n")
    with pytest.raises(SourceError, match=r"row 4: bytes_read must be an integer of 0 to .*, not 'all'"):
        read(path)


def test_names_reach_the_core_in_the_order_of_their_numbers(tmp_path):
    rows = [(2, "/b/2", 1, 5), (1, "/a/é", 1, None), (3, "/c", 1, 7)]
    found = read(trace(tmp_path, rows), sort=True)
    text = found.name_text.tobytes().decode()
    begins = [0, *found.name_ends[:-1]]
    assert text == "/a/é/b/2/c"
    assert [found.name_text[begin:end].tobytes().decode() for begin, end in zip(begins, found.name_ends, strict=True)] == [
        "/a/é",
        "/b/2",
        "/c",
    ]
    assert found.bytes_read.tolist() == [-1, 5, 7]


def test_a_clock_before_1970_and_one_that_ends(tmp_path):
    rows = [(-5e9, "/a", 10, None), (0, "/a", 10, None), (1e300, "/a", 10, None)]
    figures, _ = run(trace(tmp_path, rows), settings(tmp_path), 1000, "lru", "belady")
    assert figures["lru"].object_miss == figures["belady"].object_miss == pytest.approx(1 / 3)


def test_the_portfolio_keeps_what_lru_does_not(tmp_path):
    """Popular files among many that are read once, at a cache that holds a few of each."""
    draw = np.random.default_rng(1)
    popular = draw.random(12_000) < 0.3
    names = np.where(popular, draw.integers(0, 60, 12_000), 1000 + np.arange(12_000))
    path = trace(tmp_path, [(moment, f"/a/b/{name}", 10, None) for moment, name in enumerate(names)])
    config = settings(tmp_path, "[simulate]\nblock_bytes = 10\npurge_interval_s = 1.0\n[evictor]\nhigh = 0.9\nlow = 0.8\n")
    folder = bundle(tmp_path / "b", config, ALL).folder
    names = ("lru", "portfolio", f"portfolio+model:{folder}", "belady")
    figures, _ = run(path, config, 1500, *names)
    for name in names[1:3]:
        assert figures[name].gap_closed > 0.3
        assert figures[name].bytes_written < 0.9 * figures["lru"].bytes_written
    assert run(path, config, 1500, *names)[0]["portfolio"].byte_miss == figures["portfolio"].byte_miss
