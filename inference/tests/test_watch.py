"""The loop against a registry and an endpoint that fail on purpose; test_real.py has it against the real ones."""

import errno
import threading
from datetime import UTC, datetime, timedelta

import pytest

from smartcache.inference import replay
from smartcache.inference.gates import Gate
from smartcache.inference.install import BundleDir, InstallError
from smartcache.inference.pause import Pause
from smartcache.inference.registry import GivenUp, RegistryAbsent, RegistryError
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import NOTE_TRIES, Watch

HASH = "0123456789abcdef"
CONFIG = site_config()
BAD = METRICS | {"skill": 0.0}


def live(watch):
    return watch.bundles_.current()


def only_whole_bundles(watch):
    """Nothing half-applied: every folder there is a whole bundle of its name, and the link names one of them."""
    folder = watch.bundles_.folder
    names = {path.name for path in folder.iterdir()} - {"current", ".lock", ".state.json", ".uploads.json"}
    on_its_way = {name for name in names if name.startswith(".incoming-")}
    assert len(on_its_way) <= 1
    names -= on_its_way
    assert all(watch.bundles_.installed(name) for name in names), names
    assert live(watch) is None or live(watch) in names
    return names


def test_no_champion_yet(watch, said):
    assert watch.round()
    assert watch.round()
    assert said == ["ready: no champion yet is live"]


def test_champion_becomes_live(watch, publish, server, said):
    publish()
    assert watch.round()
    assert live(watch) == "reuse_v1"
    assert (watch.bundles_.folder / "current").readlink().as_posix() == "reuse_v1"
    assert server.names == {"reuse_v1"}
    assert said == ["reuse_v1 is live", "ready: reuse_v1 is live"]
    publish()
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert said[2:] == ["reuse_v2 is live, reuse_v1 was"]


def test_golden_rows_are_asked_before_the_link_moves(watch, publish, server):
    publish()
    seen = []
    server.before = lambda path: seen.append((path, live(watch)))
    watch.round()
    assert [path for path, current in seen if current is None] == ["/models", "/upload"] + ["/json"] * 5
    # Who names no model gets what is live, never what is not yet.
    assert [path for path, current in seen if current] == ["/models", "/status", "/params", *["/json"] * 5, "/models"]
    assert server.default == "reuse_v1"


def test_golden_rows_are_asked_again_after_the_switch(watch, publish, server, said):
    """Of whoever names no model: an endpoint that says so, and goes on answering with the version before, does not count as serving."""
    publish()
    assert watch.round()
    publish()
    stale = server.answering = "reuse_v1"
    assert not watch.round()
    assert live(watch) == "reuse_v2", "callers that name it have it"
    assert watch.fleet.members[0].serves == ""
    assert "golden row 0 of reuse_v2 must be answered by the default model to 1e-05, but differs by" in said[-1]
    assert server.default == "reuse_v2" != stale
    server.answering = ""
    assert watch.round()
    assert watch.fleet.members[0].serves == "reuse_v2"
    server.requests.clear()
    assert watch.round()
    assert "POST /json" not in server.requests


def test_a_quiet_round_asks_little(watch, publish, registry, server, said):
    publish()
    watch.round()
    server.requests.clear()
    said.clear()
    watch.round()
    assert server.requests == ["GET /models", "GET /status"]
    assert registry.downloads == 1
    assert said == []


def test_roll_back_downloads_nothing(watch, publish, registry, server):
    publish()
    watch.round()
    publish()
    watch.round()
    registry.aliases["champion"] = 1
    server.requests.clear()
    watch.round()
    assert live(watch) == "reuse_v1"
    assert registry.downloads == 2
    assert "POST /upload" not in server.requests


def test_old_ones_are_pruned_here_and_there(watch, publish, server):
    for _ in range(5):
        publish()
        watch.round()
    assert only_whole_bundles(watch) == server.names == {"reuse_v3", "reuse_v4", "reuse_v5"}


def test_an_endpoint_that_lost_its_models_gets_the_live_one_again(watch, publish, server, said):
    publish()
    watch.round()
    server.endpoint.delete("reuse_v1")
    watch.round()
    assert server.names == {"reuse_v1"}


