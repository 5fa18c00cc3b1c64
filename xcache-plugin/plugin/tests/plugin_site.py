"""An XCache with the plugin, its origin, its clients, and what the tests ask of them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from plugin_client import Clients

from smartcache import _core
from smartcache.local import paths, xrootd
from smartcache.local.ports import LOOPBACK, free_ports

SIZE = xrootd.CacheSize(base=64 << 20, nominal=128 << 20, maximum=256 << 20)
FILE_BYTES = 300_000
#: Of the file that the judge of faults holds open.
HELD_FOLDER = "/store/held/"
#: Linux's, and not among Python's.
SO_RCVBUFFORCE, SO_MEMINFO = 33, 55
#: Bytes: a machine with more to do than processors may leave this process waiting while a thousand answers come.
LOG_ROOM = 8 << 20
#: Against a port where nothing listens it would wait for minutes.
XRDCP = ("timeout", "240", paths.xrootd_program("xrdcp"), "-f", "-s")


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not {what} after {timeout_s} s"
        time.sleep(0.05)


class Site:
    """A folder with an origin's files, a decision log socket, and one XCache with the plugin."""

    def __init__(self, folder: Path, origin: xrootd.Xrootd) -> None:
        self.folder = folder
        self.origin = origin
        self.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with contextlib.suppress(PermissionError):  # without the right, the kernel's usual room must do
            self.log.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, LOG_ROOM)
        self.log.bind((LOOPBACK, 0))
        self.log.settimeout(20)
        self.gstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.gstream.bind((LOOPBACK, 0))
        self.gstream.settimeout(40)
        self.metrics = folder / "metrics"
        self.metrics.mkdir()
        self.metrics.chmod(0o777)
        self.config = folder / "smartcache.toml"
        self.cache: xrootd.Xrootd | None = None

    def start(
        self, toml: str = "", raw: str | None = None, decision_log: str = "", plugin_config: Path | None = None, **server: object
    ) -> None:
        """Start the cache. ``raw``: the whole of the plugin's configuration; ``decision_log``: more for that section;
        ``plugin_config``: not ours but this file; ``server``: more for :func:`xrootd.start_cache`.
        """
        common = f"""
[decision_log]
port = {self.log.getsockname()[1]}
features = true
{decision_log}
[plugin_metrics]
textfile = "{self.metrics}/smartcache.prom"
interval_s = 0.2
"""
        if plugin_config is None:
            self.config.write_text(common + toml if raw is None else raw)
        port, fstream = free_ports(2)
        self._server = {
            "folder": self.folder / "cache",
            "port": port,
            "origin_port": self.origin.port,
            "size": SIZE,
            "plugin": paths.PLUGIN,
            "plugin_config": plugin_config or self.config,
            "monitoring": xrootd.Monitoring(self.gstream.getsockname()[1], fstream),
            **server,
        }
        self.start_again()

    def start_again(self) -> None:
        """After the server's end: the same, at the same port, with what its disk holds."""
        (self.metrics / "smartcache.prom").unlink(missing_ok=True)  # of the server before
        self.cache = xrootd.start_cache(**self._server)

    def stop(self) -> None:
        if self.cache is not None:
            self.cache.process.require_running()  # it must have survived everything that the test did
            self.cache.process.stop()
        self.log.close()
        self.gstream.close()

    def read(self, lfn: str) -> float:
        """Copy the file through the cache, compare its bytes, return the seconds."""
        copy = self.folder / "copy"
        start = time.monotonic()
        done = subprocess.run(
            [*XRDCP, f"{self.cache.url}{lfn}", str(copy)], env={**os.environ, **paths.xrootd_env()}, capture_output=True, text=True
        )
        elapsed = time.monotonic() - start
        assert done.returncode == 0, f"{lfn}: xrdcp ended with {done.returncode} after {elapsed:.1f} s: {done.stderr}\n{self.last_words()}"
        assert copy.read_bytes() == (self.origin_data / lfn.lstrip("/")).read_bytes()
        return elapsed

    @property
    def origin_data(self) -> Path:
        return self.origin.folder.parent / "origin-data"

    def decision(self) -> dict:
        return json.loads(self.log.recv(65536))

    def decisions_dropped(self) -> int:
        """How many datagrams the kernel threw away since the start, for want of room while this process was not at work."""
        return struct.unpack("9I", self.log.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[8]

    def forget_decisions(self) -> None:
        """Throw away those that came and were not looked at."""
        self.log.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.log.recv(65536):
                pass
        self.log.settimeout(20)

    def opened(self, lfn: str) -> dict:
        self.read(lfn)
        decision = self.decision()
        assert decision["lfn"] == lfn
        return decision

    def wait_let_go(self, lfn: str) -> None:
        """Until pfc has the file open no more: it closes it half a minute late where blocks were not written yet at its client's close."""
        path = os.path.realpath(self.cache.data / lfn.lstrip("/"))

        def held() -> bool:
            for descriptor in Path(f"/proc/{self.cache.process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()) == path:
                        return True
            return False

        wait_until(lambda: not held(), f"let go of {lfn}", 120)

    def on_disk(self, lfn: str) -> bool:
        return (self.cache.data / lfn.lstrip("/")).exists()

    def last_words(self) -> str:
        return self.cache.process.last_words() if self.cache.process.running else f"the server ended with {self.cache.process.returncode}"

    def server_log(self) -> str:
        return (self.cache.folder / "cache" / "xrootd.log").read_text(errors="replace")

    def counter(self, sample: str) -> float:
        with contextlib.suppress(OSError):
            for line in (self.metrics / "smartcache.prom").read_text().splitlines():
                if line.startswith(sample + " "):
                    return float(line.rsplit(" ", 1)[1])
        return 0.0

    def clients(self) -> Clients:
        """Clients in a process of their own, for many opens."""
        return Clients(f"{LOOPBACK}:{self.cache.port}", self.origin_data)

    @property
    def lfns(self) -> list[str]:
        """The files that the origin has for everybody."""
        return sorted(f"/store/set/{path.name}" for path in (self.origin_data / "store" / "set").iterdir())

    @property
    def models(self) -> Path:
        """What the plugin has as `bundle_dir`."""
        return self.folder / "models"

    def install(self, name: str) -> Path:
        """The bundle ``name``, not in use: its folder."""
        bundle = {
            "format": 1,
            "name": name,
            "schema": _core.schema(),
            "bucket_edges_s": [3600, 86400],
            "horizon_s": 3600,
            "horizon_buckets": 1,
            "thresholds": {"admit": 0.5, "evict": 0.1},
            "metrics": {},
            "provenance": {},
        }
        (self.models / name).mkdir(parents=True)
        (self.models / name / "bundle.json").write_text(json.dumps(bundle))
        return self.models / name

    def embed(self, name: str, outputs: list[float]) -> Path:
        """Give the bundle ``name`` weights of a network that answers ``outputs`` to everything: their file."""
        width = len(_core.schema()["names"])
        layer = {"kernel": [[0.0] * len(outputs)] * width, "bias": [math.log(each) for each in outputs], "activation": "softmax"}
        path = self.models / name / "weights.json"
        path.write_text(json.dumps({"layers": [layer], "normalization": {"mean": [0.0] * width, "scale": [1.0] * width}}))
        return path

    def point_at(self, name: str) -> None:
        """Move `current` there, as promotion does."""
        link = self.models / "next"
        link.symlink_to(name)
        link.replace(self.models / "current")

    def promote(self, name: str = "reuse_v1") -> Path:
        self.install(name)
        self.point_at(name)
        return self.models

    def wait_for_model(self, name: str = "reuse_v1") -> None:
        wait_until(lambda: self.counter(f'smartcache_model_info{{model="{name}"}}') == 1, f"{name} in use")

    def wait_for_check(self) -> None:
        """The endpoint of the model in use was asked for the golden rows; one that did not answer at first is asked at each poll."""

        def checked() -> bool:
            said = re.findall(r"model \S+ is (?:in use|checked).*", self.server_log())
            return bool(said) and ", though" not in said[-1]

        wait_until(checked, "the endpoint checked")

    def model(self, url: str, *, stores_little: bool = False, **more: object) -> str:
        """``more``: of [model]. ``stores_little``: without its answer nothing is stored but what the judge of faults holds open;
        so each open waits for its decision, as one of a file on disk would not.
        """
        policy = f'fallback = "bypass"\nalways_admit = ["{HELD_FOLDER}"]\n' if stores_little else ""
        settings = {"bundle_dir": str(self.promote()), "endpoint_url": url, "poll_s": 0.1, "deadline_ms": 900, **more}
        model = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        return f"[policy]\nexplore = 0.0\n{policy}[model]\n{model}"


@contextlib.contextmanager
def another_site(origin: xrootd.Xrootd) -> Iterator[Site]:
    with xrootd.temporary_folder() as folder:
        one = Site(folder, origin)
        yield one
        one.stop()
