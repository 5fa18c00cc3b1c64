"""The dataset side table against brute force, and what becomes of it when something fails."""

import contextlib
import hashlib
import json
import os
import random
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.config import ConfigError, parse
from smartcache.preprocessing import popularity
from smartcache.preprocessing.access import COLUMNS, _arrow_schema, access_schema
from smartcache.preprocessing.popularity import SideTableError, by_dataset, publish, write

NOW_US = 1_790_000_000_000_000
WINDOWS = (3600.0, 86_400.0, 864_000.0)


def opens(seed=1, count=500):
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        at = NOW_US - round(chance.choice((1e9, 3e10, 5e11, 1.2e12, -5e9)) * chance.random())
        row = dict.fromkeys(name for name, _ in COLUMNS)
        row |= {"open_id": str(number), "open_us": at, "day": datetime.fromtimestamp(at / 1e6, UTC).date(), "cache": chance.choice("ab")}
        dataset = chance.choice(("/store/a", "/store/b", '/store/\u00e4"\n', "", None, "/" + "x" * 2000, "/store/user/alice/skim"))
        row |= {"dataset": dataset, "lfn": f"{dataset}/{chance.randrange(20)}", "size": chance.choice((None, -1, 0, 1000))}
        rows.append(row | {"b_read": chance.choice((None, 0, 300, 5000))})
    return rows


def expected(rows):
    found = {}
    groups = defaultdict(list)
    for row in rows:
        if NOW_US - WINDOWS[-1] * 1e6 < row["open_us"] <= NOW_US and row["dataset"] is not None:
            groups[row["dataset"]].append(row)
    for dataset, own in groups.items():
        inside = [[row for row in own if row["open_us"] > NOW_US - window * 1e6] for window in WINDOWS]
        sized = [row for row in own if (row["size"] or 0) > 0 and row["b_read"] is not None]
        found[dataset] = {
            "dataset": dataset,
            "opens": [len(each) for each in inside],
            "read_bytes": [sum(row["b_read"] or 0 for row in each) for each in inside],
            "files": len({row["lfn"] for row in own}),
            "caches": len({row["cache"] for row in own}),
            "reopened": 1 - len({(row["cache"], row["lfn"]) for row in own}) / len(own),
            "part_read": sum(min(row["size"], row["b_read"]) for row in sized) / sum(row["size"] for row in sized) if sized else None,
            "last_open_us": max(row["open_us"] for row in own),
        }
    return found


def config_with(**values):
    return parse({"side_table": {"windows_s": list(WINDOWS), **values}}, "test")


@pytest.fixture
def published(spark, monkeypatch, tmp_path):
    rows = opens()
    pq.write_table(pa.Table.from_pylist(rows, _arrow_schema()), tmp_path / "opens.parquet")
    frame = spark.read.schema(access_schema()).parquet(str(tmp_path / "opens.parquet"))
    monkeypatch.setattr(popularity, "read", lambda *_: frame)
    return rows, lambda name="side.json", now_us=NOW_US, **values: publish(spark, config_with(**values), tmp_path / name, now_us)


@pytest.mark.slow
def test_figures(published):
    rows, make = published
    made = make()
    head, found = popularity.load(made.path)
    wanted = {name: each for name, each in expected(rows).items() if 1 <= len(name) <= 1024 and "alice" not in name}
    assert made.datasets == len(wanted) == len(found)
    assert [each["dataset"] for each in found] == sorted(wanted, key=str.encode)
    for each in found:
        shares = ("reopened", "part_read")
        same = {name: value for name, value in wanted[each["dataset"]].items() if name not in shares}
        assert {name: value for name, value in each.items() if name not in shares} == same
        assert [each[name] for name in shares] == pytest.approx([wanted[each["dataset"]][name] for name in shares])
    assert head == {
        "format": 1,
        "kind": "smartcache-datasets",
        "version": NOW_US,
        "until_us": NOW_US,
        "windows_s": list(WINDOWS),
        "left_out": 3,
    }


