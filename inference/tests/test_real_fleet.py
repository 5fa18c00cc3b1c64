"""Several real endpoints and a real registry, killed at each step of a promotion: each ends with one whole version, by itself."""

import json
import os
import signal
from contextlib import ExitStack

import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference.registry import Registry
from smartcache.inference.tests.real_site import (
    CLIENT,
    TOKEN,
    Site,
    endpoint_ready,
    launch_endpoint,
    register_untrained,
    start_endpoint,
    start_watch,
    status,
    wait_for,
    which,
)
from smartcache.local import ports
from smartcache.local.process import START_LIMIT_S, line_in

pytestmark = pytest.mark.slow

MODEL = "fleet"
COUNT = 3


@pytest.fixture(scope="module")
def registered(tmp_path_factory, mlflow_uri, synthetic):
    """Two versions of other seeds."""
    for seed in (1, 2):
        register_untrained(mlflow_uri, MODEL, synthetic, tmp_path_factory.mktemp(MODEL), seed)
    return mlflow_uri


@pytest.fixture
def fleet(tmp_path, registered, endpoint_binary):
    """A watcher's site, and endpoints that run, as ``fleet.sites``; champion is version 1."""
    Registry(registered, MODEL).move("champion", 1)
    with ExitStack() as stack:
        sites = [Site(tmp_path / f"endpoint{number}", registered, MODEL, port) for number, port in enumerate(ports.free_ports(COUNT))]
        for site in sites:
            site.endpoint = launch_endpoint(site, endpoint_binary)
            stack.callback(lambda site=site: site.endpoint.stop())
        for site in sites:
            endpoint_ready(site, site.endpoint)
        urls = json.dumps([site.url for site in sites])
        watcher = Site(tmp_path / "watcher", registered, MODEL, more=f"[promote]\nendpoints = {urls}\nwait_s = 1.0\n")
        watcher.sites = sites
        yield watcher


def all_serve(fleet, name):
    return lambda: fleet.live == name and all(which(site) == name for site in fleet.sites)


def ready(watch, name=f"{MODEL}_v1"):
    return watch.wait_ready(line_in(watch.log, f"ready: {name} is live"), "ready", START_LIMIT_S)


def test_a_version_goes_live_at_all_and_back(fleet, synthetic):
    registry = Registry(fleet.uri, MODEL)
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere")
        registry.move("champion", 2)
        wait_for(all_serve(fleet, "fleet_v2"), "version 2 everywhere")
        told = {}

        def serves() -> bool:
            code, answer = status(fleet)
            told.update(answer)
            return code == 0

        wait_for(serves, "status says so")
        assert [(place["kind"], place["serves"]) for place in told["places"]] == [("bundles", "fleet_v2")] + [
            ("endpoint", "fleet_v2")
        ] * COUNT
        assert told["versions"][0]["figures"]["skill"] > 0
        registry.move("champion", 1)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere again")
        os.kill(watch.pid, signal.SIGTERM)
        assert watch.wait(120) == 0
    # Of a busy machine, that an answer was late; never that one was wrong.
    troubles = [line for line in fleet.log("watch").splitlines() if line.endswith("trying again")]
    assert not [line for line in troubles if "cannot be reached" not in line and ": status 5" not in line]


@pytest.mark.parametrize(
    "moment",
    [
        "models/.upload-*",  # the upload is being unpacked, or loaded
        "models/fleet_v2",  # it is installed
        "models/.aliases.json.new",  # the default is being moved
    ],
)
def test_endpoint_killed_in_install_and_switch(fleet, synthetic, endpoint_binary, moment):
    """The others go on after the time that one is waited for; this one gets the version once it is started again."""
    registry = Registry(fleet.uri, MODEL)
    victim, *others = fleet.sites
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere")
        registry.move("champion", 2)
        at = victim.folder
        wait_for(lambda: any(at.glob(moment)) or which(victim) == "fleet_v2", moment)
        victim.endpoint.kill()
        wait_for(lambda: fleet.live == "fleet_v2" and all(which(site) == "fleet_v2" for site in others), "version 2 at the others")
        wait_for(line_in(watch.log, f"endpoint {victim.url} cannot be reached"), "said")
        code, told = status(fleet)
        assert code == 1
        assert [place["where"] for place in told["places"] if not place["right"]] == [victim.url]
        victim.endpoint = start_endpoint(victim, endpoint_binary)
        wait_for(all_serve(fleet, "fleet_v2"), "version 2 everywhere")
        assert watch.running


