"""pfc's g-stream: captured packets, and packets that are broken in every way we could think of."""

import json
import random
import re

import pytest

from smartcache.ingestion.errors import ParseError
from smartcache.ingestion.gstream import GStreamHandler, parse_packet, parse_record

NOW = 1_800_000_000_000_000
SOURCE = {"site": "S", "host": "h", "port": 1094, "inst": "i", "pgm": "xrootd", "ver": "v5.5.3"}
FIELDS = {
    "size": 10,
    "blk_size": 4,
    "n_blks": 3,
    "n_blks_done": 3,
    "access_cnt": 1,
    "attach_t": 1000,
    "detach_t": 1001,
    "remotes": ["o:1"],
    "b_hit": 0,
    "b_miss": 10,
    "b_bypass": 0,
    "n_cks_errs": 0,
}


def line(lfn, **changed):
    """A record as the server writes it: the LFN as it is, between quotes."""
    lfn = lfn if isinstance(lfn, bytes) else lfn.encode()
    rest = json.dumps({**FIELDS, **changed}, separators=(",", ":")).encode()
    return b'{"event":"file_close","lfn":"' + lfn + b'",' + rest[1:]


def packet(*lines, pseq=1, stod=100, kind="C", source=SOURCE, tbeg=50, end=b"\0"):
    header = (
        f'{{"code":"g","pseq":{pseq:3d},"stod":{stod},"sid":7,"src":{json.dumps(source)},"gs":{{"type":"{kind}","tbeg":{tbeg},"tend":60}}}}'
    )
    return b"\n".join((header.encode(), *lines)) + end


IDENT = f'{{"code":"=","pseq":1,"stod":100,"sid":7,"src":{json.dumps(SOURCE)}}}'.encode() + b"\0"


@pytest.fixture
def handler(output, counters):
    return GStreamHandler(output, counters)


@pytest.mark.parametrize(("name", "packets"), [("gstream-5.5.3.jsonl", 29), ("gstream-6.2.1.jsonl", 3)])
def test_captures_parse_fully(name, packets, captured, handler, output, counters):
    datagrams = captured(name)
    for raw in datagrams:
        handler.handle(raw, "127.0.0.1", NOW)
    # Counted in the text, not by the parser.
    text = b"".join(datagrams).decode()
    assert len(output.records) == text.count('"event":"file_close"') > 0
    assert sum(r["b_hit"] for r in output.records) == sum(map(int, re.findall(r'"b_hit":(\d+)', text)))
    assert sorted({r["lfn"] for r in output.records}) == sorted(set(re.findall(r'"lfn":"([^"]*)"', text)))
    assert [r["attach_us"] for r in output.records] == [int(s) * 10**6 for s in re.findall(r'"attach_t":(\d+)', text)]
    assert len({r["record_id"] for r in output.records}) == len(output.records)
    assert output.letters == []
    assert text.count('"code":"g"') == packets
    assert counters.get("packets_lost", "gstream") == counters.get("packets_duplicate", "gstream") == 0
    new = name != "gstream-5.5.3.jsonl"
    assert all((r["b_todisk"] is not None) is new and (r["b_prefetch"] is not None) is new for r in output.records)
    assert {r["cache"] for r in output.records} == {"vm:21097" if new else "vm:21095"}


def test_a_capture_sent_twice_changes_nothing(captured, handler, output, counters):
    for raw in captured("gstream-5.5.3.jsonl"):
        handler.handle(raw, "127.0.0.1", NOW)
        handler.handle(raw, "127.0.0.1", NOW + 1)
    assert len({r["record_id"] for r in output.records}) == len(output.records) == 104
    assert counters.get("packets_duplicate", "gstream") == 29


@pytest.mark.parametrize(
    "lfn",
    [
        '/a/"quoted".root',
        "/a/back\\slash",
        "/a/not\\nan escape\\u0041",
        "/a/tab\tand\x01control\x7f",
        "/a/line\nfeed",
        '/a/forged","size":999,"b_hit":5,"x":"',
        '/a"}',
        "/ä/ü",
        "/a\\",
        "/a%20b?c",
    ],
)
def test_an_lfn_is_taken_as_it_is(lfn, handler, output):
    handler.handle(packet(line("/before"), line(lfn), line("/after")), "127.0.0.1", NOW)
    assert [r["lfn"] for r in output.records] == ["/before", lfn, "/after"]
    assert {r["size"] for r in output.records} == {10}
    assert output.letters == []


def test_an_lfn_that_is_not_utf8_is_kept_readable(handler, output):
    handler.handle(packet(line(b"/a/\xff\xfe")), "127.0.0.1", NOW)
    assert output.records[0]["lfn"] == "/a/\ufffd\ufffd"


