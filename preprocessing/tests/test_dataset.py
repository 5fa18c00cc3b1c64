"""A training set from a small access table, with real Spark and the real core, against brute force."""

import gzip
import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.config import load, parse
from smartcache.local import paths
from smartcache.preprocessing.access import COLUMNS, _arrow_schema
from smartcache.preprocessing.core import core_toml
from smartcache.preprocessing.dataset import moment_us
from smartcache.preprocessing.popularity import write
from smartcache.preprocessing.side_tables import keep, kept
from smartcache.preprocessing.table import partition_of

DECIDED, PLAIN = "cache-a.site:1094", "cache-b.site:1094"
T0_US = 1_790_000_000_000_000
#: Versions of the side table; the second one is not kept any more.
TABLES = (T0_US - 5, T0_US - 4, T0_US - 3)
DAY_US = 86_400_000_000
MORE = """
[features]
token_buckets = 4
[dataset]
levels = 3
rules = [{ prefix = "/store/user/", levels = 4 }]
"""


def opens(seed=3, count=600):
    """Rows of the access table: two caches over ten days, the first with decisions for most of its opens."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        cache = chance.choice((DECIDED, PLAIN))
        t = T0_US + chance.randrange(10 * DAY_US)
        if number % 7 == 0 and rows:
            t = rows[-1]["open_us"]  # of the same microsecond
        row = dict.fromkeys(name for name, _ in COLUMNS)
        row |= {
            "open_id": f"{cache}/1/2/{number}",
            "cache": cache,
            "open_us": t,
            "close_us": t + 10**6,
            "day": datetime.fromtimestamp(t / 1e6, UTC).date(),
        }
        row |= {"lfn": f"/store/mc/P{chance.randrange(4)}/f{int(chance.paretovariate(0.8)) % 60}.root", "b_read": chance.randrange(5000)}
        row["size"] = chance.choice([None, -1, 0, 123_456_789])
        if cache == DECIDED and chance.random() < 0.8:
            row |= {
                "t_us": t,
                "on_disk": chance.random() < 0.5,
                "known_size": chance.choice([-1, 4096]),
                "decision_id": f"d{number}",
                "answer": "admit",
            }
            row["fill"] = float(np.float32(chance.random()))
            row["read_share"] = chance.choice([None, -1.0, float(np.float32(chance.random()))])
        rows.append(row)
    # Three boots of the plugin: it was killed and lost what came after the 100th open, then stopped in peace.
    decided = sorted((row for row in rows if row["t_us"]), key=lambda row: (row["open_us"], row["open_id"]))
    for number, row in enumerate(decided):
        boot = min(number // 120, 2)
        row |= {"boot_us": T0_US + boot, "seq": number - 120 * boot + 1}
        if boot:
            row |= {"history_boot_us": T0_US + boot - 1, "history_seq": (100, 120)[boot - 1]}
        # Unknown at first, as in what an earlier plugin has logged.
        if number > 20:
            row["history_scanned"] = boot == 1
        # None at first; a new one is there for some opens before it is for others.
        if number > 30:
            row["side_table"] = TABLES[min((number - 30 + 5 * (number % 2)) // 60, 2)]
    return rows


def publish(place):
    """All versions of the side table, and keep but one of them."""
    for number, version in enumerate(TABLES):
        head = {
            "format": 1,
            "kind": "smartcache-datasets",
            "version": version,
            "until_us": version,
            "windows_s": [60.0, 3600.0],
            "left_out": 0,
        }
        row = {"opens": [number, 10 + number], "read_bytes": [5, 6], "files": 3, "caches": 2, "reopened": 0.3, "part_read": None}
        datasets = [{"dataset": f"/store/mc/P{which}", **row, "last_open_us": version - which} for which in range(number + 1)]
        write(place, head, datasets, lambda draft, version=version: keep(place, version, draft, 10))
    kept(place)[TABLES[1]].unlink()
    return place


def past_of(row, rows):
    """What the history of the row's boot began with: rows of the boots before it."""
    if row["history_boot_us"] is None:
        return []
    of = [each for each in rows if each["boot_us"] == row["history_boot_us"] and each["seq"] <= row["history_seq"]]
    return past_of(of[0], rows) + of


def write_table(folder, rows):
    """As Spark would lay it out; several files a partition, in no order."""
    schema = _arrow_schema()
    random.Random(1).shuffle(rows)
    for index in range(0, len(rows), 150):
        for cache in (DECIDED, PLAIN):
            for day in {row["day"] for row in rows}:
                part = [row for row in rows[index : index + 150] if (row["cache"], row["day"]) == (cache, day)]
                if part:
                    where = folder / "access" / f"cache={quote(cache, safe='')}" / f"day={day}"
                    where.mkdir(parents=True, exist_ok=True)
                    pq.write_table(pa.Table.from_pylist(part, schema).drop_columns(["cache", "day"]), where / f"part-{index}.parquet")


