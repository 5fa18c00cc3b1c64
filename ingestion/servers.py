"""What is remembered of one life of one server: its users, names and closes that wait for their open, opens that wait for their close."""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import getsizeof
from typing import NamedTuple

from . import fstream
from .output import Record
from .tables import Table


class Client(NamedTuple):
    """Who opened, as pseudonyms."""

    user: str
    host: str
    app: str | None
    session: str


class NamedFile(NamedTuple):
    """What a path's map packet says: the name of the file, and who opens it as far as that packet has it."""

    lfn: str
    client: Client


class PendingOpen(NamedTuple):
    """An open without its close."""

    event: fstream.Open
    lo_us: int
    hi_us: int
    client: Client | None
    #: Who opened by the path's map packet, where the open has no name of its own.
    named: Client | None = None


class EarlyClose(NamedTuple):
    """A close without its open."""

    event: fstream.Close
    lo_us: int
    hi_us: int


@dataclass(slots=True)
class Server:
    """What is remembered of one life of one server."""

    start_s: int
    sid: int
    users: Table[Client]
    paths: Table[NamedFile]
    opens: Table[PendingOpen]
    early_closes: Table[EarlyClose]
    waiting: Table[Record]
    cache: str = ""
    #: The users' ids by their sessions.
    sessions: dict[str, int] = field(default_factory=dict)

    @property
    def life(self) -> tuple[int, int]:
        """Which life of the server it is, from whatever address it is heard."""
        return self.start_s, self.sid

    @property
    def name_bytes(self) -> int:
        """What its names weigh."""
        return self.paths.bytes + self.opens.bytes + self.users.bytes + self.waiting.bytes


def client_bytes(client: Client | None) -> int:
    """What of a client may be long; the rest are pseudonyms."""
    return getsizeof(client.app) if client is not None and client.app else 0


def named_by(pending: PendingOpen, named: NamedFile) -> PendingOpen:
    """The open with the name of its path's packet, where it has none of its own."""
    if pending.event.lfn:
        return pending
    return pending._replace(event=pending.event._replace(lfn=named.lfn), named=named.client)
