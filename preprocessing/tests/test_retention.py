"""`smartcache retain` beside a running stream, and killed in its middle."""

import json
import os
import shutil
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from smartcache.preprocessing.access import access_schema, read_access_table
from smartcache.preprocessing.retention import ORPHAN_MS, retain
from smartcache.preprocessing.storage import Hadoop, Local, Status
from smartcache.preprocessing.table import TableError, change, listing, read
from smartcache.preprocessing.table_cli import _say, register

pytestmark = pytest.mark.slow

ONE, TWO = "cache-a.site:1094", "cache-b.site:1094"


def an_open(cache, at, number):
    us = round(at.timestamp() * 1e6)
    record = {
        "record_id": f"{cache}/1/2/{number}",
        "cache": cache,
        "lfn": f"/store/mc/f{number}.root",
        "recv_us": time.time_ns() // 1000,
        "size": 7,
        "b_read": number,
    }
    return "open", record | {"open_lo_us": us, "open_hi_us": us, "close_lo_us": us + 10**6, "close_hi_us": us + 10**6}


def days(run):
    return dict(Counter((row["cache"], row["day"]) for row in run.rows().to_pylist()))


def test_days_are_forgotten_while_the_stream_runs(topics, run, spark, command):
    start, names = run
    # The first moment of today: a broker takes no message of the future.
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    ages = (400, 31, 30, 1, 0)
    at = {age: today - timedelta(days=age) for age in ages}
    records = [an_open(cache, at[age], 10 * age + copy) for cache in (ONE, TWO) for age in ages for copy in range(3)]
    topics.send(names, records)
    for age in ages:
        topics.send(names, [("open", b"not json")], at_s=at[age].timestamp())
    # Spark puts its own list together each tenth batch; here each third.
    stream = start("site", options='"spark.sql.streaming.fileSink.log.compactInterval" = "3"').ready()
    stream.wait(stream.has_rows(len(records)), "done with all opens")
    stream.wait(lambda: len(stream.quarantined()) == len(ages), "done with the quarantine")
    before, files = days(stream), data_files(stream)
    assert before == {(cache, at[age].date()): 3 for cache in (ONE, TWO) for age in ages}

    access, now_ms = str(stream.folder / "access"), round(today.timestamp() * 1000)
    told = retain(spark, access, at[30].date().__gt__, (), now_ms, dry_run=True)
    assert [(each.cache, each.day, each.rows) for each in told] == [(cache, at[age].date(), 3) for cache in (ONE, TWO) for age in (400, 31)]
    assert days(stream) == before
    assert data_files(stream) == files

    assert [each.rows for each in retain(spark, access, at[30].date().__gt__, (ONE,), now_ms)] == [3, 3]
    assert days(stream) == {key: count for key, count in before.items() if key[0] == TWO or key[1] >= at[30].date()}

    # An old trace is imported: a file of the table like any other, until the next run.
    late = [an_open(ONE, at[400], 9_000), an_open(ONE, at[0], 9_001)]
    topics.send(names, late)
    stream.wait(stream.has_rows(len(records) - 6 + 2), "done with the late opens")
    assert days(stream)[ONE, at[400].date()] == 1

    said = command(stream.config, "retain", "--keep-days", str((datetime.now(UTC).date() - at[30].date()).days)).stdout
    assert f"access table: {TWO} {at[31].date()}: deleted 3 rows" in said
    assert f"access table: deleted 7 rows before {at[30].date()}" in said
    assert "quarantine: deleted 2 rows" in said
    left = {key: count + (key == (ONE, at[0].date())) for key, count in before.items() if key[1] >= at[30].date()}
    assert days(stream) == left
    assert len(stream.quarantined()) == 3
    assert {day_of(path) for path in data_files(stream)} == {at[age].date() for age in (30, 1, 0)}
    assert retain(spark, access, at[30].date().__gt__, (), now_ms) == []

    # A day by its name, of one cache.
    said = command(stream.config, "retain", "--day", f"{at[1]:%Y-%m-%d}", "--cache", TWO).stdout
    assert f"access table: deleted 3 rows of {at[1].date()} in " in said
    assert left.pop((TWO, at[1].date())) == 3
    assert days(stream) == left
    assert len(stream.quarantined()) == 3, "what is by no cache stays"

    # The stream goes on, over a compaction of Spark's list, and Spark sees the same rows.
    compacted, more = newest_compaction(stream), 0
    while newest_compaction(stream) == compacted:
        topics.send(names, [an_open(TWO, at[0], 9_100 + more)])
        more += 1
        stream.wait(stream.has_rows(sum(left.values()) + more), f"done with late open {more}")
    stream.stop()
    assert len(seen(spark, stream.folder / "access")) == sum(left.values()) + more


@pytest.mark.parametrize("options", [(), ("--keep-days", "3", "--day", "2026-01-01")], ids=["neither", "both"])
def test_which_days_must_be_said(options):
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, ["retain", *options])
    assert done.exit_code == 2
    assert "--keep-days N" in done.output
    assert "--day YYYY-MM-DD" in done.output


def newest_compaction(run):
    return max((int(path.stem) for path in (run.folder / "access/_spark_metadata").glob("*.compact")), default=-1)


def data_files(run):
    return sorted(path for table in ("access", "quarantine") for path in (run.folder / table).rglob("*.parquet"))


def day_of(path):
    return date.fromisoformat(path.parent.name.partition("=")[2])


NOW_MS = 2_000_000_000_000
OLD, NEW = date(2026, 1, 1), date(2026, 3, 1)


