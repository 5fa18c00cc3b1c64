"""Opens and closes of clients, joined to one ``xcache.fstream.v1`` record each.

A server is known by the address its packets come from, its start time and its server id. Three things may come late, and none of them
loses a record while the memory bounds below hold:

- the server's identity (sent at start and every minute): finished records wait for it, it is their cache id;
- the map packets of the user and, for opens without a name, of the path: they are looked up again at the close;
- the close (files stay open for days): an open whose server has restarted, that is one too many, or that is still open when the collector
  stops is sent with a null close.

What is kept here is in memory alone: it is lost where the collector is killed. The closes of those opens are counted then, as
``close_without_open``, and packets of a server that had not said yet who it is as lost; a collector that is asked to stop sends all first.

Identities become pseudonyms the moment a map packet is parsed. Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from sys import getsizeof

from . import fstream
from .counters import Counters
from .errors import ParseError
from .jsontext import encode
from .numbering import Numbering
from .output import Output, Record
from .pseudonym import Pseudonyms
from .sequence import Sequences
from .servers import Client, EarlyClose, NamedFile, PendingOpen, Server, client_bytes, named_by
from .tables import Bound, Budget, Table

STREAM = "fstream"
#: Servers remembered, dead ones included; the one heard of longest ago goes first, its opens are sent unclosed.
MAX_SERVERS = 1024
#: Opens that wait for their close, over all servers: about 0.5 kB each. Of one too many the oldest of the server that has most is sent
#: unclosed.
MAX_OPENS = 262_144
#: Logged-in users, over all servers: about 0.6 kB each; likewise. The opens of a forgotten one have null users.
MAX_USERS = 262_144
#: Paths that wait for their open, over all servers: about 0.6 kB each; likewise. The open of a forgotten one has no name.
MAX_PATHS = 65_536
#: Finished records that wait for their server's identity, over all servers: about 1 kB each; likewise. One that goes is dropped.
MAX_WAITING = 65_536
#: Closes that came before their open did (packets that overtook each other), over all servers: about 0.4 kB each.
MAX_EARLY_CLOSES = 65_536
#: Bytes of the names of files and programs in all of these: a name may have 4096. With one too many, the server that holds most gives up
#: a part (1/64) of all: its paths first, then the oldest of what it has most bytes of, as above.
MAX_NAME_BYTES = 256 << 20

_US = 1_000_000
#: The f-stream cuts its seconds, so a window ends within its last second.
_LAST_US = _US - 1

ServerKey = tuple[str, int, int]


class FStreamHandler:
    """Packets of any number of caches to ``xcache.fstream.v1`` records."""

    def __init__(self, output: Output, counters: Counters, pseudonyms: Pseudonyms, numbering: Numbering | None = None) -> None:
        self._output = output
        self._counters = counters
        self._pseudonyms = pseudonyms
        self._sequences = Sequences(STREAM, fstream.PSEQ_MODULUS, fstream.PSEQ_FIRST, counters, numbering)
        self._servers: OrderedDict[ServerKey, Server] = OrderedDict()
        self._alive: dict[str, ServerKey] = {}
        self._names = names = Budget(MAX_NAME_BYTES)
        self._users = Bound[Client](MAX_USERS, names, client_bytes)
        self._paths = Bound[NamedFile](MAX_PATHS, names, lambda path: getsizeof(path.lfn))
        self._opens = Bound[PendingOpen](MAX_OPENS, names, lambda open_: getsizeof(open_.event.lfn) + client_bytes(open_.client))
        self._early_closes = Bound[EarlyClose](MAX_EARLY_CLOSES, names, lambda _: 0)
        self._waiting = Bound[Record](MAX_WAITING, names, lambda record: getsizeof(record["lfn"]) + getsizeof(record["app"]))
        self._serial = 0

    @property
    def open_count(self) -> int:
        """Opens that wait for their close."""
        return self._opens.count

    @property
    def waiting_count(self) -> int:
        """Records that wait for their server's identity."""
        return self._waiting.count

    def handle(self, raw: bytes, source: str, recv_us: int) -> None:
        """See :class:`.output.Handler`."""
        try:
            self._dispatch(fstream.parse_header(raw), raw, source, recv_us)
        except ParseError as error:
            # All but a window may hold identities: of them only the header is quoted.
            self._dead_letter(str(error), error.cause, raw if fstream.begins_as_window(raw) else raw[:8], recv_us)
        self._make_room(recv_us)

    def _dispatch(self, header: fstream.Header, raw: bytes, source: str, recv_us: int) -> None:
        if header.code == "f":
            self._on_window(header, fstream.parse_window(raw), source, raw, recv_us)
        elif header.code == "u":
            self._on_user(header, fstream.parse_user(raw), source, recv_us)
        elif header.code == "d":
            self._on_path(header, fstream.parse_path(raw), source, recv_us)
        elif header.code == "=":
            self._on_ident(header, fstream.parse_ident(raw), source, recv_us)
        elif header.code in fstream.IGNORED_CODES:
            self._counters.add("records_ignored", STREAM, "other_packet")
        else:
            raise ParseError("header", "the packet code is not known")

    def close(self, recv_us: int) -> None:
        """Send every open unclosed; what still has no identity becomes a dead letter."""
        for key, server in self._servers.items():
            self._emit_unclosed(server, "shutdown", recv_us)
            for record in server.waiting.take_all():
                reason = "no_identity: the server's `=` packet never came; use `ident 60s` in xrootd.monitor"
                self._dead_letter(reason, "no_identity", encode(record).encode(), recv_us)
            self._sequences.settle(key)
            self._forget_clients(server)
            server.early_closes.take_all()
        self._servers.clear()
        self._alive.clear()

    def _on_window(self, header: fstream.Header, window: fstream.Window, source: str, raw: bytes, recv_us: int) -> None:
        key = (source, header.start_s, window.sid)
        known = self._servers.get(key)
        # Until the server has said who it is, its records wait in memory: a collector that is killed has not had these packets.
        settled = known is not None and known.cache != ""
        if not self._sequences.is_new(key, header.pseq, hash(raw), header.start_s * _US, settled=settled):
            return
        server = self._server(key, recv_us)
        lo_us, hi_us = window.begin_s * _US, window.end_s * _US + _LAST_US
        if window.ignored:
            self._counters.add("records_ignored", STREAM, "other_record", window.ignored)
        for event in window.events:
            if type(event) is fstream.Open:
                self._on_open(server, PendingOpen(event, lo_us, hi_us, server.users.get(event.user_id)), recv_us)
            elif type(event) is fstream.Close:
                self._on_close(server, EarlyClose(event, lo_us, hi_us), recv_us)
            elif type(event) is fstream.Disconnect:
                self._forget_user(server, event.user_id)

    def _on_user(self, header: fstream.Header, user: fstream.User, source: str, recv_us: int) -> None:
        server = self._server((source, header.start_s, user.sid), recv_us)
        of = self._pseudonyms.of
        client = Client(of(user.name), of(user.host), user.app, of(user.session))
        self._forget_user(server, user.user_id)
        server.users.put(user.user_id, client)
        server.sessions[client.session] = user.user_id

    def _on_path(self, header: fstream.Header, path: fstream.Path, source: str, recv_us: int) -> None:
        server = self._server((source, header.start_s, path.sid), recv_us)
        if not path.lfn:
            self._counters.add("records_ignored", STREAM, "path_cut")
            return
        of = self._pseudonyms.of
        named = NamedFile(path.lfn, Client(of(path.name), of(path.host), None, of(path.session)))
        pending = server.opens.get(path.file_id)
        if pending is not None:
            server.opens.put(path.file_id, named_by(pending, named))
            return
        server.paths.put(path.file_id, named)

    def _on_ident(self, header: fstream.Header, ident: fstream.Ident, source: str, recv_us: int) -> None:
        key = (source, header.start_s, ident.sid)
        server = self._server(key, recv_us)
        self._counters.add("records_ignored", STREAM, "ident")
        if server.cache:
            return
        server.cache = ident.cache
        for record in server.waiting.take_all():
            self._send(server, record)
        self._sequences.settle(key)
        # A life of this cache that was not known before: the one before it has ended. Clocks are not compared; they may have been set.
        before = self._servers.get(self._alive.get(ident.cache, key))
        # The same life may be heard from two addresses, directly and by way of a shoveler, by one of them much later.
        if before is not None and before.life != server.life:
            others = [each for each in self._servers.values() if each.cache == ident.cache and each is not server]
            if any(each.life == server.life for each in others):
                return
            for each in others:
                if each.life == before.life:
                    self._emit_unclosed(each, "restart", recv_us)
                    self._forget_clients(each)
        self._alive[ident.cache] = key

    def _on_open(self, server: Server, pending: PendingOpen, recv_us: int) -> None:
        file_id = pending.event.file_id
        named = server.paths.take(file_id)
        if named is not None:
            pending = named_by(pending, named)
        early = server.early_closes.take(file_id)
        if early is not None:
            self._emit(server, pending, early, recv_us)
            return
        if file_id in server.opens:
            self._emit_oldest(server, file_id, "id_again", recv_us)
        server.opens.put(file_id, pending)

    def _on_close(self, server: Server, close: EarlyClose, recv_us: int) -> None:
        pending = server.opens.take(close.event.file_id)
        if pending is not None:
            self._emit(server, pending, close, recv_us)
            return
        # The open may have been before the collector's start, lost, or be overtaken: in the last case it still finds its close here.
        self._counters.add("records_ignored", STREAM, "close_without_open")
        server.early_closes.put(close.event.file_id, close)

    def _emit_oldest(self, server: Server, file_id: int, cause: str, recv_us: int) -> None:
        pending = server.opens.take(file_id)
        if pending is None:
            return
        self._counters.add("opens_unclosed", STREAM, cause)
        self._emit(server, pending, None, recv_us)

    def _emit_unclosed(self, server: Server, cause: str, recv_us: int) -> None:
        while server.opens:
            self._emit_oldest(server, server.opens.oldest, cause, recv_us)

    def _emit(self, server: Server, pending: PendingOpen, close: EarlyClose | None, recv_us: int) -> None:
        if not pending.event.lfn:
            self._counters.add("records_ignored", STREAM, "open_without_lfn")
            return
        client = pending.client or server.users.get(pending.event.user_id)
        if client is None and pending.named is not None:
            # The user's packet says more than the path's.
            client = server.users.get(server.sessions.get(pending.named.session, 0)) or pending.named
        if client is None:
            self._counters.add("opens_without_user", STREAM)
        event = close.event if close else None
        record: Record = {
            "record_id": f"{server.start_s}/{server.sid}/{pending.event.file_id}",
            "cache": server.cache,
            "lfn": pending.event.lfn,
            "open_lo_us": pending.lo_us,
            "open_hi_us": pending.hi_us,
            "close_lo_us": close.lo_us if close else None,
            "close_hi_us": close.hi_us if close else None,
            "size": pending.event.size,
            "b_read": event.b_read if event else None,
            "b_readv": event.b_readv if event else None,
            "b_write": event.b_write if event else None,
            "n_read": event.n_read if event else None,
            "n_readv": event.n_readv if event else None,
            "forced": event.forced if event else None,
            "user": client.user if client else None,
            "client_host": client.host if client else None,
            "app": client.app if client else None,
            "recv_us": recv_us,
        }
        self._counters.add("records_parsed", STREAM)
        if server.cache:
            self._send(server, record)
            return
        self._serial += 1
        server.waiting.put(self._serial, record)

    def _send(self, server: Server, record: Record) -> None:
        record["cache"] = server.cache
        record["record_id"] = f"{server.cache}/{record['record_id']}"
        self._output.record(STREAM, record)

    def _server(self, key: ServerKey, recv_us: int) -> Server:
        server = self._servers.get(key)
        if server is not None:
            self._servers.move_to_end(key)
            return server
        tables = (Table(self._users), Table(self._paths), Table(self._opens), Table(self._early_closes), Table(self._waiting))
        server = self._servers[key] = Server(key[1], key[2], *tables)
        if len(self._servers) > MAX_SERVERS:
            gone_key, gone = self._servers.popitem(last=False)
            self._emit_unclosed(gone, "server_forgotten", recv_us)
            self._forget_clients(gone)
            gone.early_closes.take_all()
            if gone.waiting:
                self._counters.add("records_dropped", STREAM, "no_identity", len(gone.waiting))
                gone.waiting.take_all()
            self._sequences.settle(gone_key)
            if self._alive.get(gone.cache) == gone_key:
                del self._alive[gone.cache]
        return server

    def _make_room(self, recv_us: int) -> None:
        """Keep all bounds, at the cost of the server that has most of what there is too much of: no other pays for it."""
        while self._users.exceeded:
            self._drop_user(self._most(lambda server: len(server.users)))
        while self._paths.exceeded:
            self._drop_path(self._most(lambda server: len(server.paths)))
        while self._opens.exceeded:
            server = self._most(lambda server: len(server.opens))
            self._emit_oldest(server, server.opens.oldest, "too_many", recv_us)
        while self._early_closes.exceeded:
            server = self._most(lambda server: len(server.early_closes))
            server.early_closes.take(server.early_closes.oldest)
        while self._waiting.exceeded:
            self._drop_waiting(self._most(lambda server: len(server.waiting)))
        if self._names.exceeded:
            self._drop_names(recv_us)

    def _most(self, of: Callable[[Server], int]) -> Server:
        return max(self._servers.values(), key=of)

    def _drop_names(self, recv_us: int) -> None:
        """A little more than must be, so that who has most need not be looked for again at each packet."""
        enough = self._names.most - self._names.most // 64
        for server in sorted(self._servers.values(), key=lambda server: server.name_bytes, reverse=True):
            while self._names.used > enough and server.name_bytes > 0:
                if server.paths:
                    self._drop_path(server)
                elif server.opens.bytes >= max(server.users.bytes, server.waiting.bytes):
                    self._emit_oldest(server, server.opens.oldest, "too_many", recv_us)
                    if server.waiting:  # without an identity it only waits elsewhere now
                        self._drop_waiting(server)
                elif server.users.bytes >= server.waiting.bytes:
                    self._drop_user(server)
                else:
                    self._drop_waiting(server)

    def _drop_user(self, server: Server) -> None:
        self._forget_user(server, server.users.oldest)
        self._counters.add("users_forgotten", STREAM)

    def _drop_path(self, server: Server) -> None:
        server.paths.take(server.paths.oldest)
        self._counters.add("paths_forgotten", STREAM)

    def _drop_waiting(self, server: Server) -> None:
        server.waiting.take(server.waiting.oldest)
        self._counters.add("records_dropped", STREAM, "waiting_full")

    def _forget_user(self, server: Server, user_id: int) -> None:
        client = server.users.take(user_id)
        if client is None:
            return
        if server.sessions.get(client.session) == user_id:
            del server.sessions[client.session]

    def _forget_clients(self, server: Server) -> None:
        server.users.take_all()
        server.sessions.clear()
        server.paths.take_all()

    def _dead_letter(self, reason: str, cause: str, raw: bytes, recv_us: int) -> None:
        self._counters.add("dead_letters", STREAM, cause)
        self._output.dead_letter(STREAM, reason, raw, recv_us)
