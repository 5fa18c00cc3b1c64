"""The history outlives the server: stopped, killed, and with a file that is damaged or cannot be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from plugin_site import Site, wait_until

from smartcache import _core
from smartcache.preprocessing.popularity import write
from smartcache.preprocessing.replay import Replay
from smartcache.preprocessing.side_tables import NO_TABLE, SideTables, keep, kept

pytestmark = pytest.mark.slow

SAVES = 'smartcache_history_saves_total{result="%s"}'


def kept_history(site: Site, save_s: float = 0.1) -> str:
    """Configuration of a history that is kept."""
    folder = site.folder / "kept"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return f'[history]\nfile = "{folder}/history"\nsave_s = {save_s}\nscan = false\n'


def opened(site: Site, numbers: tuple[int, ...]) -> list[dict]:
    return [site.opened(f"/store/set/{number}.root") for number in numbers]


def wait_saved(site: Site, last: dict) -> None:
    """Until the file is of the moment after this open: boot and number stand in its header."""
    history = site.folder / "kept" / "history"
    moment = last["boot_us"].to_bytes(8, "little") + last["seq"].to_bytes(8, "little")
    wait_until(lambda: history.exists() and history.read_bytes()[24:40] == moment, "saved")


def publish(site: Site, version: int) -> None:
    """A side table as the stream publishes it, until it is in use."""
    place = site.folder / "side.json"
    loads = 'smartcache_side_table_loads_total{result="done"}'
    before = site.counter(loads)
    head = {"format": 1, "kind": "smartcache-datasets", "version": version, "until_us": version, "windows_s": [9.0], "left_out": 0}
    row = {"opens": [version], "read_bytes": [5], "files": 3, "caches": 2, "reopened": 0.3, "part_read": None, "last_open_us": 7}
    write(place, head, [{"dataset": "/store/set", **row}], lambda draft: keep(place, version, draft, 9))
    wait_until(lambda: site.counter(loads) > before, "loaded")


def replayed(log: list[dict], folder: Path, site: Site) -> np.ndarray:
    """What build-dataset makes of the log."""
    rows = sorted(log, key=lambda each: (each["boot_us"], each["seq"]))
    origins = {(each["boot_us"], each["history_boot_us"], each["history_seq"]) for each in rows if each["history_boot_us"] is not None}
    replay = Replay("", origins, folder, SideTables(kept(site.folder / "side.json").get))
    features = replay.features(
        *(np.array([each[name] for each in rows], np.int64) for name in ("boot_us", "seq", "t_us")),
        [each["lfn"] for each in rows],
        np.array([each["on_disk"] for each in rows]),
        np.array([each["size"] for each in rows], np.int64),
        *(np.array([each[name] for each in rows], np.float32) for name in ("fill", "read_share")),
        np.array([each.get("side_table", NO_TABLE) for each in rows], np.int64),
    )
    assert replay.unknown == set()
    assert replay.tables.unknown == 0
    return features


def test_across_a_kill_and_a_stop_what_is_replayed_is_what_was_served(site: Site, tmp_path: Path) -> None:
    toml = kept_history(site) + f'[side_table]\nfile = "{site.folder}/side.json"\npoll_s = 0.05\n'
    site.start(toml)
    log = opened(site, (0,))
    publish(site, 1_000_000)
    log += opened(site, (1, 0))
    wait_saved(site, log[-1])
    # From here on nothing can be saved any more: the folder is not the server's.
    (site.folder / "kept").chmod(0o755)
    log += opened(site, (2, 2))
    wait_until(lambda: site.counter(SAVES % "failed") > 0, "refused")
    log += opened(site, (2,))
    site.cache.process.kill()
    (site.folder / "kept").chmod(0o777)
    site.start(toml)
    log += opened(site, (0,))
    publish(site, 2_000_000)
    log += opened(site, (2, 2))
    wait_saved(site, log[-1])
    site.cache.process.stop()
    site.start(toml)
    log += opened(site, (0,))

    boots = sorted({each["boot_us"] for each in log})
    assert len(boots) == 3
    origins = [{(each["history_boot_us"], each["history_seq"]) for each in log if each["boot_us"] == boot} for boot in boots]
    assert origins == [{(None, None)}, {(boots[0], 3)}, {(boots[1], 3)}]  # not the three of 2.root
    assert {each.get("side_table") for each in log} == {None, 1_000_000, 2_000_000}
    seen = _core.schema()["names"].index("file_seen")
    assert [each["features"][seen] for each in log if each["boot_us"] == boots[1]][:3] == [1, 0, 1]
    served = np.array([each["features"] for each in sorted(log, key=lambda each: (each["boot_us"], each["seq"]))]).astype(np.float32)
    assert replayed(log, tmp_path, site).tobytes() == served.tobytes()
    assert site.server_log().count("[history] file must be one that can be written") == 1
    assert "history restored: " in site.server_log()


def test_a_damaged_history_is_set_aside_and_opens_go_on(site: Site) -> None:
    toml = kept_history(site, 1000)
    history = site.folder / "kept" / "history"
    history.write_bytes(b"SMCHIST\n" + b"\xff" * 500)
    history.chmod(0o644)
    site.start(toml)
    assert opened(site, (0,))[0]["history_boot_us"] is None
    aside = list(history.parent.glob("history.bad-*"))
    assert [path.read_bytes() for path in aside] == [b"SMCHIST\n" + b"\xff" * 500]
    assert f"is now {aside[0]}" in site.server_log()
    assert "the history begins empty" in site.server_log()


def test_a_folder_that_is_not_there_fails_no_open(site: Site) -> None:
    kept_history(site)
    site.start(f'[history]\nfile = "{site.folder}/nowhere/history"\nsave_s = 0.1\n')
    opened(site, (0, 1))
    wait_until(lambda: site.counter(SAVES % "failed") > 1, "refused twice")
    assert site.server_log().count("No such file or directory") == 1
