"""The replay gate on tables that are made here: what is read, what is judged, and what is said of it."""

import dataclasses
import json
import multiprocessing
import shutil
from collections import OrderedDict
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest

from smartcache import config as configs
from smartcache.inference import bundle as bundles
from smartcache.inference import compare, replay
from smartcache.inference.gates import all_passed
from smartcache.inference.tests.tables import DAY_US, HOUR_US, T0_US, Open, bundle, write

ALL, NOTHING = (0.8, 0.1, 0.1), (0.1, 0.1, 0.8)
CAPACITY = 2000


def opens_of(count=1200, files=60, seed=1, **more):
    """Some files are opened often, most rarely; sizes of 50 to 250 bytes."""
    rng = np.random.default_rng(seed)
    numbers = np.minimum(rng.zipf(1.3, count) - 1, files - 1)
    return [
        Open(T0_US + i * 10 * 60 * 1_000_000, f"/store/mc/C{n % 5}/P/T/f{n}", 50 + int(n) * 200 // files, 10, **more)
        for i, n in enumerate(numbers)
    ]


@pytest.fixture
def site(tmp_path):
    def site(opens, **gates):
        table = write(tmp_path / "access", opens)
        settings = {"replay_capacity_bytes": CAPACITY, "replay_warm": 0.25, "min_test_rows": 10, **gates}
        evictor = {"enabled": False, "high": 0.9, "low": 0.5}
        return configs.parse(
            {"streaming": {"table": str(table)}, "gates": settings, "evictor": evictor, "history": {"memory_bytes": 1_000_000}}, "test"
        )

    return site


def lru(opens, judged_from_us, high=0.9, low=0.5):
    """Bytes missed and written by a cache between two marks, counted by other code."""
    held, missed, written = OrderedDict(), 0, 0
    for each in opens:
        counts = each.t_us >= judged_from_us
        if each.lfn in held:
            held.move_to_end(each.lfn)
        else:
            missed += each.size * counts
            written += each.size * counts
        held[each.lfn] = each.size
        if sum(held.values()) > high * CAPACITY:
            while sum(held.values()) > low * CAPACITY and len(held) > 1:
                held.popitem(last=False)
    return missed, written


def replayed(config, candidate):
    with replay.latest(config, None) as window:
        return replay.replay(config, window, candidate, "", lambda *_: None)


def values(answers):
    return {gate.name: gate for gate in answers}


def test_a_model_that_keeps_everything_is_lru(site, tmp_path):
    opens = opens_of()
    config = site(opens)
    candidate = bundle(tmp_path / "all", config, ALL)
    found = replayed(config, candidate)
    missed, written = lru(opens, opens[300].t_us)
    assert (found.lru.missed_bytes, found.lru.written_bytes) == (missed, written)
    assert found.candidate == found.lru
    assert found.lru.opens == 900
    assert found.lru.bytes == sum(each.size for each in opens[300:])
    assert 0 < found.lru.hits < 900
    answers = replay.check(config, candidate, "")
    assert [gate.name for gate in answers] == ["replay_opens", "replay_miss_lru", "replay_written_lru"]
    assert all_passed(answers)
    assert answers[0].value.startswith("900 (2023-11-")
    assert answers[0].value.endswith("; host:1094 2e-06 GB; no days before to warm it)")


def test_it_is_told_before_the_table_is_read(tmp_path):
    """Which may take long: there is none here, and that is not found out."""

    class Enough(Exception):
        pass

    def progress(done, total, what):
        assert (done, total, what) == (0, 0, f"reading the last days of {tmp_path}/none")
        raise Enough

    config = configs.parse({"streaming": {"table": f"{tmp_path}/none"}}, "test")
    with pytest.raises(Enough):
        replay.check(config, bundle(tmp_path / "all", config, ALL), "", progress)


def test_where_the_portfolio_decides_its_votes_are_judged(site, tmp_path):
    """It has learnt by the judged part that a model which keeps nothing is worse than LRU."""
    config = site(opens_of())
    candidate = bundle(tmp_path / "none", config, NOTHING)
    alone = replayed(config, candidate)
    assert alone.candidate.missed_bytes == alone.candidate.bytes
    voting = config.model_copy(update={"portfolio": config.portfolio.model_copy(update={"enabled": True})})
    found = replayed(voting, candidate)
    assert found.lru == alone.lru
    assert found.candidate.missed_bytes < 1.05 * found.lru.missed_bytes


def test_one_that_keeps_nothing_misses_too_much(site, tmp_path):
    config = site(opens_of())
    answers = values(replay.check(config, bundle(tmp_path / "none", config, NOTHING), ""))
    assert not answers["replay_miss_lru"].passed
    assert answers["replay_miss_lru"].value.startswith("byte miss 1.0000, LRU's 0.")
    assert answers["replay_miss_lru"].rule == "at most 1.01 of LRU's"
    assert answers["replay_written_lru"].passed
    assert answers["replay_written_lru"].value.startswith("0 GB written")


def test_against_the_champion(site, tmp_path):
    config = site(opens_of())
    keeps, refuses = bundle(tmp_path / "all", config, ALL), bundle(tmp_path / "none", config, NOTHING)
    worse = values(replay.check(config, refuses, keeps))
    assert not worse["replay_miss_champion"].passed
    assert worse["replay_written_champion"].passed
    better = values(replay.check(config, keeps, refuses))
    assert better["replay_miss_champion"].passed
    assert not better["replay_written_champion"].passed
    assert all_passed(replay.check(config, keeps, keeps))


def test_margins_are_the_sites(site, tmp_path):
    config = site(opens_of(), replay_miss_over_lru=9.0)
    assert values(replay.check(config, bundle(tmp_path / "none", config, NOTHING), ""))["replay_miss_lru"].passed


def test_a_champion_that_cannot_be_compared_with_is_named(site, tmp_path):
    config = site(opens_of())
    keeps = bundle(tmp_path / "all", config, ALL)
    answers = values(replay.check(config, keeps, "version 3 is the champion, but its files are gone"))
    assert answers["replay_champion"].value == "not compared: version 3 is the champion, but its files are gone"
    other = bundle(tmp_path / "other", configs.parse({"features": {"token_buckets": 2}}, "test"), ALL)
    answers = values(replay.check(config, keeps, other))
    assert "it has other features" in answers["replay_champion"].value
    assert all(gate.passed for gate in answers.values())


def test_only_the_last_days_count(site, tmp_path):
    old = [Open(T0_US - 40 * DAY_US + i * HOUR_US, f"/old/f{i}") for i in range(100)]
    config = site([*old, *opens_of()], replay_days=14.0, replay_history_days=0.0)
    with replay.latest(config, None) as window:
        (part,) = window.parts
    assert len(part.t_us) == 1200


def days_before(days, opens):
    """The same opens, so many days earlier."""
    return [dataclasses.replace(each, t_us=each.t_us - days * DAY_US) for each in opens]


def test_the_days_before_warm_the_cache(site, tmp_path):
    """Then all of the last days are judged, and begin with what those before have left in the cache."""
    early, late = days_before(9, opens_of(seed=2)), opens_of()
    config = site([*early, *late], replay_days=8.25, replay_history_days=100.0)
    begin_us = late[-1].t_us - round(8.25 * DAY_US)
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    assert found.from_us > begin_us
    assert found.from_us - begin_us <= 10 * 60 * 1_000_000
    assert (found.lru.missed_bytes, found.lru.written_bytes) == lru([*early, *late], found.from_us)
    assert found.lru.opens == sum(each.t_us > begin_us for each in late)
    warm = [each for each in [*early, *late] if each.t_us <= begin_us]
    assert found.warmed_opens == len(warm)
    assert found.warmed_days == len({each.t_us // DAY_US for each in warm})
    said = values(replay.check(config, bundle(tmp_path / "again", config, ALL), ""))["replay_opens"].value
    assert f"warmed by {found.warmed_days} days before, {len(warm)} opens" in said


def test_no_more_days_than_are_asked_for(site, tmp_path):
    early, late = days_before(9, opens_of(seed=2)), opens_of()
    config = site([*early, *late], replay_days=8.25, replay_history_days=2.0)
    first_us = late[-1].t_us - round(10.25 * DAY_US)
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    warm = [each for each in early if each.t_us > first_us]
    assert 0 < len(warm) < len(early)
    assert found.warmed_opens == len([each for each in [*early, *late] if first_us < each.t_us <= late[-1].t_us - round(8.25 * DAY_US)])


def test_few_days_before_leave_the_rest_to_the_first_opens(site, tmp_path):
    """Some hours of the two days that a quarter of eight asks for; those of another cache are no hours of this one."""
    early = [Open(T0_US - 2 * HOUR_US, "/store/mc/C0/P/T/f0"), Open(T0_US - 50 * HOUR_US, "/store/mc/C0/P/T/f0", cache="other:1094")]
    config = site([*early, *opens_of()], replay_days=8.33, replay_history_days=30.0)
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    assert found.warmed_days == 1
    begin_us = opens_of()[-1].t_us - round(8.33 * DAY_US)
    judged = [each for each in opens_of() if each.t_us > begin_us]
    covered_us = begin_us - early[0].t_us
    assert 0 < covered_us < 3 * HOUR_US
    assert found.lru.opens == len(judged) - int(len(judged) * (0.25 - covered_us / (8.33 * DAY_US)))


def test_a_listed_file_without_rows_is_no_day_before(site, tmp_path):
    """A stream may write one; where it stands for the first day, the next that has opens is the first."""
    early, late = [Open(T0_US - hours * HOUR_US, "/store/mc/C0/P/T/f0") for hours in (80, 2)], opens_of()
    expected = replayed(site([early[1], *late], replay_days=8.33, replay_history_days=30.0), bundle(tmp_path / "all", configs.load(), ALL))
    shutil.rmtree(tmp_path / "access")
    config = site([*early, *late], replay_days=8.33, replay_history_days=30.0)
    for emptied, figures in ((0, expected.lru), (1, None)):
        (file,) = sorted((tmp_path / "access").glob("*/*/*.parquet"))[emptied : emptied + 1]
        pq.write_table(pq.read_table(file, partitioning=None).slice(0, 0), file)
        found = replayed(config, bundles.read(tmp_path / "all"))
        assert found.warmed_opens == (1 if figures else 0)
        assert figures is None or found.lru == figures


def test_the_days_before_warm_the_history(site, tmp_path):
    """A model that keeps a file only where it knows it; each file is opened once before the days that are judged, and once in them."""
    early = [Open(T0_US - (20 * 24 - i) * HOUR_US, f"/store/mc/C{i % 5}/P/T/f{i}", 900) for i in range(48)]
    late = [Open(T0_US + i * HOUR_US, f"/store/mc/C{i % 5}/P/T/f{i}", 900) for i in range(48)]
    warm = site([*early, *late], replay_days=3.0, replay_warm=0.0)
    cold = warm.model_copy(update={"gates": warm.gates.model_copy(update={"replay_history_days": 0.0})})
    candidate = bundle(tmp_path / "known", warm, ALL)
    names = candidate.info.feature_schema.names
    weights = json.loads((candidate.folder / "weights.json").read_text())
    (layer,) = weights["layers"]
    layer["kernel"][names.index("file_seen")] = [20.0, 0.0, 0.0]
    layer["bias"] = [-10.0, 0.0, 0.0]
    (candidate.folder / "weights.json").write_text(json.dumps(weights))
    candidate = dataclasses.replace(candidate, embedded=None)
    assert replayed(warm, candidate).candidate.written_bytes == 48 * 900
    assert replayed(cold, candidate).candidate.written_bytes == 0


def test_what_the_candidate_was_trained_on_is_not_judged(site, tmp_path):
    opens = opens_of()
    config = site(opens)
    candidate = bundle(tmp_path / "all", config, ALL, split_at_us={"validate": opens[900].t_us, "test": opens[1000].t_us})
    assert values(replay.check(config, candidate, ""))["replay_opens"].value.startswith("200 (")
    later = bundle(tmp_path / "later", config, ALL, split_at_us={"test": opens[-1].t_us + 1})
    answers = values(replay.check(config, later, ""))
    assert not answers["replay_opens"].passed
    assert answers["replay_opens"].value.startswith("0 (none after what the candidate was trained on")


def test_caches_are_replayed_one_by_one(site, tmp_path):
    one, two = opens_of(seed=1), opens_of(seed=2, cache="other:1094")
    config = site([*one, *two])
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    from_us = one[300].t_us
    assert found.lru.missed_bytes == lru(one, from_us)[0] + lru(two, from_us)[0]
    assert found.capacities == {"host:1094": CAPACITY, "other:1094": CAPACITY}


def test_what_nobody_was_asked_about_is_not_stored(site, tmp_path):
    """The cache has decisions, so an open without one came while another client held the file."""
    opens = [Open(T0_US + i * HOUR_US, f"/a/f{i % 2}", asked=i % 4 != 0) for i in range(40)]
    config = site(opens, replay_warm=0.0)
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    # f0 is stored at its second open, which is the first that is asked about; f1 at its first.
    assert found.lru.missed_bytes == 300
    assert found.lru.written_bytes == 200


def test_sizes_that_are_not_known(site, tmp_path):
    """What was read stands for the size; an open of which nothing is known says nothing about bytes."""
    opens = [Open(T0_US + i * HOUR_US, f"/a/f{i}", None, 70 if i % 2 else None) for i in range(40)]
    config = site(opens, replay_warm=0.0)
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    assert found.lru.opens == 20
    assert found.lru.bytes == 20 * 70


def test_the_capacity(site, tmp_path):
    opens = opens_of()
    keeps = bundle(tmp_path / "all", configs.load(), ALL)
    unique = sum({each.lfn: each.size for each in opens}.values())

    def capacity(config):
        return replayed(config, keeps).capacities["host:1094"]

    config = site(opens, replay_capacity_bytes=0)
    assert capacity(config) == round(0.1 * unique)
    of_the_evictor = config.model_copy(update={"evictor": config.evictor.model_copy(update={"capacity_bytes": 1234})})
    assert capacity(of_the_evictor) == 1234


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "/nowhere/access",
            "no `smartcache stream` has written a table there yet; judge where the table is, or set [gates] replay_days = 0",
        ),
    ],
)
def test_no_table_here(table, said, tmp_path):
    config = configs.parse({"streaming": {"table": table}}, "test")
    (answer,) = replay.check(config, bundle(tmp_path / "all", config, ALL), "")
    assert not answer.passed
    assert said in answer.value


