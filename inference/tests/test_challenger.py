"""The challenger's bundle beside the champion's: it comes, changes and goes with MLflow's alias, and never passes for a champion."""

import shutil
from contextlib import ExitStack

import pytest

from smartcache import config as configs
from smartcache.inference import bundle as bundles
from smartcache.inference.install import BundleDir
from smartcache.inference.pause import Pause, Pauses
from smartcache.inference.registry import GivenUp
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, FakeRegistry, site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"
TRIED = site_config().model_copy(update={"challenger": configs.Challenger(canary_share=0.1, shadow=True, compare_days=7.0)})


@pytest.fixture
def registry(make, tmp_path):
    """Versions 1, 2 and 4 are good, 3 has no skill, 5 is of other features; 1 is the champion."""
    registry = FakeRegistry()
    for number in range(1, 6):
        more = {3: {"metrics": METRICS | {"skill": 0.0}}, 5: {"schema": {"version": 1, "names": ["a", "b", "c"], "hash": "f" * 16}}}.get(
            number, {}
        )
        registry.add(make(tmp_path / "registry" / str(number), seed=number, provenance={"run_id": f"run-{number}"}, **more))
    registry.aliases["champion"] = 1
    return registry


@pytest.fixture
def said():
    return []


@pytest.fixture
def watch(registry, said, tmp_path):
    folder = BundleDir(tmp_path / "bundles", "reuse")
    watch = Watch(registry, folder, Fleet([], wait_s=0), TRIED, HASH, said.append)
    with folder.writer():
        yield watch


def tried(watch):
    return watch.challengers.folder.current()


def test_nothing_is_tried_unless_it_is_asked_for(watch, registry, tmp_path):
    watch.config = watch.challengers._config = site_config()
    registry.aliases["challenger"] = 2
    assert watch.round()
    assert not (tmp_path / "bundles" / "challenger").exists()
    assert registry.downloads == 1


def test_it_comes_changes_and_goes_with_the_alias(watch, registry, said):
    assert watch.round()
    assert tried(watch) is None
    registry.aliases["challenger"] = 2
    assert watch.round()
    assert tried(watch) == "reuse_v2"
    assert watch.bundles_.current() == "reuse_v1"
    assert said[-1] == "challenger reuse_v2 is tried: canary, 0.1 of the files, shadow"
    registry.aliases["challenger"] = 4
    assert watch.round()
    assert tried(watch) == "reuse_v4"
    assert watch.challengers.folder.names() == {"reuse_v4"}
    del registry.aliases["challenger"]
    assert watch.round()
    assert tried(watch) is None
    assert said[-1] == "challenger reuse_v4 is not tried any more"


def test_it_can_be_taken_away_while_the_champion_is_in_trouble(watch, registry, said):
    registry.aliases["challenger"] = 2
    watch.round()
    registry.aliases["champion"] = 3
    assert not watch.round()
    assert tried(watch) == "reuse_v2"
    del registry.aliases["challenger"]
    assert not watch.round()
    assert tried(watch) is None
    assert watch.bundles_.current() == "reuse_v1"
    assert "challenger reuse_v2 is not tried any more" in said


def test_a_quiet_round_downloads_nothing(watch, registry, said):
    registry.aliases["challenger"] = 2
    watch.round()
    downloads = registry.downloads
    said.clear()
    assert watch.round()
    assert registry.downloads == downloads
    assert said == []


def test_the_champion_does_not_challenge_itself(watch, registry):
    registry.aliases["challenger"] = 2
    watch.round()
    registry.aliases["champion"] = 2
    assert watch.round()
    assert watch.bundles_.current() == "reuse_v2"
    assert tried(watch) is None


def test_a_challenger_that_becomes_champion_meets_all_gates(watch, registry, said):
    """Its bundle is on this disk, as that of a version which is rolled back to is; that one has met them."""
    registry.aliases["challenger"] = 3
    assert watch.round()
    assert tried(watch) == "reuse_v3"
    registry.aliases["champion"] = 3
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert "champion version 3 is refused by its gates: skill failed" in said[-1]


