"""What serves where, told from a faked registry and endpoints; test_real_fleet.py has the real ones."""

import json
from contextlib import ExitStack

import pytest

from smartcache import config as configs
from smartcache.inference import compare, show, status
from smartcache.inference.install import BundleDir
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.tests.tables import HOUR_US, T0_US, Open, write
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"
CONFIG = site_config()


@pytest.fixture
def site(fakes, make, tmp_path):
    """A registry, two endpoints and a watcher's folder; version 1 is champion and live."""
    with ExitStack() as stack:

        class Site:
            registry = fakes.FakeRegistry()
            folder = BundleDir(tmp_path / "bundles", "reuse")

        Site.servers, Site.endpoints = [], []
        for _ in range(2):
            fake, url = stack.enter_context(fakes.serve())
            Site.servers.append(fake)
            Site.endpoints.append(stack.enter_context(Endpoint(url, timeout_s=5)))

        def publish(tags=None, **changes):
            number = len(Site.registry.known) + 1
            folder = tmp_path / "registry" / str(number)
            Site.registry.add(make(folder, seed=number, provenance={"run_id": f"run-{number}"}, **changes), tags)
            return number

        Site.publish = staticmethod(publish)
        Site.registry.aliases["champion"] = publish(
            {"smartcache.gates": "passed", "smartcache.test_skill": "0.3", "smartcache.test_x": "?"}
        )
        Site.watch = Watch(Site.registry, Site.folder, Fleet(Site.endpoints, 0.0), CONFIG, HASH, lambda _: None)
        stack.enter_context(Site.folder.writer())
        assert Site.watch.round()
        yield Site


def gather(site):
    return status.gather(site.registry, [site.folder], site.endpoints)


def test_all_well(site, capsys):
    found = gather(site)
    assert found.all_serve_champion
    assert [(place.kind, place.serves, place.right) for place in found.places] == [
        ("bundles", "reuse_v1", True),
        ("endpoint", "reuse_v1", True),
        ("endpoint", "reuse_v1", True),
    ]
    assert all(place.since_us for place in found.places)
    assert found.versions[0].figures == {"skill": 0.3}
    assert found.pending == found.troubles == []
    show.status(found)
    assert "all serve the champion" in capsys.readouterr().out
    assert json.loads(json.dumps(found.to_json()))["all_serve_champion"] is True


def test_asking_changes_nothing(site):
    for fake in site.servers:
        fake.requests.clear()
    gather(site)
    for fake in site.servers:
        assert set(fake.requests) == {"GET /models", "GET /status", "POST /json"}


def test_an_endpoint_is_away(site, capsys):
    site.servers[1].refuse[""] = 503
    site.watch.round()
    found = gather(site)
    assert not found.all_serve_champion
    assert [place.right for place in found.places] == [True, True, False]
    assert found.places[2].away_since_us
    assert found.pending == [f"{site.endpoints[1].url}: {site.endpoints[1].url}/models: status 503: refused"]
    assert found.troubles == [f"{site.endpoints[1].url}/models: status 503: refused"]
    show.status(found)
    out = capsys.readouterr().out
    assert "away since" in "".join(out.split("\n")) or "away" in out
    assert "not all serve the champion" in out


def test_an_endpoint_answers_wrong(site):
    """Its name is right, and what it says is not: that is asked, not believed."""
    site.servers[0].answer = lambda outputs: outputs[::-1]
    found = gather(site)
    assert found.places[1].serves == "reuse_v1"
    assert not found.places[1].right
    assert "golden row 0" in found.places[1].note
    assert not found.all_serve_champion


@pytest.mark.parametrize("lost", ["default", "model"])
def test_an_endpoint_serves_another(site, lost):
    if lost == "default":
        site.servers[0].default = "reuse_v0"
    else:
        site.endpoints[0].delete("reuse_v1")
    found = gather(site)
    assert [place.right for place in found.places] == [True, False, True]
    assert found.places[1].since_us is None or lost == "model"


def test_a_champion_that_is_not_live_yet(site):
    site.registry.aliases["champion"] = site.publish()
    found = gather(site)
    assert found.champion == 2
    assert not any(place.right for place in found.places)
    assert f"{site.folder.folder}: serves reuse_v1" in found.pending
    assert f"{site.endpoints[0].url}: reuse_v2 is not there" in found.pending


