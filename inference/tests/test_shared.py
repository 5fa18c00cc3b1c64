"""Two hosts with caches that share an endpoint, each with its own watcher, bundle folder and disk."""

import errno
import threading
from contextlib import ExitStack

import pytest

from smartcache.inference.fetched import Overtaken
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


def test_a_host_whose_look_at_the_alias_is_older_leaves_it_too(hosts, publish, server, defaults, monkeypatch):
    """The other one has followed the alias in between."""
    publish()
    rounds(hosts)
    begin = hosts[1]._lookout.begin

    def begin_early():
        begin()
        publish()
        hosts[0].round()

    with monkeypatch.context() as late:
        late.setattr(hosts[1]._lookout, "begin", begin_early)
        hosts[1].round()
    assert live(hosts) == ["reuse_v2", "reuse_v1"]
    assert defaults == ["reuse_v1", "reuse_v2"]
    rounds(hosts)
    assert live(hosts) == ["reuse_v2", "reuse_v2"]
    assert defaults == ["reuse_v1", "reuse_v2"]


def test_a_default_is_left_alone_where_the_registry_goes_away_in_a_round(hosts, publish, server, registry, defaults, monkeypatch):
    publish()
    rounds(hosts)
    publish()
    rounds(hosts[:1])
    begin = hosts[1]._lookout.begin

    def begin_and_lose():
        registry.aliases["champion"] = 1
        begin()
        registry.absent = True

    with monkeypatch.context() as away:
        away.setattr(hosts[1]._lookout, "begin", begin_and_lose)
        hosts[1].round()
    assert live(hosts) == ["reuse_v2", "reuse_v1"]
    assert defaults == ["reuse_v1", "reuse_v2"]
    registry.absent = False
    rounds(hosts)
    assert defaults == ["reuse_v1", "reuse_v2", "reuse_v1"]


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


# --- what is said in MLflow ---


def test_each_host_has_its_own_report(hosts, publish, registry, monkeypatch):
    """One for which the version is live does not write over why it is not at another one."""
    publish(metrics=METRICS | {"skill": 0.2})
    hosts[1].config = site_config(min_skill=0.25)
    for watch, host in zip(hosts, ("one.example.org", "../two hosts"), strict=True):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        watch.round()
    monkeypatch.setattr("socket.gethostname", lambda: "one.example.org")
    hosts[0].round()
    reports = {path: text for path, text in registry.artifacts.items() if path.endswith(".md")}
    assert set(reports) == {"run-1/gates/watch-one.example.org.md", "run-1/gates/watch-.._two_hosts.md"}
    assert reports["run-1/gates/watch-one.example.org.md"].startswith("# reuse_v1: passed")
    assert "| skill | 0.2000 |" in reports["run-1/gates/watch-.._two_hosts.md"]
    assert reports["run-1/gates/watch-.._two_hosts.md"].startswith("# reuse_v1: failed")


@pytest.mark.parametrize(
    ("told", "over"),
    [({"smartcache.gates": "failed"}, False), ({"smartcache.gates": "passed"}, False), ({"smartcache.gates": "forced: go"}, True)],
)
def test_what_another_host_says_begins_no_replay_anew(hosts, publish, registry, told, over):
    """That somebody has forced the version meanwhile ends it."""
    number = publish()
    judged = registry.champion()
    lookout = hosts[0]._lookout
    lookout.begin()
    lookout.asked(threading.Event(), wake := threading.Event())
    registry.tag(number, told)
    wake.set()  # so that it looks at once
    if over:
        with pytest.raises(Overtaken) as raised:
            lookout.judging(judged)
        assert raised.value.champion.tags == told
    else:
        lookout.judging(judged)
    assert not wake.is_set()
