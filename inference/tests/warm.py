"""Starts commands of this folder from a process that has imported what they need.

MLflow's client takes four seconds of a processor to import, which is most of what a `smartcache watch` of a test would cost. Here it is
imported once: a command is a fork of that process, with its own session, log, environment and folder, and is killed like any other. It runs
the command line that ``python -m smartcache.inference.cli`` runs.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn, Self

from smartcache.local.process import Process, interrupts_deferred

_START_S = 300.0
_OURS = ("_core", "terminal", "preprocessing.access", "inference.cli", "inference.promote", "inference.show", "inference.status")
_IMPORTED = (
    *(f"smartcache.{name}" for name in (*_OURS, "inference.watch", "inference.webhook")),
    *("mlflow.artifacts", "mlflow.tracking", "pyarrow.parquet"),
)


class WarmProcess(Process):
    """A process whose command is a fork of the warm one; ``argv`` are the arguments of ``smartcache.inference.cli``."""

    def start(self) -> Self:
        """As :meth:`Process.start`."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with interrupts_deferred():
            self._process = _Forked(_warm(), self.argv, self.log, self._env, self._cwd)  # type: ignore[assignment]
        return self


class _Forked:
    """What :class:`Process` uses of ``subprocess.Popen``."""

    def __init__(self, address: str, argv: list[str], log: Path, env: dict[str, str], cwd: Path | None) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        asked = {"argv": argv, "log": str(log), "env": env, "cwd": str(cwd or Path.cwd())}
        self._connection.sendall(json.dumps(asked).encode() + b"\n")
        self._answers = self._connection.makefile("rb")
        self.args = argv
        self.returncode: int | None = None
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        if self.returncode is None and _readable(self._connection, 0.0):
            line = self._answers.readline()
            self.returncode = int(line) if line else -signal.SIGKILL  # the warm process itself has gone, and it with it
            self._answers.close()
            self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None and not _readable(self._connection, timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status


def _readable(connection: socket.socket, timeout: float | None) -> bool:
    """Whether there is something to read within ``timeout`` seconds."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(timeout))


@functools.cache
def _warm() -> str:
    """The address of the warm process, which is started at the first call and ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="smartcache-warm-")
    address = str(Path(folder.name) / "socket")
    env = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = Process("warm", [sys.executable, "-m", __name__, address], Path(folder.name) / "log", env=env).start()
    atexit.register(folder.cleanup)
    atexit.register(process.stop)
    process.wait_ready(lambda: Path(address).exists(), "warm", _START_S)
    return address


# --- the warm process ---


def main(address: str) -> NoReturn:
    """Fork at each request, tell its process id, and its exit status once it has ended."""
    _import_all()
    # One thread, but for that of Arrow's allocator, which knows of forks.
    assert threading.active_count() == 1, threading.enumerate()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen()
    Path(f"{address}.new").rename(address)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                with connection.makefile("rb") as asked:
                    request = json.loads(asked.readline())
                pid = os.fork()
                if pid == 0:
                    _run(request)
                while os.getpgid(pid) != pid:  # who is told the id may signal its group at once
                    time.sleep(0.001)
                connection.sendall(b"%d\n" % pid)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            else:
                pid, connection = key.data
                _, status_ = os.waitpid(pid, 0)
                selector.unregister(key.fileobj)
                os.close(key.fd)
                with contextlib.suppress(OSError):  # nobody waits for it
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status_))
                connection.close()


def _import_all() -> None:
    """What the commands import, most of it in functions."""
    for name in _IMPORTED:
        importlib.import_module(name)
    from smartcache.inference.registry import Registry

    Registry("http://127.0.0.1:1", "none")


def _run(request: dict[str, Any]) -> NoReturn:
    status = 70
    try:
        os.setsid()
        from smartcache.local.process import _die_with_parent

        _die_with_parent(os.getppid())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, number)
        os.closerange(3, 256)
        sys.argv = ["smartcache", *request["argv"]]
        from smartcache.inference import cli

        status = 0
        cli.main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = 1
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
