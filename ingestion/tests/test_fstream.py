"""The f-stream: captured packets, made-up ones, and hostile ones."""

import random
import struct
from collections import Counter

import pytest

from smartcache.ingestion import fstream, opens
from smartcache.ingestion.errors import ParseError
from smartcache.ingestion.opens import FStreamHandler
from smartcache.ingestion.pseudonym import Pseudonyms

NOW = 1_800_000_000_000_000
HERE = "127.0.0.1"
SID = 38009399717061
PSEUDONYMS = Pseudonyms(b"k" * 32)


def packet(code, body, pseq=0, stod=100):
    return struct.pack(">cBHI", code, pseq % 256, 8 + len(body), stod) + body


def ident(stod=100, host="h", port=1094, sid=SID):
    return packet(b"=", b"\0\0\0\0" + f"=/xrootd.5:{sid}@{host}\n&site=S&port={port}&inst=i&pgm=xrootd&ver=v5".encode(), stod=stod)


def user(user_id, name="alice", host="[::ffff:10.0.0.1]", info="&R=v5&x=cmsRun&y=&I=4", stod=100, sid=SID):
    return packet(b"u", struct.pack(">I", user_id) + f"xroot/{name}.77:{sid}@{host}\n{info}".encode(), stod=stod)


def path(file_id, lfn="/f", name="alice", host="[::ffff:10.0.0.1]", tail=b"", sid=SID):
    return packet(b"d", struct.pack(">I", file_id) + f"xroot/{name}.77:{sid}@{host}\n{lfn}".encode() + tail)


def record(kind, flags, number, body):
    return struct.pack(">BBHI", kind, flags, 8 + len(body), number) + body


def opened(file_id, user_id=1, lfn=b"/f", size=10):
    return record(1, 1, file_id, struct.pack(">qI", size, user_id) + lfn + b"\0" * (8 - len(lfn) % 8))


def unnamed(file_id, size=10):
    return record(1, 0, file_id, struct.pack(">q", size))


def closed(file_id, read=4, readv=3, forced=0):
    calls = struct.pack(">iiihhqiiiiii", 2, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0)
    return record(0, 2 | forced, file_id, struct.pack(">qqq", read, readv, 0) + calls)


def window(*records, begin=1000, end=1009, pseq=0, stod=100, sid=SID):
    body = record(2, 1, len(records), struct.pack(">IIQ", begin, end, sid)) + b"".join(records)
    return packet(b"f", body, pseq, stod)


@pytest.fixture
def handler(output, counters):
    return FStreamHandler(output, counters, PSEUDONYMS)


@pytest.fixture
def feed(handler):
    def send(*packets, source=HERE):
        for raw in packets:
            handler.handle(raw, source, NOW)

    return send


def by_hand(datagrams):
    """Opens and closes of a capture, read without the parser: offsets as written down in the server's header file."""

    def number(raw, at, size):
        return int.from_bytes(raw[at : at + size], "big", signed=True)

    found = Counter()
    lfns = Counter()
    for raw in datagrams:
        found[chr(raw[0])] += 1
        at = 8
        while raw[:1] == b"f" and at < len(raw):
            if raw[at] == 1:
                lfns[raw[at + 20 : at + number(raw, at + 2, 2)].rstrip(b"\0").decode()] += 1
                found["size"] += number(raw, at + 8, 8)
            if raw[at] == 0:
                found["close"] += 1
                found["read"] += number(raw, at + 8, 8)
                found["readv"] += number(raw, at + 16, 8)
                found["n_read"] += number(raw, at + 32, 4)
            at += number(raw, at + 2, 2)
    return found, lfns


