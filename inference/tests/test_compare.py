"""Champion and challenger side by side, on tables that are made here."""

import json

import pytest

from smartcache import config as configs
from smartcache.inference import compare
from smartcache.inference.tests.real_site import run
from smartcache.inference.tests.tables import DAY_US, HOUR_US, T0_US, Open, write

HORIZON_S = 7200.0


def answered(hour, lfn, answer, score, model="reuse_v1", shadow=None, **more):
    said = {} if shadow is None else dict(zip(("challenger_model", "challenger_answer", "challenger_score"), shadow, strict=True))
    known = {"reason": "model", "on_disk": False, **said, **more}
    return Open(T0_US + hour * HOUR_US, lfn, asked=True, answer=answer, score=score, model=model, **known)


OPENS = [
    # Files a and b come again after an hour, c and d never; all are watched for longer than the horizon.
    answered(0, "/s/a", "admit", 0.8, shadow=("reuse_v2", "admit", 0.6), b_read=100, b_miss=100),
    answered(0, "/s/b", "bypass", 0.2, shadow=("reuse_v2", "admit", 0.7), b_read=50, b_bypass=50),
    answered(0, "/s/c", "admit", 0.7, shadow=("reuse_v2", "bypass", 0.1), b_read=10, b_miss=10),
    answered(0, "/s/d", "bypass", 0.1, model="reuse_v2"),
    answered(1, "/s/a", "admit", 0.9, shadow=("reuse_v2", "admit", 0.9), b_read=100, b_hit=100),
    answered(1, "/s/b", "bypass", 0.2, shadow=("reuse_v2", "bypass", 0.2)),
    # Too near to the end: nobody knows yet.
    answered(10, "/s/e", "admit", 0.9),
    # No model's answer.
    Open(T0_US + 3 * HOUR_US, "/s/f", asked=True, answer="admit", model=""),
]


@pytest.fixture
def config(tmp_path):
    table = write(tmp_path / "access", OPENS)
    return configs.parse({"streaming": {"table": str(table)}, "training": {"bucket_edges_s": [HORIZON_S], "horizon_s": HORIZON_S}}, "test")


def test_side_by_side(config):
    found = compare.compare(config, 7.0, HORIZON_S, "reuse_v2")
    rows = {(row.version, row.role): row for row in found.rows}
    assert set(rows) == {("reuse_v1", "served"), ("reuse_v2", "canary"), ("reuse_v2", "shadow")}
    served, shadow, canary = rows["reuse_v1", "served"], rows["reuse_v2", "shadow"], rows["reuse_v2", "canary"]
    assert (served.opens, served.admit, served.bypass, served.evict, served.known) == (6, 4, 2, 0, 5)
    assert served.bypassed_and_opened == 0.5
    # Stored: a at 0 h, which came; c and a at 1 h, which did not.
    assert served.stored_and_not_opened == pytest.approx(2 / 3)
    errors = [(0.8, 1), (0.2, 1), (0.7, 0), (0.9, 0), (0.2, 0)]
    assert served.score_error == pytest.approx(sum((score - came) ** 2 for score, came in errors) / 5)
    assert served.missed == pytest.approx(160 / 260)
    assert (shadow.opens, shadow.admit, shadow.bypass) == (5, 3, 2)
    assert shadow.bypassed_and_opened == 0.0
    assert shadow.stored_and_not_opened == pytest.approx(1 / 3)
    assert shadow.read_bytes is shadow.missed is None
    assert (canary.opens, canary.bypass) == (1, 1)


def test_the_same_opens(config):
    found = compare.compare(config, 7.0, HORIZON_S)
    agreed = {(each.answer, each.shadow_answer): each.opens for each in found.agreements}
    assert agreed == {("admit", "admit"): 2, ("admit", "bypass"): 1, ("bypass", "admit"): 1, ("bypass", "bypass"): 1}


@pytest.mark.parametrize("reason", ["rule", "vote", "explore", "budget", "guard", "off"])
def test_what_was_answered_past_the_model_is_not_the_models(config, tmp_path, reason):
    """It was asked, and something else decided. What the shadow said is its own all the same."""
    past = [
        answered(2, "/s/g", "bypass", 0.9, reason=reason, b_read=1000, b_bypass=1000),
        answered(3, "/s/g", "bypass", 0.9, reason=reason, shadow=("reuse_v2", "admit", 0.5)),
    ]
    settings = {"streaming": {"table": str(write(tmp_path / "with", [*OPENS, *past]))}}
    found = compare.compare(configs.parse(settings, "test"), 7.0, HORIZON_S, "reuse_v2")
    without = compare.compare(config, 7.0, HORIZON_S, "reuse_v2")

    def served(comparison):
        return [row for row in comparison.rows if row.role != "shadow"]

    assert served(found) == served(without)
    assert found.agreements == without.agreements
    (shadow,) = [row for row in found.rows if row.role == "shadow"]
    assert shadow.opens == 6


@pytest.mark.parametrize("reason", ["cached", "deadline", "breaker_open", "unreachable", "invalid_reply", "error"])
def test_what_its_copy_answered_is_the_models(tmp_path, reason):
    settings = {"streaming": {"table": str(write(tmp_path / "table", [answered(0, "/s/a", "admit", 0.9, reason=reason)]))}}
    (row,) = compare.compare(configs.parse(settings, "test"), 7.0, HORIZON_S).rows
    assert (row.version, row.opens) == ("reuse_v1", 1)


def test_only_the_last_days(tmp_path):
    old = [answered(-24 * 30, "/s/old", "admit", 0.5)]
    table = write(tmp_path / "access", [*old, *OPENS])
    config = configs.parse({"streaming": {"table": str(table)}}, "test")
    assert sum(row.opens for row in compare.compare(config, 7.0, HORIZON_S).rows if row.role == "served") == 7
    assert compare.compare(config, 60.0, HORIZON_S).from_us == T0_US - 30 * DAY_US


def test_nobody_has_answered(tmp_path):
    table = write(tmp_path / "access", [Open(T0_US, "/a")])
    config = configs.parse({"streaming": {"table": str(table)}}, "test")
    found = compare.compare(config, 7.0, HORIZON_S)
    assert (found.rows, found.agreements) == ([], [])


def test_no_table():
    config = configs.parse({"streaming": {"table": "/nowhere/access"}}, "test")
    with pytest.raises(compare.CompareError, match="compare where the table is"):
        compare.compare(config, 7.0, HORIZON_S)


def test_the_command(config, tmp_path):
    """The registry is away: what it is asked for is a word."""
    from smartcache.inference.cli import register

    file = tmp_path / "site.toml"
    file.write_text(
        f'[streaming]\ntable = "{config.streaming.table}"\n[mlflow]\ntracking_uri = "http://127.0.0.1:1"\n'
        f"[training]\nbucket_edges_s = [{HORIZON_S}]\nhorizon_s = {HORIZON_S}\n"
    )
    code, output = run(register, "compare", "--json", "--config", str(file))
    assert code == 0, output
    told, _ = json.JSONDecoder().raw_decode(output[output.index("{") :])
    assert {(row["version"], row["role"]) for row in told["rows"]} == {
        ("reuse_v1", "served"),
        ("reuse_v2", "served"),
        ("reuse_v2", "shadow"),
    }
    code, output = run(register, "compare", "--config", str(file))
    assert code == 0, output
    assert "the same opens" in output
