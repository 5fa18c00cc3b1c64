"""The import of traces, job monitoring and shoveled packets: what comes out, what is refused and how, and how to go on."""

import base64
import contextlib
import csv
import gzip
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from terminal_of import shown_on_a_terminal
from test_fstream import closed, ident, opened, user, window

from smartcache import traces
from smartcache.ingestion import batch, trace_files
from smartcache.ingestion import importer as importing
from smartcache.ingestion.importer import Importer, Settings
from smartcache.ingestion.pseudonym import Pseudonyms
from smartcache.preprocessing import join
from smartcache.traces import SourceError

CACHE, PSEUDONYMS = "h:1094", Pseudonyms(b"k" * 32)
START_S = 1_700_000_000
ROWS = [
    {"t": 0.0, "lfn": "/store/a", "size": 10, "bytes_read": 10, "user": 7},
    {"t": 1.5, "lfn": "/store/ä b,c", "size": 20, "bytes_read": 5, "user": 8},
    {"t": 1.5, "lfn": '/store/"q"', "size": 0, "bytes_read": 0, "user": None},
    {"t": 99.000001, "lfn": "/store/a", "size": 2**50, "bytes_read": None, "user": 7},
]


@pytest.fixture
def said():
    return []


@pytest.fixture
def take(output, said):
    """Import a file; what the importer has counted at the end."""

    def run(path, kind="", *, skip=0, start_us=START_S * 1_000_000, prefix="", stop=None):
        one = Importer(output, Settings(CACHE, start_us, prefix, PSEUDONYMS), said.append, stop or threading.Event())
        if kind == "jobs":
            work = one.jobs(path, skip)
        elif kind == "shoveler":
            work = one.shoveler(path)
        else:
            work = one.trace(path, kind or traces.kind_of(path), skip)
        return deque(work, maxlen=1).pop()

    return run