def test_capture_parses_fully(captured, handler, feed, output, counters):
    datagrams = captured("fstream-5.5.3.jsonl")
    feed(*datagrams)
    found, lfns = by_hand(datagrams)
    assert len(output.records) == found["close"] == 133
    assert Counter(r["lfn"] for r in output.records) == lfns
    for field, name in (("b_read", "read"), ("b_readv", "readv"), ("n_read", "n_read"), ("size", "size")):
        assert sum(r[field] for r in output.records) == found[name], field
    assert {r["cache"] for r in output.records} == {"vm:21095"}
    assert all(len(r["user"]) == len(r["client_host"]) == 16 for r in output.records)
    assert {r["app"] for r in output.records} >= {"xrdcp", "python3.11"}
    assert len({r["record_id"] for r in output.records}) == 133
    assert all(r["open_lo_us"] <= r["open_hi_us"] and r["open_lo_us"] <= r["close_hi_us"] for r in output.records)
    assert output.letters == []
    assert counters.get("records_ignored", "fstream", "other_packet") == found["t"]
    assert counters.total("packets_lost", "fstream") == 0
    handler.close(NOW)
    assert len(output.records) == 133


def without_lfn(raw):
    """A captured packet as a server sends it without the option ``lfn``."""
    if raw[:1] != b"f":
        return raw
    body, at = b"", 8
    while at < len(raw):
        kind, flags, size, number = struct.unpack_from(">BBHI", raw, at)
        body += record(1, flags & ~1, number, raw[at + 8 : at + 16]) if kind == 1 else raw[at : at + size]
        at += size
    return raw[:2] + struct.pack(">H", 8 + len(body)) + raw[4:8] + body


def test_names_from_path_packets_are_those_of_the_opens(captured, output, counters):
    datagrams = captured("fstream-5.5.3.jsonl")
    stripped = [without_lfn(raw) for raw in datagrams]
    assert sum(len(raw) for raw in stripped) < sum(len(raw) for raw in datagrams)
    for each in (datagrams, stripped):
        handler = FStreamHandler(output, counters, PSEUDONYMS)
        for raw in each:
            handler.handle(raw, HERE, NOW)
        handler.close(NOW)
    assert len(output.records) == 2 * 133
    assert output.records[:133] == output.records[133:]


@pytest.mark.parametrize("order", ["path open close", "open path close", "close path open", "path close open"])
def test_a_path_packet_names_the_open_whichever_comes_first(order, feed, output, counters):
    feed(ident(), user(1))
    packets = {"path": path(2, "/a\nb"), "open": window(unnamed(2), pseq=0), "close": window(closed(2), pseq=1)}
    feed(*(packets[name] for name in order.split()))
    assert [(r["lfn"], r["user"], r["app"], r["b_read"]) for r in output.records] == [("/a\nb", PSEUDONYMS.of("alice"), "cmsRun", 4)]


def test_who_opens_is_known_from_the_path_packet_alone(feed, output):
    feed(ident(), path(2, name="bob"), window(unnamed(2), closed(2)))
    assert [(r["user"], r["client_host"], r["app"]) for r in output.records] == [
        (PSEUDONYMS.of("bob"), PSEUDONYMS.of("[::ffff:10.0.0.1]"), None)
    ]


def test_a_user_packet_after_a_nameless_open_counts_before_the_path_packet(feed, output):
    feed(ident(), path(2), window(unnamed(2)), user(1, info="&n=/CN=Alice&x=cmsRun"), window(closed(2), pseq=1))
    assert [(r["user"], r["app"]) for r in output.records] == [(PSEUDONYMS.of("/CN=Alice"), "cmsRun")]


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0\0"])
def test_a_path_cut_by_a_byte_or_before_zeros(tail, handler, feed, output, counters):
    feed(ident(), path(2, tail=tail), window(unnamed(2), closed(2)))
    assert counters.get("records_ignored", "fstream", "path_cut") == 1
    assert output.records == []


def test_one_life_heard_from_two_addresses_is_no_restart(handler, feed, output, counters):
    feed(ident(), user(1), window(opened(2)))
    feed(ident(), user(1), window(opened(2)), source="192.0.2.1")
    assert handler.open_count == 2
    assert counters.total("opens_unclosed", "fstream") == 0
    for source in (HERE, "192.0.2.1"):
        feed(window(closed(2), pseq=1), source=source)
    assert [r["record_id"] for r in output.records] == [f"h:1094/100/{SID}/2"] * 2


def test_a_first_line_that_is_hard_to_match_costs_nothing(feed, output, counters):
    for code in (b"=", b"u", b"d"):
        feed(packet(code, b"\0\0\0\1" + b".1:1@" * 13_000))
    assert ["first line of a map packet has 65000 bytes" in reason for reason, _ in output.letters] == [True] * 3