@pytest.fixture(scope="module")
def built(tmp_path_factory, write_config, command):
    """The table's rows, the configuration, and three training sets: twice the same, once a window of one cache."""
    folder = tmp_path_factory.mktemp("dataset")
    rows = opens()
    write_table(folder, list(rows))
    config = write_config(folder, more=f'{MORE}[side_table]\nfile = "{publish(folder / "side.json")}"\n')
    window = ["--cache", DECIDED, "--from", str((T0_US + DAY_US) // 10**6), "--to", str((T0_US + 6 * DAY_US) // 10**6)]
    # Another process, with a JVM of its own, for one of the two that are to be the same.
    other = folder / "other.toml"
    other.write_text(config.read_text().replace('"local[2]"', '"local[1]"').replace("shuffle_partitions = 2", "shuffle_partitions = 5"))
    argv = [sys.executable, "-m", "smartcache.preprocessing.cli", "build-dataset", "--config", str(other), "--output", str(folder / "one")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    assert "SHA-256" in done.stdout
    for name, more in (("two", []), ("part", window)):
        assert "SHA-256" in command(config, "build-dataset", "--output", folder / name, *more).stdout
    return rows, load(config), folder


def read(folder):
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("part-*.parquet"))])


def kept_rows(rows):
    return sorted(
        (row for row in rows if row["cache"] == PLAIN or row["t_us"]), key=lambda row: (row["cache"], row["open_us"], row["open_id"])
    )


pytestmark = pytest.mark.slow


def test_same_inputs_give_the_same_bytes(built):
    """By another process, on fewer cores and with another number of partitions."""
    _, _, folder = built
    names = sorted(path.name for path in (folder / "one").iterdir() if not path.name.startswith("."))
    assert names == ["manifest.json", "part-00000.parquet", "part-00001.parquet"]
    for name in names:
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes(), name
    # What would make the bytes differ from one JVM to another, though not from each to each.
    for name in names[1:]:
        groups = pq.ParquetFile(folder / "one" / name).metadata
        assert {len(groups.row_group(0).column(column).encodings) for column in range(groups.num_columns)} == {1}


def test_rows_are_those_the_core_was_asked_about(built):
    rows, _, folder = built
    table = read(folder / "one")
    assert table.schema.field("features").type.value_type == pa.float32()
    got = list(zip(table["cache"].to_pylist(), table["t_us"].to_pylist(), table["lfn"].to_pylist(), strict=True))
    assert got == [(row["cache"], row["open_us"], row["lfn"]) for row in kept_rows(rows)]


def test_features_are_the_cores_to_the_last_bit(built):
    core = paths.require_module("smartcache._core")
    rows, config, folder = built
    tables = {version: core.SideTable(gzip.decompress(path.read_bytes())) for version, path in kept(folder / "side.json").items()}
    assert [*tables] == [TABLES[0], TABLES[2]]
    table = read(folder / "one")
    for cache in (DECIDED, PLAIN):
        wanted = []
        own = [row for row in kept_rows(rows) if row["cache"] == cache]
        for boot, boots in itertools.groupby(own, key=lambda row: row["boot_us"]):
            opened = list(boots)
            history = core.Core(core_toml(config))
            past = past_of(opened[0], own) if boot else []
            told = [
                history.observe(
                    row["open_us"],
                    row["lfn"],
                    bool(row["on_disk"]),
                    -1 if row["known_size"] is None else row["known_size"],
                    -1.0 if row["fill"] is None else row["fill"],
                    -1.0 if row["read_share"] is None else row["read_share"],
                    tables.get(row["side_table"]),
                )
                for row in past + opened
            ]
            wanted += told[len(past) :]
        got = table.filter(pa.compute.equal(table["cache"], cache))["features"].to_pylist()
        assert np.asarray(got, np.float32).tobytes() == np.asarray(wanted, np.float32).tobytes()
        known = core.schema(core_toml(config))["names"].index("federation_known")
        assert {row[known] for row in got} == ({-1.0, 0.0, 1.0} if cache == DECIDED else {-1.0})
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    gone = sum(row["side_table"] == TABLES[1] for row in kept_rows(rows))
    assert [each["unknown_side_tables"] for each in manifest["files"]] == [gone, 0]
    assert gone > 0
    scanned = sum(row["history_scanned"] is True for row in kept_rows(rows))
    assert [each["scanned_rows"] for each in manifest["files"]] == [scanned, 0]
    assert scanned > 0


def test_schema_of_the_manifest_is_the_cores(built):
    core = paths.require_module("smartcache._core")
    _, config, folder = built
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    assert manifest["schema"] == core.schema(core_toml(config))
    assert len(read(folder / "one")["features"][0]) == len(manifest["schema"]["names"])