def write_parquet(path, rows=ROWS, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def write_csv(path, rows=ROWS, opener=open):
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def zst(path, data):
    with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(data)
    return path


def expect(rows=ROWS):
    return [
        {
            "lfn": row["lfn"],
            "open_lo_us": (us := START_S * 1_000_000 + round(row["t"] * 1e6)),
            "open_hi_us": us,
            "close_hi_us": None,
            "size": row["size"],
            "b_read": row["bytes_read"],
            "b_readv": None if row["bytes_read"] is None else 0,
            "user": None if row["user"] is None else PSEUDONYMS.of(str(row["user"])),
            "cache": CACHE,
        }
        for row in rows
    ]


def but_ids(records):
    return [{name: record[name] for name in expect()[0]} for record in records]


def test_a_parquet_trace_becomes_opens(tmp_path, take, output):
    done = take(write_parquet(tmp_path / "t.parquet", row_group_size=2))
    assert but_ids(output.records) == expect()
    assert (done.rows, done.records, done.errors.total()) == (4, 4, 0)
    ids = [record["record_id"] for record in output.records]
    assert [each.rpartition("/")[2] for each in ids] == ["1", "2", "3", "4"]
    assert all(each.startswith(f"{CACHE}/import/") for each in ids)


def test_an_imported_trace_makes_rows_of_the_access_table(tmp_path, take, output):
    """Alone, as there is no pfc record and no decision: once the stream has waited for them."""
    take(write_parquet(tmp_path / "t.parquet"))
    state, times = join.State(), join.Times(60_000, 3_600_000, 3_600_000, 1_209_600_000)
    opens = [(join.OPEN, record) for record in output.records]
    assert join.advance(state, opens, 0, times, lambda lfn: "d").rows == []
    rows = join.advance(state, opens, 60_000, times, lambda lfn: "d").rows
    assert [(row["lfn"], row["open_us"], row["size"], row["b_read"], row["close_us"]) for row in rows] == [
        (row["lfn"], row["open_lo_us"], row["size"], row["b_read"], None) for row in expect()
    ]
    assert all(row["cache"] == CACHE and row["answer"] is row["b_hit"] is row["app"] is None for row in rows)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst"])
def test_a_csv_trace_becomes_the_same_opens(name, tmp_path, take, output):
    path = tmp_path / name
    if name.endswith(".zst"):
        zst(path, write_csv(tmp_path / "plain.csv").read_bytes())
    else:
        write_csv(path, opener=gzip.open if name.endswith(".gz") else open)
    take(path)
    assert but_ids(output.records) == expect()


@pytest.mark.parametrize("name", ["x.oracleGeneral", "x.oracleGeneral.bin", "x.oracleGeneral.zst"])
def test_an_oracle_general_trace_becomes_opens(name, tmp_path, take, output):
    requests = [(5, 2**64 - 1, 100, -2), (6, 17, 2**32 - 1, 3)] * 3
    data = b"".join(struct.pack("<IQIq", *request) for request in requests)
    path = zst(tmp_path / name, data) if name.endswith("zst") else tmp_path / name
    if not name.endswith("zst"):
        path.write_bytes(data)
    take(path, prefix="/blocks")
    found = [(r["open_lo_us"] // 1_000_000 - START_S, r["lfn"], r["size"], r["b_read"]) for r in output.records]
    assert found == [(t, f"/blocks/{identity}", size, size) for t, identity, size, _ in requests]


def test_the_same_file_has_the_same_ids_wherever_it_lies_and_another_file_has_others(tmp_path, take, output):
    for name in ("a.parquet", "b.parquet"):
        take(write_parquet(tmp_path / name))
    take(write_parquet(tmp_path / "c.parquet", ROWS[:3]))
    ids = [record["record_id"] for record in output.records]
    assert ids[:4] == ids[4:8]
    assert len(set(ids)) == 4 + 3


def test_skipping_goes_on_where_an_import_was_stopped(tmp_path, take, output):
    path = write_parquet(tmp_path / "t.parquet")
    take(path)
    whole = [record["record_id"] for record in output.records]
    output.records.clear()
    assert take(path, skip=3).line() == "4 rows, 1 records"
    assert [record["record_id"] for record in output.records] == whole[3:]


@pytest.mark.parametrize(
    "times",
    [
        [1_700_000_000, 1_700_000_001],
        [1_700_000_000.25, 1_700_000_001.5],
        [datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC), datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)],
        [datetime(2023, 11, 14, 22, 13, 20, 250_000), datetime(2023, 11, 14, 22, 13, 21)],
    ],
)
def test_absolute_times(times, tmp_path, take, output):
    rows = [{"time": when, "lfn": "/a", "size": 1} for when in times]
    take(write_parquet(tmp_path / "t.parquet", rows), start_us=None)
    take(write_csv(tmp_path / "t.csv", rows), start_us=None)
    expected = [
        round((when.replace(tzinfo=when.tzinfo or UTC).timestamp() if isinstance(when, datetime) else when) * 1e6) for when in times
    ]
    assert [record["open_lo_us"] for record in output.records] == expected * 2
    assert {record["b_read"] for record in output.records} == {None}


@pytest.mark.parametrize(
    ("changed", "said_of_it"),
    [
        ({"t": "x"}, "t must be a time, not 'x'"),
        ({"t": ""}, "t must be a time, not None"),
        ({"t": "nan"}, "t must be a time, not 'nan'"),
        ({"t": "1e300"}, "t must be a time"),
        ({"t": "1e15"}, "years 2000 to 2100"),
        ({"t": -1_700_000_000}, "years 2000 to 2100"),
        ({"lfn": ""}, "lfn must be text that is not empty"),
        ({"t": 1e9}, "t must not be in the future, as '1000000000.0' is"),
        ({"size": -1}, "size must be an integer of 0 to 2^50, not '-1'"),
        ({"size": 2**50 + 1}, "size must be an integer of 0 to 2^50, not '1125899906842625'"),
        ({"size": ""}, "size is missing"),
        ({"size": "1.5"}, "size must be an integer"),
        ({"size": 2**63}, "size must be an integer"),
        ({"size": "9" * 5000}, "not '9999"),
        ({"bytes_read": "many"}, "bytes_read must be an integer"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_row_rule_and_value_and_its_neighbours_are_taken(
    changed, said_of_it, tmp_path, take, output, said
):
    path = write_csv(tmp_path / "t.csv", [ROWS[0], {**ROWS[1], **changed}, ROWS[2]])
    done = take(path)
    assert [record["lfn"] for record in output.records] == [ROWS[0]["lfn"], ROWS[2]["lfn"]]
    (reason, raw), *others = output.letters
    assert others == []
    assert reason.startswith(f"field: {path} row 2: ")
    assert said_of_it in reason
    assert len(reason) < 300 + len(str(path))
    assert raw == b""
    assert said == [reason]
    assert done.line() == "3 rows, 2 records, 1 errors (1 field)"


def test_a_start_is_not_added_to_times_that_are_absolute(tmp_path, take, output):
    rows = [{"time": START_S + 5, "lfn": "/a", "size": 1}]
    take(write_csv(tmp_path / "t.csv", rows), start_us=1_000_000_000)
    take(write_csv(tmp_path / "r.csv", [{**rows[0], "time": 5}]), start_us=START_S * 1_000_000)
    assert [record["open_lo_us"] for record in output.records] == [(START_S + 5) * 1_000_000]
    assert "belong into a column t" in output.letters[0][0]


@pytest.mark.parametrize("quote", ['"', '"x'])
def test_a_quote_that_is_never_closed_costs_its_own_row_only(quote, tmp_path, take, output):
    path = write_csv(tmp_path / "t.csv", [{**ROWS[0], "t": float(n)} for n in range(50)])
    lines = path.read_text().splitlines(keepends=True)
    lines[11] = lines[11].replace("/store", quote + "/store")
    path.write_text("".join(lines))
    assert take(path).line() == "50 rows, 49 records, 1 errors (1 row)"
    assert [record["record_id"].rpartition("/")[2] for record in output.records] == [str(n) for n in range(1, 51) if n != 11]
    assert f"{path} row 11: " in output.letters[0][0]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_column_that_is_there_twice_is_refused(name, tmp_path, take):
    path = tmp_path / name
    if name.endswith("csv"):
        path.write_text("t,lfn,size,lfn\n1,/a,2,/b\n")
    else:
        columns = [pa.array([1.0]), pa.array(["/a"]), pa.array([2]), pa.array(["/b"])]
        pq.write_table(pa.Table.from_arrays(columns, ["t", "lfn", "size", "lfn"]), path)
    with pytest.raises(SourceError, match=r"column lfn is there more than once; give each a name of its own"):
        take(path)


def test_without_a_start_relative_times_are_refused_and_the_option_named(tmp_path, take, output):
    take(write_parquet(tmp_path / "t.parquet"), start_us=None)
    assert output.records == []
    assert all("--start" in reason for reason, _ in output.letters)


def test_lines_that_are_no_csv(tmp_path, take, output):
    path = tmp_path / "t.csv"
    path.write_bytes(
        b'\xef\xbb\xbft,size,lfn,other\n1,2,/a,x\n1,2,/short\n\n1,2,"/b"x,y\n1,2,/\xff,x\n1,2,/long'
        + b"y" * (3 << 20)
        + b",x\n1,2,/end,x\n"
    )
    take(path)
    assert [record["lfn"] for record in output.records][:2] == ["/a", "/\ufffd"]
    assert output.records[-1]["lfn"] == "/end"
    assert len(output.letters) >= 3


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_missing_columns_are_named(name, tmp_path, take):
    rows = [{"when": 1, "lfn": "/a"}]
    path = (write_csv if name.endswith("csv") else write_parquet)(tmp_path / name, rows)
    with pytest.raises(SourceError, match=r"column size, time \(or t\) is missing; it has when, lfn"):
        take(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv.gz", "t.csv.zst", "t.oracleGeneral.zst"])
def test_what_is_no_such_file_is_said(name, tmp_path, take):
    path = tmp_path / name
    path.write_bytes(b"this is not what its name says" * 50)
    with pytest.raises(SourceError, match=name):
        take(path)


@pytest.mark.parametrize("name", ["t.oracleGeneral", "t.oracleGeneral.zst", "t.csv.gz", "t.parquet"])
def test_a_file_that_was_cut_gives_what_is_whole_and_says_so(name, tmp_path, take, output, monkeypatch):
    monkeypatch.setattr(output, "_validate", lambda *_: None)  # the schema is checked above; here are many rows
    path = tmp_path / name
    many = [{**ROWS[0], "t": float(n)} for n in range(50_000)]
    data = random.Random(1).randbytes(12 * 50_000)
    data = b"".join(struct.pack("<I", n) + data[12 * n : 12 * n + 12] + b"\0" * 8 for n in range(50_000))
    if name.endswith(".zst"):
        zst(path, data)
    elif "oracle" in name:
        path.write_bytes(data)
    elif name.endswith("gz"):
        write_csv(path, many, gzip.open)
    else:
        write_parquet(path, many)
    os.truncate(path, path.stat().st_size * 3 // 4 + 1)
    with contextlib.suppress(SourceError) if name == "t.oracleGeneral" else pytest.raises(SourceError):
        take(path)
    if name != "t.parquet":  # its index is at its end
        assert 1000 < len(output.records) < 50_000
    if name == "t.oracleGeneral":
        assert "bytes are left" in output.letters[-1][0]


def test_a_file_of_which_nothing_can_be_used_is_given_up(tmp_path, take, output):
    path = write_parquet(tmp_path / "t.parquet", [{**ROWS[0], "size": -1}] * 5000)
    with pytest.raises(SourceError, match="none of the first 1000 rows"):
        take(path)
    assert len(output.letters) == 1000


def test_errors_are_shown_up_to_a_number_and_all_counted(tmp_path, take, output, said):
    path = write_parquet(tmp_path / "t.parquet", [ROWS[0], *[{**ROWS[0], "size": -1}] * 50])
    assert take(path).errors == {"field": 50}
    assert len(said) == importing.SHOWN_ERRORS
    assert said[-1].endswith("further errors are counted only")


def test_the_real_traces(captures, take, output, monkeypatch):
    """The whole of each file, against what pyarrow says of its columns."""
    monkeypatch.setattr(output, "_validate", lambda *_: None)  # the schema is checked above; here are half a million rows
    files = sorted((captures.parent / "traces").glob("*.parquet"))
    if not files:
        pytest.skip("no traces here")
    for path in files[:2]:
        table = pq.read_table(path)
        output.records.clear()
        done = take(path)
        assert done.records == done.rows == table.num_rows
        assert [record["lfn"] for record in output.records] == table["lfn"].to_pylist()
        assert sum(record["b_read"] for record in output.records) == sum(table["bytes_read"].to_pylist())
        assert (output.records[-1]["user"] is None) == ("user" not in table.column_names)
    assert output.letters == []


CMS = {
    "GlobalJobId": "crab3@vocms0137.cern.ch#12345.0#1700000000",
    "RecordTime": 1_700_000_123,
    "Site": "T2_CH_CERN",
    "CRAB_UserHN": "alice",
    "CRAB_Workflow": "231114_101010:alice_crab_nano",
    "Workflow": "alice_crab_nano",
    "DESIRED_CMSDataset": "/TTTo2L2Nu/Run3-v1/NANOAODSIM",
    "CRAB_DataBlock": "/TTTo2L2Nu/Run3-v1/NANOAODSIM#1",
    "Type": "analysis",
    "Status": "Completed",
    "CpuTimeHr": 0.5,
    "WallClockHr": 1,
    "QueueHrs": 0.25,
    "ReadTimeHrs": 0.01,
    "InputGB": 1.5,
    "InputData": "Offsite",
    "RequestCpus": 4,
    "ExitCode": 0,
    "OwnerEmail": "alice@example.org",
}
PANDA = {
    "pandaid": 4711,
    "modificationtime": "2017-06-05T06:59:50",
    "computingsite": "ANALY_ARNES_DIRECT",
    "produserid": "/DC=ch/CN=bob",
    "jeditaskid": 99,
    "proddblock": "data15_13TeV.AOD",
    "prodsourcelabel": "user",
    "jobstatus": "finished",
    "starttime": "2017-06-05T06:29:31",
    "endtime": "2017-06-05T06:49:49",
    "cpuconsumptiontime": 834,
    "inputfilebytes": 10,
    "actualcorecount": 1,
    "transexitcode": None,
}


def write_lines(path, *documents):
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in documents))
    return path


def test_job_documents_of_cms_and_panda(tmp_path, take, output):
    take(
        write_lines(tmp_path / "j", CMS, PANDA, {"data": CMS, "metadata": {"x": 1}}, {"_source": {**CMS, "RecordTime": 1_700_000_123_000}}),
        "jobs",
    )
    cms, panda, wrapped, found = output.records
    assert {name: cms[name] for name in cms if name not in ("record_id", "job_id", "recv_us")} == {
        "record_us": 1_700_000_123_000_000,
        "site": "T2_CH_CERN",
        "user": PSEUDONYMS.of("alice"),
        "workflow": PSEUDONYMS.of("231114_101010:alice_crab_nano"),
        "dataset": "/TTTo2L2Nu/Run3-v1/NANOAODSIM",
        "block": "/TTTo2L2Nu/Run3-v1/NANOAODSIM#1",
        "type": "analysis",
        "status": "Completed",
        "cpu_s": 1800.0,
        "wall_s": 3600.0,
        "queue_s": 900.0,
        "read_s": 36.0,
        "b_input": 1_500_000_000,
        "cores": 4,
        "exit_code": 0,
        "input_local": False,
    }
    assert wrapped["record_id"] == found["record_id"] == cms["record_id"]
    assert (panda["site"], panda["wall_s"], panda["cpu_s"], panda["exit_code"]) == ("ANALY_ARNES_DIRECT", 1218.0, 834.0, None)
    assert panda["input_local"] is None
    assert panda["user"] == PSEUDONYMS.of("/DC=ch/CN=bob")
    assert panda["record_us"] == 1_496_645_990_000_000


@pytest.mark.parametrize(
    ("changed", "said_of_it"),
    [
        ({"GlobalJobId": None}, "GlobalJobId must name"),
        ({"Site": ""}, "Site must be text"),
        ({"RecordTime": None}, "RecordTime is missing"),
        ({"RecordTime": 5}, "RecordTime must be a time in the years 2000 to 2100, not 5"),
        ({"RecordTime": 10**400}, "RecordTime must be a time"),
        ({"RecordTime": 4_000_000_000}, "RecordTime must not be in the future, as 4000000000 is"),
        ({"CpuTimeHr": -1}, "CpuTimeHr must be a number of 0 or more, not -1"),
        ({"WallClockHr": "long"}, "WallClockHr must be a number"),
        ({"InputGB": 10**400}, "InputGB must be a number"),
        ({"ExitCode": 1.5}, "ExitCode must be an integer, not 1.5"),
        ({"CRAB_UserHN": ["alice"]}, "CRAB_UserHN must be text"),
    ],
)
def test_a_job_that_cannot_be_read_is_named_and_nobody_in_it_is(changed, said_of_it, tmp_path, take, output):
    path = write_lines(tmp_path / "j", CMS, {**CMS, **changed}, "", "{}", "alice [", CMS)
    done = take(path, "jobs")
    assert len(output.records) == 2
    assert [reason.partition(f"{path} line ")[2][:2] for reason, _ in output.letters] == ["2:", "4:", "5:"]
    assert said_of_it in output.letters[0][0]
    assert done.errors.total() == 3
    assert not any("alice" in reason or b"alice" in raw for reason, raw in output.letters)


def test_no_name_leaves_in_a_job_record(tmp_path, take, output):
    take(
        write_lines(tmp_path / "j", CMS, {**CMS, "Type": "production", "WMAgent_RequestName": "bob_rereco", "CRAB_Workflow": None}), "jobs"
    )
    assert not any(name in json.dumps(record) for record in output.records for name in ("alice", "bob", "vocms0137"))


def test_a_users_own_dataset_keeps_its_kind_and_loses_its_name(tmp_path, take, output):
    own = {
        "DESIRED_CMSDataset": "/TTJets/alice-nano_v2-0123456789abcdef/USER",
        "CRAB_DataBlock": "/TTJets/alice-nano_v2-0123456789abcdef/USER#7",
    }
    rucio = [
        {**PANDA, "pandaid": n, "proddblock": name}
        for n, name in enumerate(("user.bob.test", "user.bob.test", "panda.um.user.bob.x", "mc23.123.deriv"))
    ]
    take(write_lines(tmp_path / "j", {**CMS, **own}, *rucio), "jobs")
    of = PSEUDONYMS.of
    cms, *panda = output.records
    assert cms["dataset"] == f"/{of('TTJets')}/{of('alice-nano_v2-0123456789abcdef')}/USER"
    assert cms["block"] == f"{cms['dataset']}#7"
    assert [record["dataset"] for record in panda] == [
        f"user.{of('user.bob.test')}",
        f"user.{of('user.bob.test')}",
        f"user.{of('panda.um.user.bob.x')}",
        "mc23.123.deriv",
    ]
    assert not any(name in json.dumps(record) for record in output.records for name in ("alice", "bob"))


@pytest.mark.parametrize("kind", ["csv", "oracle"])
def test_a_damaged_archive_is_named(kind, tmp_path):
    path = tmp_path / f"{kind}.gz"
    raw = bytearray(gzip.compress(bytes(random.Random(5).randbytes(20_000)) if kind == "oracle" else b"t,lfn,size\n" + b"1,/a,2\n" * 9000))
    raw[20:60] = bytes(40)
    path.write_bytes(raw)
    with pytest.raises(SourceError, match=r"\.gz: after "):
        list(trace_files.rows(path, kind))


def test_parquet_with_bytes_that_are_no_text_and_dates_that_are_no_date(tmp_path):
    lfns = pa.StringArray.from_buffers(2, pa.array([b"/a", b"/\xff"]).buffers()[1], pa.array([b"/a", b"/\xff"]).buffers()[2])
    days = pa.array([0, 2**30], pa.int32()).cast(pa.date32())
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"time": days, "lfn": lfns, "size": pa.array([1, 2])}), path)
    first, second = (row.values for row in trace_files.rows(path, "parquet"))
    assert (first["lfn"], second["lfn"]) == ("/a", "/\ufffd")
    assert second["time"] is None


def shoveled(raw, remote="192.0.2.7:1093"):
    return json.dumps({"remote": remote, "version": "1.0.0", "data": base64.b64encode(raw).decode()})


def test_shoveled_captures_give_what_direct_ones_give(captured, tmp_path, take, output, said):
    packets = [*captured("gstream-5.5.3.jsonl"), *captured("fstream-5.5.3.jsonl"), b"<statistics/>"]
    done = take(write_lines(tmp_path / "s", *map(shoveled, packets)), "shoveler")
    assert sum("b_hit" in record for record in output.records) == 104
    assert sum("b_readv" in record for record in output.records) == 133
    assert output.letters == []
    assert (done.records, said) == (237, [])


F_IDENT, F_USER = ident(), user(1)


def files_of(tmp_path, *files):
    return [write_lines(tmp_path / f"s{number}", *map(shoveled, packets)) for number, packets in enumerate(files)]


def test_an_open_finds_its_close_in_a_later_file_and_what_was_counted_is_said(tmp_path):
    files = files_of(
        tmp_path,
        [F_IDENT, F_USER, window(opened(2, lfn=b"/later"), opened(3, lfn=b"/never"), pseq=0)],
        [window(closed(2), closed(9), pseq=1), window(opened(4, user_id=77, lfn=b"/whose"), closed(4), pseq=4)],
    )
    out = tmp_path / "out"
    answer = command("--format", "shoveler", *files, "--output", out)
    assert answer.returncode == 0, answer.stderr
    found = {record["lfn"]: record["b_read"] for record in map(json.loads, out.read_text().splitlines())}
    assert found == {"/later": 4, "/whose": 4, "/never": None}
    assert f"{files[1]}: 2 rows, 2 records\n" in answer.stderr
    assert "at the end: 1 records of opens whose close is in no file\n" in answer.stderr
    for counted in (
        "packets_lost on_the_way 2",
        "records_ignored close_without_open 1",
        "opens_without_user  1",
        "opens_unclosed shutdown 1",
    ):
        assert f"fstream {counted}" in answer.stderr


def test_an_import_of_shoveled_packets_that_is_stopped_sends_no_open_as_unclosed(tmp_path):
    """The second run has the same ids, and what comes first of each id counts."""
    out = tmp_path / "out"
    lines = [*map(shoveled, (F_IDENT, F_USER, window(opened(2)))), "{}"]
    said = stopped("--format", "shoveler", "-", "--output", out, lines=lines)
    assert "start it again, with all files" in said
    assert out.read_text() == ""


def test_lines_that_are_no_message_are_named(tmp_path, take, output):
    path = write_lines(
        tmp_path / "s", "{", '{"remote":"h:1"}', '{"remote":"h","data":""}', '{"remote":"h:1","data":"*"}', shoveled(b"u\0\0\5alice")
    )
    take(path, "shoveler")
    assert [reason.partition(": ")[0] for reason, _ in output.letters] == [f"{path} line {n}" for n in range(1, 6)]
    assert [reason.split(": ")[2] for reason, _ in output.letters[:4]] == ["json", "field", "field", "base64"]
    assert not any(b"alice" in raw for _, raw in output.letters)


def command(*arguments, **options):
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "import", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **options)


