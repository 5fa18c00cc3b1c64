"""A configuration that cannot be used: the log says why and what to do, and the cache works as one without the plugin."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from plugin_invariants import unharmed
from plugin_site import Site, wait_until

from smartcache.local import xrootd

pytestmark = pytest.mark.slow


def written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def the_servers_own(path: Path) -> None:
    path.write_text("")
    if os.geteuid() == 0:
        shutil.chown(path, xrootd.SERVER_USER)


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "cannot be read"),
    "a folder": (lambda path: path.mkdir(), "cannot be read"),
    "unreadable": (the_servers_own, "cannot be read"),
    "a device without end": (lambda path: path.symlink_to("/dev/zero"), "cannot be read"),
    "a pipe that nobody writes to": (os.mkfifo, "cannot be read"),
    "half a line": (written(b"[policy"), "not TOML"),
    "binary": (written(bytes(range(256)) * 64), "not TOML"),
    "not UTF-8": (written(b'[policy]\nfallback = "\xff\xfe"\n'), "not TOML"),
    "deep": (written(b"x = " + b"[" * 1_000_000), "not TOML|cannot be read"),
    "20 MB": (written(b"# nothing\n" * 2_000_000), "cannot be read"),
    "a section twice": (written(b'[policy]\nfallback = "admit"\n[policy]\nfallback = "admit"\n'), "not TOML"),
    "an unknown key": (written(b"[policy]\nfallbak = 'bypass'\n"), 'unknown key "fallbak"; did you mean "fallback"'),
    "an unknown section": (written(b"[polizei]\n"), "polizei"),
    "another type": (written(b"[model]\ndeadline_ms = 'soon'\n"), r"\[model\] deadline_ms must be"),
    "out of range": (written(b"[model]\ndeadline_ms = -1\n"), r"\[model\] deadline_ms must be"),
    "not a number": (written(b"[model]\ndeadline_ms = nan\n"), r"\[model\] deadline_ms must be"),
}


@pytest.mark.parametrize(("high", "said"), [(0.99, True), (0.985, False)])
def test_a_high_mark_that_pfc_reaches_first_is_said(high: float, said: bool, site: Site) -> None:
    """The cache's own configuration has pfc.diskusage 0.98 0.99."""
    site.start(f"[evictor]\nhigh = {high}\n")
    wait_until(lambda: "SmartCache_Config: ready:" in site.server_log(), "started")
    line = f"[evictor] high must be below the high mark of pfc.diskusage (0.99), but is {high}: XCache's own purge comes first"
    assert (line in site.server_log()) is said


@pytest.mark.parametrize("fault", FAULTS)
def test_a_configuration_that_is(fault: str, site: Site) -> None:
    make, said = FAULTS[fault]
    make(site.config)
    # Just before the server starts: whoever starts it here looks that it can be read.
    hidden = ("sh", "-c", 'chmod 0 "$0" && exec "$@"', str(site.config)) if fault == "unreadable" else ()
    site.start(plugin_config=site.config, wrapper=hidden)
    # It listens before it has read all of its configuration.
    wait_until(lambda: re.search(r"cache@\S+ initialization (completed|failed)", site.server_log()), "started")
    ours = [line for line in site.server_log().splitlines() if "SmartCache_" in line]
    assert len(ours) == 2, ours
    assert re.search(said, ours[0]), ours[0]
    assert str(site.config) in ours[0]
    assert "every open is admitted until it is mended and the server restarted" in ours[1]
    with site.clients() as clients, unharmed(site, clients):
        assert clients.open(site.lfns * 5, users=4, threads=4) == [""] * 5 * len(site.lfns)
        assert all(site.on_disk(lfn) for lfn in site.lfns)
