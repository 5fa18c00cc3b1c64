"""`smartcache stats` with real Spark, against brute force over the same rows."""

import csv
import json
import random
import re
import zlib
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.config import load
from smartcache.preprocessing.access import COLUMNS, PARTITIONS, _arrow_schema
from smartcache.preprocessing.stats.measure import ALL, Request, StatsError, measure

pytestmark = pytest.mark.slow

CACHES = ("cache-a.site:1094", "cache-b.site:1094")
TIERS = ("MINIAOD", "NANOAOD", "RAW", "<b>$x_y$")
DAY = timedelta(days=1)
FIRST, DAYS, WIDTH = date(2026, 5, 10), 12, 5
SINCE = FIRST - (WIDTH - 1) * DAY
MORE = f"""
[stats]
window_days = {WIDTH}
days = {DAYS}
tiers = 3
"""


def us(day, seconds=0):
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1e6 + seconds * 1e6)


def opens(seed, count):
    """Rows, and what is to be found out about each: of which life it is, what that fetched, what of it was used."""
    chance = random.Random(seed)
    rows, number = [], 0

    def row(cache, lfn, tier, at_us, **columns):
        nonlocal number
        number += 1
        made = dict.fromkeys(name for name, _ in COLUMNS)
        day = datetime.fromtimestamp(at_us / 1e6, UTC).date()
        made |= {
            "open_id": f"{cache}/1/2/{number}",
            "cache": cache,
            "open_us": at_us,
            "day": day,
            "lfn": lfn,
            "dataset": f"/store/user/{tier}" if tier == "MINIAOD" else f"/store/x/{tier}",
        }
        made |= {"_delivered": 0, "_fetched": 0, "_disk": 0, "_used": None}
        if number % 3:
            made["fill"] = number % 8 / 8 - 0.125  # -1/8: unknown
        rows.append(made | columns)
        return rows[-1]

    for _ in range(count):
        cache, tier = chance.choice(CACHES), chance.choice(TIERS)
        lfn = f"/store/x/{tier}/f{int(chance.paretovariate(0.8)) % 40}"
        size = 1_000_000 + 1000 * (zlib.crc32(lfn.encode()) % 7)
        at_us = us(SINCE - 2 * DAY, chance.randrange((DAYS + WIDTH + 1) * 86_400))
        kind = chance.choice(("life", "life", "bypass", "lost", "trace"))
        read = chance.choice((0, 10_000, 400_000, size, 3 * size))
        if kind == "bypass":
            counts = {"answer": "bypass", "b_hit": 0, "b_miss": 0, "b_bypass": read}
            row(cache, lfn, tier, at_us, size=size, b_read=read, **counts, _delivered=read, _fetched=read)
        elif kind == "lost":
            row(cache, lfn, tier, at_us, size=chance.choice((None, -1, size)), b_read=chance.choice((None, read)))
        elif kind == "trace":
            row(cache, lfn, tier, at_us, size=size, b_read=read)
        else:
            # A file of its own for each life that begins on an empty disk: what the blocks grew by can then be known here.
            lfn = f"{lfn}-{number}"
            blk_size = chance.choice((4096, 131_072, 1_048_576))
            blocks = chance.randrange(1, 8) if blk_size != 4096 else chance.randrange(1, 200)
            disk = min(blocks * blk_size, size)
            counts = {"access_cnt": 1, "blk_size": blk_size, "n_blks_done": blocks, "b_hit": read // 2, "b_miss": read // 3, "b_bypass": 17}
            if chance.random() < 0.3:
                disk = counts["b_todisk"] = disk // 2
            first = row(cache, lfn, tier, at_us, size=size, b_read=read, pfc_id=f"p{number}", **counts, detach_us=at_us + 60_000_000)
            first |= {"_delivered": read, "_fetched": disk + 17, "_disk": disk, "_used": min(disk, read)}
            if chance.random() < 0.4:  # another client, while the first has it open
                row(cache, lfn, tier, at_us + 30_000_000, size=size, b_read=5_000, _delivered=5_000)
                first["_used"] = min(disk, read + 5_000)
            if chance.random() < 0.4:  # opened again later, and read further
                more = chance.randrange(0, 3)
                again = {"access_cnt": 2, "blk_size": blk_size, "n_blks_done": blocks + more, "b_hit": 9, "b_miss": 8, "b_bypass": 0}
                later = row(cache, lfn, tier, at_us + 3_600_000_000, size=size, b_read=2_000, pfc_id=f"p{number}b", **again)
                grown = min((blocks + more) * blk_size, size) - min(blocks * blk_size, size)
                later |= {"_delivered": 2_000, "_fetched": grown, "_disk": grown, "detach_us": later["open_us"] + 1}
    return rows


def states(seed, count):
    """States of jobs, several of some."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        days = sorted(chance.randrange(DAYS + WIDTH + 2) for _ in range(chance.choice((1, 1, 2))))
        for place, at in enumerate(days):
            day = SINCE - 2 * DAY + at * DAY
            wall = chance.choice((None, 0.0, 3600.0, 7200.5))
            state = {
                "record_id": f"job/{number}/{place}",
                "job_id": f"{number}",
                "record_us": us(day, place + 1),
                "recv_us": us(day),
                "site": "T2",
            }
            state |= {
                "workflow": chance.choice((None, "w1", "w2", "w3", "w4")),
                "dataset": chance.choice((None, *(f"/d{n}" for n in range(12)))),
            }
            state |= {"wall_s": wall, "cpu_s": chance.choice((None, 3000.0, 9000.25)), "cores": chance.choice((None, 1, 4)), "day": day}
            state |= {"b_input": chance.choice((None, 10**9, 5)), "input_local": chance.choice((True, False, None))}
            rows.append(state)
        if number % 10 == 0:
            rows.append(dict(rows[-1]))  # a record that came twice
    return rows


def write(folder, rows, partitions, schema):
    """As the stream writes it, in several files a partition."""
    names, listed = [name for name in schema.names if name not in partitions], ["v1"]
    random.Random(1).shuffle(rows)
    groups = defaultdict(list)
    for number, row in enumerate(rows):
        groups[*(row[name] for name in partitions), number % 2].append(row)
    for (*values, part), group in groups.items():
        where = folder.joinpath(*(f"{name}={quote(str(value), safe='')}" for name, value in zip(partitions, values, strict=True)))
        where.mkdir(parents=True, exist_ok=True)
        file = where / f"part-{part}.parquet"
        columns = {name: [row.get(name) for row in group] for name in names}
        pq.write_table(pa.table(columns, schema=pa.schema([schema.field(name) for name in names])), file)
        uri = file.as_uri().replace("file:///", "file:/")
        facts = {"size": file.stat().st_size, "isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1}
        listed.append(json.dumps({"path": uri, **facts, "action": "add"}))
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata/0").write_text("\n".join(listed))


JOB_COLUMNS = pa.schema(
    [(name, pa.string()) for name in ("record_id", "job_id", "site", "workflow", "dataset")]
    + [(name, pa.int64()) for name in ("record_us", "recv_us", "b_input", "cores")]
    + [("wall_s", pa.float64()), ("cpu_s", pa.float64()), ("input_local", pa.bool_()), ("day", pa.date32())]
)


@pytest.fixture(scope="module")
def site(tmp_path_factory, write_config):
    folder = tmp_path_factory.mktemp("site")
    config = write_config(folder, more=MORE)
    accesses, jobs = opens(4, 700), states(5, 400)
    write(folder / "access", accesses, PARTITIONS, _arrow_schema())
    write(folder / "jobs", jobs, ("day",), JOB_COLUMNS)
    return folder, config, accesses, jobs


@pytest.fixture(scope="module")
def measured(site, spark):
    return measure(spark, load(site[1]), Request(FIRST, FIRST + (DAYS - 1) * DAY))


def window(rows, day):
    return [row for row in rows if day - (WIDTH - 1) * DAY <= row["day"] <= day]


def report_days():
    return [FIRST + number * DAY for number in range(DAYS)]


def expected_requests(rows):
    sized = [row for row in rows if (row["size"] or 0) > 0 and row["b_read"] is not None]
    counted = [row for row in rows if row["b_hit"] is not None]
    files = {}
    for row in rows:  # the size by day; the last day's counts
        key = row["cache"], row["lfn"]
        size = max(row["size"] or 0, 0)
        day, known = files.get(key, (row["day"], 0))
        files[key] = (row["day"], size) if row["day"] > day else (day, max(known, size)) if row["day"] == day else (day, known)
    return {
        "opens": len(rows),
        "opened_bytes": sum(max(row["size"] or 0, 0) for row in rows),
        "read_bytes": sum(row["b_read"] or 0 for row in rows),
        "sized_bytes": sum(row["size"] for row in sized),
        "sized_read_bytes": sum(min(row["size"], row["b_read"]) for row in sized),
        "hit_bytes": sum(row["b_hit"] for row in counted),
        "counted_bytes": sum(row["b_hit"] + row["b_miss"] + row["b_bypass"] for row in counted),
        "delivered_bytes": sum(row["_delivered"] for row in rows),
        "fetched_bytes": sum(row["_fetched"] for row in rows),
        "disk_bytes": sum(row["_disk"] for row in rows),
        "unique_files": len(files),
        "unique_bytes": sum(size for _, size in files.values()),
    }


def test_requests_by_cache(site, measured):
    rows = site[2]
    for day in report_days():
        for cache in (ALL, *CACHES):
            own = [row for row in window(rows, day) if cache in (ALL, row["cache"])]
            (got,) = measured.tables["caches"].dicts(day=day, cache=cache)
            wanted = expected_requests(own)
            assert {name: got[name] for name in wanted} == wanted
            assert got["true_hit_rate"] == pytest.approx(1 - wanted["fetched_bytes"] / wanted["delivered_bytes"])
            assert got["reported_hit_rate"] == pytest.approx(wanted["hit_bytes"] / wanted["counted_bytes"])
            assert got["reopened"] == pytest.approx(1 - wanted["unique_files"] / wanted["opens"])
            assert got["part_read"] == pytest.approx(wanted["sized_read_bytes"] / wanted["sized_bytes"])
            fills = [row["fill"] for row in own if row["day"] == day and row["fill"] is not None and row["fill"] >= 0 and cache != ALL]
            assert got["fill"] == (pytest.approx(sum(fills) / len(fills), abs=1e-6) if fills else None)


def tier_of(row):
    """Of what is below a user's path nothing is shown."""
    return "user" if row["dataset"].startswith("/store/user/") else row["dataset"].rpartition("/")[2]


def test_requests_by_tier(site, measured):
    rows = [row for row in site[2] if SINCE <= row["day"] < FIRST + DAYS * DAY]
    read = Counter()
    for row in rows:
        read[tier_of(row)] += row["b_read"] or 0
    named = {name for name, _ in read.most_common(3)}
    assert "user" in named
    assert {row["tier"] for row in measured.tables["tiers"].dicts()} == named | {"other"}
    for day in report_days():
        for tier in (*named, "other"):
            of = [row for row in window(rows, day) if (tier_of(row) if tier_of(row) in named else "other") == tier]
            (got,) = measured.tables["tiers"].dicts(day=day, tier=tier)
            wanted = expected_requests(of)
            assert {name: got[name] for name in wanted} == wanted


def test_part_of_the_files(site, measured):
    for day in report_days():
        wanted = Counter()
        for row in window(site[2], day):
            if (row["size"] or 0) > 0 and row["b_read"] is not None:
                wanted[row["cache"], min(int(min(row["b_read"], row["size"]) / row["size"] * 10), 9)] += 1
        assert {(row["cache"], row["tenth"]): row["opens"] for row in measured.tables["parts"].dicts(day=day)} == wanted


def test_blocks(site, measured):
    for day in report_days():
        wanted = defaultdict(lambda: [0, 0, 0])
        for row in window(site[2], day):
            if row["_used"] is not None:
                sums = wanted[row["cache"], row["blk_size"]]
                for place, value in enumerate((1, row["_disk"], row["_used"])):
                    sums[place] += value
        got = measured.tables["blocks"].dicts(day=day)
        assert {(row["cache"], row["blk_size"]): [row["lives"], row["disk_bytes"], row["used_bytes"]] for row in got} == wanted
        for row in got:
            wasteful = "pfc.prefetch 0" if row["blk_size"] == 4096 else "try smaller"
            assert row["advice"].startswith(wasteful if row["disk_bytes"] > 1.25 * row["used_bytes"] else "keep")


def newest(states):
    last = {}
    for state in states:
        if state["job_id"] not in last or last[state["job_id"]]["record_us"] < state["record_us"]:
            last[state["job_id"]] = state
    return [state for state in last.values() if state["wall_s"]]


def test_jobs(site, measured):
    places = {True: "local", False: "remote", None: "unknown"}
    for day in report_days():
        wanted = defaultdict(lambda: [0, 0, 0, 0])
        for job in window(newest(site[3]), day):
            timed = job["cpu_s"] is not None
            wall = round(job["wall_s"] * 1000)
            for place, value in enumerate(
                (1, wall, round(job["cpu_s"] * 1000) if timed else 0, wall * (job["cores"] or 1) if timed else 0)
            ):
                wanted[places[job["input_local"]]][place] += value
        got = {row["input"]: row for row in measured.tables["jobs"].dicts(day=day)}
        assert {place: [row[name] for name in ("jobs", "wall_ms", "cpu_ms", "core_ms")] for place, row in got.items()} == wanted
        assert got["local"]["cpu_efficiency"] == pytest.approx(wanted["local"][2] / wanted["local"][3])


def test_datasets_by_workflows(site, measured):
    for day in report_days():
        wanting, wall, read = defaultdict(set), Counter(), Counter()
        for job in window(newest(site[3]), day):
            if job["dataset"] and job["workflow"]:
                wanting[job["dataset"]].add(job["workflow"])
                wall[job["dataset"]] += round(job["wall_s"] * 1000)
                read[job["dataset"]] += job["b_input"] or 0
        for least in (1, 2, 3):
            own = [name for name, workflows in wanting.items() if len(workflows) >= least]
            (got,) = measured.tables["workflows"].dicts(day=day, at_least=least)
            wanted = (len(own), sum(len(wanting[name]) for name in own), sum(wall[name] for name in own), sum(read[name] for name in own))
            assert tuple(got[name] for name in ("datasets", "hits", "wall_ms", "input_bytes")) == wanted


def test_one_cache_and_hostile_numbers(site, spark, tmp_path, write_config):
    """Amounts that overflow anything, sizes of blocks that are none: the sums hold, and are bounded."""
    config = write_config(tmp_path, more=MORE)
    rows = opens(6, 20)
    most = 2**63 - 1
    for number in range(30):
        hostile = dict.fromkeys(name for name, _ in COLUMNS)
        hostile |= {
            "open_id": f"h{number}",
            "cache": CACHES[0],
            "open_us": us(FIRST),
            "day": FIRST,
            "lfn": f"/h{number % 3}",
            "dataset": "",
            "size": most,
            "fill": float("nan") if number % 2 else 1e30,
        }
        hostile |= {
            "b_read": most,
            "b_hit": most,
            "b_miss": most,
            "b_bypass": most,
            "pfc_id": f"h{number}",
            "blk_size": most,
            "n_blks_done": most,
        }
        rows.append(hostile | {"access_cnt": -most, "detach_us": most, "b_todisk": None if number % 2 else most})
    write(tmp_path / "access", rows, PARTITIONS, _arrow_schema())
    found = measure(spark, load(config), Request(FIRST, FIRST, (CACHES[0],)))
    (row,) = found.tables["caches"].dicts(cache=CACHES[0])
    assert row["opened_bytes"] > 30 * (10**18 - 1) - 1
    assert 0.9 < row["fill"] <= 1
    assert not found.tables["caches"].dicts(cache=CACHES[1])
    assert found.missing == (f"no jobs table ({tmp_path}/jobs)",)
    with pytest.raises(StatsError, match="neither an open nor a job from"):
        measure(spark, load(config), Request(FIRST + 400 * DAY, FIRST + 401 * DAY))
    with pytest.raises(StatsError, match="an earlier --from"):
        measure(spark, load(config), Request(FIRST + DAY, FIRST))


def test_command(site, measured, tmp_path, command):
    _, config, *_ = site
    command(config, "stats", "--output", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.html", *(f"{name}.{end}" for name in measured.tables for end in ("parquet", "csv"))}
    rows = pq.read_table(tmp_path / "out/caches.parquet").to_pylist()
    last = max(row["day"] for row in rows)
    assert last == max(row["day"] for row in (*site[2], *site[3]))
    same = [row for row in rows if row["day"] == FIRST + (DAYS - 1) * DAY]
    assert same == measured.tables["caches"].dicts(day=FIRST + (DAYS - 1) * DAY)
    with (tmp_path / "out/workflows.csv").open() as file:
        assert next(csv.reader(file)) == [name for name, _ in measured.tables["workflows"].columns]
    text = (tmp_path / "out/report.html").read_text()
    assert "<b>$x" not in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert text.count("<img") >= 8
    assert "disk filled" in text

    wrong = command(config, "stats", "--output", tmp_path / "out", "--from", "yesterday", status=2)
    assert wrong.stderr.strip() == "--from: 'yesterday' is no day; write 2026-05-01"