@pytest.mark.parametrize("cut", ["packet", "record"])
def test_truncated_at_every_byte(cut, output, counters):
    lines = [line("/one"), line("/two")]
    whole = packet(*lines)
    for length in range(len(whole)):
        output.records.clear()
        output.letters.clear()
        raw = whole[:length] if cut == "packet" else whole[:length] + b"\0"
        GStreamHandler(output, counters).handle(raw, "127.0.0.1", NOW)
        assert [r["lfn"] for r in output.records] == ["/one", "/two"][: len(output.records)]
        if cut == "packet":
            assert output.letters, length


def test_random_bytes_never_raise(handler, output):
    generator = random.Random(1)
    base = packet(line("/one"), line("/two", extra=[1, {"a": None}]))
    for _ in range(3000):
        raw = bytearray(base if generator.random() < 0.8 else generator.randbytes(generator.randrange(200)))
        for _ in range(generator.randrange(1, 6)):
            if raw:
                raw[generator.randrange(len(raw))] = generator.randrange(256)
        handler.handle(bytes(raw), "127.0.0.1", NOW)
    assert output.records
    assert output.letters


@pytest.mark.parametrize(
    "changed",
    [
        {"size": -1},
        {"size": True},
        {"size": 1.5},
        {"b_hit": 2**63},
        {"attach_t": 2**41},
        {"detach_t": None},
        {"remotes": "o:1"},
        {"remotes": [1]},
        {"b_todisk": "x"},
    ],
)
def test_wrong_values_are_dead_letters_and_their_neighbours_are_not(changed, handler, output, counters):
    handler.handle(packet(line("/one"), line("/bad", **changed), line("/two")), "127.0.0.1", NOW)
    assert [r["lfn"] for r in output.records] == ["/one", "/two"]
    assert [raw for _, raw in output.letters] == [line("/bad", **changed)]
    assert counters.total("dead_letters", "gstream") == 1
    # The place in the packet counts, so that the ids do not move when a parser gets better.
    assert [r["record_id"].rsplit("/", 1)[1] for r in output.records] == ["0", "2"]


@pytest.mark.parametrize("text", ["[" * 60000, "9" * 60000, '{"code":"g","pseq":NaN}', "{}", "null", '{"code":"g","src":3}', ""])
def test_hostile_headers(text):
    with pytest.raises(ParseError):
        parse_packet(text.encode() + b"\0")


def test_an_escaped_lone_surrogate_is_refused():
    with pytest.raises(ParseError):
        parse_record(b'{"lfn":"\\ud800","event":"file_close"}')


def test_unknown_events_and_streams_are_counted_unknown_fields_kept(handler, output, counters):
    handler.handle(packet(b'{"event":"new_thing","lfn":"/x"}', line("/one", b_new=5, deep={"no": 1})), "127.0.0.1", NOW)
    handler.handle(packet(line("/x"), kind="T", pseq=9), "127.0.0.1", NOW)
    handler.handle(IDENT, "127.0.0.1", NOW)
    assert output.records[0]["extra"] == {"b_new": 5}
    assert counters.get("records_ignored", "gstream", "other_event") == 1
    assert counters.get("records_ignored", "gstream", "other_gstream") == 1
    assert counters.get("records_ignored", "gstream", "ident") == 1
    assert counters.get("packets_lost", "gstream") == 0


def test_loss_is_counted_per_life_of_a_server(handler, counters):
    for stod, pseq in ((100, 998), (200, 1), (100, 999), (200, 4), (100, 1), (200, 5)):
        handler.handle(packet(line("/one"), pseq=pseq, stod=stod), "127.0.0.1", NOW)
    assert counters.get("packets_lost", "gstream") == 2 + 1


def test_ids_differ_after_a_thousand_packets(handler, output):
    for number in range(2500):
        handler.handle(packet(line("/one"), pseq=number % 1000, tbeg=50 + number), "127.0.0.1", NOW)
    assert len({r["record_id"] for r in output.records}) == 2500


def test_a_header_without_host_needs_the_identity(handler, output, counters):
    bare = {"site": "S"}
    handler.handle(packet(line("/one"), source=bare), "127.0.0.1", NOW)
    assert counters.get("dead_letters", "gstream", "no_identity") == 1
    handler.handle(IDENT, "127.0.0.1", NOW)
    handler.handle(packet(line("/two"), source=bare, pseq=2), "127.0.0.1", NOW)
    assert [(r["cache"], r["lfn"]) for r in output.records] == [("h:1094", "/two")]


def test_a_binary_packet_at_this_port_is_not_quoted(handler, output):
    handler.handle(b"u\0\0\x30abcd\0\0\0\1xroot/alice.1:2@host", "127.0.0.1", NOW)
    assert b"alice" not in output.letters[0][1]