def test_what_failed_its_gates_and_why(site):
    site.registry.aliases["champion"] = site.publish(metrics=METRICS | {"skill": 0.0})
    site.watch.round()
    found = gather(site)
    assert not found.all_serve_champion
    assert any(line.startswith("version 2 failed its gates: skill 0.0000 (loss at least 0.02") for line in found.pending)
    assert "champion version 2 is refused by its gates" in found.troubles[0]


def test_a_challenger_and_what_nobody_judged(site):
    site.publish()
    site.registry.aliases["challenger"] = 2
    found = gather(site)
    assert found.all_serve_champion
    assert [(version.number, version.role) for version in found.versions] == [(2, "challenger"), (1, "champion")]
    assert found.pending == ["version 2 has met no gates yet: `smartcache promote 2`"]
    site.registry.tag(2, {"smartcache.gates": "passed"})
    assert gather(site).pending == ["version 2 (challenger) has passed its gates: `smartcache promote 2`"]


def test_older_versions_are_no_news(site):
    for _ in range(2):
        site.publish()
    site.registry.aliases["champion"] = 3
    site.registry.tag(2, {"smartcache.gates": "failed", "smartcache.gate.skill": "failed: 0 (x)"})
    assert site.watch.round()
    assert [version.number for version in gather(site).versions] == [3]


def test_a_damaged_bundle_and_no_watcher(site):
    (site.folder.folder / "reuse_v1" / "weights.json").write_text("{")
    found = gather(site)
    assert not found.places[0].right
    assert found.places[0].note == "the bundle is damaged"
    elsewhere = BundleDir(site.folder.folder.parent / "elsewhere", "reuse")
    other = status.gather(site.registry, [elsewhere], [])
    assert (other.places[0].serves, other.places[0].note) == ("", "no `smartcache watch` runs here")


def test_no_registry(site, capsys):
    site.registry.absent = True
    found = gather(site)
    assert not found.all_serve_champion
    assert [place.serves for place in found.places] == ["reuse_v1"] * 3
    show.status(found)
    assert "cannot be reached" in capsys.readouterr().out


def test_no_champion(site):
    site.registry.aliases.clear()
    found = gather(site)
    assert not found.all_serve_champion
    assert found.pending[0].startswith("there is no champion")


@pytest.mark.parametrize("text", ["", "[]", '{"endpoints": 3, "troubles": {"a": 1}}', '{"endpoints": [1, {"url": 3, "since_us": "x"}]}'])
def test_a_state_that_is_damaged(site, text):
    (site.folder.folder / ".state.json").write_text(text)
    found = gather(site)
    assert found.all_serve_champion
    assert found.places[1].since_us is None


# --- the challenger ---


def try_challenger(site, number, canary_share=0.1, shadow=True):
    """The watcher tries version ``number``."""
    settings = configs.Challenger(canary_share=canary_share, shadow=shadow, compare_days=7.0)
    site.watch.config = site.watch.challengers._config = CONFIG.model_copy(update={"challenger": settings})
    site.registry.aliases["challenger"] = number
    return site.watch.round()


def answers(tmp_path):
    """An access table in which version 1 has served, 2 had the canary and was a shadow, and 9 is of long ago."""
    said = {"asked": True, "on_disk": False}
    opens = [
        Open(T0_US, "/s/a", model="reuse_v1", answer="admit", score=0.8, b_read=100, b_miss=100, **said),
        Open(T0_US + HOUR_US, "/s/a", model="reuse_v1", answer="admit", score=0.9, b_read=100, b_hit=100, **said),
        Open(
            T0_US + 2 * HOUR_US,
            *("/s/b",),
            **{"model": "reuse_v1", "answer": "bypass", "score": 0.2, **said},
            **{"challenger_model": "reuse_v2", "challenger_answer": "admit", "challenger_score": 0.7},
        ),
        Open(T0_US + 3 * HOUR_US, "/s/c", model="reuse_v2", answer="bypass", score=0.1, b_read=50, b_bypass=50, **said),
        Open(T0_US + 4 * HOUR_US, "/s/d", model="reuse_v9", answer="admit", score=0.9, **said),
    ]
    return configs.parse({"streaming": {"table": str(write(tmp_path / "access", opens))}}, "test")


