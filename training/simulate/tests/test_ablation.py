"""What each kind of feature is worth: names, what is left out in the core, tables and plot."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from smartcache import _core
from smartcache.training.simulate import ablation, policies, report
from smartcache.training.simulate.compare import Plan, compare
from smartcache.training.simulate.policies import LEARNED, UnknownPolicy
from smartcache.training.simulate.rules import OBJECT_RULES, XCACHE, Rules


def test_every_feature_is_of_a_kind():
    names, kinds = _core.reuse_features(), _core.reuse_feature_kinds()
    assert len(names) == len(kinds)
    of = dict(zip(names, kinds, strict=True))
    assert (of["size"], of["age"], of["gap_3"], of["count_0"]) == ("size", "recency", "recency", "counts")
    assert (of["group_gap"], of["cohort_gap"], of["front_due"]) == ("dataset", "cohort", "fronts")
    assert (of["vote"], of["held_by_0"], of["fill"]) == ("shadows", "shadows", "fill")
    assert ablation.kinds() == list(dict.fromkeys(kinds))


def test_names_say_what_is_left_out():
    assert ablation.parse(LEARNED) == ablation.Choice()
    assert ablation.parse(f"{LEARNED}:alone") == ablation.Choice(alone=True)
    without = ablation.parse(f"{LEARNED}:without=fronts,dataset:alone")
    assert (without.left_out, without.alone) == (("fronts", "dataset"), True)
    assert set(ablation.parse(f"{LEARNED}:only=fronts").left_out) == set(ablation.kinds()) - {"fronts"}
    for name in ablation.names():
        policy = policies.resolve(name, seed=3)
        assert policy.seed == 3
        assert policies.is_random(name)
    assert len(set(ablation.names())) == 2 * (1 + 2 * len(ablation.kinds()))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("learned-trees:without=front", "there is no kind of features 'front'; did you mean fronts"),
        ("learned-trees:only=", "there is no kind of features ''; there are size, recency"),
        ("learned-trees:but=fronts", "may stand :without=KINDS or :only=KINDS, then :alone"),
        ("learned-trees:alone:without=fronts", "may stand :without=KINDS"),
        ("learned-trees:", "may stand :without=KINDS"),
    ],
)
def test_names_that_say_nothing(name, says):
    with pytest.raises(UnknownPolicy, match=says):
        policies.resolve(name)


def test_there_is_no_such_kind_in_the_core():
    with pytest.raises(ValueError, match='there is no kind of features "tokens"'):
        _core.LearnedCache(10, np.zeros(1, np.uint32), 1, ["tokens"])


def test_what_is_left_out_is_in_no_row():
    random = np.random.default_rng(1)
    objects = np.minimum(random.zipf(1.2, 4000), 300).astype(np.uint32) - 1
    objects[:300] = np.arange(300)
    groups = np.arange(300, dtype=np.uint32) // 10
    kinds = np.array(_core.reuse_feature_kinds())
    cache = _core.LearnedCache(2_000, groups, 1, ["dataset", "fronts"])
    cache.replay(objects, np.full(4000, 10))
    rows, _ = cache.labelled(2_000, 1)
    unknown = np.isin(kinds, ["dataset", "fronts"])
    assert (rows[:, unknown] == -1).all()
    assert not (rows[:, ~unknown] == -1).all(axis=0).any()


def campaigns(count, seed=1):
    """Datasets that are read file by file, twice, and files that come once: what is read again, its dataset says."""
    random = np.random.default_rng(seed)
    requested, group, files = [], [], 0
    while len(requested) < count:
        again, once = np.arange(files, files + 20), np.arange(files + 20, files + 40)
        group += [len(group) // 40 * 2] * 20 + [len(group) // 40 * 2 + 1] * 20
        files += 40
        part = np.concatenate([again, again, once])
        requested += list(part) if random.random() < 0.5 else list(np.concatenate([once, again, again]))
    return [f"/store/{group[file]}/{file}" for file in requested[:count]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = campaigns(4_000)
    path = tmp_path_factory.mktemp("ablation") / "campaigns.parquet"
    pq.write_table(pa.table({"t": np.arange(float(len(names))), "lfn": names, "size": np.full(len(names), 10)}), path)
    chosen = ["lru", "belady", *(name for name in ablation.names() if name.endswith(("trees", "=dataset", "=fronts")))]
    plan = Plan(chosen, [], [80, 120], 3, 0.0, 0, False, OBJECT_RULES)
    return compare([path], plan, None, "the command", threading.Event(), lambda _: None)


def test_worths_are_of_the_same_cells(compared):
    worths = ablation.worths(compared.means)
    assert {worth.kind for worth in worths} == {"dataset", "fronts"}
    gap = {(line.policy, line.capacity_bytes): line.gap_closed for line in compared.figures}
    for worth in worths:
        assert worth.cells == 2
        assert not worth.alone
        expected = [gap[LEARNED, size] - gap[f"{LEARNED}:without={worth.kind}", size] for size in (80, 120)]
        assert worth.lost == pytest.approx(np.mean(expected))
        assert worth.all_kinds - worth.without == pytest.approx(worth.lost)
        assert worth.only == pytest.approx(np.mean([gap[f"{LEARNED}:only={worth.kind}", size] for size in (80, 120)]))
    assert [worth.lost for worth in worths] == sorted((worth.lost for worth in worths), reverse=True)
    # One that was simulated at one size only is compared at that size.
    some = [mean for mean in compared.means if (mean.line.policy, mean.line.capacity_bytes) != (f"{LEARNED}:without=fronts", 80)]
    assert {worth.kind: worth.cells for worth in ablation.worths(some)} == {"dataset": 2, "fronts": 1}
    assert ablation.worths([mean for mean in compared.means if not ablation.is_variant(mean.line.policy)]) == []


def test_the_report_shows_them_once(compared, tmp_path):
    page = report.write(compared, tmp_path).read_text()
    assert page.count(ablation.TITLE) == 2  # a heading, and the title of one table
    assert "<td>fronts</td>" in page
    assert f"{LEARNED}:without=fronts</td>" not in page
    assert f"<td>{LEARNED}</td>" in page
    ((title, rows),) = report.ablations(compared)
    assert "the portfolio" in title
    assert [len(row) for row in rows] == [len(report.ABLATION_HEAD)] * 2
    plain = replace(compared, figures=[line for line in compared.figures if not ablation.is_variant(line.policy)])
    assert ablation.TITLE not in report.write(plain, tmp_path).read_text()


def test_under_xcaches_rules_nothing_learns():
    with pytest.raises(UnknownPolicy):
        policies.resolve(f"{LEARNED}:without=fronts", Rules(XCACHE))
