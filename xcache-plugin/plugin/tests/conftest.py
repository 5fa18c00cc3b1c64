"""Real servers for the tests of the plugin: an origin, an XCache that has loaded it, and an endpoint that answers to order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plugin_client import Clients
from plugin_endpoint import Endpoint
from plugin_site import FILE_BYTES, Site, another_site

from smartcache.local import xrootd
from smartcache.local.ports import free_ports


@pytest.fixture(scope="module")
def origin() -> Iterator[xrootd.Xrootd]:
    with xrootd.temporary_folder() as folder:
        store = folder / "origin-data" / "store" / "set"
        store.mkdir(parents=True)
        for i in range(8):
            (store / f"{i}.root").write_bytes(bytes([i]) * FILE_BYTES)
        held = folder / "origin-data" / "store" / "held"
        held.mkdir()
        (held / "0.root").write_bytes(b"held" * (FILE_BYTES // 4))
        server = xrootd.start_origin(folder / "origin", free_ports(1)[0], data=folder / "origin-data")
        yield server
        server.process.stop()


@pytest.fixture
def site(origin: xrootd.Xrootd) -> Iterator[Site]:
    with another_site(origin) as one:
        yield one


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    yield one
    one.close()


@pytest.fixture(scope="module")
def clients(cache: Site) -> Iterator[Clients]:
    """Of the module's own ``cache``."""
    with cache.clients() as some:
        yield some