def stopped(*arguments, lines):
    """SIGTERM to an import that reads ``lines`` from its standard input, once it has refused the last of them; what it says then."""
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "import", *map(str, arguments)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        while f"- line {len(lines)}" not in (said := process.stderr.readline()):
            assert said, "it has ended"
        process.send_signal(signal.SIGTERM)
        process.stdin.write("{}\n" * 3)
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == 130, said
    return said


def test_the_command(tmp_path, captured):
    trace, bad = write_parquet(tmp_path / "t.parquet"), write_csv(tmp_path / "b.csv", [ROWS[0], {**ROWS[0], "size": -1}])
    out = tmp_path / "out.jsonl"
    answer = command(trace, bad, "--cache", CACHE, "--start", "2026-05-01", "--output", out)
    assert answer.returncode == 0, answer.stderr
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 5
    assert records[0]["open_lo_us"] == datetime(2026, 5, 1, tzinfo=UTC).timestamp() * 1e6
    letters = [json.loads(line) for line in (tmp_path / "out.jsonl.dlq").read_text().splitlines()]
    assert [letter["stream"] for letter in letters] == ["fstream"]
    assert f"{trace}: 4 rows, 4 records\n" in answer.stderr
    assert "b.csv: 2 rows, 1 records, 1 errors (1 field)" in answer.stderr
    assert "pseudonym_key_file" in answer.stderr
    lines = "".join(shoveled(raw) + "\n" for raw in captured("gstream-6.2.1.jsonl"))
    answer = command("--format", "shoveler", "-", "--output", "-", input=lines)
    assert answer.returncode == 0, answer.stderr
    assert {json.loads(line)["cache"] for line in answer.stdout.splitlines()} == {"vm:21097"}


