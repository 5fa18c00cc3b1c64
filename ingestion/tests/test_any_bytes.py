"""Whatever comes in, records or dead letters come out, and never an exception. Each record fits its schema (the recorder checks that).

The same examples each time; with SMARTCACHE_FUZZ_SECONDS (`make fuzz`) others each time, for so long each test.
"""

import base64
import json
import os
import string
import struct
import time
from contextlib import suppress
from functools import wraps

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cinfo_bytes import access, make, make_old
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from smartcache import traces
from smartcache.ingestion import cinfo, fstream, jobs, trace, trace_files
from smartcache.ingestion.counters import Counters
from smartcache.ingestion.decision import DecisionHandler
from smartcache.ingestion.errors import ParseError
from smartcache.ingestion.gstream import GStreamHandler
from smartcache.ingestion.opens import FStreamHandler
from smartcache.ingestion.pseudonym import Pseudonyms
from smartcache.ingestion.shoveler import ShovelerHandler

NOW, HERE, SID = 1_800_000_000_000_000, "192.0.2.1", 7
#: Who must not be seen. Made here, and longer than what is quoted of any packet: Hypothesis tries the constants that it finds in the code,
#: and a packet that is nothing but a name would be quoted.
WHO = "-".join(["somebody"] * 3)
PSEUDONYMS = Pseudonyms(b"k" * 32)

pytestmark = pytest.mark.filterwarnings("ignore:.*function-scoped fixture:hypothesis.errors.HypothesisWarning")
FUZZ_S = float(os.environ.get("SMARTCACHE_FUZZ_SECONDS") or 0)


def every(test):
    """With many examples: always the same, or, where that is asked for, new ones until the time is over."""
    many = settings(
        max_examples=400,
        deadline=None,
        derandomize=not FUZZ_S,
        print_blob=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )(test)
    if not FUZZ_S:
        return many

    @wraps(many)
    def again(**fixtures):
        end = time.monotonic() + FUZZ_S
        while time.monotonic() < end:
            many(**fixtures)

    return again


#: Numbers that break things, and any others.
integers = st.one_of(st.sampled_from([0, 1, -1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400]), st.integers())
numbers = st.one_of(integers, st.floats())
texts = st.one_of(st.text(), st.sampled_from(["", "\0", "\ud800", '"', "\\", "\n", "/a", "u" * 300, "2026-05-01", "1e999", "nan"]))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=4,
)


def spoiled(whole: bytes):
    """Bytes near ``whole``: some changed, a part cut out, something put in."""

    def spoil(parts):
        changes, cut, extra = parts
        raw = bytearray(whole)
        for place, byte in changes:
            raw[place % len(raw)] = byte
        first, last = sorted(each % (len(raw) + 1) for each in cut)
        return bytes(raw[:first] + (extra if first < last else b"") + (raw[last:] if extra else raw[first:]))

    return st.tuples(
        st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=6),
        st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20)),
        st.binary(max_size=8),
    ).map(spoil)


# --- g-stream -----------------------------------------------------------------------------------------------------------------------------

PFC_NAMES = (
    "size",
    "blk_size",
    "n_blks",
    "n_blks_done",
    "access_cnt",
    "attach_t",
    "detach_t",
    "remotes",
    "b_hit",
    "b_miss",
    "b_bypass",
    "n_cks_errs",
    "b_todisk",
    "b_prefetch",
    "new",
)
GOOD_PFC = {**dict.fromkeys(PFC_NAMES, 1), "remotes": ["o:1"]}
SOURCE = {"site": "S", "host": "h", "port": 1094, "inst": "i", "pgm": "xrootd", "ver": "v5"}


def gheader(**changed):
    return {"code": "g", "pseq": 1, "stod": 100, "sid": SID, "src": SOURCE, "gs": {"type": "C", "tbeg": 5, "tend": 6}, **changed}


def gpacket(header, *lines):
    return "\n".join((json.dumps(header), *lines)).encode("utf-8", "surrogatepass") + b"\0"


def gline(lfn, fields):
    return '{"event":"file_close","lfn":"' + lfn + '",' + json.dumps(fields)[1:]


