"""Generated traces: what is drawn is what the parameters say, again and again."""

import json
import signal
import statistics
import threading
from collections import Counter, defaultdict
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from smartcache.cli import app
from smartcache.local import paths
from smartcache.training.simulate import trace
from smartcache.workload import datasets, kinds, site, write
from smartcache.workload.agenda import Start, merged
from smartcache.workload.parameters import WrongParameter, rows

DAY_S = datasets.DAY_S


def drawn(kind, seed=1, **given):
    return list(kinds.accesses(kinds.parameters(kind, {name: str(value) for name, value in given.items()}), seed))


def folder(access):
    return access.lfn.rpartition("/")[0]


def passes(accesses):
    """By dataset the opens of each user's runs over it: a file that is opened again begins the next run."""
    runs = defaultdict(list)
    for access in accesses:
        own = runs[folder(access)]
        if not own or access.lfn in own[-1]:
            own.append({})
        own[-1][access.lfn] = access
    return runs


@pytest.fixture(scope="module")
def chaotic():
    return drawn("chaotic", days=60)


@pytest.mark.parametrize("kind", kinds.names())
def test_every_kind_is_in_order_and_within_its_bounds(kind):
    given = {"days": 3, "opens_per_day": 2000} | ({} if kind == "site" else {"files_per_dataset": 5})
    accesses = drawn(kind, **given)
    assert [one.time_s for one in accesses] == sorted(one.time_s for one in accesses)
    assert 0 <= accesses[0].time_s < DAY_S
    assert 2 * DAY_S < accesses[-1].time_s < 3 * DAY_S
    sizes = {}
    for one in accesses:
        assert 1 <= one.bytes_read <= one.size
        assert sizes.setdefault(one.lfn, one.size) == one.size
        assert one.lfn.startswith("/store/")
    assert drawn(kind, **given) == accesses
    assert drawn(kind, seed=2, **given) != accesses


@pytest.mark.parametrize("kind", kinds.names())
def test_as_many_opens_as_are_asked_for(kind):
    """On average: campaigns come as a Poisson process, and some datasets are large; so many small ones."""
    given = {"days": 10, "opens_per_day": 1500}
    if kind != "site":
        given |= {"files_per_dataset": 5, "files_sigma": 0.3}
    counts = [len(drawn(kind, seed, **given)) / 15_000 for seed in range(1, 5)]
    # A site's campaigns have their own size, and a few files of chaotic analysis have thousands of reads.
    assert statistics.fmean(counts) == pytest.approx(1, abs=0.25 if kind in ("site", "chaotic") else 0.08)


def test_campaigns_come_back_as_stated():
    given = {"days": 120, "opens_per_day": 800, "files_per_dataset": 20, "files_sigma": 0.3, "abandoned_share": 0, "jobs_beside": 1}
    accesses = drawn("campaigns", **given)
    runs = passes(accesses)
    # What began within the first part of the trace had time to come back; what began before it is cut, so it is left out.
    whole = {name: own for name, own in runs.items() if 20 * DAY_S < min(next(iter(own[0].values())).time_s, 1e9) < 80 * DAY_S}
    whole = {name: own for name, own in whole.items() if len(own[0]) == max(map(len, own))}
    assert len(whole) > 500
    again = [len(own) - 1 for own in whole.values() if len(own) > 1]
    assert len(again) / len(whole) == pytest.approx(0.667, abs=0.05)
    assert statistics.fmean(again) == pytest.approx(2.0, abs=0.3)
    gaps = [
        next(iter(second.values())).time_s - next(iter(first.values())).time_s for own in whole.values() for first, second in pairwise(own)
    ]
    assert statistics.median(gaps) / DAY_S == pytest.approx(4.0, rel=0.15)
    # File by file: the second pass has the order of the first.
    first, second = next(own for own in whole.values() if len(own) > 1 and len(own[0]) > 10)[:2]
    assert list(first) == list(second)
    # Each analysis reads one part of all its files.
    shares = {round(one.bytes_read / one.size, 3) for one in first.values()}
    assert len(shares) == 1


def test_some_campaigns_are_abandoned():
    given = {"days": 60, "opens_per_day": 800, "files_per_dataset": 20, "files_sigma": 0, "again_share": 0}
    lengths = Counter(map(folder, drawn("campaigns", abandoned_share=0.5, **given)))
    cut = sum(length < 20 for length in lengths.values()) / len(lengths)
    assert cut == pytest.approx(0.5, abs=0.07)
    assert set(Counter(map(folder, drawn("campaigns", abandoned_share=0, **given))).values()) >= {20}


