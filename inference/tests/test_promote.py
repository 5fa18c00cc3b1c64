import pytest

from smartcache import config as configs
from smartcache.inference import promote as promotion
from smartcache.inference.registry import RegistryError
from smartcache.inference.tests.fakes import METRICS

HASH = "0123456789abcdef"
SETTINGS = configs.load().gates
BAD = METRICS | {"skill": 0.0}


@pytest.fixture
def registry(fakes, make, tmp_path):
    """Versions 1, 2 and 4 are good, 3 has no skill."""
    registry = fakes.FakeRegistry()
    for number in range(1, 5):
        registry.add(make(tmp_path / str(number), **({"metrics": BAD} if number == 3 else {})))
    return registry


def test_newest_is_promoted(registry):
    done = promotion.promote(registry, SETTINGS, HASH)
    assert (done.version.number, done.moved, done.passed, done.previous) == (4, True, True, None)
    assert registry.aliases["champion"] == 4
    assert registry.versions[4].tags["smartcache.gates"] == "passed"


def test_a_failed_gate_moves_nothing(registry):
    promotion.promote(registry, SETTINGS, HASH, 1)
    done = promotion.promote(registry, SETTINGS, HASH, 3)
    assert (done.moved, done.passed) == (False, False)
    assert registry.aliases["champion"] == 1
    assert registry.versions[3].tags["smartcache.gates"] == "failed"
    assert "smartcache.previous_champion" not in registry.versions[3].tags


def test_force_needs_a_bundle(registry):
    (registry.folders[3] / "weights.json").unlink()
    assert not promotion.promote(registry, SETTINGS, HASH, 3, force="anyway").moved
    assert "champion" not in registry.aliases


def test_force_keeps_the_reason(registry):
    assert promotion.promote(registry, SETTINGS, HASH, 3, force="first week").moved
    assert registry.versions[3].tags["smartcache.gates"] == "forced: first week"


def test_dry_run_writes_nothing(registry):
    done = promotion.promote(registry, SETTINGS, HASH, 4, dry_run=True)
    assert (done.moved, done.passed) == (False, True)
    assert registry.aliases == {}
    assert registry.versions[4].tags == {}


def test_there_and_back(registry):
    for number in (1, 2, 4):
        promotion.promote(registry, SETTINGS, HASH, number)
    assert [version.number for version in promotion.rollback(registry)] == [4, 2]
    assert registry.aliases["champion"] == 2
    assert [version.number for version in promotion.rollback(registry)] == [2, 1]
    with pytest.raises(RegistryError, match="version 1 is the first champion"):
        promotion.rollback(registry)


def test_promoting_the_champion_again_keeps_the_way_back(registry):
    promotion.promote(registry, SETTINGS, HASH, 1)
    promotion.promote(registry, SETTINGS, HASH, 2)
    assert not promotion.promote(registry, SETTINGS, HASH, 2).moved
    assert promotion.rollback(registry)[1].number == 1


def test_nothing_to_roll_back(registry):
    with pytest.raises(RegistryError, match="has no champion to roll back from"):
        promotion.rollback(registry)
