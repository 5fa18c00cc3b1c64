"""A promoted model that cannot be used: the model before goes on answering, the log says once what is wrong, and a mended one is taken."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plugin_client import Clients
from plugin_endpoint import Endpoint
from plugin_invariants import watched
from plugin_site import Site, another_site, wait_until

from smartcache import _core
from smartcache.local import xrootd

pytestmark = pytest.mark.slow

DEADLINE_MS = 20
Damage = Callable[[Path], object]


def edited(**changes: object) -> Damage:
    def edit(bundle: Path) -> None:
        path = bundle / "bundle.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def file(name: str, content: bytes) -> Damage:
    return lambda bundle: (bundle / name).write_bytes(content)


def truncated(bundle: Path) -> None:
    path = bundle / "bundle.json"
    os.truncate(path, path.stat().st_size // 2)


def hundred_megabytes(bundle: Path) -> None:
    with (bundle / "bundle.json").open("wb") as out:
        out.write(b"[")
        for _ in range(100):
            out.write(b"0.5," * 250_000)
        out.write(b"0.5]")


def golden(outputs: list[float]) -> Damage:
    rows = {"inputs": [[0.0] * len(_core.schema()["names"])], "outputs": [outputs]}
    return file("golden.json", json.dumps(rows).encode())


def unreadable(bundle: Path) -> None:
    # The server's user is another one than ours; or, where it is not, ours may not read it either.
    (bundle / "bundle.json").chmod(0)


def a_folder(bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    (bundle / "bundle.json").mkdir()


DAMAGES: dict[str, Damage] = {
    "no bundle.json": lambda bundle: (bundle / "bundle.json").unlink(),
    "a folder for a file": a_folder,
    "unreadable": unreadable,
    "empty": file("bundle.json", b""),
    "truncated": truncated,
    "binary": file("bundle.json", bytes(range(256)) * 16),
    "an array": file("bundle.json", b"[]"),
    "deep": file("bundle.json", b"[" * 1_000_000),
    "100 MB": hundred_megabytes,
    "another format": edited(format=2),
    "another schema": edited(schema={"version": 1, "names": [], "hash": "0123456789abcdef"}),
    "no name": edited(name=""),
    "a name that leads elsewhere": edited(name="../../reuse_v1"),
    "edges that fall": edited(bucket_edges_s=[86400, 3600]),
    "a deep value": lambda bundle: (bundle / "bundle.json").write_text(
        (bundle / "bundle.json").read_text().replace("[3600, 86400]", "[" * 50_000 + "]" * 50_000)
    ),
    "thresholds crossed": edited(thresholds={"admit": 0.1, "evict": 0.5}),
    "golden.json truncated": file("golden.json", b'{"inputs": [[0.0'),
    "golden rows of another width": file("golden.json", b'{"inputs": [[0.0]], "outputs": [[1.0, 0.0, 0.0]]}'),
    "golden rows that are answered otherwise": golden([0.1, 0.1, 0.8]),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd, endpoint: Endpoint) -> Iterator[Site]:
    with another_site(origin) as site:
        site.start(site.model(endpoint.url, deadline_ms=DEADLINE_MS, breaker_failures=1_000_000))
        site.wait_for_model("reuse_v1")
        yield site


@pytest.fixture
def bundle(cache: Site) -> Iterator[Path]:
    """The next one to be promoted; afterwards all is as before."""
    yield cache.install("reuse_v2")
    cache.point_at("reuse_v1")
    cache.wait_for_model("reuse_v1")
    shutil.rmtree(cache.models / "reuse_v2")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bundle_that_is(damage: str, cache: Site, clients: Clients, bundle: Path) -> None:
    DAMAGES[damage](bundle)
    before = cache.server_log().count("model bundle:")
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}, log=["model bundle: "]) as watch:
        cache.point_at("reuse_v2")
        wait_until(lambda: cache.server_log().count("model bundle:") > before, "refused")
        watch.soak(cache.lfns, opens=100)
    assert {decision["model"] for decision in watch.decisions if decision["reason"] == "model"} == {"reuse_v1"}
    shutil.rmtree(bundle)
    cache.install("reuse_v2")
    cache.wait_for_model("reuse_v2")


@pytest.mark.parametrize("link", ["dangling", "a loop", "gone", "a file"])
def test_a_current_that_is(link: str, cache: Site, clients: Clients) -> None:
    current = cache.models / "current"
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}, log=["model bundle: "]) as watch:
        written = len(cache.server_log())
        current.unlink()
        if link == "a file":
            current.write_text("reuse_v1")
        elif link != "gone":
            current.symlink_to({"dangling": "reuse_v9", "a loop": "current"}[link])
        wait_until(lambda: "model bundle: " in cache.server_log()[written:], "said")
        watch.open(cache.lfns * 8)
    cache.point_at("reuse_v1")
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.open(cache.lfns * 8)


def test_without_one_that_can_be_used_the_fallback_answers(origin: xrootd.Xrootd, endpoint: Endpoint) -> None:
    with another_site(origin) as site:
        toml = site.model(endpoint.url, deadline_ms=DEADLINE_MS, breaker_failures=1_000_000)
        truncated(site.models / "reuse_v1")
        site.start(toml)
        with site.clients() as clients:
            with watched(site, clients, deadline_ms=DEADLINE_MS, reasons={"no_model"}) as watch:
                watch.soak(site.lfns)
            shutil.rmtree(site.models / "reuse_v1")
            site.install("reuse_v1")
            site.wait_for_model("reuse_v1")
            with watched(site, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
                watch.open(site.lfns * 8)