def test_chaotic_counts_are_those_of_eos(chaotic):
    counts = Counter(one.lfn for one in chaotic)
    shares = [sum(count >= least for count in counts.values()) / len(counts) for least in (2, 5, 10, 100)]
    for share, stated in zip(shares, (0.44, 0.089, 0.040, 0.0083), strict=True):
        assert share == pytest.approx(stated, rel=0.3)
    assert 0.6 < sum(count for count in counts.values() if count >= 100) / len(chaotic) < 0.9
    # Popular files are of popular datasets.
    by_dataset = defaultdict(list)
    for lfn, count in counts.items():
        by_dataset[lfn.rpartition("/")[0]].append(count)
    popular = [own for own in by_dataset.values() if len(own) > 5 and max(own) >= 20]
    assert statistics.fmean(statistics.median(own) for own in popular) > 1.5 * statistics.median(counts.values())


def test_chaotic_analysis_is_the_same_at_each_moment(chaotic):
    counts = Counter(one.lfn for one in chaotic)
    # Without the few files that have most of the reads.
    tenths = Counter(int(one.time_s / (6 * DAY_S)) for one in chaotic if counts[one.lfn] < 10)
    assert max(tenths.values()) < 1.6 * min(tenths.values())


def test_production_reads_once_but_for_retries_and_pile_up():
    accesses = drawn("production", days=40, opens_per_day=2000)
    pileup = [one for one in accesses if "/PREMIX/" in one.lfn]
    assert len(pileup) / len(accesses) == pytest.approx(0.15, abs=0.05)
    libraries = Counter(folder(one) for one in {one.lfn: one for one in pileup}.values())
    assert len(libraries) == 4
    assert max(libraries.values()) == 150
    counts = Counter(one.lfn for one in accesses if "/PREMIX/" not in one.lfn)
    assert sum(count > 1 for count in counts.values()) / len(counts) == pytest.approx(0.03, abs=0.006)
    assert all(one.bytes_read == one.size for one in accesses)


def test_sparse_reads_are_small_and_repeated():
    accesses = drawn("sparse", days=30, opens_per_day=2000, files_per_dataset=30)
    shares = [one.bytes_read / one.size for one in accesses]
    columnar = [share for share in shares if abs(share - 0.10) > 1e-4]
    assert 1 - len(columnar) / len(shares) == pytest.approx(0.3, abs=0.1)
    assert statistics.median(columnar) == pytest.approx(0.02, rel=0.35)
    assert statistics.median(one.size for one in accesses) == pytest.approx(0.143e9, rel=0.1)
    assert len(accesses) / len({one.lfn for one in accesses}) > 3


