"""Two hosts with caches that share an endpoint, each with its own watcher, bundle folder and disk."""

import errno
from contextlib import ExitStack

import pytest

from smartcache.inference.install import BundleDir
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"


@pytest.fixture
def hosts(registry, server, said, tmp_path):
    """Two watchers of that registry and that endpoint."""
    with ExitStack() as stack:
        hosts = []
        for name in ("a", "b"):
            endpoint = stack.enter_context(Endpoint(server.endpoint.url, timeout_s=5))
            folder = BundleDir(tmp_path / name, "reuse")
            stack.enter_context(folder.writer())
            hosts.append(Watch(registry, folder, Fleet([endpoint], wait_s=0), site_config(), HASH, said.append))
        yield hosts


@pytest.fixture
def defaults(server):
    """What the endpoint's default was moved to, each time."""
    moved = []
    handle = server.handle

    def noted(request):
        answer = handle(request)
        if request.command == "POST" and request.path == "/params":
            moved.append(server.default)
        return answer

    server.handle = noted
    return moved


def full(watch):
    """Its disk takes no bundle any more."""

    def place(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    watch.bundles_.place = place


def rounds(hosts, count=4):
    """Each host in its turn, several times."""
    for _ in range(count):
        for watch in hosts:
            watch.round()


def live(hosts):
    return [watch.bundles_.current() for watch in hosts]


def test_a_host_that_lags_leaves_the_champion_the_default(hosts, publish, server, registry, defaults, said):
    """Its own caches name the version that is live here, and have it."""
    publish()
    rounds(hosts)
    full(hosts[1])
    publish()
    rounds(hosts)
    assert live(hosts) == ["reuse_v2", "reuse_v1"]
    assert server.default == "reuse_v2"
    assert defaults == ["reuse_v1", "reuse_v2"], "moved once, and by nobody back"
    assert [watch.fleet.members[0].serves for watch in hosts] == ["reuse_v2", "reuse_v1"]
    assert not [line for line in said if "golden row" in line]
    del hosts[1].bundles_.place  # there is room again
    rounds(hosts)
    assert live(hosts) == ["reuse_v2", "reuse_v2"]
    assert defaults == ["reuse_v1", "reuse_v2"]


def test_a_host_that_cannot_go_back_leaves_it_too(hosts, publish, registry, server, defaults):
    """The champion is the older one."""
    publish()
    publish()
    rounds(hosts)
    full(hosts[1])
    registry.aliases["champion"] = 1
    rounds(hosts)
    assert live(hosts) == ["reuse_v1", "reuse_v2"]
    assert server.default == "reuse_v1"
    assert defaults == ["reuse_v2", "reuse_v1"]


def test_of_two_that_lag_the_newer_one_decides(hosts, publish, server, defaults):
    publish()
    rounds(hosts)
    full(hosts[1])
    publish()
    rounds(hosts)
    publish(metrics=METRICS | {"skill": 0.0})
    rounds(hosts)
    assert live(hosts) == ["reuse_v2", "reuse_v1"]
    assert defaults == ["reuse_v1", "reuse_v2"]


def test_without_the_registry_nobody_moves_what_is_served(hosts, publish, server, registry, defaults):
    publish()
    rounds(hosts)
    full(hosts[1])
    publish()
    rounds(hosts)
    registry.absent = True
    rounds(hosts)
    assert defaults == ["reuse_v1", "reuse_v2"]
    # None is no default, and neither is one that is not there.
    server.default = ""
    hosts[1].round()
    assert server.default == "reuse_v1"
    server.default = "reuse_v9"
    hosts[0].round()
    assert server.default == "reuse_v2"


def test_a_champion_that_is_gone_there_is_no_default(hosts, publish, server, defaults):
    publish()
    rounds(hosts)
    hosts[1].config = site_config(min_skill=0.99)
    publish()
    rounds(hosts)
    assert live(hosts) == ["reuse_v2", "reuse_v1"]
    hosts[0].fleet.members[0].endpoint.delete("reuse_v2")
    assert server.default == "reuse_v2"
    hosts[1].round()
    assert server.default == "reuse_v1"
    hosts[0].round()
    assert server.default == "reuse_v2"
