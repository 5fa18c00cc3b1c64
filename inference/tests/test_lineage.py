"""The way back, also where the alias was moved in MLflow's own user interface: a watcher has to see it, as nobody else does."""

import pytest

from smartcache.inference import lineage
from smartcache.inference import promote as promotion
from smartcache.inference.install import BundleDir
from smartcache.inference.registry import RegistryAbsent, RegistryError
from smartcache.inference.rollout import Fleet
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"
BAD = METRICS | {"skill": 0.0}


@pytest.fixture
def start(registry, server, tmp_path):
    """Starts a watcher, as a new process would."""

    def start():
        return Watch(registry, BundleDir(tmp_path / "bundles", "reuse"), Fleet([server.endpoint], 0), site_config(), HASH, lambda _: None)

    (tmp_path / "bundles").mkdir()
    return start


@pytest.fixture
def by_hand(registry, make, tmp_path):
    """Moves the alias, past `smartcache promote`; a version that is not there yet is registered."""

    def by_hand(number, **changes):
        for missing in range(len(registry.known) + 1, number + 1):
            registry.add(make(tmp_path / "registry" / str(missing), seed=missing, provenance={"run_id": f"run-{missing}"}, **changes))
        registry.aliases["champion"] = number

    return by_hand


def go(watch, by_hand, *numbers):
    for number in numbers:
        by_hand(number)
        assert watch.round()
        assert watch.bundles_.current() == f"reuse_v{number}"


def test_what_was_moved_by_hand_is_rolled_back_from(start, by_hand, registry):
    watch = start()
    go(watch, by_hand, 1, 2, 3)
    assert [version.number for version in promotion.rollback(registry)] == [3, 2]
    assert watch.round()
    assert [version.number for version in promotion.rollback(registry)] == [2, 1]
    assert watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    with pytest.raises(RegistryError, match="version 1 is the first champion"):
        promotion.rollback(registry)


def test_going_back_by_hand_does_not_lead_to_what_was_left(start, by_hand, registry):
    watch = start()
    go(watch, by_hand, 1, 2, 3, 4, 2)
    assert promotion.rollback(registry)[1].number == 1


def test_a_version_that_comes_again_leads_to_what_served_before_it_now(start, by_hand, registry):
    watch = start()
    go(watch, by_hand, 1, 2, 3, 1, 3)
    assert promotion.rollback(registry)[1].number == 1


def test_what_never_served_is_passed_by(start, by_hand, registry):
    """Its gates refuse the second. It is noted all the same, at once: who rolls back from it comes to what serves."""
    watch = start()
    go(watch, by_hand, 1)
    by_hand(2, metrics=BAD)
    assert not watch.round()
    assert promotion.rollback(registry)[1].number == 1
    by_hand(2)
    assert not watch.round()
    by_hand(3)
    promotion.promote(registry, site_config(), HASH, 3)
    registry.tag(3, {lineage.PREVIOUS: "2"})
    assert watch.round()
    assert watch.bundles_.current() == "reuse_v3"
    assert promotion.rollback(registry)[1].number == 1


def test_moved_while_there_was_no_watcher(start, by_hand, registry):
    go(start(), by_hand, 1)
    go(start(), by_hand, 2)
    assert registry.known[2].tags[lineage.PREVIOUS] == "1"
    # What others have noted meanwhile is known better than by who was not there.
    by_hand(4)
    registry.tag(4, {lineage.PREVIOUS: "3"})
    registry.tag(3, {lineage.PREVIOUS: "2"})
    assert start().round()
    assert registry.known[4].tags[lineage.PREVIOUS] == "3"


def test_who_was_cut_off_does_not_write_over_what_was_noted_meanwhile(start, by_hand, registry):
    """Version 3 was bad, somebody has gone back to 2 and on to 4: the way back from 4 is 2, whatever this host has seen last."""
    watch = start()
    go(watch, by_hand, 1, 2, 3)
    by_hand(4)
    registry.aliases["champion"] = 2
    promotion.promote(registry, site_config(), HASH, 4)
    for returning in (watch, start()):
        returning.round()
        assert registry.known[4].tags[lineage.PREVIOUS] == "2"
    assert promotion.rollback(registry)[1].number == 2


def test_a_version_deleted_long_ago_does_not_cost_the_way_back(start, by_hand, registry):
    by_hand(4)
    watch = start()
    go(watch, by_hand, 1, 2, 3)
    del registry.known[1]
    registry.aliases["champion"] = 4
    assert watch.round()
    assert promotion.rollback(registry)[1].number == 3


def test_a_long_way_is_not_walked_to_its_end(registry, make, tmp_path):
    bundle = make(tmp_path / "one")
    for number in range(1, 3 * lineage.MAX_STEPS):
        registry.add(bundle, {lineage.PREVIOUS: str(number - 1)} if number > 1 else {})
    assert len(list(lineage.before(registry, registry.newest()))) == lineage.MAX_STEPS


def test_a_registry_that_goes_away_is_told_later(start, by_hand, registry):
    watch = start()
    go(watch, by_hand, 1)
    tag = registry.tag

    def absent(*_):
        raise RegistryAbsent("gone")

    registry.tag = absent
    go(watch, by_hand, 2)
    registry.tag = tag
    assert watch.round()
    assert registry.known[2].tags[lineage.PREVIOUS] == "1"
    assert lineage.SERVED in registry.known[2].tags


def test_one_that_was_deleted_in_the_registry_is_no_way_back(start, by_hand, registry):
    watch = start()
    go(watch, by_hand, 1, 2)
    del registry.known[1]
    assert watch.round()
    with pytest.raises(RegistryError, match="no version 1"):
        promotion.rollback(registry)


def test_a_circle_ends(registry, make, tmp_path):
    for number in (1, 2):
        registry.add(make(tmp_path / str(number)))
        promotion.promote(registry, site_config(), HASH, number)
    promotion.promote(registry, site_config(), HASH, 1)
    assert [version.number for version in lineage.before(registry, registry.get(1))] == [2]
    assert promotion.rollback(registry)[1].number == 2