def test_one_that_cannot_be_evaluated_is_not_tried(watch, registry, said):
    registry.aliases["challenger"] = 5
    assert not watch.round()
    assert not watch.round()
    assert tried(watch) is None
    assert registry.downloads == 2
    assert len([line for line in said if "challenger version 5 cannot be tried: schema failed" in line]) == 1
    assert watch.bundles_.current() == "reuse_v1"
    registry.aliases["challenger"] = 2
    assert watch.round()


def test_a_torn_download_is_fetched_again(watch, registry, said):
    watch.round()
    registry.aliases["challenger"] = 2
    registry.torn = True
    assert not watch.round()
    assert tried(watch) is None
    registry.torn = False
    assert watch.round()
    assert tried(watch) == "reuse_v2"


@pytest.mark.parametrize(("alias", "number"), [("challenger", 4), ("challenger", None), ("champion", 4)])
def test_its_download_is_not_waited_for_where_an_alias_moves(watch, registry, monkeypatch, alias, number):
    assert watch.round()
    registry.aliases["challenger"] = 2
    download = registry.download_bundle

    def moved_meanwhile(version, folder, waiting):
        if version.number == 2 and registry.aliases != moved:
            registry.aliases = dict(moved)
            watch._lookout._next_s = watch.challengers._next_s = 0.0  # it is time to look
            waiting()
            raise AssertionError("it is waited for")
        return download(version, folder, waiting)

    moved = {name: to for name, to in {**registry.aliases, alias: number}.items() if to is not None}
    monkeypatch.setattr(registry, "download_bundle", moved_meanwhile)
    watch.round()
    assert watch._overtaken, "the next round comes at once"
    assert watch.round()
    assert watch.bundles_.current() == f"reuse_v{moved['champion']}"
    assert tried(watch) == (f"reuse_v{moved['challenger']}" if "challenger" in moved else None)
    assert not list(watch.challengers.folder.folder.glob(".incoming-*"))


def test_a_download_that_never_ends_is_begun_ever_more_rarely(watch, registry, monkeypatch):
    """Each holds up a round for as long as anybody waits."""
    now = [1000.0]
    watch.challengers._pause = Pause(5.0, 60.0, clock=lambda: now[0])
    assert watch.round()
    registry.aliases["challenger"] = 2
    begun = []

    def trickles(*_):
        begun.append(now[0] - 1000.0)
        raise GivenUp("MLflow cannot be reached: it has not answered in full")

    monkeypatch.setattr(registry, "download_bundle", trickles)
    for second in range(40):
        now[0] = 1000.0 + second
        assert not watch.round()
    assert begun == [0, 5, 15, 35]


def test_its_trouble_holds_up_no_champion(watch, registry):
    registry.aliases["challenger"] = 5
    watch.round()
    registry.aliases["champion"] = 2
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v2"


def test_a_damaged_one_is_fetched_again(watch, registry):
    registry.aliases["challenger"] = 2
    watch.round()
    (watch.challengers.folder.folder / "reuse_v2" / "weights.json").write_text("{")
    assert watch.round()
    assert watch.challengers.folder.installed("reuse_v2") is not None


def test_a_registry_made_anew(watch, registry, make, tmp_path):
    """Numbers begin again: the same name is another model."""
    registry.aliases["challenger"] = 2
    watch.round()
    other = make(tmp_path / "anew", seed=9, provenance={"run_id": "run-other"})
    registry.folders[2] = other.folder
    registry.known[2] = type(registry.known[2])(2, "run-other")
    assert watch.round()
    assert watch.challengers.folder.installed("reuse_v2").info.provenance["run_id"] == "run-other"


def test_what_a_killed_watcher_left_is_removed(watch, tmp_path):
    left = tmp_path / "bundles" / "challenger" / ".incoming-x"
    left.mkdir(parents=True)
    with watch.challengers.writer():
        assert not left.exists()


# --- the canary is answered by the endpoints ---


@pytest.fixture
def fleet_watch(registry, server, said, tmp_path):
    """As ``watch``, with an endpoint."""
    folder = BundleDir(tmp_path / "bundles", "reuse")
    watch = Watch(registry, folder, Fleet([server.endpoint], wait_s=0), TRIED, HASH, said.append)
    with folder.writer():
        yield watch


