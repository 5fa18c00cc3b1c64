import json

import numpy as np
import pytest

from smartcache import config as configs
from smartcache.inference import gates
from smartcache.inference.tests.fakes import METRICS
from smartcache.local import paths

SETTINGS = configs.load().gates
HASH = "0123456789abcdef"


def failed(folder, schema_hash=HASH):
    return [gate.name for gate in gates.check_folder(folder, SETTINGS, schema_hash) if not gate.passed]


def test_a_good_bundle_passes(make):
    answers = gates.check_folder(make().folder, SETTINGS, HASH)
    assert [gate.name for gate in answers] == ["bundle", "schema", "test_rows", "horizon_rows", "skill", "score_skill", "outputs", "parity"]
    assert gates.all_passed(answers)
    assert gates.tags(answers)["smartcache.gates"] == "passed"


def test_no_answer_is_no_pass():
    assert not gates.all_passed([])


GOOD = METRICS


def without(*names):
    return {name: value for name, value in GOOD.items() if name not in names}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (GOOD | {"skill": 0.019}, ["skill"]),
        (GOOD | {"skill": -1.0}, ["skill"]),
        (without("skill"), ["skill"]),
        (GOOD | {"rows_uncensored": 49.0}, ["test_rows"]),
        (without("rows_uncensored"), ["test_rows"]),
        (GOOD | {"horizon_rows": 0.0}, ["horizon_rows"]),
        (GOOD | {"brier": 0.2}, ["score_skill"]),
        (without("brier"), ["score_skill"]),
        (GOOD | {"base_brier": 0.0}, ["score_skill"]),
        (GOOD | {"max_output_difference": 1e-3}, ["parity"]),
        (without("max_output_difference"), ["parity"]),
        ({}, ["test_rows", "horizon_rows", "skill", "score_skill", "parity"]),
    ],
)
def test_metrics_that_fail(make, metrics, expected):
    assert failed(make(metrics=metrics).folder) == expected


def test_other_features(make):
    assert failed(make().folder, "f" * 16) == ["schema"]


def test_damaged_bundle_is_asked_no_more(make):
    folder = make().folder
    (folder / "golden.json").unlink()
    answers = gates.check_folder(folder, SETTINGS, HASH)
    assert [(gate.name, gate.passed) for gate in answers] == [("bundle", False)]
    assert "golden.json" in answers[0].value


def test_tampered_weights_fail_parity(make):
    folder = make().folder
    content = json.loads((folder / "weights.json").read_text())
    content["layers"][1]["bias"][0] += 0.5
    (folder / "weights.json").write_text(json.dumps(content))
    assert failed(folder) == ["parity"]


def test_outputs_that_are_no_distribution(make):
    folder = make().folder
    content = json.loads((folder / "golden.json").read_text())
    content["outputs"][0] = [0.9, 0.9, 0.9]
    (folder / "golden.json").write_text(json.dumps(content))
    assert "outputs" in failed(folder)


def test_weights_that_overflow_far_out(make):
    folder = make().folder
    content = json.loads((folder / "weights.json").read_text())
    content["layers"][0]["kernel"] = (np.asarray(content["layers"][0]["kernel"]) * 1e36).tolist()
    (folder / "weights.json").write_text(json.dumps(content))
    with np.errstate(all="ignore"):
        assert "outputs" in failed(folder)


def test_a_forced_pass_keeps_the_reason(make):
    answers = gates.check_folder(make(metrics=GOOD | {"skill": 0.0}).folder, SETTINGS, HASH)
    tags = gates.tags(answers, forced="first week, no history yet")
    assert tags["smartcache.gates"] == "forced: first week, no history yet"
    assert tags["smartcache.gate.skill"].startswith("failed: 0.0000")
    assert gates.tags(answers)["smartcache.gates"] == "failed"


def test_expected_hash_is_that_of_the_core():
    core = paths.require_module("smartcache._core")
    expected = gates.expected_schema_hash(configs.load())
    assert expected == core.schema()["hash"]
    other = configs.parse({"features": {"token_buckets": 4}}, "test")
    assert gates.expected_schema_hash(other) != expected


def test_without_the_core_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "smartcache._core", None)
    with pytest.raises(gates.GateError, match="give the schema's hash with --schema-hash"):
        gates.expected_schema_hash(configs.load())
