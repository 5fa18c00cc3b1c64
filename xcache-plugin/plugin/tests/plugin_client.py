"""Real XRootD clients, in a process of their own: each user has a connection of its own, as jobs of different users have.

Run as a program it takes orders as JSON lines and answers each by one: ``open`` [[user, lfn], ...] with ``threads`` at once (open, read,
compare with the origin's file, close), ``hold`` an lfn open, ``release`` it again (read, compare, close).

All is read but a file's last block: where a file becomes complete on disk while its last client closes it, pfc before June 2025 may use it
after it has freed it, which ends the server, with our plugin or without (https://github.com/xrootd/xrootd/issues/2533).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from smartcache.local.xrootd import BLOCK_BYTES

TIMEOUT_S = 60


class Clients:
    """Gives the orders. Every result of an open is "" or what went wrong."""

    def __init__(self, address: str, origin_data: Path) -> None:
        self._address = address
        # A lost server is asked for again at once, for as long as the tests wait.
        env = {**os.environ, "XRD_CONNECTIONWINDOW": "2", "XRD_CONNECTIONRETRY": "30", "XRD_STREAMERRORWINDOW": "0"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, str(origin_data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def open(self, lfns: Iterable[str], *, users: int = 1, threads: int = 1) -> list[str]:
        """Open, read and compare each of ``lfns``, shared among ``users``."""
        return self.order({"do": "open", "opens": [[f"u{i % users}", lfn] for i, lfn in enumerate(lfns)], "threads": threads})

    def hold(self, lfn: str) -> None:
        problem = self.order({"do": "hold", "lfn": lfn})
        assert problem == "", f"{lfn}: {problem}"

    def release(self, lfn: str) -> None:
        """Read what was held open."""
        problem = self.order({"do": "release", "lfn": lfn})
        assert problem == "", f"{lfn}: {problem}"

    def begin(self, order: dict) -> None:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def result(self) -> list[str] | str:
        return json.loads(self._process.stdout.readline())

    def order(self, order: dict) -> list[str] | str:
        self.begin(order)
        return self.result()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader:
    """The client's end of the pipe."""

    def __init__(self, address: str, data: Path) -> None:
        self._address = address
        self._data = data
        self._held: dict[str, object] = {}

    def run(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            print(json.dumps(getattr(self, order.pop("do"))(**order)), flush=True)

    def open(self, opens: list[list[str]], threads: int) -> list[str]:
        if threads == 1:
            return [self._all_of(user, lfn) for user, lfn in opens]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda one: self._all_of(*one), opens))

    def hold(self, lfn: str) -> str:
        file, problem = self._opened("holder", lfn)
        self._held[lfn] = file
        return problem

    def release(self, lfn: str) -> str:
        return self._read_and_close(self._held.pop(lfn), lfn)

    def _all_of(self, user: str, lfn: str) -> str:
        file, problem = self._opened(user, lfn)
        return problem or self._read_and_close(file, lfn)

    def _opened(self, user: str, lfn: str) -> tuple[object, str]:
        from XRootD import client

        file = client.File()
        began = time.monotonic()
        status, _ = file.open(f"root://{user}@{self._address}/{lfn}", timeout=TIMEOUT_S)
        return file, "" if status.ok else f"open, after {time.monotonic() - began:.1f} s: {status.message}"

    def _read_and_close(self, file: object, lfn: str) -> str:
        whole = (self._data / lfn.lstrip("/")).read_bytes()
        expected = whole[: (len(whole) - 1) // BLOCK_BYTES * BLOCK_BYTES]
        if not expected:
            return f"the test's file has {len(whole)} bytes, and must have more than a block of {BLOCK_BYTES}"
        status, data = file.read(0, len(expected), timeout=TIMEOUT_S)
        problem = f"read: {status.message}" if not status.ok else "" if data == expected else "read: not what the origin holds"
        status, _ = file.close(timeout=TIMEOUT_S)
        return problem or ("" if status.ok else f"close: {status.message}")


if __name__ == "__main__":
    Reader(sys.argv[1], Path(sys.argv[2])).run()
