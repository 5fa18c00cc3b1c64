"""The one error that a packet can cause."""

from __future__ import annotations


class ParseError(Exception):
    """A packet or a record that cannot be used.

    ``cause`` is one of a small fixed set of words: a metric label and the start of the dead letter's reason. The text says more.
    """

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail
