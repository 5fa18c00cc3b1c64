"""A history file that is none, or no longer one: set aside, said once, and the plugin begins empty."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from plugin_invariants import watched
from plugin_site import Site, wait_until

pytestmark = pytest.mark.slow


def flipped(at: float) -> Callable[[Path], object]:
    """One bit, at this part of the file."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(at * (len(content) - 1))] ^= 0x10
        path.write_bytes(content)

    return flip


def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: os.truncate(path, 0),
    "cut in its head": lambda path: os.truncate(path, 10),
    "cut in the middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "cut by its last byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "one bit in its head": flipped(0),
    "one bit in the middle": flipped(0.5),
    "one bit at its end": flipped(1),
    "longer than it says": lambda path: path.write_bytes(path.read_bytes() * 2),
    "another file": lambda path: path.write_bytes(b"[policy]\n" * 1000),
    "1 GB of nothing": lambda path: os.truncate(path, 1 << 30),
    "a folder": replaced(lambda path: path.mkdir()),
    "a pipe": replaced(os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_history_that_is(damage: str, site: Site) -> None:
    folder = site.folder / "history"
    folder.mkdir()
    folder.chmod(0o777)
    file = folder / "of-this-cache"
    site.start(f'[history]\nfile = "{file}"\nsave_s = 0.1\nscan = false\n')
    with site.clients() as clients:
        assert clients.open(site.lfns) == [""] * len(site.lfns)
        wait_until(file.is_file, "saved")
    site.cache.process.stop()
    DAMAGES[damage](file)
    written = len(site.server_log())
    site.start_again()
    wait_until(lambda: "SmartCache_Config: ready" in site.server_log()[written:], "started")
    said = [line for line in site.server_log()[written:].splitlines() if "[history]" in line]
    assert len(said) == 1, said
    assert "file must be a history that this plugin saved" in said[0]
    assert str(file) in said[0]
    assert [path.name for path in folder.glob("*.bad-*")], "set aside"
    with site.clients() as clients:
        with watched(site, clients, deadline_ms=0, reasons={"no_model"}) as watch:
            watch.soak(site.lfns, opens=50)
        first = {decision["lfn"]: decision for decision in reversed(watch.decisions)}
        assert all(decision["features"] for decision in first.values())
        wait_until(file.is_file, "saved anew")