@pytest.fixture
def table(spark, table_on_disk):
    """Where Spark is needed."""
    return table_on_disk


@pytest.fixture
def table_on_disk(tmp_path):
    """Two days of three files each, in Spark's list, and one of each in no list."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root, lines = tmp_path / "a table", ["v1"]
    for day in (OLD, NEW):
        folder = root / f"cache=a.site%3A1094/day={day}"
        folder.mkdir(parents=True)
        for number in range(4):
            file = folder / f"part-{number}.parquet"
            pq.write_table(pa.table({"open_id": [f"{day}/{number}"], "open_us": pa.array([number], pa.int64())}), file)
            if number < 3:
                uri = file.as_uri().replace("file:///", "file:/")
                lines.append(
                    json.dumps({"path": uri, "size": 1, "isDir": False, "modificationTime": 1, "blockReplication": 1, "action": "add"})
                )
    (root / "_spark_metadata").mkdir()
    (root / "_spark_metadata/0").write_text("\n".join(lines))
    return root


def seen(spark, table):
    """What is in the table, by Spark and without: the same."""
    with_spark = sorted(row["open_id"] for row in read(spark, str(table), access_schema()).select("open_id").collect())
    assert with_spark == sorted(read_access_table(table, ["open_id"])["open_id"].to_pylist())
    return with_spark


def test_killed_while_it_deletes(spark, table, monkeypatch):
    left = [f"{NEW}/{number}" for number in range(3)]

    def dies(self, path, **_):
        assert path.endswith("part-1.parquet") is False, "killed"
        return real(self, path)

    real = Hadoop.delete
    monkeypatch.setattr(Hadoop, "delete", dies)
    with pytest.raises(AssertionError, match="killed"):
        retain(spark, str(table), NEW.__gt__, (), NOW_MS)
    assert seen(spark, table) == left
    monkeypatch.undo()
    (again,) = retain(spark, str(table), NEW.__gt__, (), NOW_MS)
    assert (again.rows, again.files, len(again.strays)) == (0, [], 3)
    assert seen(spark, table) == left
    assert not list((table / f"cache=a.site%3A1094/day={OLD}").glob("*.parquet"))


def test_young_file_in_no_list_is_the_streams(spark, table, capsys):
    young = table / f"cache=a.site%3A1094/day={OLD}/part-3.parquet"
    now_ms = round(young.stat().st_mtime * 1000) + ORPHAN_MS - 10_000
    (gone,) = retain(spark, str(table), NEW.__gt__, (), now_ms)
    assert (gone.rows, gone.strays, gone.young) == (3, [], 1)
    assert young.exists()
    _say("access table", [gone], "of a day", "deleted")
    assert f"{OLD}: 1 files in no list are younger than a day and stay" in capsys.readouterr().out
    (gone,) = retain(spark, str(table), NEW.__gt__, (), now_ms + 20_000)
    assert (gone.rows, len(gone.strays)) == (0, 1)
    assert not young.exists()


def test_two_commands_at_once(spark, table):
    files, before = Hadoop(spark), listing(Local(), str(table))
    change(files, str(table), before, before.files[:4], {})
    with pytest.raises(TableError, match="another command has changed it"):
        change(files, str(table), before, before.files[:2], {})
    assert listing(files, str(table)).files == before.files[:4]


class OnDisk(Local):
    """What changing a table asks of a file system, on the local disk and without Spark."""

    def __init__(self, spark):
        assert spark is None

    def statuses(self, folder):
        found = [(path, path.stat()) for path in Path(folder).iterdir()]
        return [Status(path.name, path.is_dir(), facts.st_size, round(facts.st_mtime * 1000)) for path, facts in found]

    def delete(self, path, *, folder=False):
        shutil.rmtree(path) if folder else Path(path).unlink()
        return True


def test_copies_that_a_killed_compaction_left_go_too(table_on_disk, monkeypatch):
    """They may be of a forgotten day. One that is younger may be running."""
    monkeypatch.setattr("smartcache.preprocessing.storage.Hadoop", OnDisk)
    for name, age_ms in (("killed", ORPHAN_MS + 10_000), ("running", ORPHAN_MS - 10_000)):
        where = table_on_disk / "_compacting" / name / "3-0"
        where.mkdir(parents=True)
        (where / "part-0.parquet").write_bytes(b"rows")
        os.utime(where.parent, ns=((NOW_MS - age_ms) * 1_000_000,) * 2)
    before = listing(Local(), str(table_on_disk))
    assert retain(None, str(table_on_disk), OLD.__gt__, (), NOW_MS, dry_run=True) == []
    assert len(list((table_on_disk / "_compacting").iterdir())) == 2
    assert retain(None, str(table_on_disk), OLD.__gt__, (), NOW_MS) == []
    assert [path.name for path in (table_on_disk / "_compacting").iterdir()] == ["running"]
    assert listing(Local(), str(table_on_disk)) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"format": 1, "covers": 7, "last": "x", "files": [], "replaced": {}}', "begun anew"),
        ('{"format": 2}', "newer smartcache"),
        ('{"format": 1, "covers": 0, "last": "", "files": ["../../etc/passwd"], "replaced": {}}', "not a list of files"),
        ('{"format": 1, "covers": -1, "last": "", "files": [], "replaced": {}}', "not a list of files"),
        ("[]", "not a list of files"),
        ("", "not a list of files"),
    ],
)
def test_list_that_cannot_be(table, text, says):
    (table / "_files").mkdir()
    (table / "_files/00000001.json").write_text(text)
    with pytest.raises(TableError, match=says):
        listing(Local(), str(table))