@pytest.fixture
def elsewhere(tmp_path):
    """The table under another scheme than a local disk's: Hadoop's view of one, which its settings alone know."""

    def elsewhere(config):
        options = {"spark.hadoop.fs.viewfs.mounttable.site.link./data": tmp_path.as_uri()}
        changes = {
            "streaming": config.streaming.model_copy(update={"table": "viewfs://site/data/access"}),
            "spark": config.spark.model_copy(update={"options": options}),
        }
        return config.model_copy(update=changes)

    return elsewhere


def _checked(config, folder):
    return replay.check(config, bundles.read(folder), "")


def _session_here():
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


@pytest.mark.slow
def test_a_table_on_another_file_system(site, elsewhere, tmp_path):
    config = site([*days_before(9, opens_of(seed=2)), *opens_of()], replay_days=8.25)
    for list_ in (tmp_path / "access" / "_spark_metadata").iterdir():
        list_.write_text(list_.read_text().replace(tmp_path.as_uri(), "viewfs://site/data"))
    keeps = bundle(tmp_path / "all", config, ALL).folder
    # In a process of its own: a session that another test has here would answer, with its file systems.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        unknown = config.model_copy(update={"streaming": elsewhere(config).streaming})
        with pytest.raises(replay.TableUnread):  # nothing tells this machine where it is
            process.submit(_checked, unknown, keeps).result()
        answers = process.submit(_checked, elsewhere(config), keeps).result()
        assert all_passed(answers), answers
        assert answers[0].value.startswith("1188 (2023-11-")
        compared = process.submit(compare.of, elsewhere(config), "").result()
        assert compared.to_us == opens_of()[-1].t_us
        assert process.submit(_session_here).result() is False