def test_a_bundle_that_was_damaged_at_the_endpoint(fleet, synthetic, endpoint_binary):
    """Its disk lost a part of the model while it was down: the folder cannot be loaded, and is replaced."""
    victim = fleet.sites[1]
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere")
        victim.endpoint.kill()
        (victim.folder / "models" / "fleet_v1" / "saved_model.pb").write_bytes(b"")
        victim.endpoint = start_endpoint(victim, endpoint_binary)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere again")


def test_an_endpoint_that_hangs_does_not_hold_up_the_others(fleet, synthetic):
    """It takes connections and says nothing (SIGSTOP)."""
    registry = Registry(fleet.uri, MODEL)
    victim, *others = fleet.sites
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere")
        os.kill(victim.endpoint.pid, signal.SIGSTOP)
        try:
            registry.move("champion", 2)
            wait_for(lambda: fleet.live == "fleet_v2" and all(which(site) == "fleet_v2" for site in others), "at the others")
        finally:
            os.kill(victim.endpoint.pid, signal.SIGCONT)
        wait_for(all_serve(fleet, "fleet_v2"), "version 2 everywhere")


def test_watcher_killed_at_each_step(fleet, synthetic):
    """Killed again and again on the way to version 2: each endpoint answers by one whole version each time, and the last one gets there."""
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        wait_for(all_serve(fleet, "fleet_v1"), "version 1 everywhere")
    registry = Registry(fleet.uri, MODEL)
    registry.move("champion", 2)
    endpoints = [site.folder / "models" for site in fleet.sites]
    moments = [
        lambda: any(fleet.bundle_dir.glob(".incoming-*/bundle")),
        lambda: any(folder.glob(".upload-*") for folder in endpoints),
        lambda: any((folder / "fleet_v2").is_dir() for folder in endpoints),
        lambda: all((folder / "fleet_v2").is_dir() for folder in endpoints),
        lambda: (fleet.bundle_dir / "fleet_v2").is_dir(),
        lambda: fleet.live == "fleet_v2",
        lambda: any("fleet_v2" in (folder / ".aliases.json").read_text() for folder in endpoints),
    ]
    for number, moment in enumerate(moments):
        with start_watch(fleet, synthetic, f"killed{number}") as watch:
            wait_for(lambda moment=moment: moment() or fleet.live == "fleet_v2", f"moment {number}")
            watch.kill()
        assert bundles.read(fleet.bundle_dir / "current").info.name == fleet.live
        assert {which(site) for site in fleet.sites} <= {"fleet_v1", fleet.live}
    with start_watch(fleet, synthetic, "last") as watch:
        ready(watch, "fleet_v2")
        wait_for(all_serve(fleet, "fleet_v2"), "version 2 everywhere")
    assert {path.name for path in fleet.bundle_dir.iterdir()} == {
        "current",
        ".lock",
        ".state.json",
        ".uploads.json",
        "fleet_v1",
        "fleet_v2",
    }


def test_an_alias_at_the_endpoint_that_somebody_moved_is_moved_back(fleet, synthetic):
    victim = fleet.sites[2]
    registry = Registry(fleet.uri, MODEL)
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        registry.move("champion", 2)
        wait_for(all_serve(fleet, "fleet_v2"), "version 2 everywhere")
        moved = CLIENT.post(f"{victim.url}/params", json={"name": "fleet_v1"}, headers={"Authorization": f"Bearer {TOKEN}"})
        assert moved.status_code == 200
        wait_for(all_serve(fleet, "fleet_v2"), "version 2 everywhere again")