@pytest.mark.parametrize("path", ["/models", "/upload", "/json"])
@pytest.mark.parametrize("status", [400, 401, 500, 503])
def test_refusing_endpoint(watch, publish, server, said, path, status):
    publish()
    watch.round()
    publish()
    said.clear()
    server.refuse[path] = status
    assert not watch.round()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert only_whole_bundles(watch) == {"reuse_v1"}
    assert len(said) == 1
    assert f"status {status}" in said[0]
    assert said[0].endswith("reuse_v1 stays live, trying again")
    server.refuse.clear()
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert said[1:] == ["well again", "reuse_v2 is live, reuse_v1 was"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda outputs: [value + 1e-4 for value in outputs],
        lambda outputs: outputs[:2],
        lambda outputs: [outputs],
        lambda outputs: [None] * len(outputs),
        lambda outputs: [float("nan")] * len(outputs),
        lambda outputs: [10**400] * len(outputs),
        lambda outputs: {"error": "sorry"},
        lambda outputs: "text",
    ],
)
def test_lying_endpoint(watch, publish, server, said, answer):
    publish()
    server.answer = answer
    assert not watch.round()
    assert live(watch) is None
    assert only_whole_bundles(watch) == set()
    # What answers wrong does not stay there, or the next round would upload nothing.
    assert server.names == set()
    server.answer = lambda outputs: outputs
    assert watch.round()
    assert live(watch) == "reuse_v1"


# --- what was downloaded is kept while an endpoint refuses it ---


def held(watch):
    """What is on its way."""
    return [path.name for path in watch.bundles_.folder.glob(".incoming-*/*")]


def test_what_an_endpoint_refuses_is_downloaded_once(watch, publish, registry, server):
    publish()
    server.refuse["/upload"] = 401
    for _ in range(3):
        assert not watch.round()
    assert registry.downloads == 1
    assert held(watch) == ["reuse_v1"]
    server.refuse.clear()
    assert watch.round()
    assert registry.downloads == 1
    assert live(watch) == "reuse_v1"
    assert held(watch) == []


@pytest.mark.parametrize("damage", ["changed", "removed", "added"])
def test_what_was_kept_is_compared_before_it_is_used(watch, publish, registry, server, damage):
    publish()
    server.refuse["/upload"] = 401
    watch.round()
    (folder,) = watch.bundles_.folder.glob(".incoming-*/reuse_v1")
    file = folder / "saved_model.pb"
    {"changed": lambda: file.write_bytes(b"something else"), "removed": file.unlink, "added": (folder / "more").touch}[damage]()
    server.refuse.clear()
    assert watch.round()
    assert registry.downloads == 2
    assert (watch.bundles_.folder / "reuse_v1" / "saved_model.pb").read_bytes() == b"in place of a SavedModel"
    assert not (watch.bundles_.folder / "reuse_v1" / "more").exists()


@pytest.mark.parametrize("what", ["another", "forced", "none", "roll-back"])
def test_what_nobody_wants_any_more_is_not_kept(watch, publish, registry, server, what):
    publish()
    watch.round()
    publish()
    server.refuse["/upload"] = 401
    watch.round()
    assert held(watch) == ["reuse_v2"]
    if what == "another":
        publish()
    elif what == "forced":
        registry.tag(2, {"smartcache.gates": "forced: let me"})
    elif what == "none":
        registry.aliases.clear()
    else:
        registry.aliases["champion"] = 1
    watch.round()
    assert held(watch) == {"another": ["reuse_v3"], "forced": ["reuse_v2"]}.get(what, [])
    assert registry.downloads == (3 if what in ("another", "forced") else 2)


def test_what_is_kept_ends_with_the_watcher(watch, publish, server, tmp_path):
    publish()
    server.refuse["/upload"] = 401
    stop = threading.Event()
    watch.say = lambda line: stop.set()
    watch.bundles_ = BundleDir(tmp_path / "its own", "reuse")
    watch.run(stop, poll_s=3600)
    assert held(watch) == []