def uploads_in_rounds(watch, server, now):
    """The seconds in which something was uploaded, of 40 rounds a second apart that all have something in their way."""
    uploads = []
    for second in range(40):
        now[0] = 1000.0 + second
        server.requests.clear()
        assert not watch.round()
        uploads += [second] * ("POST /upload" in server.requests)
    return uploads


def test_the_endpoint_holds_it_before_it_is_tried(fleet_watch, registry, server):
    assert fleet_watch.round()
    registry.aliases["challenger"] = 2
    seen = []
    server.before = lambda path: seen.append((path, tried(fleet_watch)))
    assert fleet_watch.round()
    assert tried(fleet_watch) == "reuse_v2"
    assert server.names == {"reuse_v1", "reuse_v2"}
    assert server.default == "reuse_v1"
    assert ("/upload", None) in seen
    assert [member.serves for member in fleet_watch.fleet.members] == ["reuse_v1"]
    # A quiet round uploads and predicts nothing.
    server.requests.clear()
    assert fleet_watch.round()
    assert not [request for request in server.requests if request.startswith("POST")]


def test_the_endpoint_is_left_alone_where_nobody_asks_it(fleet_watch, registry, server):
    """The shadow is evaluated by its copy, and so is all with `[model] use` embedded."""
    shadow = configs.Challenger(canary_share=0.0, shadow=True, compare_days=7.0)
    embedded = TRIED.model.model_copy(update={"use": "embedded"})
    registry.aliases["challenger"] = 2
    for config in (TRIED.model_copy(update={"challenger": shadow}), TRIED.model_copy(update={"model": embedded})):
        fleet_watch.challengers._config = config
        assert fleet_watch.round()
        assert tried(fleet_watch) == "reuse_v2"
        assert server.names == {"reuse_v1"}


def test_one_that_the_endpoint_refuses_is_not_tried(fleet_watch, registry, server, said):
    fleet_watch.round()
    registry.aliases["challenger"] = 2
    server.refuse["/upload"] = 422
    for _ in range(3):
        assert not fleet_watch.round()
    assert tried(fleet_watch) is None
    assert len([line for line in said if "challenger reuse_v2 cannot be tried" in line and "/upload: status 422" in line]) == 1
    assert [member.serves for member in fleet_watch.fleet.members] == ["reuse_v1"]
    assert fleet_watch.challengers.folder.names() == set()
    server.refuse.clear()
    assert fleet_watch.round()
    assert tried(fleet_watch) == "reuse_v2"


def test_one_that_is_refused_is_uploaded_ever_more_rarely_also_beside_another(fleet_watch, registry, server):
    now = [1000.0]
    fleet_watch.challengers._pause = Pause(5.0, 60.0, clock=lambda: now[0])
    registry.aliases["challenger"] = 2
    assert fleet_watch.round()
    registry.aliases["challenger"] = 4
    server.refuse["/upload"] = 422
    assert uploads_in_rounds(fleet_watch, server, now) == [0, 5, 15, 35]
    assert tried(fleet_watch) == "reuse_v2"
    server.refuse.clear()
    now[0] += 60
    assert fleet_watch.round()
    assert tried(fleet_watch) == "reuse_v4"
    assert server.names == {"reuse_v1", "reuse_v4"}


def test_one_that_the_endpoint_answers_wrongly_is_not_tried(fleet_watch, registry, server, said):
    fleet_watch.round()
    registry.aliases["challenger"] = 2
    server.answer = lambda outputs: outputs[::-1]
    assert not fleet_watch.round()
    assert tried(fleet_watch) is None
    assert server.names == {"reuse_v1"}
    assert any("golden row 0 of reuse_v2" in line for line in said)


def test_an_endpoint_that_is_away_gets_it_when_it_returns(fleet_watch, registry, server):
    fleet_watch.round()
    registry.aliases["challenger"] = 2
    server.refuse = {"/": 503}
    assert not fleet_watch.round()
    assert tried(fleet_watch) == "reuse_v2"
    server.refuse = {}
    fleet_watch.round()
    assert fleet_watch.round()
    assert server.names == {"reuse_v1", "reuse_v2"}


