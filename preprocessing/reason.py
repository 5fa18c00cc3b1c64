"""What Spark means by an error, in one line."""

from __future__ import annotations

from typing import Any

#: Java's exceptions may name each other in a circle.
_DEEPEST = 20
_TRACEBACK = "Traceback (most recent call last):"


def reason(error: BaseException) -> str:
    """The type of ``error`` and the first line of what it says.

    One of Java's is wrapped in others, which tell where it was passed on: the innermost counts. Where a Python worker failed, it is what
    Python raised there.
    """
    thrown = getattr(error, "java_exception", None)
    text = f"{type(error).__name__}: {str(error).strip() or 'no reason given'}" if thrown is None else _innermost(thrown)
    _, traceback, frames = text.rpartition(_TRACEBACK)
    # Frames are indented, what was raised is not.
    return next(line for line in (*frames.splitlines(), text) if line.strip() and not (traceback and line[0].isspace()))


def _innermost(thrown: Any) -> str:
    for _ in range(_DEEPEST):
        cause = thrown.getCause()
        if cause is None:
            break
        thrown = cause
    return str(thrown.toString())