GOOD_G = gpacket(gheader(), gline("/a", GOOD_PFC), gline("/b", GOOD_PFC))
g_packets = st.one_of(
    st.binary(max_size=400),
    spoiled(GOOD_G),
    st.builds(
        lambda changed: gpacket(gheader(**changed), gline("/a", GOOD_PFC)),
        st.dictionaries(st.sampled_from(["code", "pseq", "stod", "sid", "src", "gs"]), values),
    ),
    st.builds(
        lambda lfn, changed: gpacket(gheader(), gline(lfn, {**GOOD_PFC, **changed})),
        texts,
        st.dictionaries(st.sampled_from(PFC_NAMES), values),
    ),
    st.builds(lambda fields: gpacket(gheader(), json.dumps(fields)), values),
)


@every
@given(st.lists(g_packets, max_size=4))
def test_gstream(output, packets):
    counters = Counters()
    handler = GStreamHandler(output, counters)

    def accounted():
        counted = sum(counters.total(name, "gstream") for name in ("records_ignored", "packets_duplicate"))
        return len(output.records) + len(output.letters) + counted

    for raw in packets:
        before = accounted()
        handler.handle(raw, HERE, NOW)
        assert accounted() > before
    before = accounted()
    handler.close(NOW)
    assert accounted() == before


@every
@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1).filter(lambda lfn: '\n{"' not in lfn), st.text())
@example('/a","size":5,"b_hit":7,"x":"', "")
@example("/a\\", "\n")
def test_gstream_recovers_every_lfn(output, lfn, before):
    """Whatever the name of a file, it is taken as it is, and its neighbours are whole."""
    output.records.clear()
    GStreamHandler(output, Counters()).handle(
        gpacket(gheader(), gline("/before", GOOD_PFC), gline(lfn, GOOD_PFC), gline("/after", GOOD_PFC)), HERE, NOW
    )
    assert [record["lfn"] for record in output.records] == ["/before", lfn, "/after"]
    assert {record["b_hit"] for record in output.records} == {1}


#: As XRootD orders them.
IN_ORDER = (
    "size",
    "blk_size",
    "n_blks",
    "n_blks_done",
    "access_cnt",
    "attach_t",
    "detach_t",
    "remotes",
    "b_hit",
    "b_miss",
    "b_bypass",
    "b_todisk",
    "b_prefetch",
    "n_cks_errs",
)
USUAL = {**dict.fromkeys(IN_ORDER, 1), "remotes": ["o:1", "p:2"]}


def as_written(lfn, fields):
    """The line as XRootD writes it: no spaces, and the LFN as it is."""
    rest = json.dumps({name: fields[name] for name in IN_ORDER if name in fields}, separators=(",", ":"))
    return ('{"event":"file_close","lfn":"' + lfn + '",' + rest[1:]).encode("utf-8", "surrogatepass")


printable = st.text(st.characters(min_codepoint=32, max_codepoint=126))
any_line = st.one_of(
    # One thing or another is unusual, not all at once.
    st.builds(lambda lfn: as_written(lfn, USUAL), st.one_of(texts, printable)),
    st.builds(lambda remotes: as_written("/a", {**USUAL, "remotes": remotes}), st.lists(st.one_of(texts, printable), max_size=3)),
    st.builds(lambda changed: as_written("/a", {**USUAL, **changed}), st.dictionaries(st.sampled_from(IN_ORDER), integers, max_size=2)),
    st.builds(lambda changed: as_written("/a", {**USUAL, **changed}), st.dictionaries(st.sampled_from(IN_ORDER), values, max_size=2)),
    st.builds(
        lambda without: as_written("/a", {name: value for name, value in USUAL.items() if name not in without}),
        st.sets(st.sampled_from(IN_ORDER), max_size=3),
    ),
    spoiled(as_written("/store/a.root", USUAL)),
    st.just(as_written("/store/b.root", USUAL)),
)