def test_no_user_is_counted(feed, output, counters):
    feed(ident(), window(opened(2), closed(2)))
    assert output.records[0]["user"] is None
    assert counters.get("opens_without_user", "fstream") == 1


def test_a_path_that_the_server_has_cut_is_not_used(handler, feed, output, counters):
    feed(ident(), path(2, "/" + "x" * 1200, tail=b"\0 alice's password"), window(unnamed(2), closed(2)))
    handler.close(NOW)
    assert output.records == output.letters == []
    assert counters.get("records_ignored", "fstream", "path_cut") == 1
    assert counters.get("records_ignored", "fstream", "open_without_lfn") == 1


def test_one_open_one_record(feed, output):
    feed(ident(), user(1), window(opened(2)), window(closed(2, forced=1), begin=1010, end=1019, pseq=1))
    assert output.records == [
        {
            "record_id": f"h:1094/100/{SID}/2",
            "cache": "h:1094",
            "lfn": "/f",
            "open_lo_us": 1_000_000_000,
            "open_hi_us": 1_009_999_999,
            "close_lo_us": 1_010_000_000,
            "close_hi_us": 1_019_999_999,
            "size": 10,
            "b_read": 4,
            "b_readv": 3,
            "b_write": 0,
            "n_read": 2,
            "n_readv": 1,
            "forced": True,
            "user": PSEUDONYMS.of("alice"),
            "client_host": PSEUDONYMS.of("[::ffff:10.0.0.1]"),
            "app": "cmsRun",
            "recv_us": NOW,
        }
    ]


def test_who_authenticated_counts_before_the_login_name(feed, output):
    feed(ident(), user(1, info="&p=gsi&n=/DC=ch/CN=Alice&h=x&o=cms&x=a"), window(opened(2), closed(2)))
    assert output.records[0]["user"] == PSEUDONYMS.of("/DC=ch/CN=Alice")


def test_records_wait_for_a_late_identity(handler, feed, output):
    feed(user(1), window(opened(2), closed(2)), window(opened(3), closed(3), pseq=1))
    assert output.records == []
    assert handler.waiting_count == 2
    feed(ident(stod=99), ident(), source="127.0.0.2")  # another server
    assert output.records == []
    feed(ident())
    assert [r["record_id"] for r in output.records] == [f"h:1094/100/{SID}/2", f"h:1094/100/{SID}/3"]
    assert handler.waiting_count == 0


def test_two_servers_of_one_host_started_in_the_same_second(feed, output):
    feed(ident(port=1, sid=11), ident(port=2, sid=22), user(1, sid=11), user(1, name="bob", sid=22))
    feed(window(opened(2), closed(2), sid=22), window(opened(2), closed(2), sid=11))
    assert [(r["cache"], r["user"]) for r in output.records] == [("h:2", PSEUDONYMS.of("bob")), ("h:1", PSEUDONYMS.of("alice"))]


def test_no_user_map_packet(feed, output):
    feed(ident(), window(opened(2), closed(2)))
    assert [output.records[0][name] for name in ("user", "client_host", "app")] == [None, None, None]


def test_the_user_map_packet_may_come_between_open_and_close(feed, output):
    feed(ident(), window(opened(2)), user(1), window(closed(2), pseq=1))
    assert output.records[0]["app"] == "cmsRun"


def test_a_disconnect_before_the_close_does_not_lose_the_user(feed, output):
    feed(ident(), user(1), window(opened(2), record(4, 0, 1, b""), closed(2)))
    assert output.records[0]["app"] == "cmsRun"


def test_restart_sends_open_files_unclosed(handler, feed, output, counters):
    feed(ident(), user(1), window(opened(2), opened(3), closed(3)), ident(stod=50))
    assert [(r["lfn"], r["b_read"], r["close_hi_us"]) for r in output.records] == [("/f", 4, 1_009_999_999), ("/f", None, None)]
    assert counters.get("opens_unclosed", "fstream", "restart") == 1
    assert handler.open_count == 0
    feed(ident(), window(opened(4), stod=50))  # a late identity of the old life ends nothing
    assert handler.open_count == 1


