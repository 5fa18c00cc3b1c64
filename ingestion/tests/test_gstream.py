"""pfc's g-stream: captured packets, and packets that are broken in every way we could think of."""

import base64
import json
import random
import re
import time

import pytest

from smartcache.ingestion.errors import ParseError
from smartcache.ingestion.gstream import GStreamHandler, parse_packet, parse_record
from smartcache.ingestion.gstream_usual import UsualRecords

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


def packet(*lines, pseq=1, stod=100, sid=7, kind="C", source=SOURCE, tbeg=50, end=b"\0"):
    life = f'"pseq":{pseq:3d},"stod":{stod},"sid":{sid}'
    header = f'{{"code":"g",{life},"src":{json.dumps(source)},"gs":{{"type":"{kind}","tbeg":{tbeg},"tend":60}}}}'
    return b"\n".join((header.encode(), *lines)) + end


IDENT = f'{{"code":"=","pseq":1,"stod":100,"sid":7,"src":{json.dumps(SOURCE)}}}'.encode() + b"\0"


@pytest.fixture
def handler(output, counters):
    return GStreamHandler(output, counters, encoded=output.encoded)


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
    assert counters.total("packets_lost", "gstream") == counters.get("packets_duplicate", "gstream") == 0
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
        "/a/line\n{feed}",
        '/a/line\n{"feed":"',
        '/a/line\n{"event":"file_open","lfn":"/b',
        '/a/record}\n{"size":5}',
        "\n\n",
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
        GStreamHandler(output, counters, encoded=output.encoded).handle(raw, "127.0.0.1", NOW)
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


def test_unknown_events_and_fields_are_kept_other_streams_counted(handler, output, counters):
    event = b'{"event":"new_thing","lfn":"/x"}'
    handler.handle(packet(event, line("/one", b_new=5, rate=0.5, deep={"yes": [1, None, {"x": "y"}]})), "127.0.0.1", NOW)
    handler.handle(packet(line("/x"), kind="T", pseq=9), "127.0.0.1", NOW)
    handler.handle(IDENT, "127.0.0.1", NOW)
    assert output.records[0]["extra"] == {"b_new": 5, "rate": 0.5, "deep": {"yes": [1, None, {"x": "y"}]}}
    ((reason, raw),) = output.letters
    assert reason.startswith("event: ")
    assert raw == event
    assert counters.get("dead_letters", "gstream", "event") == 1
    assert counters.get("records_ignored", "gstream", "other_gstream") == 1
    assert counters.get("records_ignored", "gstream", "ident") == 1
    assert counters.total("packets_lost", "gstream") == 0


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("1e999", "Infinity"),
        ("9" * 30, "9" * 30),
        ('"\\ud800"', '"\\ud800"'),
        ("[[[[[[1]]]]]]", "[[[[[[1]]]]]]"),
        ('{"\\ud800":1}', '{"\\ud800": 1}'),
        ('"' + "x" * 9000 + '\\ud800"', '"' + "x" * 4095),
    ],
)
def test_what_no_consumer_could_read_of_an_unknown_field_is_kept_as_text(value, kept, handler, output):
    whole = line("/one")
    handler.handle(packet(whole[:-1] + b',"new":' + value.encode() + b"}"), "127.0.0.1", NOW)
    assert output.records[0]["extra"] == {"new": kept}


def test_a_record_that_lacks_its_end_costs_no_other(handler, output):
    for number, cut in enumerate((line("/cut")[:-1], line("/cut").partition(b'","size"')[0]), 1):
        output.records.clear()
        output.letters.clear()
        handler.handle(packet(cut, line("/good"), pseq=number), "127.0.0.1", NOW)
        assert [each["lfn"] for each in output.records] == ["/good"]
        assert len(output.letters) == 1