@every
@given(st.lists(any_line, max_size=4))
@example([as_written("/a", USUAL).replace(b'"size":1', b'"size":01')])
@example([as_written("/a", USUAL).replace(b'"b_hit":1', b'"b_hit":-1')])
def test_the_short_way_of_the_gstream_is_the_long_one(output, lines):
    """What the collector sends of a packet, text to text where it can, is what the parser makes of it."""
    raw = b"\n".join((json.dumps(gheader()).encode(), *lines)) + b"\0"
    output.records.clear()
    output.letters.clear()
    GStreamHandler(output, Counters()).handle(raw, HERE, NOW)
    long_way = [(f"{each['cache']}|{each['lfn']}", each) for each in output.records]
    letters = list(output.letters)
    output.records.clear()
    output.letters.clear()
    sent = []
    collect = GStreamHandler(output, Counters(), encoded=lambda stream, key, value: sent.append((key.decode(), json.loads(value))))
    collect.handle(raw, HERE, NOW)
    sent += [(f"{each['cache']}|{each['lfn']}", each) for each in output.records]
    by_id = lambda pair: int(pair[1]["record_id"].rpartition("/")[2])  # noqa: E731
    assert sorted(sent, key=by_id) == long_way
    assert output.letters == letters


# --- f-stream and map packets -------------------------------------------------------------------------------------------------------------


def fpacket(code, body, pseq=0, length=None):
    return struct.pack(">cBHI", code, pseq, (8 + len(body)) % 65536 if length is None else length, 100) + body


def frecord(kind, flags, number, body, length=None):
    return struct.pack(">BBHI", kind, flags, (8 + len(body)) % 65536 if length is None else length, number) + body


window = frecord(2, 1, 0, struct.pack(">IIQ", 1000, 1009, SID))
opened = frecord(1, 1, 2, struct.pack(">qI", 10, 1) + b"/f\0\0")
closed = frecord(0, 2, 2, struct.pack(">qqq", 4, 3, 0) + struct.pack(">iiihhqiiiiii", *[1] * 12))
GOOD_F = [
    fpacket(b"=", b"\0\0\0\0" + f"=/xrootd.5:{SID}@h\n&site=S&port=1094&inst=i&pgm=x&ver=v5".encode()),
    fpacket(b"u", b"\0\0\0\1" + f"xroot/{WHO}.7:{SID}@[::1]\n&R=v5&x=app&y=&I=4".encode()),
    fpacket(b"d", b"\0\0\0\2" + f"xroot/{WHO}.7:{SID}@[::1]\n/f".encode()),
    fpacket(b"f", window + opened + closed),
]
u8, u16, u32 = st.integers(0, 255), st.integers(0, 65535), st.integers(0, 2**32 - 1)
f_records = st.builds(frecord, st.integers(0, 6), u8, u32, st.binary(max_size=120), st.one_of(st.none(), u16))
f_packets = st.one_of(
    st.binary(max_size=200),
    *map(spoiled, GOOD_F),
    *map(st.just, GOOD_F),
    st.builds(lambda records, pseq: fpacket(b"f", window + b"".join(records), pseq), st.lists(f_records, max_size=5), u8),
    st.builds(
        lambda code, body, length: fpacket(code.encode(), body, 0, length),
        st.sampled_from(string.printable),
        st.binary(max_size=80),
        st.one_of(st.none(), u16),
    ),
    st.builds(
        lambda code, text: fpacket(code, b"\0\0\0\1" + text.encode("utf-8", "replace")), st.sampled_from([b"=", b"u", b"d"]), st.text()
    ),
)


@every
@given(st.lists(f_packets, max_size=12))
@example([b"f" + GOOD_F[1][1:], b"=" + GOOD_F[1][1:]])
def test_fstream(output, packets):
    output.records.clear()
    output.letters.clear()
    counters = Counters()
    handler = FStreamHandler(output, counters, PSEUDONYMS)
    opens = closes = unreadable = 0
    for raw in packets:
        before = counters.get("packets_duplicate", "fstream")
        handler.handle(raw, HERE, NOW)
        events, fits = _events(raw)
        unreadable += not fits
        if counters.get("packets_duplicate", "fstream") == before:
            opens += sum(type(event) is fstream.Open for event in events)
            closes += sum(type(event) is fstream.Close for event in events)
    handler.close(NOW)
    assert handler.open_count == handler.waiting_count == 0
    # Every packet is accounted for: it is a dead letter, or each open in it is a record (sent, or with a dead letter), or counted.
    unidentified = [json.loads(raw) for reason, raw in output.letters if reason.startswith("no_identity")]
    made = [*output.records, *unidentified]
    assert len(output.letters) == unreadable + len(unidentified)
    assert len(made) + counters.get("records_ignored", "fstream", "open_without_lfn") == opens
    closed = sum(record["close_lo_us"] is not None for record in made)
    unclosed = counters.total("opens_unclosed", "fstream")
    assert len(made) - unclosed <= closed <= closes
    assert closes - closed <= sum(counters.get("records_ignored", "fstream", why) for why in ("close_without_open", "open_without_lfn"))
    assert not any(WHO.encode() in raw or WHO in reason for reason, raw in output.letters)