def test_the_pauses_grow_up_to_their_limit(watch, publish, registry, server):
    now = [1000.0]
    watch._pause = Pause(5.0, 60.0, clock=lambda: now[0])
    publish()
    watch.round()
    publish()
    server.refuse["/upload"] = 401
    tried = []
    for second in range(0, 300):
        now[0] = 1000.0 + second
        server.requests.clear()
        assert not watch.round()
        if "POST /upload" in server.requests:
            tried.append(second)
    assert tried == [0, 5, 15, 35, 75, 135, 195, 255]
    assert registry.downloads == 2
    # Another version is tried at once, and so is rolling back.
    server.refuse.clear()
    assert publish() == 3
    assert watch.round()
    assert live(watch) == "reuse_v3"


def test_what_cannot_be_fetched_is_asked_for_ever_more_rarely(watch, publish, registry):
    now = [1000.0]
    watch._pause = Pause(5.0, 60.0, clock=lambda: now[0])
    publish()
    registry.torn = True
    for second in range(0, 40):
        now[0] = 1000.0 + second
        assert not watch.round()
    assert registry.downloads == 4
    registry.torn = False
    now[0] += 60
    assert watch.round()


def test_one_that_is_away_is_asked_each_round(watch, publish, registry, server):
    """It is waited for, for `wait_s`: pauses would make that longer."""
    watch._pause = Pause(5.0, 60.0, clock=lambda: 1000.0)
    publish()
    server.refuse["/models"] = 503
    assert not watch.round()
    server.refuse.clear()
    assert watch.round()
    assert registry.downloads == 1


def test_absent_endpoint_is_said_once(registry, publish, said, tmp_path):
    publish()
    folder = BundleDir(tmp_path / "bundles", "reuse")
    with Endpoint("http://127.0.0.1:1", timeout_s=1) as nobody, folder.writer():
        watch = Watch(registry, folder, Fleet([nobody], wait_s=0), CONFIG, HASH, said.append)
        assert not watch.round()
        assert not watch.round()
    assert len(said) == 1
    assert "endpoint http://127.0.0.1:1 cannot be reached" in said[0]
    assert "no model stays live" in said[0]
    assert folder.current() is None


def test_absent_registry_keeps_what_serves(watch, publish, registry, said):
    publish()
    watch.round()
    registry.absent = True
    said.clear()
    assert not watch.round()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert len(said) == 1
    assert "cannot be reached; reuse_v1 stays live" in said[0]
    registry.absent = False
    assert watch.round()
    assert said[1:] == ["well again"]


def test_torn_download(watch, publish, registry, said):
    publish()
    registry.torn = True
    assert not watch.round()
    assert "weights.json" in said[0]
    assert only_whole_bundles(watch) == set()
    registry.torn = False
    assert watch.round()


@pytest.mark.parametrize("at", ["/models", "/upload", "/json"])
def test_killed_in_mid_install(watch, publish, server, said, at):
    """The process ends between two steps; the next one finishes the work."""
    publish()
    watch.round()
    publish()

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    real = server.endpoint._ask

    def ask(method, path, **options):
        if path == at:
            kill()
        return real(method, path, **options)

    server.endpoint._ask = ask
    with pytest.raises(Killed):
        watch.round()
    server.endpoint._ask = real
    assert live(watch) == "reuse_v1"
    # A real kill runs no clean-up: leave what it would leave.
    (watch.bundles_.folder / ".incoming-left").mkdir()
    assert watch.round()
    assert live(watch) == "reuse_v2"


def test_what_a_killed_one_left_is_removed(tmp_path):
    folder = BundleDir(tmp_path, "reuse")
    (tmp_path / ".incoming-abc").mkdir()
    (tmp_path / ".incoming-abc" / "x").touch()
    with folder.writer():
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_gates_hold_for_an_alias_that_was_moved_by_hand(watch, publish, said):
    publish()
    watch.round()
    publish(metrics=BAD)
    said.clear()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert "champion version 2 is refused by its gates: skill failed: 0.0000" in said[0]