def test_loss_is_counted_per_life_of_a_server(handler, counters):
    for stod, pseq in ((100, 998), (200, 1), (100, 999), (200, 4), (100, 1), (200, 5)):
        handler.handle(packet(line("/one"), pseq=pseq, stod=stod), "127.0.0.1", NOW)
    assert counters.total("packets_lost", "gstream") == 2 + 1


def test_loss_is_counted_per_server_where_two_have_one_name_and_began_together(handler, output, counters):
    """As behind one address that is shared; ``sid`` tells them apart."""
    for sid, pseq in ((7, 1), (8, 1), (7, 2), (8, 2), (8, 4)):
        handler.handle(packet(line(f"/{sid}"), pseq=pseq, sid=sid), "127.0.0.1", NOW)
    assert counters.total("packets_lost", "gstream") == 1
    assert len({record["record_id"] for record in output.records}) == 5


def test_packets_in_another_order_over_the_wrap_are_late_and_not_lost_and_each_is_taken_once(handler, output, counters):
    for pseq in (997, 998, 0, 999, 1, 0, 999, 2):
        handler.handle(packet(line(f"/{pseq}"), pseq=pseq, tbeg=50 + (pseq < 500)), "127.0.0.1", NOW)
    assert [record["lfn"] for record in output.records] == ["/997", "/998", "/0", "/999", "/1", "/2"]
    names = ("packets_lost", "packets_late", "packets_duplicate")
    assert [counters.total(name, "gstream") for name in names] == [1, 1, 2]


def test_the_capture_has_four_lives_of_one_server_and_no_loss_between_them(captured, handler, output, counters):
    for raw in captured("gstream-5.5.3.jsonl"):
        handler.handle(raw, "127.0.0.1", NOW)
    assert len({record["server_start_us"] for record in output.records}) == 4
    assert len({record["cache"] for record in output.records}) == 1
    assert counters.total("packets_lost", "gstream") == counters.get("packets_late", "gstream") == 0


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


def test_a_packet_without_records_is_counted(handler, output, counters):
    handler.handle(packet(), "127.0.0.1", NOW)
    assert counters.get("records_ignored", "gstream", "empty_packet") == 1
    assert output.records == output.letters == []


def test_what_no_identity_was_there_for_is_kept_whole_where_it_is_pfcs(handler, output):
    ours, others = packet(line("/one"), line("/two"), source={}), packet(b'{"Client":"alice.1:2@host"}', source={}, kind="P", pseq=2)
    handler.handle(ours, "127.0.0.1", NOW)
    handler.handle(others, "127.0.0.1", NOW)
    assert [raw for _, raw in output.letters] == [ours, others.partition(b"\n")[0]]
    assert all(reason.startswith("no_identity: ") for reason, _ in output.letters)


def test_a_packet_made_to_be_slow_is_not(handler, output):
    made = packet(b'{"event":"file_close","lfn":"' + b'\n{"' * 21_000)
    begin = time.process_time()
    parts = parse_packet(made).lines
    assert time.process_time() - begin < 1  # some 10 ms; where it was looked through again and again, seconds
    assert len(parts) == 1
    handler.handle(made, "127.0.0.1", NOW)
    assert len(output.letters) == 1


def test_a_binary_packet_at_this_port_is_not_quoted(handler, output):
    handler.handle(b"u\0\0\x30abcd\0\0\0\1xroot/alice.1:2@host", "127.0.0.1", NOW)
    assert b"alice" not in output.letters[0][1]


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(
            {"remote": "h:1094", "version": "1", "data": base64.b64encode(b"u\0\0\x30abcd\0\0\0\1xroot/alice.1:2@host").decode()}
        ).encode(),
        b'{"code":"g","pseq":"none"}\n{"TPC":"xroot","Client":"alice.1:2@host"}\0',
    ],
    ids=["a shoveler's message", "other records under a broken header"],
)
def test_who_sends_something_else_is_not_quoted(raw, handler, output):
    handler.handle(raw, "127.0.0.1", NOW)
    ((_, quoted),) = output.letters
    assert quoted in (raw[:8], raw.split(b"\n")[0])
    assert b"alice" not in quoted
    assert b"data" not in quoted