def test_labels_and_censoring_against_brute_force(built):
    rows, _, folder = built
    end = max(row["open_us"] for row in rows)
    table = read(folder / "one").to_pylist()
    for row, got in zip(kept_rows(rows), table, strict=True):
        me = (row["open_us"], row["open_id"])
        later = [
            (o["open_us"], o["open_id"])
            for o in rows
            if (o["cache"], o["lfn"]) == (row["cache"], row["lfn"]) and (o["open_us"], o["open_id"]) > me
        ]
        assert got["censored"] is (not later)
        assert got["next_open_s"] == ((min(later)[0] - row["open_us"]) / 1e6 if later else None)
        assert got["observed_s"] == (end - row["open_us"]) / 1e6
        size = row["size"] if row["size"] is not None and row["size"] >= 0 else None
        assert got["size"] == (-1 if size is None else size)
        assert got["weight"] == max(1, row["b_read"] if size is None else size)


def test_split_is_by_time_and_has_the_shares(built):
    rows, _, folder = built
    table = read(folder / "one").to_pylist()
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    times = sorted(row["open_us"] for row in kept_rows(rows))
    cuts = times[int(len(times) * 0.7)], times[int(len(times) * 0.85)]
    assert (manifest["split_at_us"]["validate"], manifest["split_at_us"]["test"]) == cuts
    for row in table:
        assert row["split"] == ("train" if row["t_us"] < cuts[0] else "validate" if row["t_us"] < cuts[1] else "test")
    for name, count in manifest["splits"].items():
        assert count == sum(row["split"] == name for row in table)
    assert manifest["rows"] == len(table)
    assert manifest["censored"] == sum(row["censored"] for row in table)


def test_digest_can_be_computed_from_the_files(built):
    from smartcache.preprocessing.manifest import RowsDigest, digest_of

    _, _, folder = built
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    digests = []
    for file in manifest["files"]:
        digest = RowsDigest()
        for batch in pq.read_table(folder / "one" / file["name"]).to_batches(max_chunksize=17):
            digest.add(batch)
        assert digest.hexdigest() == file["sha256"]
        digests.append(digest.hexdigest())
    assert manifest["sha256"] == digest_of(digests) == hashlib.sha256("".join(digests).encode()).hexdigest()


def test_window_of_one_cache(built):
    rows, _, folder = built
    start, end = T0_US + DAY_US, T0_US + 6 * DAY_US
    inside = [row for row in kept_rows(rows) if row["cache"] == DECIDED and start <= row["open_us"] < end]
    table = read(folder / "part").to_pylist()
    assert [(row["t_us"], row["lfn"]) for row in table] == [(row["open_us"], row["lfn"]) for row in inside]
    for row in table:
        assert row["observed_s"] == (end - row["t_us"]) / 1e6
        assert row["next_open_s"] is None or row["t_us"] + row["next_open_s"] * 1e6 < end
    manifest = json.loads((folder / "part" / "manifest.json").read_text())
    assert manifest["window"]["from_us"] == start
    assert manifest["window"]["to_us"] == end
    assert "--cache cache-a.site:1094" in manifest["command"]


def test_of_other_days_and_caches_no_file_is_read(built, command, write_config, tmp_path):
    """A week of a table of years does not read years."""
    _, _, folder = built
    shutil.copytree(folder / "access", tmp_path / "access")
    start, end = T0_US + DAY_US, T0_US + 6 * DAY_US
    first, last = (f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d}" for us in (start, end))
    spoilt = 0
    for file in (tmp_path / "access").rglob("*.parquet"):
        values = partition_of(file.as_posix())
        if values["cache"] != DECIDED or not first <= values["day"] <= last:
            file.write_bytes(b"not to be read")
            spoilt += 1
    assert spoilt > 10
    window = ("--cache", DECIDED, "--from", str(start // 10**6), "--to", str(end // 10**6))
    config = write_config(tmp_path, more=f'{MORE}[side_table]\nfile = "{folder / "side.json"}"\n')
    command(config, "build-dataset", "--output", tmp_path / "part", *window)
    assert read(tmp_path / "part").equals(read(folder / "part"))


def test_cache_that_is_not_there(built, command):
    _, _, folder = built
    done = command(folder / "smartcache.toml", "build-dataset", "--output", folder / "none", "--cache", "nobody:1", status=1)
    assert done.stderr.strip().endswith("no opens of nobody:1 in this window")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1790000000.5", 1_790_000_000.5),
        ("2026-05-01", 1_777_593_600),
        ("2026-05-01T06:00:00Z", 1_777_615_200),
        ("2026-05-01T06:00:00+02:00", 1_777_608_000),
    ],
)
def test_moments(text, seconds):
    assert moment_us(text, "--from") == seconds * 1_000_000
    assert moment_us(None, "--from") is None
    with pytest.raises(ValueError, match="--from: 'soon' is no time"):
        moment_us("soon", "--from")


def test_configuration_of_the_core_reads_back():
    import tomllib

    config = parse(
        {"dataset": {"levels": 2, "rules": [{"prefix": '/a "b"\\\x7f/', "levels": 3}]}, "features": {"half_lives_s": [60.0, 1e22]}}, "test"
    )
    read_back = tomllib.loads(core_toml(config))
    assert parse(read_back, "again").dataset == config.dataset
    assert parse(read_back, "again").features == config.features
    assert parse(read_back, "again").history == config.history