def test_a_dry_run_checks_and_sends_nothing(tmp_path):
    good, bad = write_parquet(tmp_path / "t.parquet"), write_csv(tmp_path / "b.csv", [ROWS[0], {**ROWS[0], "size": -1}])
    config = tmp_path / "c.toml"
    config.write_text('[kafka]\nbootstrap = "127.0.0.1:1"\n')
    for path, status in ((good, 0), (bad, 1)):
        answer = command(path, "--cache", CACHE, "--start", START_S, "--dry-run", "--config", config)
        assert answer.returncode == status, answer.stderr
        assert "checked only" in answer.stderr


@pytest.mark.parametrize("where", ["--dry-run", "--output"])
def test_a_record_larger_than_any_message_is_an_error_wherever_it_goes(where, tmp_path):
    """Its key, which has the LFN too, counts: no message holds both."""
    path, out = write_csv(tmp_path / "t.csv", [ROWS[0], {**ROWS[1], "lfn": "/" + "x" * 600_000}, ROWS[3]]), tmp_path / "out"
    answer = command(path, "--cache", CACHE, "--start", START_S, where, *([out] if where == "--output" else []))
    assert answer.returncode == (where == "--dry-run"), answer.stderr
    assert f"too_large: {path} row 2: the record of {CACHE}|/xxx" in answer.stderr
    assert f"{path}: 3 rows, 2 records, 1 errors (1 too_large)" in answer.stderr
    assert len(answer.stderr) < 2000
    if where == "--output":
        assert [json.loads(line)["size"] for line in out.read_text().splitlines()] == [ROWS[0]["size"], ROWS[3]["size"]]
        (letter,) = map(json.loads, (tmp_path / "out.dlq").read_text().splitlines())
        assert letter["reason"].startswith(f"too_large: {path} row 2: ")
        assert letter["raw"] == ""