@pytest.mark.parametrize("broken", [b'"pseq":"none"', b'"pseq":1,"stod":[]'])
def test_pfcs_own_packet_is_kept_whole_under_a_broken_header(broken, handler, output):
    """Its records name files only, and are to be had from there."""
    raw = b'{"code":"g",' + broken + b',"gs":{"type":"C","tbeg":1,"tend":2}}\n{"event":"file_close","lfn":"/f"}\0'
    handler.handle(raw, "127.0.0.1", NOW)
    ((_, quoted),) = output.letters
    assert quoted == raw


def through_the_parser(raw, output):
    """The records of a packet as the general parser alone gives them."""
    parsed = parse_packet(raw)
    server = parsed.server
    return [
        {
            "record_id": f"{server.cache}/{server.start_s}/{parsed.sid}/{parsed.begin_s}/{parsed.pseq}/{index}",
            "cache": server.cache,
            **record,
            "server_start_us": server.start_s * 1_000_000,
            "instance": server.instance,
            "version": server.version,
            "site": server.site,
            "recv_us": NOW,
        }
        for index, record in enumerate(map(parse_record, parsed.lines))
    ]


def is_usual(text):
    return UsualRecords("p/", "h:1", 1, "i", "v", "s", NOW).encode(text, 0) is not None


def test_the_short_way_gives_what_the_parser_gives_on_captures(captured, handler, output):
    seen = 0
    for name in ("gstream-5.5.3.jsonl", "gstream-6.2.1.jsonl"):
        for raw in captured(name):
            if b'"code":"g"' in raw:
                seen += sum(is_usual(each) for each in parse_packet(raw).lines)
                output.records.clear()
                handler.handle(raw, "127.0.0.1", NOW)
                assert output.records == through_the_parser(raw, output)
    assert seen > 50, "the captures' records are usual ones"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"size": 0},
        {"size": 10**18 - 1},
        {"size": 2**63 - 1},
        {"attach_t": 0},
        {"attach_t": 999_999_999_999},
        {"detach_t": 2**40},
        {"remotes": []},
        {"remotes": ["a:1", "b:2", ""]},
        {"remotes": ["ü"]},
        {"b_todisk": 5, "b_prefetch": 6},
        {"new_field": 7},
    ],
)
@pytest.mark.parametrize("lfn", ["/store/a.root", "/with space", "/ü", "/back\\slash", '/quote"d', "/tab\t", '/f","size":1,"x":"', "/%d%s"])
@pytest.mark.parametrize("source", [SOURCE, {**SOURCE, "site": 'S"%b\\', "inst": "ü"}])
def test_the_short_way_gives_what_the_parser_gives_in_corners(lfn, changed, source, handler, output):
    order = ("b_hit", "b_miss", "b_bypass", "b_todisk", "b_prefetch", "n_cks_errs", "new_field")
    fields = {**FIELDS, **changed}
    fields = {
        **{name: value for name, value in fields.items() if name not in order},
        **{name: fields[name] for name in order if name in fields},
    }
    body = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    raw = packet(b'{"event":"file_close","lfn":"' + lfn.encode() + b'",' + body[1:], source=source)
    handler.handle(raw, "127.0.0.1", NOW)
    assert output.records == through_the_parser(raw, output)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"size":10', b'"size":010'),
        (b'"size":10', b'"size":-1'),
        (b'"size":10', b'"size":1e1'),
        (b"}", b"} "),
        (b'"attach_t":1000', b'"attach_t":0'),
    ],
)
def test_what_is_not_usual_goes_to_the_parser(before, after):
    usual = line("/a")
    assert is_usual(usual)
    assert not is_usual(usual.replace(before, after))