def test_shutdown_sends_open_files_unclosed(handler, feed, output, counters):
    feed(ident(), user(1), window(opened(2)))
    handler.close(NOW)
    assert output.records[0]["close_lo_us"] is None
    assert output.records[0]["app"] == "cmsRun"
    assert counters.get("opens_unclosed", "fstream", "shutdown") == 1


def test_without_identity_at_the_end_it_is_a_dead_letter_without_names(handler, feed, output):
    feed(user(1), window(opened(2)))
    handler.close(NOW)
    assert output.records == []
    assert "no_identity" in output.letters[0][0]
    assert b"/f" in output.letters[0][1]
    assert b"alice" not in output.letters[0][1]


def test_packets_that_overtake_each_other(feed, output, counters):
    feed(ident(), window(closed(2), begin=1010, end=1020, pseq=1), window(opened(2), pseq=0))
    assert (output.records[0]["open_lo_us"], output.records[0]["close_lo_us"]) == (1_000_000_000, 1_010_000_000)
    assert counters.get("packets_duplicate", "fstream") == 0


def test_duplicates_and_losses(feed, output, counters):
    packets = [window(opened(n), closed(n), pseq=n) for n in range(250, 270)]
    feed(ident(), *packets[:5], packets[4], packets[3], *packets[7:])
    assert len(output.records) == 18
    assert counters.get("packets_duplicate", "fstream") == 2
    assert counters.total("packets_lost", "fstream") == 2


def test_a_file_id_that_comes_again_ends_the_open_before(feed, output, counters):
    feed(ident(), window(opened(2, lfn=b"/old"), opened(2, lfn=b"/new"), closed(2)))
    assert [(r["lfn"], r["b_read"]) for r in output.records] == [("/old", None), ("/new", 4)]
    assert counters.get("opens_unclosed", "fstream", "id_again") == 1


def test_names_are_bounded_by_their_bytes(monkeypatch, output, counters):
    monkeypatch.setattr(opens, "MAX_NAME_BYTES", 100_000)
    handler = FStreamHandler(output, counters, PSEUDONYMS)
    lfn = b"/" + b"x" * 4000

    def feed(*packets):
        for raw in packets:
            handler.handle(raw, HERE, NOW)

    feed(*(window(opened(n, user_id=0, lfn=lfn), pseq=n) for n in range(100)))
    assert 20 < handler.open_count < 25
    assert counters.get("opens_unclosed", "fstream", "too_many") + handler.open_count == 100
    # Those wait for their server's identity meanwhile, and there is no room for them.
    assert handler.waiting_count + counters.get("records_dropped", "fstream", "waiting_full") == 100 - handler.open_count
    feed(ident(), *(path(1000 + n, "/" + "y" * 1200) for n in range(100)))
    assert counters.get("paths_forgotten", "fstream") > 80
    feed(*(user(2000 + n, info="&x=" + "z" * 5000) for n in range(100)))
    assert counters.get("users_forgotten", "fstream") > 80
    feed(*(window(closed(n), pseq=100 + n) for n in range(100)))
    assert handler.open_count == 0
    assert sum(record["close_lo_us"] is not None for record in output.records) > 10, "of opens and users each has half of the room"
    feed(*(window(opened(5000 + n, user_id=0, lfn=lfn), pseq=200 + n) for n in range(5)))
    assert handler.open_count == 5, "room was given back"
    handler.close(NOW)
    assert handler._opens._budget.used == 0


def test_closes_without_open_are_bounded_over_all_servers(monkeypatch, output, counters):
    monkeypatch.setattr(opens, "MAX_EARLY_CLOSES", 5)
    handler = FStreamHandler(output, counters, PSEUDONYMS)
    for sid in range(1, 8):
        handler.handle(window(closed(1), closed(2), sid=sid), HERE, NOW)
    assert handler._early_closes.count == 5
    handler.close(NOW)
    assert handler._early_closes.count == 0