@pytest.mark.parametrize("kind", ["jobs", "shoveler"])
def test_a_line_whose_record_is_larger_than_any_message_is_an_error(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "MAX_MESSAGE_BYTES", 1500)  # what a UDP packet holds never reaches the real one
    if kind == "jobs":
        path = write_lines(tmp_path / "j", CMS, {**CMS, "Site": "T" * 2000}, CMS)
    else:
        packets = [window(opened(n, lfn=lfn), closed(n), pseq=n) for n, lfn in enumerate((b"/a", b"/" + b"x" * 900, b"/b"), 2)]
        (path,) = files_of(tmp_path, [F_IDENT, F_USER, *packets])
    sink, said = batch.Nowhere(), []
    one = Importer(sink, Settings(CACHE, None, "", PSEUDONYMS), said.append, threading.Event())
    done = deque(one.jobs(path) if kind == "jobs" else one.shoveler(path), maxlen=1).pop()
    assert (done.records, done.errors) == (2, {"too_large": 1})
    assert (sink.records.total(), sink.letters.total()) == (2, 1)
    assert len([text for text in said if "too_large: " in text and f"{path} line " in text]) == 1


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (("t.parquet",), "--cache HOST:PORT"),
        (("t.parquet", "--cache", CACHE, "--start", "yesterday"), "--start must be"),
        (("no.parquet",), "is no file"),
        (("x.json",), "--format"),
        (("-", "--format", "csv"), "has to be a file"),
        (("x.json", "--format", "shoveler", "--skip", "5"), "--skip does not go with shoveled packets"),
    ],
)
def test_wrong_usage_is_named(arguments, said_of_it, tmp_path):
    write_parquet(tmp_path / "t.parquet")
    (tmp_path / "x.json").write_text("{}")
    answer = command(*arguments, cwd=tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert said_of_it in answer.stderr


def test_a_person_sees_how_far_it_is(tmp_path):
    trace = write_csv(tmp_path / "t.csv", ROWS * 3000)
    argv = [sys.executable, "-m", "smartcache", "import", trace, "--cache", CACHE, "--start", START_S, "--output", tmp_path / "out.jsonl"]
    status, shown = shown_on_a_terminal([*map(str, argv)])
    assert status == 0, shown
    assert re.search(r"\d+%", shown)
    assert "rows/s" in shown
    assert f"{trace}: 12000 rows, 12000 records" in shown