def test_a_refusal_that_cannot_be_noted_is_noted_once_it_can_be_and_judged_once(watch, publish, registry, monkeypatch):
    publish()
    watch.round()
    publish(metrics=BAD)
    tag, downloads = registry.tag, registry.downloads

    def away(*_):
        raise RegistryAbsent("MLflow cannot be reached")

    monkeypatch.setattr(registry, "tag", away)
    assert not watch.round()
    assert not watch.round()
    assert "smartcache.gates" not in registry.known[2].tags
    monkeypatch.setattr(registry, "tag", tag)
    assert not watch.round()
    assert registry.known[2].tags["smartcache.gates"] == "failed"
    assert registry.downloads == downloads + 1


def test_a_refusal_is_noted_after_however_long_an_outage(watch, publish, registry, said, monkeypatch):
    publish()
    watch.round()
    publish(metrics=BAD)

    def goes_away(*_):
        registry.absent = True
        registry._here()

    with monkeypatch.context() as patched:
        patched.setattr(registry, "tag", goes_away)
        for _ in range(2 * NOTE_TRIES):
            assert not watch.round()
    registry.absent = False
    assert not watch.round()
    assert registry.known[2].tags["smartcache.gates"] == "failed"
    assert not [text for text in said if "is not noted with it" in text]


def test_one_that_only_says_that_it_is_absent_is_named_after_some_time(watch, publish, registry, said, monkeypatch):
    """As MLflow's client does where the server answers 5xx: its disk is full, say."""
    publish()

    def full(*_):
        raise RegistryAbsent("MLflow cannot be reached")

    monkeypatch.setattr(registry, "log_text", full)
    for _ in range(NOTE_TRIES + 2):
        assert watch.round()
    assert said.count("what the gates said of version 1 is not noted with it: MLflow cannot be reached") == 1


