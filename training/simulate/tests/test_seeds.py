"""Several seeds: means and intervals, in tables, report and plots."""

import csv
import threading
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from smartcache.training.simulate import policies, report, tables
from smartcache.training.simulate.compare import Plan, compare
from smartcache.training.simulate.rules import Rules
from smartcache.training.simulate.seeds import half_interval, means


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """By three seeds."""
    import pyarrow as pa

    random = np.random.default_rng(3)
    chosen = np.minimum(random.zipf(1.2, 6000), 2000)
    path = tmp_path_factory.mktemp("seeds") / "t.parquet"
    table = {"t": np.arange(6000.0), "lfn": [f"/a/{number}" for number in chosen], "size": chosen % 97 + 1}
    pq.write_table(pa.table(table), path)
    plan = Plan(["lru", "scdl", "belady"], [0.05, 0.1], [], 4, 0.0, 1, False, seeds=3)
    return compare([path], plan, None, "the command", threading.Event(), lambda _: None)


def test_only_what_is_random_is_run_more_than_once(compared):
    assert [(line.policy, line.seed) for line in compared.figures if line.cache_fraction == 0.1] == [
        ("lru", 1),
        *(("scdl", seed) for seed in (1, 2, 3)),
        ("belady", 1),
    ]


def test_which_policies_are_random():
    everyone = [*policies.defaults(), "uses3+scdl", "uses2+gdsf"]
    assert [name for name in everyone if policies.is_random(name)] == ["hyperbolic", "scdl", "learned-trees", "uses3+scdl"]
    assert not policies.is_random("lru", Rules("xcache"))


def test_what_does_not_differ_stays_as_it_is(compared):
    """Also where the mean of three equal numbers is not the number, in its last bit."""
    assert {mean.line.cache_fraction for mean in compared.means} == {0.05, 0.1}


def test_what_is_no_number_has_no_interval():
    assert half_interval([float("nan"), float("nan")]) == 0.0


def test_the_mean_and_its_interval(compared):
    mean = next(mean for mean in compared.means if mean.line.policy == "scdl")
    values = [line.byte_miss for line in compared.figures if line.policy == "scdl" and line.cache_fraction == 0.05]
    assert len(set(values)) > 1
    assert mean.seeds == 3
    assert mean.line.byte_miss == pytest.approx(np.mean(values))
    assert mean.half["byte_miss"] == pytest.approx(4.303 * np.std(values, ddof=1) / 3**0.5)


def test_students_interval():
    assert half_interval([5.0]) == 0
    assert half_interval([1.0, 3.0]) == pytest.approx(12.707 * 2**0.5 / 2**0.5)
    assert half_interval([0.0, 1.0] * 50) == pytest.approx(2.043 * np.std([0.0, 1.0] * 50, ddof=1) / 10)


def test_a_figure_that_a_seed_does_not_have_has_no_interval(compared):
    line = compared.figures[0]
    (mean,) = means([replace(line, gap_closed=None), replace(line, gap_closed=0.5, seed=2)])
    assert "gap_closed" not in mean.half
    assert mean.half["byte_miss"] == 0


def test_tables_report_and_plots_have_them(compared, tmp_path):
    tables.write(compared, tmp_path)
    assert pq.read_table(tmp_path / "runs.parquet").num_rows == 2 * 5
    with (tmp_path / "summary.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["policy"] for line in lines] == ["lru", "scdl", "belady"] * 2
    mean = next(mean for mean in compared.means if mean.line.policy == "scdl")
    assert float(lines[1]["byte_miss"]) == pytest.approx(mean.line.byte_miss, rel=1e-5)
    page = report.write(compared, tmp_path).read_text()
    assert f"<td>{mean.line.byte_miss:.4f} ± {mean.half['byte_miss']:.4f}</td>" in page
    assert "with 3 seeds" in page
    assert page.count("Bands: the 95 % interval") == 3
