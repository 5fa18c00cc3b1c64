"""Calls that follow one another in a thread of their own, so that who has asked for one need not wait for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Final, Generic, TypeVar

Answer = TypeVar("Answer")

#: How often somebody who waits may change their mind.
_LOOK_S: Final = 0.2


class Calls(Generic[Answer]):
    """One call at a time, in the order in which they were asked for. Thread-safe. What hangs holds up the calls after it, and no process
    that ends: the thread is a daemon, and there is none as long as there is nothing to do.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Future[Answer], Callable[..., Answer], tuple[Any, ...]]] = deque()
        self._lock = threading.Lock()
        self._running = False
        #: The call that has begun last; None where there was none.
        self.begun: Future[Answer] | None = None

    def submit(self, what: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        """Have ``what`` called; one that has not begun can be cancelled. Raises RuntimeError where the system gives no thread."""
        future: Future[Answer] = Future()
        with self._lock:
            if not self._running:
                threading.Thread(target=self._run, name="calls", daemon=True).start()  # begins where the lock is free
                self._running = True
            self._waiting.append((future, what, arguments))
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                future, what, arguments = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            self.begun = future
            try:
                answer = what(*arguments)
            except BaseException as error:  # whoever waits for it is told
                future.set_exception(error)
            else:
                future.set_result(answer)


def wait_until(futures: Iterable[Future[Any]], until_s: float, waiting: Callable[[], None]) -> None:
    """Until all are done, or it is ``until_s`` (monotonic). ``waiting`` is called meanwhile, and may raise. What has not begun by the end
    is cancelled: it would come at a time when nobody wants it.
    """
    asked = list(futures)
    try:
        while True:
            left_s = min(_LOOK_S, until_s - time.monotonic())
            if not wait_for(asked, max(left_s, 0.0)).not_done or left_s <= 0:
                return
            waiting()
    finally:
        for future in asked:
            future.cancel()