def test_a_late_note_is_not_written_over_what_a_person_said_since(watch, publish, registry, monkeypatch):
    publish()
    watch.round()
    publish(metrics=BAD)

    def away(*_):
        raise RegistryAbsent("MLflow cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(registry, "tag", away)
        assert not watch.round()
    registry.tag(2, {"smartcache.gates": "forced: let me"})
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert registry.known[2].tags["smartcache.gates"] == "forced: let me"


def test_a_registry_that_takes_no_notes_is_named(watch, publish, registry, said, monkeypatch):
    publish()

    def refuses(*_):
        raise RegistryError("MLflow: permission denied")

    monkeypatch.setattr(registry, "tag", refuses)
    assert watch.round()
    assert watch.round()
    assert live(watch) == "reuse_v1"
    assert said.count("what the gates said of version 1 is not noted with it: MLflow: permission denied") == 1


def test_a_download_is_not_waited_for_where_the_alias_moves(watch, publish, registry, monkeypatch):
    publish()
    publish()
    download = registry.download_bundle

    def moved_meanwhile(version, folder, waiting):
        if version.number == 2:
            registry.aliases["champion"] = 1
            watch._lookout._next_s = 0.0  # it is time to look
            waiting()
            raise AssertionError("it is waited for")
        return download(version, folder, waiting)

    monkeypatch.setattr(registry, "download_bundle", moved_meanwhile)
    assert watch.round()
    assert live(watch) == "reuse_v1"


def test_that_what_is_live_cannot_be_compared_with_is_noted(watch, publish, monkeypatch):
    watch.config = site_config(replay_days=14.0)
    publish(tags={"smartcache.gates": "passed", "smartcache.gate.replay_opens": "passed: 900"})
    assert watch.round()
    (watch.bundles_.folder / "reuse_v1" / "weights.json").unlink()
    compared = []
    monkeypatch.setattr(replay, "check", lambda config, candidate, champion, *_: compared.append(champion) or [])
    publish()
    assert watch.round()
    assert compared == ["reuse_v1 is live, but what is on this disk of it is damaged"]


def test_a_forced_one_goes_live(watch, publish, registry):
    publish(metrics=BAD, tags={"smartcache.gates": "forced: first week"})
    assert watch.round()
    assert live(watch) == "reuse_v1"
    assert registry.known[1].tags["smartcache.gates"] == "forced: first week", "another host asks by this tag"
    assert registry.known[1].tags["smartcache.gate.skill"].startswith("failed")


def test_the_replay_is_asked_where_no_tag_says_that_it_passed(watch, publish, said):
    """An alias that was moved in MLflow, past `smartcache promote`."""
    watch.config = site_config(replay_days=14.0)
    publish()
    assert not watch.round()
    assert live(watch) is None
    assert "replay_opens failed: [streaming] table" in said[0]
    publish(tags={"smartcache.gates": "passed", "smartcache.gate.replay_opens": "passed: 900"})
    assert watch.round()
    assert live(watch) == "reuse_v2"


def test_that_one_has_passed_its_replay_says_nothing_of_the_next(watch, publish, registry, said):
    watch.config = site_config(replay_days=14.0)
    publish(tags={"smartcache.gates": "passed", "smartcache.gate.replay_opens": "passed: 900"})
    assert watch.round()
    publish()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert "champion version 2 is refused by its gates: replay_opens failed" in said[-1]
    # One that has passed, and has served, is gone back to without another.
    registry.aliases["champion"] = 1
    assert watch.round()
    assert live(watch) == "reuse_v1"


@pytest.mark.parametrize(("ago", "served", "asked"), [(1, False, False), (13.9, False, False), (15, False, True), (400, True, False)])
def test_a_replay_that_passed_long_ago_counts_only_for_what_has_served(watch, publish, ago, served, asked):
    """The days that are replayed are others now, and so may the champion be."""
    watch.config = site_config(replay_days=14.0)
    moment = (datetime.now(UTC) - timedelta(days=ago)).isoformat(timespec="seconds")
    tags = {"smartcache.gates": "passed", "smartcache.gate.replay_opens": "passed: 900", "smartcache.replayed": moment}
    publish(tags=tags | ({"smartcache.served": moment} if served else {}))
    assert watch.round() is not asked


@pytest.mark.parametrize(("against", "asked"), [("version 1 of run run-1", False), ("version 7 of run run-7", True), ("none", True)])
def test_a_replay_counts_only_against_what_is_live(watch, publish, registry, monkeypatch, against, asked):
    """Promoted while another was champion, which never came to serve here; it may be worse than what does."""
    publish()
    assert watch.round()
    watch.config = site_config(replay_days=14.0)
    compared = []

    def check(_config, _candidate, champion, *_):
        compared.append(champion.info.name)
        return [Gate("replay_opens", "900", "at least 100", True)]

    monkeypatch.setattr(replay, "check", check)
    publish(tags={"smartcache.gates": "passed", "smartcache.gate.replay_opens": "passed: 900", **replay.replayed_now(against)})
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert compared == ["reuse_v1"] * asked
    assert registry.known[2].tags["smartcache.replayed_against"] == "version 1 of run run-1"


def test_one_that_failed_its_replay_is_asked_again(watch, publish, registry):
    watch.config = site_config(replay_days=14.0)
    publish(tags={"smartcache.gates": "failed", "smartcache.gate.replay_miss_lru": "failed: 900"})
    assert not watch.round()
    registry.tag(1, {"smartcache.gates": "forced: let me"})
    assert watch.round()
    assert registry.known[1].tags["smartcache.gates"] == "forced: let me"


def test_another_schema_is_refused(registry, publish, server, said, tmp_path):
    publish()
    folder = BundleDir(tmp_path / "bundles", "reuse")
    with folder.writer():
        assert not Watch(registry, folder, Fleet([server.endpoint], wait_s=0), CONFIG, "f" * 16, said.append).round()
    assert "schema failed: 0123456789abcdef" in said[0]


def test_registry_made_anew(watch, publish, make, registry, tmp_path, said):
    """Version numbers begin again: the same name would mean another model, and nobody would notice."""
    publish()
    watch.round()
    other = make(tmp_path / "anew", seed=9, provenance={"run_id": "run-other"})
    registry.folders, registry.known = {}, {}
    registry.add(other)
    assert not watch.round()
    assert "reuse_v1 is the model of run run-1, but version 1 of the registry is of run run-other" in said[-1]
    assert live(watch) == "reuse_v1"


def test_damaged_bundle_on_disk_is_fetched_again(watch, publish, registry):
    publish()
    watch.round()
    (watch.bundles_.folder / "reuse_v1" / "weights.json").write_text("{")
    assert watch.round()
    assert registry.downloads == 2
    assert live(watch) == "reuse_v1"
    assert only_whole_bundles(watch) == {"reuse_v1"}


@pytest.mark.parametrize(("part", "failing"), [("_keep", "installed"), ("_tidy", "names")])
def test_a_disk_that_fails_ends_no_watcher(watch, publish, said, part, failing):
    """As endpoints are kept, or what is not needed is deleted there: said and counted as all else, and over when the disk is well."""
    publish()
    assert watch.round()
    real, there = getattr(watch, part), getattr(watch.bundles_, failing)

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error", str(watch.bundles_.folder))

    def in_that_part(*arguments, **options):
        setattr(watch.bundles_, failing, fails)
        try:
            real(*arguments, **options)
        finally:
            setattr(watch.bundles_, failing, there)

    setattr(watch, part, in_that_part)
    said.clear()
    for _ in range(2):
        assert not watch.round()
    assert said == [f"[Errno 5] Input/output error: '{watch.bundles_.folder}'; reuse_v1 stays live, trying again"]
    assert watch.failures == 2
    setattr(watch, part, real)
    assert watch.round()
    assert said[1:] == ["well again"]


def test_one_writer(tmp_path):
    first, second = BundleDir(tmp_path, "reuse"), BundleDir(tmp_path, "reuse")
    with first.writer(), pytest.raises(InstallError, match=r"another `smartcache watch` \(process \d+\) writes here"), second.writer():
        pass
    with BundleDir(tmp_path, "reuse").writer():
        pass


def test_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InstallError, match="cannot be written"), BundleDir(tmp_path / "file" / "x", "reuse").writer():
        pass


