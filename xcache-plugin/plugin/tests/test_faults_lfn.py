"""Names of files that are hard to write down: opened like all others, and logged as valid JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from plugin_client import Clients
from plugin_invariants import watched
from plugin_raw import RawClient
from plugin_site import Site, another_site

from smartcache.local import xrootd

pytestmark = pytest.mark.slow

CONTENT = b"named" * 30_000
NAMES: dict[str, bytes] = {
    "double quotes": b'a "quoted" name',
    "quotes and backslashes": b'it\'s \\"both\\"\\',
    "JSON": b'","answer":"evict","x":"',
    "control characters": b"\x01\x02\x1b[31m\x07\x7f",
    "a line feed": b"one\nSmartCache_Config: forged",
    "a tab and a return": b"a\tb\rc",
    "percent signs": b"%s%n%d%2e%00",
    "a star and brackets": b"*[a-z]{1,2}~$HOME",
    "not UTF-8": b"\xff\xfe\xc3(\xe2\x82",
    "UTF-8 of all lengths": "é€𝄞".encode(),
    "surrogates": b"\xed\xa0\x80",
    "a name of 255 bytes": b"n" * 255,
    "a dot": b"..hidden..",
}
#: Those that the URL of XRootD's own clients can have as they are; the others take a client that sends them as they are.
PLAIN = ("double quotes", "JSON", "a star and brackets", "UTF-8 of all lengths", "a name of 255 bytes", "a dot")

#: Where a file may have the name, its .cinfo may not: pfc then reads at the origin.
TOO_LONG = ("XrdPfc_File: error Open.*file name too long", "XrdPfc_Cache: error Attach.*falling back to remote access")


def lfn_of(name: bytes) -> bytes:
    return b"/store/named/" + name


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd) -> Iterator[Site]:
    with another_site(origin) as site:
        site.start()
        yield site


def stored_at_the_origin(site: Site, lfn: bytes) -> None:
    """By way of the folders one by one: the whole path may be longer than a system call takes."""
    *folders, name = lfn.strip(b"/").split(b"/")
    at = os.open(site.origin_data, os.O_RDONLY)
    try:
        for folder in folders:
            if not os.access(folder, os.F_OK, dir_fd=at):
                os.mkdir(folder, dir_fd=at)
            inner = os.open(folder, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = inner
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=at), "wb") as out:
            out.write(CONTENT)
    finally:
        os.close(at)


def as_logged(lfn: bytes) -> str:
    """Each byte that is no UTF-8 is U+FFFD."""
    return re.sub("[\udc80-\udcff]", "\ufffd", lfn.decode(errors="surrogateescape"))


def require_given(server: xrootd.Xrootd, lfn: bytes, times: int = 1) -> None:
    """Each of so many clients gets the file; but for its last block, as of :mod:`plugin_client`'s."""
    for _ in range(times):
        with RawClient(server.port) as client:
            assert client.content(lfn, xrootd.BLOCK_BYTES) == CONTENT[: xrootd.BLOCK_BYTES]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_with(name: str, cache: Site, clients: Clients) -> None:
    lfn = lfn_of(NAMES[name])
    stored_at_the_origin(cache, lfn)
    require_given(cache.origin, lfn)
    with watched(cache, clients, deadline_ms=0, reasons={"no_model"}, noise=TOO_LONG) as watch:
        require_given(cache.cache, lfn, times=3)
        if name in PLAIN:
            watch.soak([lfn.decode()], opens=50, threads=1)
        assert clients.open(cache.lfns) == [""] * len(cache.lfns)
    logged = [decision["lfn"] for decision in watch.decisions if decision["lfn"].startswith("/store/named/")]
    assert len(logged) >= 1  # an open while pfc has the file open still asks nobody
    assert set(logged) == {as_logged(lfn)}


@pytest.fixture(scope="module")
def unmonitored(origin: xrootd.Xrootd) -> Iterator[Site]:
    """The f-stream of XRootD 5.5.3 ends the server when a client opens a path of more than about 1000 bytes, with the plugin or without."""
    with another_site(origin) as site:
        site.start(monitoring=None)
        yield site


@pytest.mark.parametrize("length", [1000, 2000, 3000, 4000])
def test_a_path_of_bytes(length: int, unmonitored: Site) -> None:
    lfn = lfn_of(b"/".join([b"d" * 200] * 30))[: length - 2].rstrip(b"/") + b"/f"
    stored_at_the_origin(unmonitored, lfn)
    with (
        unmonitored.clients() as clients,
        watched(unmonitored, clients, deadline_ms=0, reasons={"no_model"}, noise=TOO_LONG) as watch,
    ):
        require_given(unmonitored.cache, lfn, times=3)
        assert clients.open(unmonitored.lfns) == [""] * len(unmonitored.lfns)
    assert [decision for decision in watch.decisions if decision["lfn"] == lfn.decode()]
