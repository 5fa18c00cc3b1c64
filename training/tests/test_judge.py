"""Epochs are judged by what a cache with their weights would have missed: the plugin's code, on the opens of the validate part's time."""

import numpy as np
import pytest

from smartcache import config as configs
from smartcache.inference.tests import tables
from smartcache.training import dataset, judge, record
from smartcache.training import model as network
from smartcache.training import train as training

CACHE_BYTES = 100_000_000


@pytest.fixture(scope="module")
def config():
    return configs.parse({"training": {"hidden": [8], "epochs": 5, "batch": 64, "learning_rate": 0.01, "replay_every": 2}}, "test")


@pytest.fixture(scope="module")
def made(synthetic):
    return synthetic.opens(3000)


@pytest.fixture(scope="module")
def data(synthetic, made, config, tmp_path_factory):
    return dataset.read(synthetic.write_opens(tmp_path_factory.mktemp("set"), made, config))


@pytest.fixture(scope="module")
def trace(synthetic, made, tmp_path_factory):
    return synthetic.write_trace(tmp_path_factory.mktemp("trace") / "opens.parquet", made)


@pytest.fixture(scope="module")
def by(data, config, trace):
    return judge.by_replay(data, config, record.bundle_info(data, config, {}, {}), str(trace), CACHE_BYTES)


@pytest.fixture(scope="module")
def trained(data, config, by):
    return training.train(data, config, training.How(judge=by))


def answering(data, config, bucket):
    """A model that always says this bucket."""
    buckets = len(config.training.bucket_edges_s) + 1
    width = len(data.names)
    model = network.build(np.zeros(width, np.float32), np.ones(width, np.float32), [8], buckets, learning_rate=0.01, dropout=0.0)
    bias = np.full(buckets, -20, np.float32)
    bias[bucket] = 20
    model.layers[-1].set_weights([np.zeros((8, buckets), np.float32), bias])
    return model


def test_a_model_that_keeps_all_is_lru_and_one_that_keeps_nothing_misses_all(data, config, by):
    keeps = by.figures(answering(data, config, 0))
    assert keeps == judge.figures_of(by.lru, config)
    assert 0.2 < keeps[judge.BYTE_MISS] < 0.95
    assert keeps[judge.COST] == pytest.approx(keeps[judge.BYTE_MISS] + 0.03 * keeps[judge.WRITTEN])
    nothing = by.figures(answering(data, config, -1))
    assert (nothing[judge.BYTE_MISS], nothing[judge.WRITTEN]) == (1.0, 0.0)


def test_only_the_validate_parts_time_is_judged_and_nothing_later_is_seen(data, by):
    (part,) = by.parts
    at = data.manifest["split_at_us"]
    assert part.t_us[part.judged - 1] < at["validate"] <= part.t_us[part.judged]
    assert part.t_us[-1] < at["test"]
    assert by.lru.opens == len(data.validate)
    assert by.lru.bytes == int(part.size[part.judged :].sum())
    # [gates] replay_history_days before it warm the cache.
    assert at["validate"] - part.t_us[0] <= 30 * 86400e6
    assert part.judged > 1000


def test_the_epoch_that_misses_least_is_kept(trained, by):
    costs = {epoch: cost for epoch, cost in enumerate(trained.history[judge.COST], 1) if cost is not None}
    assert sorted(costs) == [2, 4, 5]
    kept = int(trained.chosen["validation_epoch"])
    assert costs[kept] == min(costs.values()) == trained.chosen["validation_replay_cost"]
    assert by.figures(trained.model)[judge.COST] == costs[kept]
    assert trained.origin["judge"]["by"] == "replay"
    assert trained.origin["judge"]["cache_bytes"] == [CACHE_BYTES]


def test_a_person_is_told_what_lru_would_have_missed(by):
    missed, written = by.lru.missed_bytes / by.lru.bytes, by.lru.written_bytes / by.lru.bytes
    assert by.name.endswith(f"replayed through 0.1 GB; LRU there: byte miss {missed:.4f}, written {written:.4f}")


def test_what_it_learned_beats_lru(trained, by, config):
    """Half of the opens are of files that hardly come again: the directory tells."""
    assert trained.chosen["validation_replay_cost"] < judge.figures_of(by.lru, config)[judge.COST]


def test_an_access_table_is_judged_as_the_trace_of_its_opens(data, config, made, by, tmp_path):
    opens = [
        tables.Open(int(t_us), lfn, int(size), None, cache="cache:1094")
        for t_us, lfn, size in zip(made["t_us"], made["lfn"], made["size"], strict=True)
    ]
    others = [tables.Open(int(made["t_us"][0]), "/other", cache="another:1094")]
    table = tables.write(tmp_path / "access", [*opens, *others])
    info = record.bundle_info(data, config, {}, {})
    same = judge.by_replay(data, config, info, str(table), CACHE_BYTES)
    assert same.lru == by.lru
    model = answering(data, config, 3)
    assert same.figures(model) == by.figures(model)


def test_what_cannot_judge_is_named(data, config, synthetic, made, trace, tmp_path):
    info = record.bundle_info(data, config, {}, {})
    early = synthetic.write_trace(tmp_path / "early.parquet", {name: column[:100] for name, column in made.items()})
    with pytest.raises(judge.JudgeError, match=r"early.parquet: has no bytes opened in the time of the validate part"):
        judge.by_replay(data, config, info, str(early), None)
    with pytest.raises(judge.JudgeError, match=r"--replay: access table .*none"):
        judge.by_replay(data, config, info, str(tmp_path / "none"), None)
    other = configs.parse({"features": {"token_buckets": 2}}, "test")
    with pytest.raises(judge.JudgeError, match="but the core gives those of"):
        judge.by_replay(data, other, info, str(trace), None)