def test_readers_see_a_whole_bundle_at_any_time(watch, publish):
    """A reader that follows the link all the time, as the plugin does, never finds nothing."""
    publish()
    watch.round()
    stop, trouble = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                (watch.bundles_.folder / "current" / "bundle.json").read_text()
            except OSError as error:
                trouble.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        publish()
        assert watch.round()
    stop.set()
    reader.join()
    assert trouble == []


def test_foreign_folders_are_left_alone(watch, publish):
    for name in ("other_v1", "reuse_v1_backup", "notes"):
        (watch.bundles_.folder / name).mkdir()
    for _ in range(4):
        publish()
        watch.round()
    assert {"other_v1", "reuse_v1_backup", "notes"} <= {path.name for path in watch.bundles_.folder.iterdir()}


def test_a_download_that_never_ends_is_begun_ever_more_rarely(watch, publish, registry, monkeypatch):
    """Each holds up a round, and the endpoints, for as long as anybody waits."""
    now, begun = [1000.0], []
    watch._pause = Pause(5.0, 60.0, clock=lambda: now[0])

    def trickles(*_):
        begun.append(now[0] - 1000.0)
        raise GivenUp("MLflow cannot be reached: it has not answered in full")

    publish()
    monkeypatch.setattr(registry, "download_bundle", trickles)
    for second in range(40):
        now[0] = 1000.0 + second
        assert not watch.round()
    assert begun == [0, 5, 15, 35]


def test_token_is_sent(watch, publish, server, said):
    publish()
    server.token = "secret"
    assert not watch.round()
    assert "status 401" in said[0]
    assert "admin_token_file" in said[0]
    assert "secret" not in said[0]
    with Endpoint(server.endpoint.url, "secret") as endpoint:
        watch.fleet = Fleet([endpoint], wait_s=0)
        assert watch.round()


def test_run_ends_when_told(registry, server, said, tmp_path):
    stop = threading.Event()
    watch = Watch(
        registry,
        BundleDir(tmp_path / "b", "reuse"),
        Fleet([server.endpoint], wait_s=0),
        CONFIG,
        HASH,
        lambda line: (said.append(line), stop.set()),
    )
    watch.run(stop, poll_s=3600)
    assert said == ["ready: no champion yet is live"]