def _events(raw):
    """What is in a window, and whether the packet can be read at all."""
    parsers = {"f": fstream.parse_window, "u": fstream.parse_user, "d": fstream.parse_path, "=": fstream.parse_ident}
    try:
        code = fstream.parse_header(raw).code
        found = parsers[code](raw) if code in parsers else None
    except ParseError:
        return [], False
    return (found.events if code == "f" else []), code in parsers or code in fstream.IGNORED_CODES


# --- decisions ----------------------------------------------------------------------------------------------------------------------------

GOOD_DECISION = {
    "v": 1,
    "cache": "h:1",
    "boot_us": 5,
    "seq": 1,
    "t_us": 6,
    "lfn": "/a",
    "answer": "admit",
    "reason": "rule",
    "score": 0.5,
    "threshold": 0.5,
    "probability": 1,
    "model": "",
    "latency_us": 1,
    "on_disk": True,
    "size": -1,
    "fill": -1,
    "read_share": -1,
    "history_scanned": False,
    "history_boot_us": None,
    "history_seq": None,
    "side_table": None,
    "features": [1.0],
}


@every
@given(
    st.one_of(
        st.binary(max_size=200),
        spoiled(json.dumps(GOOD_DECISION).encode()),
        st.builds(
            lambda changed: json.dumps({**GOOD_DECISION, **changed}).encode("utf-8", "surrogatepass"),
            st.dictionaries(st.sampled_from([*GOOD_DECISION, "new"]), values),
        ),
    )
)
def test_decisions(output, raw):
    before = len(output.records) + len(output.letters)
    DecisionHandler(output, Counters()).handle(raw, HERE, NOW)
    assert len(output.records) + len(output.letters) == before + 1


# --- .cinfo -------------------------------------------------------------------------------------------------------------------------------

i64, i32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
any_access = st.builds(access, i64, i64, i32, i32, i32, i64, i64, i64)


@every
@given(
    st.one_of(
        st.binary(max_size=300),
        spoiled(make(accesses=[access()] * 3)),
        spoiled(make_old(3, accesses=[access()] * 3)),
        st.builds(
            make_old,
            version=st.integers(2, 3),
            size=st.one_of(i64, st.integers(0, 1 << 22)),
            block=st.one_of(i64, st.just(131072)),
            bits=st.binary(max_size=6),
            accesses=st.lists(st.one_of(any_access, st.binary(max_size=100)), max_size=4),
            created=i64,
            count=st.integers(0, 2**64 - 1),
        ),
        # Right checksums over anything.
        st.builds(
            make,
            size=st.one_of(i64, st.integers(0, 1 << 22)),
            block=st.one_of(i64, st.just(131072)),
            bits=st.binary(max_size=6),
            accesses=st.lists(any_access, max_size=4),
            created=i64,
            no_cksum=i64,
            status=u32,
            count=st.integers(0, 2**64 - 1),
            claimed=st.one_of(st.none(), i32),
        ),
    ),
    st.binary(max_size=20),
)
def test_cinfo(validate, content, lfn):
    with suppress(ParseError):
        validate("xcache.cinfo.v1", cinfo.parse(b"/" + lfn, content, "h:1", NOW))


# --- the shoveler's messages --------------------------------------------------------------------------------------------------------------


def message(packet, remote="192.0.2.7:1093"):
    return json.dumps({"remote": remote, "version": "1", "data": base64.b64encode(packet).decode()}).encode()


class HandedOn:
    """Counts what the handler of a stream is given."""

    def __init__(self, handler):
        self.handler, self.packets = handler, 0

    def handle(self, raw, source, recv_us):
        self.packets += 1
        self.handler.handle(raw, source, recv_us)