def test_the_endpoint_is_kept_while_the_registry_is_away(fleet_watch, registry, server):
    registry.aliases["challenger"] = 2
    assert fleet_watch.round()
    registry.absent = True
    for path in server.folder.iterdir():
        shutil.rmtree(path)
    assert not fleet_watch.round()
    assert server.names == {"reuse_v1", "reuse_v2"}


def test_what_cannot_be_kept_there_is_tried_all_the_same_with_pauses(fleet_watch, registry, server, said):
    now = [1000.0]
    fleet_watch.challengers._pauses_kept = Pauses(5.0, 60.0, clock=lambda: now[0])
    registry.aliases["challenger"] = 2
    assert fleet_watch.round()
    server.endpoint.delete("reuse_v2")
    server.refuse["/upload"] = 507
    assert uploads_in_rounds(fleet_watch, server, now) == [0, 5, 15, 35]
    assert tried(fleet_watch) == "reuse_v2"
    assert [member.serves for member in fleet_watch.fleet.members] == ["reuse_v1"]
    assert len([line for line in said if line.startswith("challenger reuse_v2: ")]) == 1


def test_the_endpoint_holds_one_challenger(fleet_watch, registry, server):
    for number, left in ((2, {"reuse_v1", "reuse_v2"}), (4, {"reuse_v1", "reuse_v4"}), (None, {"reuse_v1"})):
        registry.aliases.pop("challenger", None)
        if number is not None:
            registry.aliases["challenger"] = number
        assert fleet_watch.round()
        assert server.names == left


def test_a_challenger_that_is_promoted_stays_there(fleet_watch, registry, server):
    registry.aliases["challenger"] = 2
    assert fleet_watch.round()
    registry.aliases["champion"] = 2
    server.requests.clear()
    assert fleet_watch.round()
    assert tried(fleet_watch) is None
    assert server.default == "reuse_v2"
    assert not [request for request in server.requests if request.startswith(("POST /upload", "DELETE"))]


def test_another_hosts_newer_champion_is_not_old_beside_a_challenger(fleet_watch, registry, server, make, tmp_path):
    """Endpoints may be shared: only what is older than this host's newest champion is deleted."""
    others = make(tmp_path / "other", seed=3, name="reuse_v3")
    server.endpoint.upload(others)
    registry.aliases["challenger"] = 4
    assert fleet_watch.round()
    assert server.names == {"reuse_v1", "reuse_v3", "reuse_v4"}


def test_a_registry_made_anew_is_another_model_at_the_endpoint_too(fleet_watch, registry, server, make, tmp_path):
    registry.aliases["challenger"] = 2
    assert fleet_watch.round()
    other = make(tmp_path / "anew", seed=9, provenance={"run_id": "run-other"})
    registry.folders[2] = other.folder
    registry.known[2] = type(registry.known[2])(2, "run-other")
    assert fleet_watch.round()
    with Endpoint(server.endpoint.url) as asked:
        asked.check_golden(fleet_watch.challengers.folder.installed("reuse_v2"))


# --- of what is refused, or not tried any more, nothing stays ---


@pytest.fixture
def pair(fakes):
    """Two endpoints."""
    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            fake, url = stack.enter_context(fakes.serve())
            fake.endpoint = stack.enter_context(Endpoint(url, timeout_s=5))
            servers.append(fake)
        yield servers


@pytest.fixture
def start(registry, pair, said, tmp_path):
    """Starts a watcher of both, as a new process would; the one before is gone."""
    with ExitStack() as stack:

        def start():
            stack.pop_all().close()
            folder = BundleDir(tmp_path / "bundles", "reuse")
            watch = Watch(registry, folder, Fleet([fake.endpoint for fake in pair], wait_s=0), TRIED, HASH, said.append)
            stack.enter_context(folder.writer())
            return watch

        yield start


def test_who_took_it_does_not_keep_what_another_refuses(start, registry, pair):
    watch = start()
    assert watch.round()
    pair[1].refuse["/upload"] = 422
    for number in (2, 4, 2):
        registry.aliases["challenger"] = number
        pair[0].requests.clear()
        assert not watch.round()
        assert "POST /upload" in pair[0].requests
        assert [fake.names for fake in pair] == [{"reuse_v1"}] * 2
        assert watch.challengers.folder.names() == set()
        assert not list(watch.challengers.folder.folder.glob(".incoming-*"))


