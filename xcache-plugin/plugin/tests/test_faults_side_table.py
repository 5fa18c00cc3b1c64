"""A dataset side table that cannot be used: the one before stays, the log says once what is wrong, and a good one is taken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from plugin_invariants import watched
from plugin_site import Site, another_site, wait_until

from smartcache.local import xrootd
from smartcache.preprocessing.popularity import write

pytestmark = pytest.mark.slow

LOADS = 'smartcache_side_table_loads_total{result="%s"}'
ROW = {"opens": [1, 9], "read_bytes": [5, 6], "files": 3, "caches": 2, "reopened": 0.3, "part_read": 0.5, "last_open_us": 1}
Made = Callable[[Path], object]


def table(version: int = 9, head: dict | None = None, **changed: object) -> Made:
    """What makes a table that says what is right, but for these fields; its foot fits."""
    first = {"format": 1, "kind": "smartcache-datasets", "version": version, "until_us": 10, "windows_s": [1.0, 2.0], "left_out": 0}
    return lambda path: write(path, first | (head or {}), [{"dataset": "/store/set", **ROW, **changed}])


def bytes_of(change: Callable[[bytes], bytes]) -> Made:
    def make(path: Path) -> None:
        table()(path)
        path.write_bytes(change(path.read_bytes()))

    return make


def gigabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


def unreadable(path: Path) -> None:
    # The server's user is another one than ours; or, where it is not, ours may not read it either.
    table()(path)
    path.chmod(0)


#: And what is said of each. Of two that are said to be the same, another comes between.
DAMAGES: dict[str, tuple[Made, str]] = {
    "empty": (lambda path: path.touch(), "it must be a head and a foot at least"),
    "one byte changed": (bytes_of(lambda whole: whole.replace(b"0.3", b"0.4")), "sha256 must be that of the lines before it"),
    "half": (bytes_of(lambda whole: whole[: len(whole) // 2]), "it must be a head and a foot at least"),
    "binary": (bytes_of(lambda _: bytes(range(256)) * 4096), "line 1: it must be a JSON object"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "a row that cannot be": (table(reopened=1.5), "line 2: reopened must be from 0 to 1, but is 1.5"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "another format": (table(head={"format": 2}), "line 1: format must be 1, but is 2"),
    "1 GB": (gigabyte, "must be at most 536870912 bytes, but is 1073741824"),
    "unreadable": (unreadable, "Permission denied"),
}


def point_at(site: Site, name: str, make: Made) -> None:
    """Put it where the plugin looks, in one step."""
    folder = site.folder / "tables"
    folder.mkdir(exist_ok=True)
    make(folder / name)
    link = folder / "next"
    link.symlink_to(name)
    link.replace(folder / "side.json")


def test_a_side_table_that_cannot_be_used(origin: xrootd.Xrootd) -> None:
    with another_site(origin) as site:
        point_at(site, "first", table(1))
        site.start(f'[policy]\nexplore = 0.0\n[side_table]\nfile = "{site.folder}/tables/side.json"\npoll_s = 0.05\n')
        wait_until(lambda: site.counter(LOADS % "done") == 1, "loaded")
        said = list({text for _, text in DAMAGES.values()})
        with site.clients() as clients, watched(site, clients, deadline_ms=20, reasons={"no_model"}, log=said) as watch:
            for number, (name, (make, _)) in enumerate(DAMAGES.items(), 1):
                point_at(site, name, make)
                wait_until(lambda number=number: site.counter(LOADS % "failed") == number, f"refused: {name}")
                watch.open(site.lfns)
            seen = {decision.get("side_table") for decision in watch.decisions}
        assert seen == {1}
        refused = [line for line in site.server_log().splitlines() if "; the one before stays" in line]
        assert len(refused) == len(DAMAGES), refused
        for line, (_, text) in zip(refused, DAMAGES.values(), strict=True):
            assert text in line
        point_at(site, "second", table(2))
        wait_until(lambda: site.counter(LOADS % "done") == 2, "loaded")
        assert site.opened(site.lfns[0])["side_table"] == 2
        (site.folder / "tables" / "second").unlink()
        wait_until(lambda: "is not there; opens go on without a table" in site.server_log(), "said")
        assert "side_table" not in site.opened(site.lfns[1])
        assert site.counter(LOADS % "failed") == len(DAMAGES)