@pytest.mark.slow
def test_most_opened_and_rising_version(published):
    rows, make = published
    make()
    made = make(now_us=NOW_US - 5, datasets=1)
    head, (only,) = popularity.load(made.path)
    wanted = {name: each for name, each in expected(rows).items() if 1 <= len(name) <= 1024 and "alice" not in name}
    assert only["opens"][-1] == max(each["opens"][-1] for each in wanted.values())
    assert head["version"] == NOW_US + 1, "the clock was set back; the version is not"
    assert head["left_out"] == 5


@pytest.mark.slow
def test_refreshed_by_the_stream(topics, run, tmp_path):
    start, names = run
    place = tmp_path / "published" / "side.json"
    stream = start("site", f'[side_table]\nfile = "{place}"\nrefresh_s = 1.0\n')

    def send(number):
        us = time.time_ns() // 1000
        record = {"record_id": f"c:1/1/2/{number}", "cache": "c:1", "lfn": "/store/mc/C/P/T/f.root", "recv_us": us, "size": 10, "b_read": 5}
        topics.send(names, [("open", record | {"open_lo_us": us, "open_hi_us": us, "close_lo_us": us, "close_hi_us": us})])

    def has(opens):
        return lambda: place.exists() and [each["opens"] for each in popularity.load(place)[1]] == [[opens] * 3]

    send(1)
    stream.wait(has(1), "published")
    first = popularity.load(place)[0]["version"]
    send(2)
    stream.wait(has(2), "published anew")
    assert popularity.load(place)[0]["version"] > first
    stream.wait(lambda: stream.metrics().get("side_table_datasets") == 1, "counted")
    # A folder where the file is to go: the refresh fails, the stream does not.
    while not place.is_dir():
        place.unlink()
        with contextlib.suppress(FileExistsError):  # published just now
            place.mkdir()
    stream.wait(lambda: stream.metrics().get("side_table_failures_total", 0) > 0, "counted as failed")
    place.rmdir()
    send(3)
    stream.wait(has(3), "published again")
    stream.stop()


HEAD = {"format": 1, "kind": "smartcache-datasets", "version": 7, "until_us": 7, "windows_s": [1.0], "left_out": 0}


def test_failure_leaves_what_was_there(tmp_path, monkeypatch):
    place = tmp_path / "side.json"
    write(place, HEAD, [{"dataset": "a"}])
    before = place.read_bytes()

    def rows():
        yield {"dataset": "b"}
        raise RuntimeError("Spark went away")

    with pytest.raises(RuntimeError, match="went away"):
        write(place, HEAD, rows())

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(place, HEAD, [])
    assert place.read_bytes() == before
    assert list(tmp_path.iterdir()) == [place]


def test_forced_to_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    place, done = tmp_path / "side.json", []
    real_sync, real_replace = os.fsync, type(place).replace
    monkeypatch.setattr(os, "fsync", lambda number: (done.append(Path(f"/proc/self/fd/{number}").readlink()), real_sync(number)))
    monkeypatch.setattr(type(place), "replace", lambda self, to: (done.append("rename"), real_replace(self, to))[1])
    write(place, HEAD, [])
    assert [done[0].parent, *done[1:]] == [tmp_path, "rename", tmp_path]


def test_every_cut_and_every_changed_byte_is_seen(tmp_path):
    place = tmp_path / "side.json"
    write(place, HEAD, [{"dataset": "a", "opens": [1]}, {"dataset": "b", "opens": [2]}])
    assert popularity.load(place)[0] == HEAD
    whole = place.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert json.loads(lines[-1]) == {"rows": 2, "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    for length in range(len(whole) - 1):  # the last byte is the newline
        place.write_bytes(whole[:length])
        with pytest.raises(SideTableError):
            popularity.load(place)
    for at in range(sum(map(len, lines[:-1]))):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SideTableError):
            popularity.load(place)
    write(place, HEAD | {"format": 2}, [])
    with pytest.raises(SideTableError, match="format 2"):
        popularity.load(place)


def test_windows_must_rise():
    with pytest.raises(ConfigError, match="windows_s must rise strictly"):
        parse({"side_table": {"windows_s": [2.0, 1.0]}}, "test")


@pytest.mark.slow
def test_by_dataset_of_nothing(spark):
    assert by_dataset(spark.createDataFrame([], access_schema()), WINDOWS, NOW_US).collect() == []
