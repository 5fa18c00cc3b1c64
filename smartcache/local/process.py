"""A server's life on this machine: start, wait until it is ready, show its last words, stop it and all its children.

A process is the leader of its own session, so that a Ctrl-C on the terminal reaches the program that started it and not the server, and so
that one signal to the group ends the children too. Should that program itself be killed, the kernel ends the server (PR_SET_PDEATHSIG); to
the kernel the parent is the thread, so start a process in a thread that lives on.

An interrupt (Ctrl-C, SIGTERM, SIGHUP) that comes while a process is being started or stopped counts when that is done: none is lost by it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from .ports import LOOPBACK, listens

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
POLL_S = 0.05
#: Seconds that a server may take to start, however busy the machine is; one that has ended is noticed at once.
START_LIMIT_S = 400.0
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Check = Callable[[], bool]


class ProcessError(Exception):
    """A server did not come up or ended by itself; the text has the last lines of its log."""


#: What a caller does with a process before it starts: enters it in its list of what to stop.
Register = Callable[["Process"], object]


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
        user: str | None = None,
    ) -> None:
        """``log`` takes standard output and error; ``own_log`` is a log that the server writes itself, shown as its last words.

        ``user``: whom it runs as (only root may choose). A server that changes its user itself would outlive a killed parent: the kernel
        forgets PR_SET_PDEATHSIG then.
        """
        self.name = name
        self.argv = [os.fspath(part) for part in argv]
        self.log = log
        self._shown_log = own_log or log
        self._env = direct_loopback({**os.environ, **(env or {})})
        self._cwd = cwd
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._finished = False

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
        """Start it; returns at once. Who keeps a list of what to stop should enter it there before: an interrupt then finds it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        group = None if self._user is None else self._account(self._user).pw_gid
        with self.log.open("ab") as log, interrupts_deferred():
            try:
                self._process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    cwd=self._cwd,
                    start_new_session=True,
                    user=self._user,
                    group=group,
                    extra_groups=None if group is None else [],
                    preexec_fn=functools.partial(_die_with_parent, os.getpid()),  # runs after the change of user
                )
            except OSError as error:
                raise ProcessError(
                    f"{self.name}: cannot start {self.argv[0]}: {error.strerror}; `smartcache doctor` lists what is missing"
                ) from error
        return self

    def _account(self, user: str) -> pwd.struct_passwd:
        try:
            return pwd.getpwnam(user)
        except KeyError as error:
            raise ProcessError(f"{self.name}: user {user!r}, whom it is to run as, does not exist; run `make setup`") from error

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
        with interrupts_deferred():
            self._signal(sign)
            self._finish(time.monotonic() + grace_s)

    def _signal(self, sign: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            _signal_group(self._process.pid, sign)

    def _finish(self, deadline: float) -> None:
        """Wait for its end until ``deadline``; then, or when it has left children behind, SIGKILL."""
        if self._process is None or self._finished:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        _signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # From now on its number may be another's.
        self._finished = True

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.stop(sign=signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def stop_all(*groups: Iterable[Process], grace_s: float = 15.0) -> None:
    """End each group of processes together, one group after the other.

    SIGTERM to all of a group in the order given (clients of a server first), one ``grace_s`` for all of them, SIGKILL for what is left. The
    next group is left alone until then: Kafka goes after the programs that still have something to say to it. What was never started or
    has ended is passed over.
    """
    with interrupts_deferred():
        for group in groups:
            members = list(group)
            for process in members:
                process._signal(signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            for process in members:
                process._finish(deadline)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP that come meanwhile take effect at the end. In a thread other than the main one: nothing to defer.

    Not by a signal mask: that is one thread's, and Python runs the handler in the main thread whichever thread the signal went to.
    """
    caught: list[int] = []
    try:
        with _interrupts_held() as caught:
            yield
    finally:
        for number in dict.fromkeys(caught):
            signal.raise_signal(number)


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP that come meanwhile have no effect: for an end that must be gone through, once it has begun."""
    with _interrupts_held():
        yield


@contextlib.contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    kept: dict[int, Callable[[int, FrameType | None], object] | int] = {}
    held = True

    def take(number: int, frame: FrameType | None) -> None:
        handler = kept[number]
        if held:
            caught.append(number)
        elif callable(handler):  # an interrupt amid putting the handlers back
            handler(number, frame)
        else:
            signal.signal(number, handler)
            signal.raise_signal(number)

    try:
        for sign in _INTERRUPTS:
            handler = signal.getsignal(sign)
            if handler is not None and handler != signal.SIG_IGN:
                kept[sign] = handler
                signal.signal(sign, take)
        yield caught
    finally:
        held = False
        for number, before in kept.items():
            signal.signal(number, before)


def direct_loopback(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` with this machine's own addresses excepted from whatever HTTP proxy it names."""
    excepted = [part.strip() for name in ("no_proxy", "NO_PROXY") for part in env.get(name, "").split(",")]
    merged = ",".join(dict.fromkeys(part for part in (*excepted, LOOPBACK, "localhost") if part))
    return {**env, "no_proxy": merged, "NO_PROXY": merged}


def port_open(port: int) -> Check:
    """Ready when something accepts TCP connections at ``port``."""
    return lambda: listens(port)


def http_ok(url: str) -> Check:
    """Ready when a GET of ``url`` answers 200. No proxy is asked: it is always a server on this machine."""
    opener = build_opener(ProxyHandler({}))

    def check() -> bool:
        try:
            with opener.open(url, timeout=1) as answer:
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


def _die_with_parent(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was killed before the line above
        os._exit(1)


def _signal_group(leader: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, sign)
