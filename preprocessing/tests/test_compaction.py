"""`smartcache compact`: the rows stay as they are, to the last bit, beside a running stream and killed in its middle."""

import contextlib
import itertools
import json
import math
import struct
import threading
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.preprocessing import compaction
from smartcache.preprocessing.access import access_schema, read_access_table
from smartcache.preprocessing.compaction import Plan, compact
from smartcache.preprocessing.retention import ORPHAN_MS, retain
from smartcache.preprocessing.storage import Hadoop, Local
from smartcache.preprocessing.table import TableError, change, listing, read

pytestmark = pytest.mark.slow

CACHE = "cache-a.site:1094"
NOW_MS, DAY_MS = 2_000_000_000_000, 86_400_000
OLD, NEW = date(2026, 1, 1), date(2026, 3, 1)
PLAN = Plan(NEW, 1 << 20, DAY_MS, NOW_MS)


def bits(value):
    """A value as itself, a float by its bits: -0.0 is not 0.0 here, and a NaN is one."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def rows_of(table):
    """What a reader sees, in no order, to the last bit."""
    return Counter(tuple(map(bits, row.values())) for row in read_access_table(table).to_pylist())


FLOATS = (0.0, -0.0, math.nan, math.inf, 5e-324, 0.1, None)


@pytest.fixture
def table(tmp_path):
    """Two days of eight files each, in Spark's list, of which some have fewer columns; and one of each in no list."""
    root, lines = tmp_path / "a table", ["v1"]
    for day in (OLD, NEW):
        folder = root / f"cache=cache-a.site%3A1094/day={day}"
        folder.mkdir(parents=True)
        for number in range(9):
            file = folder / f"part-{number}.parquet"
            count = 40
            columns = {
                "open_id": [f"{day}/{number}/{row}" for row in range(count)],
                "open_us": pa.array([(7 * row + number) % count for row in range(count)], pa.int64()),
                "score": pa.array([FLOATS[row % len(FLOATS)] for row in range(count)], pa.float64()),
                "fill": pa.array([FLOATS[(row + 3) % len(FLOATS)] for row in range(count)], pa.float32()),
                "lfn": ["/a", "", None, "/\u00e4 | b"] * (count // 4),
            }
            if number % 3:
                columns["on_disk"] = [True, None] * (count // 2)
            pq.write_table(pa.table(columns), file)
            if number < 8:
                uri = file.as_uri().replace("file:///", "file:/")
                facts = {"size": file.stat().st_size, "isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1}
                lines.append(json.dumps({"path": uri, **facts, "action": "add"}))
    (root / "_spark_metadata").mkdir()
    (root / "_spark_metadata/0").write_text("\n".join(lines))
    return root


def files_on_disk(table, day):
    return sorted((table / f"cache=cache-a.site%3A1094/day={day}").glob("*.parquet"))


def test_rows_stay_and_files_become_one(spark, table):
    before, reader = rows_of(table), read(spark, str(table), access_schema())
    done = compact(spark, str(table), PLAN)
    assert (done.partitions, done.files_before, done.files_after, done.rows) == (1, 8, 1, 320)
    assert done.deleted == 1, "the stray, which no killed batch is writing any more"
    assert rows_of(table) == before
    assert sum(before.values()) == 640
    with_spark = Counter(tuple(map(bits, row)) for row in read(spark, str(table), access_schema()).collect())
    assert with_spark == Counter(tuple(map(bits, row)) for row in reader.collect()), "who began to read before reads on"
    days = Counter(name.split("/")[1] for name in listing(Local(), str(table)).files)
    assert days == {f"day={OLD}": 1, f"day={NEW}": 8}

    # Again: there is nothing to do, until the old files' time is over.
    again = compact(spark, str(table), PLAN)
    assert (again.partitions, again.deleted) == (0, 0)
    assert len(files_on_disk(table, OLD)) == 9
    later = compact(spark, str(table), Plan(NEW, 1 << 20, DAY_MS, NOW_MS + DAY_MS))
    assert later.deleted == 8
    assert len(files_on_disk(table, OLD)) == 1
    assert rows_of(table) == before
    assert not listing(Local(), str(table)).replaced
    assert len(files_on_disk(table, NEW)) == 9, "what is not finished is left alone"


def test_several_files_of_about_the_wanted_size(spark, table):
    before = rows_of(table)
    size = sum(path.stat().st_size for path in files_on_disk(table, OLD)[:8])
    done = compact(spark, str(table), Plan(NEW, size // 3, DAY_MS, NOW_MS))
    assert done.files_before == 8
    assert 2 <= done.files_after <= 4
    assert rows_of(table) == before


class Killed(BaseException):
    """Nothing catches it on the way: as `kill -9` it ends what is being done."""


@pytest.mark.parametrize(("name", "at"), [("move", 1), ("write_new", 1), ("delete", 1), ("delete", 2)])
def test_killed_in_the_middle(spark, table, monkeypatch, name, at):
    """While it moves files into place, before the list is written, and after."""
    before, real, calls = rows_of(table), getattr(Hadoop, name), []

    def dies(self, *arguments, **options):
        calls.append(arguments)
        if len(calls) >= at:
            raise Killed
        return real(self, *arguments, **options)

    monkeypatch.setattr(Hadoop, name, dies)
    plan = Plan(NEW, 1 << 20, 0, NOW_MS) if name == "delete" else PLAN
    with pytest.raises(Killed):
        compact(spark, str(table), plan)
    assert rows_of(table) == before
    monkeypatch.undo()
    assert rows_of(table) == before
    compact(spark, str(table), Plan(NEW, 1 << 20, 0, NOW_MS))
    compact(spark, str(table), Plan(NEW, 1 << 20, 0, NOW_MS))
    assert rows_of(table) == before
    left = files_on_disk(table, OLD)
    assert len([path for path in left if path.stat().st_mtime * 1000 < NOW_MS - ORPHAN_MS]) <= 1
    assert not list((table / "_compacting").glob("*/*")) or name in ("move", "write_new")


def test_what_is_read_back_must_be_the_same(spark, table, monkeypatch):
    before, lists = rows_of(table), listing(Local(), str(table))
    real, seen = compaction._digest, []

    def another(rows):
        count, digest = real(rows)
        seen.append(count)
        return (count, digest) if len(seen) % 2 else (count, digest + 1)

    monkeypatch.setattr(compaction, "_digest", another)
    with pytest.raises(TableError, match="nothing was changed"):
        compact(spark, str(table), PLAN)
    assert listing(Local(), str(table)) == lists
    assert rows_of(table) == before


def test_digest_tells_what_is_not_the_same_apart(spark):
    def digest(*rows):
        columns = [
            pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), (pa.float64(), pa.string(), pa.binary()), strict=True)
        ]
        return compaction._digest(spark.createDataFrame(pa.table(columns, names=["a", "b", "c"])))

    rows = [(0.0, "x", b"1"), (None, "y", None)]
    assert digest(*rows) == digest(*reversed(rows))
    others = [(-0.0, "x", b"1"), (None, "x", b"1"), (0.0, None, b"1"), (0.0, "", b"1"), (0.0, "x", b"\xff"), (0.0, "x|", b"1")]
    assert len({digest(each, rows[1]) for each in (rows[0], *others)}) == 1 + len(others)


def test_another_command_between(spark, table, monkeypatch):
    """What another has put into the list meanwhile is not lost."""
    before, real = rows_of(table), compaction._rewrite

    def meanwhile(*arguments):
        now = listing(Local(), str(table))
        change(Hadoop(spark), str(table), now, now.files, {})
        return real(*arguments)

    monkeypatch.setattr(compaction, "_rewrite", meanwhile)
    with pytest.raises(TableError, match="another command has changed it"):
        compact(spark, str(table), PLAN)
    assert rows_of(table) == before


def test_forgotten_days_take_replaced_files_with_them(spark, table):
    compact(spark, str(table), PLAN)
    retain(spark, str(table), NEW.__gt__, (), NOW_MS)
    assert not files_on_disk(table, OLD)
    assert {name.split("/")[1] for name in listing(Local(), str(table)).files} == {f"day={NEW}"}


def test_the_stream_compacts_by_itself(topics, run, spark, command):
    """Beside its batches, which take two messages each; killed in the middle of it, too; and then the command."""
    start, names = run
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)
    often = "max_records_per_batch = 2\n[compaction]\nstream_every_s = 1.0\n"
    stream, sent = start("site", often).ready(), 0
    table = str(stream.folder / "access")

    def send(count):
        nonlocal sent
        records = []
        for number in range(sent, sent + count):
            us = round(noon.timestamp() * 1e6) + number
            record = {"record_id": f"{CACHE}/1/2/{number}", "cache": CACHE, "lfn": f"/f{number % 5}", "size": 7, "b_read": number}
            times = {"open_lo_us": us, "open_hi_us": us, "close_lo_us": us + 1, "close_hi_us": us + 1, "recv_us": time.time_ns() // 1000}
            records.append(("open", record | times))
        topics.send(names, records)
        sent += count

    stop, wrong = threading.Event(), []

    def watch():
        """A reader that looks all the time: rows never go away, and none is there twice."""
        most = 0
        while not stop.is_set():
            rows = stream.rows()
            ids = [] if rows is None else rows["open_id"].to_pylist()
            if len(set(ids)) != len(ids) or len(ids) < most:
                wrong.append((most, len(ids), len(set(ids))))
            most = max(most, len(ids))
            stop.wait(0.02)  # and leaves the stream something of the machine

    def compacting():
        with contextlib.suppress(FileNotFoundError):  # what was listed is done meanwhile
            return any((stream.folder / "access/_compacting").glob("*/*"))
        return False

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        while stream.metrics().get("compacted_files_total", 0) < 4:
            send(4)
            stream.wait(stream.has_rows(sent), f"done with {sent} opens")
        send(6)
        stream.wait(compacting, "compacting")
        stream.process.kill()
        stream.start().ready()
        send(3)
        stream.wait(stream.has_rows(sent), f"done with {sent} opens")
        stream.wait(lambda: stream.metrics().get("compacted_files_total", 0) > 0, "compacting again")
    finally:
        stop.set()
        watcher.join()
    assert not wrong
    assert stream.metrics()["compaction_failures_total"] == 0
    assert max(messages_by_batch(stream)) == 2, "no batch takes more"
    stream.stop()
    command(stream.config, "compact")
    assert len(listing(Local(), table).files) == 1
    assert {row["b_read"] for row in stream.rows().to_pylist()} == set(range(sent))
    assert stream.rows().num_rows == sent == len(read(spark, table, access_schema()).collect())


def messages_by_batch(run):
    """How many messages each batch of the access query has taken, by what Spark wrote down of where it began and ended."""
    ends = []
    for path in sorted((run.folder / "checkpoint/access/offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        offsets = json.loads(path.read_text().splitlines()[2])
        ends.append(sum(at for partitions in offsets.values() for at in partitions.values()))
    return [end - before for before, end in itertools.pairwise([0, *ends])]