def test_a_site_hits_as_an_infinite_cache_at_mwt2_would():
    """About 60 % of the bytes; and people keep to days and weeks."""
    accesses = drawn("site", days=28)
    seen, hit = set(), 0
    for one in accesses:
        hit += one.size if one.lfn in seen else 0
        seen.add(one.lfn)
    assert hit / sum(one.size for one in accesses) == pytest.approx(0.60, abs=0.08)
    people = [one for one in accesses if one.user != "production"]
    days = Counter(int(one.time_s // DAY_S) % 7 for one in people)
    assert (days[5] + days[6]) / 2 == pytest.approx(0.4 * sum(days[day] for day in range(5)) / 5, rel=0.3)
    hours = Counter(int(one.time_s % DAY_S // 3600) for one in people)
    assert sum(hours[hour] for hour in range(12, 18)) > 1.8 * sum(hours[hour] for hour in range(6))


def test_the_clock_of_people_never_goes_back():
    rhythm = site.Rhythm(site.Site())
    times = [rhythm.at(spent) for spent in range(0, int(15 * DAY_S), 600)]
    assert times == sorted(times)
    assert rhythm.at(7 * DAY_S) == pytest.approx(7 * DAY_S)


def test_what_is_to_come_is_not_kept():
    """Streams are held from their start to their end."""
    begun, ended = [], []

    def one(number):
        begun.append(number)
        for step in range(3):
            yield datasets.Access(number + step, f"/{number}", 1, 1, "")
        ended.append(number)

    def starts():
        for number in range(1000):
            yield Start(float(number), one(number))

    held = 0
    for access in merged([starts()], 500):
        held = max(held, len(begun) - len(ended))
        assert len(begun) <= access.time_s + 3
    assert held <= 5
    assert len(begun) < 510


def test_the_file_is_a_trace_that_says_how_it_came_about(tmp_path):
    path = tmp_path / "campaigns.parquet"
    parameters = kinds.parameters("campaigns", {"days": "4", "gap_days": "1"})
    told = []
    done = write.write(parameters, 5, path, progress=lambda days, opens: told.append((days, opens)))
    table = pq.read_table(path)
    assert table.column_names == ["t", "lfn", "size", "bytes_read", "user"]
    assert table.num_rows == done.opens
    about = json.loads(table.schema.metadata[write.METADATA])
    assert (about["kind"], about["seed"], about["parameters"]["gap_days"]) == ("campaigns", 5, 1.0)
    assert about["command"] == "smartcache generate-trace campaigns --seed 5 --set days=4.0 --set gap_days=1.0"
    assert told == sorted(told)
    assert told
    read = trace.read(path)
    assert len(read) == done.opens
    assert read.bytes_read.sum() == done.bytes_read
    content = path.read_bytes()
    write.write(parameters, 5, path)
    assert path.read_bytes() == content


def test_what_is_stopped_leaves_nothing(tmp_path):
    stop = threading.Event()
    path = tmp_path / "site.parquet"
    path.write_text("of before")
    with pytest.raises(write.Stopped):
        write.write(kinds.parameters("site", {}), 1, path, stop, lambda days, opens: stop.set())
    assert path.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["campains"], "there is no kind of workload 'campains'; did you mean campaigns?"),
        (["site", "--days", "0"], "site: days must be 0.01 to 3660, not 0"),
        (["site", "--days", "nan"], "site: days must be 0.01 to 3660, not nan"),
        (["sparse", "--set", "pases=3"], "sparse has no parameter 'pases'; did you mean passes"),
        (["sparse", "--set", "passes"], "--set must be NAME=VALUE, not 'passes'"),
        (["sparse", "--set", "passes=many"], "sparse: passes must be a number, not 'many'"),
        (["campaigns", "--set", "users=1.5"], "campaigns: users must be an integer, not '1.5'"),
        (["chaotic", "--set", "five_share=0.5"], "twice_share, five_share, ten_share and hundred_share must not rise"),
        (["site", "--set", "chaotic_share=0.95"], "chaotic_share and production_share must be at most 1 together, not 1.05"),
        (["site", "--days", "3", "--set", "days=4"], "days is given twice"),
        (["site"], "say where to: --output FILE.parquet"),
        (["site", "--output", "site.csv"], "--output must end in .parquet"),
    ],
)
def test_refused_by_name(arguments, says):
    done = CliRunner().invoke(app, ["generate-trace", *arguments])
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_kind_whose_part_cannot_be_made(tmp_path):
    path = tmp_path / "t.parquet"
    done = CliRunner().invoke(app, ["generate-trace", "site", "--opens-per-day", "9", "--output", str(path)])
    assert done.exit_code == 2
    assert "production: opens_per_day must be 1 to" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path):
    path = tmp_path / "t.parquet"
    done = CliRunner().invoke(app, ["generate-trace", "sparse", "--days", "1", "--opens-per-day", "3000", "--output", str(path)])
    assert done.exit_code == 0
    assert f"{path}: " in done.stderr
    assert pq.read_metadata(path).num_rows > 100
    shown = CliRunner().invoke(app, ["generate-trace", "sparse", "--show"]).stdout
    assert all(row.name in shown for row in rows(kinds.of("sparse")))
    done = CliRunner().invoke(app, ["generate-trace", "sparse", "--output", str(tmp_path / "none" / "t.parquet")])
    assert done.exit_code == 1
    assert "No such file or directory" in done.stderr


def test_interrupted_it_leaves_nothing(tmp_path, monkeypatch):
    accesses = kinds.accesses

    def interrupted(parameters, seed):
        for number, access in enumerate(accesses(parameters, seed)):
            if number == 5000:
                signal.raise_signal(signal.SIGINT)
            yield access

    monkeypatch.setattr(kinds, "accesses", interrupted)
    done = CliRunner().invoke(app, ["generate-trace", "site", "--days", "3000", "--output", str(tmp_path / "t.parquet")])
    assert done.exit_code == 130
    assert "nothing was written" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_documentation_has_every_parameter_and_its_source():
    page = (paths.ROOT / "docs" / "workloads.md").read_text()
    assert kinds.markdown() in page
    for name in kinds.names():
        for row in rows(kinds.of(name)):
            assert row.source
            assert row.low <= row.default <= row.high


def test_a_value_is_checked_wherever_it_is_from():
    with pytest.raises(WrongParameter, match="users must be 1 to 100000, not 0"):
        kinds.of("campaigns")(users=0)
