"""A server's life on this machine: start, wait until it is ready, show its last words, stop it and all its children.

A process is the leader of its own session, so that a Ctrl-C on the terminal reaches the program that started it and not the server, and so
that one signal to the group ends the children too. Should that program itself be killed, the kernel ends the server (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from .ports import listens

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
POLL_S = 0.05

Check = Callable[[], bool]


class ProcessError(Exception):
    """A server did not come up or ended by itself; the text has the last lines of its log."""


class Process:
    """One server process and its log file."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        own_log: Path | None = None,
    ) -> None:
        """``log`` takes standard output and error; ``own_log`` is a log that the server writes itself, shown as its last words."""
        self.name = name
        self.argv = [os.fspath(part) for part in argv]
        self.log = log
        self._shown_log = own_log or log
        self._env = {**os.environ, **(env or {})}
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; raises where it was not started."""
        if self._process is None:
            raise ProcessError(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it; returns at once."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    cwd=self._cwd,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                raise ProcessError(
                    f"{self.name}: cannot start {self.argv[0]}: {error.strerror}; `smartcache doctor` lists what is missing"
                ) from error
        return self

    def wait_ready(self, check: Check, what: str, timeout_s: float) -> Self:
        """Wait until ``check`` holds; :class:`ProcessError` where the process ends first or the time is up. Then it is stopped."""
        deadline = time.monotonic() + timeout_s
        try:
            while not check():
                if not self.running:
                    raise ProcessError(f"{self.name} ended with status {self.returncode} before it was {what}\n{self.last_words()}")
                if time.monotonic() > deadline:
                    raise ProcessError(f"{self.name}: not {what} after {timeout_s:.0f} s\n{self.last_words()}")
                time.sleep(POLL_S)
        except BaseException:  # an interrupt too: nobody else knows of this process yet
            self.stop()
            raise
        return self

    @property
    def returncode(self) -> int | None:
        """The exit status, None while it runs."""
        return None if self._process is None else self._process.poll()

    def require_running(self) -> None:
        """Raise :class:`ProcessError` where the server has ended by itself."""
        if not self.running:
            raise ProcessError(f"{self.name} ended by itself with status {self.returncode}\n{self.last_words()}")

    def wait(self, timeout_s: float) -> int:
        """Wait for it to end by itself; the exit status, :class:`ProcessError` when the time is up."""
        if self._process is None:
            raise ProcessError(f"{self.name} was not started")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ProcessError(f"{self.name} still runs after {timeout_s:.0f} s\n{self.last_words()}") from error

    def last_words(self, lines: int = 20) -> str:
        """The end of its log, for a person."""
        try:
            text = self._shown_log.read_text(errors="replace")
        except OSError:
            text = ""
        tail = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
        return f"  last lines of {self._shown_log}:\n{tail or '    (empty)'}"

    def stop(self, grace_s: float = 15.0, sign: signal.Signals = signal.SIGTERM) -> None:
        """End it and its children: ``sign``, then SIGKILL for what is left after ``grace_s``. Does nothing where it has ended."""
        if self._process is None:
            return
        if self._process.poll() is None:
            _signal_group(self._process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        _signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.stop(sign=signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def port_open(port: int) -> Check:
    """Ready when something accepts TCP connections at ``port``."""
    return lambda: listens(port)


def http_ok(url: str) -> Check:
    """Ready when a GET of ``url`` answers 200."""

    def check() -> bool:
        try:
            with urlopen(url, timeout=1) as answer:  # noqa: S310 - always a loopback address of ours
                return bool(answer.status == 200)
        except (URLError, OSError, ValueError):
            return False

    return check


def line_in(log: Path, text: str) -> Check:
    """Ready when the log has a line with ``text``."""

    def check() -> bool:
        try:
            return text in log.read_text(errors="replace")
        except OSError:
            return False

    return check


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(leader: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, sign)