def test_an_empty_table(site, tmp_path):
    config = site([])
    (answer,) = replay.check(config, bundle(tmp_path / "all", config, ALL), "")
    assert "has no opens yet" in answer.value


def test_a_torn_file_of_the_table(site, tmp_path):
    config = site(opens_of())
    torn = next((tmp_path / "access").glob("cache=*/day=*/*.parquet"))
    torn.write_bytes(torn.read_bytes()[:100])
    with pytest.raises(replay.TableUnread, match="Parquet"):
        replay.check(config, bundle(tmp_path / "all", config, ALL), "")


def test_a_size_that_cannot_be_is_left_out(site, tmp_path):
    """It would outweigh all others on both sides of a comparison, and the core's sums would pass 64 bits."""
    absurd = [Open(T0_US + i * HOUR_US, f"/store/mc/C0/P/T/absurd{i}", 1 << 62) for i in range(30)]
    config = site([*absurd, *opens_of()])
    found = replayed(config, bundle(tmp_path / "all", config, ALL))
    assert 0 < found.lru.bytes < 1200 * 250
    assert sum(found.capacities.values()) == CAPACITY


def test_none_is_asked_for(tmp_path):
    config = configs.parse({"gates": {"replay_days": 0}}, "test")
    assert replay.check(config, bundle(tmp_path / "all", config, ALL), "") == []


