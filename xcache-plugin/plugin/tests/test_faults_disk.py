"""A disk that is full: the cache's own, and the ones that the plugin writes to."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_endpoint import Endpoint
from plugin_invariants import unharmed, watched
from plugin_site import Site, wait_until

from smartcache.local import xrootd

pytestmark = pytest.mark.slow

#: What pfc says of a disk that takes no more.
FULL = (r"XrdPfc_\w+: (error|warning) ", r"XrdPfc_Cache: error Attach.*falling back to remote access", r"[Nn]o space left on device")

#: The evictor may come round meanwhile: what fills the disk here is not the cache's.


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own, in memory; skips the test where this machine lets nobody mount."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "smartcache-test", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free on the disk of ``folder``; the file that takes it."""
    path = folder / "filler"
    with path.open("ab", buffering=0) as out, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while out.write(b"f" * size) == size:
                    pass
    return path


def test_the_caches_own(site: Site, endpoint: Endpoint) -> None:
    with small_disk(site.folder / "cache" / "data", "32m"):
        size = xrootd.CacheSize(base=8 << 20, nominal=16 << 20, maximum=30 << 20)
        site.start(site.model(endpoint.url), size=size)
        site.wait_for_model()
        with site.clients() as clients:
            there, new = site.lfns[:4], site.lfns[4:]
            assert clients.open(there) == [""] * 4
            with watched(site, clients, deadline_ms=900, reasons={"model"}, noise=FULL) as watch:
                filler = fill(site.cache.data)
                watch.soak(there + new)
            assert {d["on_disk"] for d in watch.decisions if d["lfn"] in there} == {True}
            filler.unlink()
            with watched(site, clients, deadline_ms=900, reasons={"model"}, noise=FULL) as watch:
                watch.open(site.lfns)
        site.cache.process.require_running()
        site.cache.process.stop()
        site.cache = None


def test_the_one_of_the_history(site: Site) -> None:
    folder = site.folder / "small"
    with small_disk(folder, "1m"):
        site.start(f'[history]\nfile = "{folder}/history"\nsave_s = 0.1\n')
        with site.clients() as clients:
            assert clients.open(site.lfns) == [""] * len(site.lfns)
            wait_until((folder / "history").exists, "saved")
            failed, done = (f'smartcache_history_saves_total{{result="{result}"}}' for result in ("failed", "done"))
            said = r"SmartCache_Config: \S+: \[history\] file must be one that can be written.*No space left on device"
            with watched(site, clients, deadline_ms=0, reasons={"no_model"}, log=[said]) as watch:
                filler = fill(folder)
                watch.open(site.lfns)
                wait_until(lambda: site.counter(failed) >= 1, "refused")  # one that was being written may have ended before
                saved = (folder / "history").read_bytes()
                watch.soak(site.lfns)
                wait_until(lambda: site.counter(failed) >= 2, "tried again")
            assert (folder / "history").read_bytes() == saved, "the one before stays"
            wait_until(lambda: not (folder / "history.tmp").exists(), "nothing left of the last attempt")
            filler.unlink()
            before = site.counter(done)
            with watched(site, clients, deadline_ms=0, reasons={"no_model"}) as watch:
                watch.open(site.lfns)
                wait_until(lambda: site.counter(done) > before, "saved once there is room")
        site.cache.process.require_running()
        site.cache.process.stop()
        site.cache = None


def test_the_one_of_the_counters(site: Site) -> None:
    textfile = site.metrics / "smartcache.prom"
    site.metrics.rmdir()
    with small_disk(site.metrics, "64k"):
        filler = fill(site.metrics)
        site.start()
        with site.clients() as clients:
            wait_until(lambda: "[plugin_metrics] textfile must be" in site.server_log(), "said")
            with unharmed(site, clients):
                assert clients.open(site.lfns * 20) == [""] * 20 * len(site.lfns)
            assert site.server_log().count("[plugin_metrics] textfile") == 1
            assert not textfile.exists() or textfile.stat().st_size == 0
            filler.unlink()
            with watched(site, clients, deadline_ms=0, reasons={"no_model"}) as watch:
                watch.open(site.lfns)
        wait_until(lambda: [path.name for path in site.metrics.iterdir()] == ["smartcache.prom"], "nothing but the page")
        site.cache.process.require_running()
        site.cache.process.stop()
        site.cache = None