def test_what_was_tried_before_stays_while_another_is_refused(start, registry, pair):
    watch = start()
    registry.aliases["challenger"] = 2
    assert watch.round()
    registry.aliases["challenger"] = 4
    pair[0].refuse["/upload"] = 507
    assert not watch.round()
    assert tried(watch) == "reuse_v2"
    assert watch.challengers.folder.names() == {"reuse_v2"}
    assert [fake.names for fake in pair] == [{"reuse_v1", "reuse_v2"}] * 2


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_was_away_is_rid_of_it_when_it_returns(start, registry, pair, restarted):
    watch = start()
    registry.aliases["challenger"] = 2
    assert watch.round()
    pair[0].refuse[""] = 503
    del registry.aliases["challenger"]
    assert not watch.round()
    assert [fake.names for fake in pair] == [{"reuse_v1", "reuse_v2"}, {"reuse_v1"}]
    assert watch.challengers.folder.names() == set()
    if restarted:
        watch = start()
    pair[0].refuse.clear()
    assert watch.round()
    assert [fake.names for fake in pair] == [{"reuse_v1"}] * 2


@pytest.mark.parametrize("path", ["/upload", "/json"])
def test_what_a_killed_watcher_has_uploaded_goes(start, registry, pair, path):
    """Killed while it brings the challenger; when the next one starts, the alias names none."""

    class Killed(BaseException):
        pass

    watch = start()
    assert watch.round()
    registry.aliases["challenger"] = 2
    real = pair[1].endpoint._ask

    def ask(method, asked, **options):
        if asked == path:
            raise Killed
        return real(method, asked, **options)

    pair[1].endpoint._ask = ask
    with pytest.raises(Killed):
        watch.round()
    pair[1].endpoint._ask = real
    assert "reuse_v2" in pair[0].names
    del registry.aliases["challenger"]
    assert start().round()
    assert [fake.names for fake in pair] == [{"reuse_v1"}] * 2


def test_what_another_host_has_uploaded_is_left_to_it(start, registry, pair):
    watch = start()
    assert watch.round()
    pair[0].endpoint.upload(bundles.copy_named(bundles.read(registry.folders[2]), pair[0].folder / "reuse_v2", "reuse_v2"))
    registry.aliases["challenger"] = 2
    assert watch.round()
    del registry.aliases["challenger"]
    assert watch.round()
    assert [fake.names for fake in pair] == [{"reuse_v1", "reuse_v2"}, {"reuse_v1"}]


def test_one_that_cannot_hold_it_any_more_does_not_hold_up_another(start, registry, pair):
    now = [1000.0]
    watch = start()
    watch.challengers._pauses_kept = Pauses(5.0, 60.0, clock=lambda: now[0])
    registry.aliases["challenger"] = 2
    assert watch.round()
    pair[0].endpoint.delete("reuse_v2")
    pair[0].refuse["/upload"] = 507
    assert not watch.round()
    pair[0].requests.clear()
    pair[1].endpoint.delete("reuse_v2")
    assert not watch.round()
    assert pair[1].names == {"reuse_v1", "reuse_v2"}
    assert "POST /upload" not in pair[0].requests
    pair[0].refuse.clear()
    now[0] += 5
    assert watch.round()
    assert pair[0].names == {"reuse_v1", "reuse_v2"}


def test_a_damaged_note_of_uploads_is_no_note(start, registry, pair, tmp_path):
    watch = start()
    assert watch.round()
    for text in ("{", "[]", '{"http://x": 3}', '{"http://x": ["../../etc", 7]}'):
        (tmp_path / "bundles" / ".uploads.json").write_text(text)
        watch = start()
        assert watch.round()
        registry.aliases["challenger"] = 2
        assert watch.round()
        del registry.aliases["challenger"]
        assert watch.round()
        assert [fake.names for fake in pair] == [{"reuse_v1"}] * 2