def test_it_can_be_stopped(site, tmp_path):
    config = site(opens_of())

    class Stop(Exception):
        pass

    def stop(done, total, what):
        if done:
            raise Stop

    with pytest.raises(Stop):
        replay.check(config, bundle(tmp_path / "all", config, ALL), "", stop)


@pytest.mark.parametrize(
    ("passed", "tags"),
    [
        (False, {}),
        (False, {"smartcache.gate.skill": "passed: 1"}),
        (True, {"smartcache.gate.replay_opens": "passed: 1", "smartcache.gate.skill": "failed: 1"}),
        (False, {"smartcache.gate.replay_opens": "passed: 1", "smartcache.gate.replay_miss_lru": "failed: 1"}),
        (False, {"smartcache.gate.replay_opens": "passed: 1", "smartcache.replayed": "2023-11-14T22:13:20+00:00"}),
        (True, {"smartcache.gate.replay_opens": "passed: 1", "smartcache.replayed": "not told"}),
        (True, {"smartcache.gate.replay_opens": "passed: 1", **replay.replayed_now()}),
    ],
)
def test_passed_before(passed, tags):
    assert replay.passed_before(tags, 14.0, None) is passed


@pytest.mark.parametrize(
    ("passed", "tags"),
    [
        (True, replay.replayed_now(replay.known_as(1, "run-1"))),
        (False, replay.replayed_now(replay.known_as(2, "run-2"))),
        (False, replay.replayed_now(replay.known_as(1, "run-of-another-registry"))),
        (False, replay.replayed_now()),
        (False, {}),
        (True, replay.replayed_now(replay.known_as(2, "run-2")) | {"smartcache.served": "2026-01-01T00:00:00+00:00"}),
    ],
)
def test_passed_before_against_what_is_live(passed, tags):
    assert replay.passed_before({"smartcache.gate.replay_opens": "passed: 1"} | tags, 14.0, replay.known_as(1, "run-1")) is passed