@every
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=200),
            spoiled(message(GOOD_F[2])),
            st.builds(message, st.one_of(g_packets, f_packets), st.sampled_from(["192.0.2.7:1", "2001:db8::1:9", "[::1]:9"])),
            st.builds(lambda fields: json.dumps(fields).encode("utf-8", "surrogatepass"), values),
            st.builds(lambda remote, data: json.dumps({"remote": remote, "data": data}).encode("utf-8", "surrogatepass"), values, values),
        ),
        max_size=6,
    )
)
def test_shoveler(output, messages):
    output.letters.clear()
    counters = Counters()
    opens = FStreamHandler(output, counters, PSEUDONYMS)
    inside = [HandedOn(GStreamHandler(output, counters)), HandedOn(opens)]
    handler = ShovelerHandler(output, counters, *inside)
    for raw in messages:
        handler.handle(raw, HERE, NOW)
    refused = counters.total("dead_letters", "shoveler") + counters.total("records_ignored", "shoveler")
    assert refused + sum(each.packets for each in inside) == len(messages)
    opens.close(NOW)
    assert not any(WHO.encode() in raw or WHO in reason for reason, raw in output.letters)


# --- files that are imported --------------------------------------------------------------------------------------------------------------


@every
@given(st.binary(max_size=200))
def test_oracle_general(tmp_path, validate, content):
    path = tmp_path / "x.oracleGeneral"
    path.write_bytes(content)
    rows = list(trace_files.rows(path, "oracle"))
    assert len(rows) == len(content) // 24 + (len(content) % 24 > 0)
    _check(rows, validate)


@every
@given(st.one_of(st.binary(max_size=200), spoiled(b't,size,lfn,user\n1.5,2,"/a",x\n2,3,/b,y\n')))
def test_csv(tmp_path, validate, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with suppress(traces.SourceError):
        _check(trace_files.rows(path, "csv"), validate)


def parquet():
    """A small file, compressed and dictionary-encoded as they come."""
    rows = [{"t": float(n), "lfn": f"/a{n % 3}", "size": n, "bytes_read": 1, "user": "x"} for n in range(20)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=8)
    return sink.getvalue().to_pybytes()


@every
@given(st.one_of(st.binary(max_size=200), spoiled(parquet())))
def test_parquet(tmp_path, validate, content):
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with suppress(traces.SourceError):
        _check(trace_files.rows(path, "parquet"), validate)


def test_parquet_of_which_each_byte_in_turn_is_another(tmp_path, validate):
    path, whole = tmp_path / "x.parquet", parquet()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xA5]) + whole[at + 1 :])
        with suppress(traces.SourceError):
            _check(trace_files.rows(path, "parquet"), validate)


@every
@given(st.dictionaries(st.sampled_from(traces.COLUMNS), values), st.one_of(st.none(), st.integers(0, 2**51)))
def test_rows_of_any_values(validate, fields, start_us):
    _check([trace_files.Row(1, 1, fields)], validate, start_us)


def _check(rows, validate, start_us=1_700_000_000_000_000):
    for row in rows:
        if not isinstance(row.values, ParseError):
            with suppress(ParseError):
                record = trace.parse(row.values, start_us, "", PSEUDONYMS, NOW)
                validate("xcache.fstream.v1", {**record, "record_id": "x", "cache": "h:1", "recv_us": NOW})


GOOD_JOB = {
    "GlobalJobId": "j",
    "RecordTime": 1_700_000_000,
    "Site": "T2",
    "CpuTimeHr": 1.0,
    "InputGB": 1.0,
    "ExitCode": 0,
    "CRAB_UserHN": WHO,
    "Type": "x",
}
GOOD_PANDA = {
    "pandaid": 1,
    "modificationtime": "2020-01-01T00:00:00",
    "computingsite": "S",
    "starttime": None,
    "endtime": None,
    "corecount": 1,
}


@every
@given(
    st.one_of(
        st.binary(max_size=100),
        st.builds(lambda fields: json.dumps(fields).encode("utf-8", "surrogatepass"), values),
        *(
            st.builds(
                lambda changed, good=good: json.dumps({**good, **changed}).encode("utf-8", "surrogatepass"),
                st.dictionaries(st.sampled_from([*good, "data", "_source"]), st.one_of(numbers, values)),
            )
            for good in (GOOD_JOB, GOOD_PANDA)
        ),
    )
)
def test_jobs(validate, line):
    with suppress(ParseError):
        record = jobs.parse(line, PSEUDONYMS, NOW)
        validate("xcache.job.v1", record)
        assert WHO not in json.dumps(record)
