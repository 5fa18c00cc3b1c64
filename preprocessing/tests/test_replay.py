"""Features across restarts of a server, against histories that are replayed from their beginning."""

import gzip
import json
import random

import numpy as np
import pytest

from smartcache.local import paths
from smartcache.preprocessing.popularity import write
from smartcache.preprocessing.replay import NO_BOOT, Replay
from smartcache.preprocessing.side_tables import NO_TABLE, SideTables, folder_of, keep, kept

T0_US = 1_790_000_000_000_000
TEXT = "[history]\nmemory_bytes = 1000000\n"


def boots(lengths, seed=5):
    """For each boot its rows: (boot_us, seq, t_us, lfn, on_disk, size, fill, read_share)."""
    chance = random.Random(seed)
    t_us = T0_US
    made = {}
    for boot, length in lengths.items():
        made[boot] = []
        for seq in range(1, length + 1):
            t_us += chance.randrange(10**9)
            told = (chance.random() < 0.5, chance.choice([-1, 4096]), chance.random(), chance.choice([-1.0, 0.5]))
            made[boot].append((boot, seq, t_us, f"/store/mc/P{chance.randrange(4)}/f{chance.randrange(40)}.root", *told))
    return made


def columns(rows):
    kinds = (np.int64, np.int64, np.int64, None, bool, np.int64, np.float32, np.float32)
    return [list(column) if kind is None else np.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]


def replayed(rows, origins, folder, batch):
    one = Replay(TEXT, origins, folder)
    parts = [one.features(*columns(rows[start : start + batch])) for start in range(0, len(rows), batch)]
    return np.concatenate(parts), one


def wanted(made, origins):
    """Each boot in a core of its own, that has been through all that its history holds."""
    core = paths.require_module("smartcache._core")
    from_moment = {boot: (of, seq) for boot, of, seq in origins}

    def before(boot):
        if boot not in from_moment:
            return []
        of, seq = from_moment[boot]
        return before(of) + [row for row in made[of] if row[1] <= seq]

    parts = []
    for boot, rows in made.items():
        past = before(boot)
        parts.append(core.Core(TEXT).replay(*columns(past + rows)[2:])[len(past) :])
    return np.concatenate(parts)


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize(
    "origins",
    [
        [],
        [(20, 10, 50)],  # stopped in peace
        [(20, 10, 31)],  # killed: 19 opens are lost for the next
        [(20, 10, 31), (30, 20, 40), (40, 30, 60)],
        [(20, 10, 31), (30, 10, 31)],  # died twice before it had saved anything
        [(20, 10, 31), (30, 10, 50), (40, 20, 1)],  # an older file was put back
        [(20, 10, 50), (30, 10, 50), (40, 10, 50)],
    ],
)
def test_each_boot_goes_on_from_what_it_was_given(origins, batch, tmp_path):
    made = boots({10: 50, 20: 40, 30: 60, 40: 5})
    rows = [row for each in made.values() for row in each]
    got, replay = replayed(rows, origins, tmp_path, batch)
    assert got.tobytes() == wanted(made, origins).tobytes()
    assert replay.unknown == set()
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_missing_are_missing_from_both(tmp_path):
    made = boots({10: 50, 20: 40})
    made[10] = [row for row in made[10] if row[1] not in (30, 31, 32, 50)]
    origins = [(20, 10, 31)]
    got, _ = replayed([*made[10], *made[20]], origins, tmp_path, 1000)
    assert got.tobytes() == wanted(made, origins).tobytes()


def test_a_history_that_is_not_among_the_rows_begins_empty_and_is_counted(tmp_path):
    made = boots({20: 40, 30: 60})
    got, replay = replayed([*made[20], *made[30]], [(20, 10, 50), (30, 20, 12)], tmp_path, 1000)
    assert got.tobytes() == wanted(made, [(30, 20, 12)]).tobytes()
    assert replay.unknown == {20}


def test_rows_of_no_boot_have_one_history(tmp_path):
    made = boots({NO_BOOT: 50})
    got, _ = replayed(made[NO_BOOT], [], tmp_path, 7)
    assert got.tobytes() == wanted(made, []).tobytes()


def publish(place, version, most=10):
    head = {"format": 1, "kind": "smartcache-datasets", "version": version, "until_us": version, "windows_s": [60.0], "left_out": 0}
    row = {"opens": [version], "read_bytes": [5], "files": 1, "caches": 1, "reopened": 0.3, "part_read": 0.5, "last_open_us": version}
    write(place, head, [{"dataset": "/store/mc/P1", **row}], lambda draft: keep(place, version, draft, most))


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_each_row_has_the_table_that_it_was_answered_with(batch, tmp_path):
    core = paths.require_module("smartcache._core")
    place = tmp_path / "side.json"
    for version in (1, 2, 3):
        publish(place, version)
    (folder_of(place) / "2.gz").write_bytes(b"no gzip")
    tables = SideTables(kept(place).get)
    rows = boots({10: 50, 20: 40})[10]
    chance = random.Random(2)
    versions = np.array([chance.choice((NO_TABLE, 1, 1, 2, 3, 4)) for _ in rows], np.int64)
    replay = Replay(TEXT, [], tmp_path, tables)
    cut = range(0, len(rows), batch)
    got = np.concatenate([replay.features(*columns(rows[at : at + batch]), versions[at : at + batch]) for at in cut])
    one = core.Core(TEXT)
    there = {version: core.SideTable(gzip.decompress((folder_of(place) / f"{version}.gz").read_bytes())) for version in (1, 3)}
    wanted = [one.observe(*row[2:], there.get(version)) for row, version in zip(rows, versions.tolist(), strict=True)]
    assert got.tobytes() == np.array(wanted).tobytes()
    assert tables.unknown == np.isin(versions, (2, 4)).sum()


def test_the_newest_versions_are_kept_and_are_what_was_published(tmp_path):
    place = tmp_path / "side.json"
    for version in (8, 9, 10, 11):
        publish(place, version, 3)
        assert gzip.decompress(kept(place)[version].read_bytes()) == place.read_bytes()
        assert json.loads(place.read_text().splitlines()[0])["version"] == version
    (folder_of(place) / "a note").touch()
    assert [*kept(place)] == [9, 10, 11]
    assert kept(tmp_path / "elsewhere.json") == {}


def test_a_version_that_cannot_be_kept_is_not_published(tmp_path):
    place = tmp_path / "side.json"
    publish(place, 1)
    before = place.read_bytes()
    folder_of(place).rename(tmp_path / "moved")
    folder_of(place).touch()
    with pytest.raises(OSError, match="exists"):
        publish(place, 2)
    assert place.read_bytes() == before