def test_the_challenger_beside_the_champion(site, tmp_path, capsys):
    config = answers(tmp_path)
    assert try_challenger(site, site.publish({"smartcache.gates": "passed"}))
    found = status.gather(site.registry, [site.folder], site.endpoints, lambda name: compare.of(config, name))
    assert found.all_serve_champion
    assert found.challenger == 2
    (tried,) = found.tried
    assert (tried.where, tried.version, tried.canary_share, tried.shadow) == (str(site.folder.folder), "reuse_v2", 0.1, True)
    assert tried.right
    assert tried.since_us == BundleDir(site.folder.folder / "challenger", "reuse").current_since_us()
    assert tried.since_us
    assert {(row.version, row.role): row.opens for row in found.comparison.rows} == {
        ("reuse_v1", "served"): 3,
        ("reuse_v2", "canary"): 1,
        ("reuse_v2", "shadow"): 1,
    }
    assert found.comparison.agreements == compare.of(config, "reuse_v2").agreements
    assert found.pending == ["version 2 (challenger) has passed its gates: `smartcache promote 2`"]
    show.status(found)
    out = capsys.readouterr().out
    assert "10 %" in out
    assert "would have answered" in out
    told = json.loads(json.dumps(found.to_json()))
    assert told["tried"][0]["version"] == "reuse_v2"
    assert told["comparison"]["rows"][0]["opens"] == 3


def test_figures_that_cannot_be_had_hide_nothing_else(site, capsys):
    assert try_challenger(site, site.publish())
    nowhere = configs.parse({"streaming": {"table": "/nowhere/access"}}, "test")
    found = status.gather(site.registry, [site.folder], site.endpoints, lambda name: compare.of(nowhere, name))
    assert found.comparison is None
    assert "no `smartcache stream` has written a table there yet" in found.comparison_note
    show.status(found)
    assert "no figures of the challenger: [streaming] table /nowhere/access" in " ".join(capsys.readouterr().out.split())
    assert status.gather(site.registry, [site.folder], site.endpoints).comparison_note == "", "nobody has asked"


def test_of_two_that_are_tried_the_newer_one_is_compared():
    """By their numbers: as text the tenth comes before the ninth."""
    tried = [status.Tried(f"/{name}", name, None, 0.1, shadow=False, right=True, note="") for name in ("reuse_v10", "reuse_v9", "other")]
    asked = []

    def compared(name):
        asked.append(name)
        raise compare.CompareError("no table")

    assert status._compared(compared, tried, "reuse_v8") == (None, "no table")
    assert asked == ["reuse_v10"]


def test_a_challenger_that_nobody_tries(site, capsys):
    """The alias is there, as after each training, but the site has neither a canary nor a shadow: nothing is pending."""
    site.registry.aliases["challenger"] = site.publish({"smartcache.gates": "passed"})
    assert site.watch.round()
    found = gather(site)
    assert [(each.version, each.right, each.wanted) for each in found.tried] == [("", False, False)]
    assert found.pending == ["version 2 (challenger) has passed its gates: `smartcache promote 2`"]
    show.status(found)
    assert "not asked for" in " ".join(capsys.readouterr().out.split())


def test_a_challenger_that_is_not_the_one_that_is_tried(site):
    assert try_challenger(site, site.publish())
    site.registry.aliases["challenger"] = site.publish()
    found = gather(site)
    assert (found.tried[0].version, found.tried[0].right) == ("reuse_v2", False)
    assert f"{site.folder.folder}: tries reuse_v2, the challenger is reuse_v3" in found.pending
    del site.registry.aliases["challenger"]
    assert f"{site.folder.folder}: tries reuse_v2, there is no challenger" in gather(site).pending
    assert site.watch.round()
    assert gather(site).tried == []


def test_a_challenger_whose_bundle_is_damaged(site):
    assert try_challenger(site, site.publish())
    (site.folder.folder / "challenger" / "reuse_v2" / "weights.json").write_text("{")
    found = gather(site)
    assert not found.tried[0].right
    assert f"{site.folder.folder}: the bundle is damaged, the challenger is reuse_v2" in found.pending


def test_a_challenger_that_has_become_the_champion(site):
    assert try_challenger(site, site.publish())
    site.registry.aliases["champion"] = 2
    assert site.watch.round()
    found = gather(site)
    assert found.all_serve_champion
    assert (found.challenger, found.tried) == (2, [])