def test_memory_is_bounded(monkeypatch, output, counters):
    for name, bound in (
        ("MAX_OPENS", 3),
        ("MAX_USERS", 2),
        ("MAX_WAITING", 4),
        ("MAX_EARLY_CLOSES", 2),
        ("MAX_SERVERS", 2),
        ("MAX_PATHS", 2),
    ):
        monkeypatch.setattr(opens, name, bound)
    handler = FStreamHandler(output, counters, PSEUDONYMS)

    def feed(*packets):
        for raw in packets:
            handler.handle(raw, HERE, NOW)

    feed(*(user(n) for n in range(5)))
    assert counters.get("users_forgotten", "fstream") == 3
    feed(*(path(n) for n in range(200, 205)))
    assert counters.get("paths_forgotten", "fstream") == 3
    feed(window(*(opened(n) for n in range(10)), *(closed(n) for n in range(100, 110))))
    assert handler.open_count == 3
    assert handler.waiting_count == 4
    assert counters.get("opens_unclosed", "fstream", "too_many") == 7
    assert counters.get("records_dropped", "fstream", "waiting_full") == 3
    feed(*(user(1, sid=sid) for sid in range(1, 5)))
    assert handler.waiting_count == handler.open_count == 0
    assert counters.get("records_dropped", "fstream", "no_identity") == 4 + 3
    assert output.records == []


def test_opens_without_lfn_and_other_records_are_counted(feed, counters):
    feed(ident(), window(unnamed(5), closed(5), record(3, 0, 5, bytes(24)), record(9, 0, 5, b"new")))
    assert counters.get("records_ignored", "fstream", "open_without_lfn") == 1
    assert counters.get("records_ignored", "fstream", "other_record") == 2


WHOLE = [ident(), user(1), path(2), window(opened(2), closed(2), record(4, 0, 1, b""))]


@pytest.mark.parametrize("whole", WHOLE, ids=["ident", "user", "path", "window"])
@pytest.mark.parametrize("honest", [False, True], ids=["header as it was", "header says the cut length"])
def test_truncated_at_every_byte(whole, honest, handler, feed, output, counters):
    for length in range(len(whole)):
        raw = whole[:length]
        if honest and length >= 8:
            raw = raw[:2] + struct.pack(">H", length) + raw[4:]
        before = counters.total("dead_letters", "fstream")
        feed(raw)
        if not honest:
            assert counters.total("dead_letters", "fstream") == before + 1
    assert all(b"alice" not in raw for _, raw in output.letters)
    handler.close(NOW)


def test_random_bytes_never_raise(feed, handler, output, captured):
    generator = random.Random(2)
    base = WHOLE + captured("fstream-5.5.3.jsonl")[:12]
    for _ in range(5000):
        raw = bytearray(generator.choice(base) if generator.random() < 0.8 else generator.randbytes(generator.randrange(120)))
        for _ in range(generator.randrange(1, 5)):
            if raw:
                raw[generator.randrange(len(raw))] = generator.randrange(256)
        feed(bytes(raw))
    handler.close(NOW)
    assert output.records
    assert output.letters


@pytest.mark.parametrize(
    "raw",
    [
        window(closed(2)[:-40]),
        window(b"\0" * 7),
        window(record(1, 1, 2, struct.pack(">qI", 1, 1))),
        window(record(1, 1, 2, struct.pack(">qI", 1, 1) + b"/no end")),
        window(closed(2, read=-1)),
        window(begin=9, end=8),
        packet(b"f", opened(1)),
        packet(b"f", b""),
    ],
)
def test_impossible_windows(raw):
    with pytest.raises(ParseError):
        fstream.parse_window(raw)
    assert fstream.parse_header(raw).code == "f"


@pytest.mark.parametrize("text", ["", "\n/f", "xroot/a.1:2@h", "xroot/a.1:2@h\n", "xroot/a.1@h\n/f"])
def test_impossible_paths(text):
    with pytest.raises(ParseError):
        fstream.parse_path(packet(b"d", b"\0\0\0\0" + text.encode()))


@pytest.mark.parametrize(
    "text", ["", "=/x.1:2@h", "=/x.1:2@h\n&site=S", "=/x.1:2@h\n&port=123456", "=/x.1:2@h\n&port=²", "garbage\n&port=1"]
)
def test_impossible_identities(text):
    with pytest.raises(ParseError):
        fstream.parse_ident(packet(b"=", b"\0\0\0\0" + text.encode()))
