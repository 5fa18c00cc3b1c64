"""The stream with real Kafka and real Spark: started as users start it, killed as machines do it."""

import json
import random
import re
import signal
import time

import pytest

from smartcache.config import ConfigError
from smartcache.ingestion.jobs import parse
from smartcache.ingestion.pseudonym import Pseudonyms
from smartcache.local.process import START_LIMIT_S
from smartcache.preprocessing.access import COLUMNS
from smartcache.preprocessing.storage import Local
from smartcache.preprocessing.streaming import require_own

pytestmark = pytest.mark.slow

CACHES = ("cache-a.site:1094", "cache-b.site:1094")
T0 = 1_790_000_000
PSEUDONYMS = Pseudonyms(b"a key of tests, of 32 bytes or so")


def us(seconds):
    return round((T0 + seconds) * 1_000_000)


def traffic(seed, opens):
    """Records in two halves, shuffled and with duplicates, what must come of them (columns by open_id), and the number of duplicates.

    The records of one open are in one half: between the halves the grace may run out.
    """
    chance = random.Random(seed)
    groups, expected = [], {}
    for number in range(opens):
        cache, lfn = chance.choice(CACHES), f"/store/mc/C/P{number % 3}/T/f{chance.randrange(opens // 4)}.root"
        # Each open of a file has its own minute, so that nobody can doubt what belongs to it.
        t = number * 60 + chance.uniform(5, 20)
        closed = t + chance.uniform(0.1, 20)
        # Received after the stream reads them, whenever this machine gets there: it waits longer for the rest of what comes late.
        common = {"cache": cache, "lfn": lfn, "recv_us": us(10 * 365 * 86_400)}
        open_id, decision_id, pfc_id = f"{cache}/1/2/{number}", f"{cache}/7/{number}", f"{cache}/1/3/{number}"
        opened = common | {"record_id": open_id, "open_lo_us": us(t // 10 * 10), "open_hi_us": us(t // 10 * 10 + 10), "size": 1000 + number}
        opened |= {"close_lo_us": us(closed // 10 * 10), "close_hi_us": us(closed // 10 * 10 + 10), "b_read": 10 * number, "b_readv": 7}
        opened |= {"b_write": 0, "n_read": 1, "n_readv": 0, "forced": False, "user": "u1", "client_host": "h1", "app": "cmsRun"}
        if number % 9 == 5:  # the server was restarted before it
            opened |= dict.fromkeys(("close_lo_us", "close_hi_us", "b_read", "b_readv", "b_write", "n_read", "n_readv", "forced"))
        answer = chance.choice(["admit", "admit", "bypass", "evict"])
        decision = common | {
            "record_id": decision_id,
            "v": 1,
            "boot_us": us(-9),
            "seq": number,
            "t_us": us(t),
            "answer": answer,
            "reason": "model",
        }
        decision |= {
            "score": chance.random(),
            "probability": 1,
            "model": "reuse_v1",
            "latency_us": 12,
            "on_disk": number % 2 == 0,
            "size": -1,
        }
        decision |= {"fill": 0.123456789, "features": None, "side_table": us(number), "not_yet_known": {"to": "us"}}
        pfc = common | {"record_id": pfc_id, "size": 1000 + number, "attach_us": us(int(t)), "detach_us": us(int(closed)), "b_hit": number}
        pfc |= {"b_miss": 3, "b_bypass": 0, "blk_size": 131072, "n_blks": 1, "remotes": ["origin:1094"], "b_todisk": None}
        records = [("open", opened)]
        decided, counted = chance.random() < 0.9, chance.random() < 0.9
        if decided:
            records.append(("decision", decision))
        if counted and not (decided and answer == "bypass"):
            records.append(("pfc", pfc))
        got_pfc = records[-1][0] == "pfc"
        expected[open_id] = {
            "cache": cache,
            "lfn": lfn,
            "open_us": us(t) if decided else us(int(t)) if got_pfc and us(int(t)) >= opened["open_lo_us"] else opened["open_lo_us"],
            "close_us": opened["close_hi_us"],
            "size": 1000 + number,
            "b_read": None if opened["b_read"] is None else 10 * number + 7,
            "answer": answer if decided else None,
            "decision_id": decision_id if decided else None,
            "side_table": us(number) if decided else None,
            "t_us": us(t) if decided else None,
            "pfc_id": pfc_id if got_pfc else None,
            "b_hit": number if got_pfc else 0 if decided and answer == "bypass" else None,
        }
        groups.append(records)
    halves = [[record for group in part for record in group] for part in (groups[: opens // 2], groups[opens // 2 :])]
    again = chance.sample(halves[0], opens // 10)
    halves[1] += again
    for half in halves:
        chance.shuffle(half)
    return halves, expected, len(again)


def an_open(**more):
    """An open that is well-formed but for ``more``."""
    record = {"record_id": "c:1/1/2/3", "cache": "c:1", "lfn": "/a", "recv_us": us(0), "open_lo_us": us(-9), "open_hi_us": us(0)}
    return json.dumps({**record, "size": -1, "b_read": 0, "b_readv": 0, **more}).encode()


MALFORMED = [
    ("open", b"not json", "not a JSON object"),
    ("open", b"\xff\xfe\x00", "not a JSON object"),
    ("decision", b"[1, 2]", "not a JSON object"),
    ("pfc", b'{"cache": "c:1", "record_id": "x", "recv_us": 1790000000000000}', "lfn is missing"),
    ("open", b'{"cache":"c:1","record_id":"x","recv_us":1790000000000000,"lfn":"/a","open_lo_us":"soon"}', "open_lo_us is missing"),
    (
        "open",
        b'{"cache":"c:1","record_id":"x","recv_us":1790000000000000,"lfn":"/a","open_lo_us":9223372036854775807,"open_hi_us":9223372036854775807}',
        "open_lo_us is not a time",
    ),
    ("pfc", b'{"cache":"","lfn":"/a","record_id":"x","recv_us":1790000000000000,"attach_us":1790000000000000,"detach_us":1790000000000000,'
     b'"b_hit":1,"b_miss":1,"b_bypass":1}', "cache is empty"),
    (
        "decision",
        b'{"cache":"c:1","lfn":"/a","record_id":"x","recv_us":1790000000000000,"t_us":1790000000000000,"answer":"perhaps","reason":"",'
        b'"on_disk":false,"size":-1,"fill":-1}',
        "answer is none of",
    ),
    ("job", b'{"record_id":"job/x/1","record_us":1790000000000000,"recv_us":1790000000000000,"site":"T2"}', "job_id is missing"),
    ("job", b'{"record_id":"job/x/1","job_id":"x","record_us":5,"recv_us":1790000000000000,"site":"T2"}', "record_us is not a time"),
    ("open", an_open(b_read=2**63 - 1, b_readv=1), "b_read is not from 0 to"),
    ("open", an_open(b_readv=-1), "b_readv is not from 0 to"),
    ("open", an_open(cache="c" * 250), "cache is too long"),
    ("open", an_open(cache="c\x00:1"), "cache has other characters"),
    ("open", an_open(recv_us=2**63 - 1), "recv_us is not a time"),
    ("open", an_open(open_lo_us=us(86_400), open_hi_us=us(86_401)), "open_hi_us is more than a day after recv_us"),
    ("job", b'{"record_id":"job/x/2","job_id":"x","record_us":1790000000000000,"recv_us":1790000000000000,"site":"T2","cores":-1}',
     "cores is not from 0 to"),
]  # fmt: skip


def jobs(count):
    """States of jobs as `smartcache import` makes them of CMS's documents."""
    names = {"Site": "T2_IT_Bari", "CRAB_UserHN": "alice", "DESIRED_CMSDataset": "/A/B/NANOAOD", "InputData": "Onsite"}
    document = {**names, "Type": "analysis", "Status": "Completed", "WallClockHr": 2.0, "CpuTimeHr": 1.5, "RequestCpus": 1}
    return [
        (
            "job",
            parse(
                json.dumps({**document, "GlobalJobId": f"j{number}", "RecordTime": T0 + 86_400 * number}).encode(),
                PSEUDONYMS,
                us(10 * 86_400),
            ),
        )
        for number in range(count)
    ]


def test_table_is_the_same_with_and_without_kills(topics, run, tmp_path):
    start, names = run
    (first, second), expected, duplicates = traffic(seed=1, opens=400)
    topics.send(names, first + jobs(3) + jobs(2))
    topics.send(names, [(kind, raw) for kind, raw, _ in MALFORMED])
    # Killed while it writes down where the first batch begins; in the first batch of both; and in a later one.
    leave_a_draft(tmp_path / "killed")
    killed = start("killed")
    killed.wait(lambda: killed.mid_batch() and killed.in_first_quarantine_batch(), "in the first batches")
    killed.process.kill()
    assert killed.mid_batch()
    assert killed.in_first_quarantine_batch()
    killed.start().ready()
    killed.wait(killed.has_rows(1), "writing")
    topics.send(names, second + jobs(4))
    killed.wait(killed.mid_batch, "in a batch")
    killed.process.kill()
    killed.start().ready()
    killed.wait(killed.has_rows(len(expected)), f"done with {len(expected)} rows")
    killed.wait(lambda: len(killed.jobs()) >= 4, "done with the jobs")
    killed.wait(lambda: len(killed.quarantined()) >= len(MALFORMED), "done with the quarantine")
    killed.stop()

    steady = start("not disturbed").ready()
    steady.wait(steady.has_rows(len(expected)), f"done with {len(expected)} rows")
    steady.wait(lambda: len(steady.quarantined()) >= len(MALFORMED), "done with the quarantine")
    steady.wait(lambda: steady.metrics().get("rows_total") == len(expected), "counted")
    steady.wait(lambda: len(steady.jobs()) >= 4, "done with the jobs")
    steady.stop()

    table = steady.rows()
    assert table.column_names == [name for name, _ in COLUMNS]
    got = {row["open_id"]: row for row in table.to_pylist()}
    assert len(got) == table.num_rows == len(expected)
    for open_id, columns in expected.items():
        assert {name: got[open_id][name] for name in columns} == columns
    some = next(row for row in got.values() if row["t_us"])
    assert (some["reason"], some["model"], some["probability"], some["known_size"]) == ("model", "reuse_v1", 1.0, -1)
    assert some["day"].isoformat() == time.strftime("%Y-%m-%d", time.gmtime(some["open_us"] / 1e6))

    assert killed.rows().equals(table)
    assert killed.jobs() == steady.jobs()
    assert sorted(map(str, killed.quarantined())) == sorted(map(str, steady.quarantined()))
    assert [(row["day"], row["site"], row["input_local"], row["cpu_s"]) for row in steady.jobs()] == [
        (f"2026-09-{21 + number}", "T2_IT_Bari", True, 5400.0) for number in range(4)
    ], "each once"
    assert not any("user" in row for row in steady.jobs())

    assert steady.metrics()["rows_total"] == len(expected)
    assert steady.metrics()["duplicates_total"] == duplicates
    lacking = {"rows_without_close": 0, "rows_without_decision": 0, "rows_without_pfc": 0}
    for columns in expected.values():
        lacking["rows_without_close"] += columns["close_us"] is None
        lacking["rows_without_decision"] += columns["decision_id"] is None
        lacking["rows_without_pfc"] += columns["pfc_id"] is None and columns["answer"] != "bypass"
    assert all(0 < count < len(expected) for count in lacking.values())
    assert {name: steady.metrics()[f"{name}_total"] for name in lacking} == lacking
    reasons = [row["reason"] for row in steady.quarantined()]
    for kind, raw, reason in MALFORMED:
        assert [row for row in steady.quarantined() if row["value"] == raw and row["topic"] == names[kind] and reason in row["reason"]], (
            reasons
        )
    assert len(reasons) == len(MALFORMED)


def test_sides_that_come_too_late_are_counted(topics, run):
    start, names = run
    halves, _, _ = traffic(seed=2, opens=40)
    records = [record for half in halves for record in half]
    opened = next(record for kind, record in records if kind == "open")
    of_it = [(kind, record) for kind, record in records if record["lfn"] == opened["lfn"] and record["cache"] == opened["cache"]]
    # Sent when the stream reads them: nothing is waited for beyond the grace.
    now = {"recv_us": time.time_ns() // 1000}
    topics.send(names, [("open", opened | now)])
    stream = start("late", "watermark_s = 2.0\nlongest_open_s = 2.0").ready()
    stream.wait(stream.has_rows(1), "its row written")
    late = {kind: record for kind, record in of_it if kind != "open"}
    assert late.keys() == {"decision", "pfc"}
    topics.send(names, [(kind, record | now) for kind, record in late.items()])
    stream.wait(
        lambda: all(stream.metrics().get(f"{name}_total") == 1 for name in ("unmatched_decisions", "unmatched_pfcs")), "both counted"
    )
    stream.stop()
    metrics = stream.metrics()
    assert (metrics["rows_total"], metrics["rows_without_decision_total"], metrics["rows_without_pfc_total"]) == (1, 1, 1)
    assert stream.rows().num_rows == 1

    # A checkpoint that begins anew beside the table: Spark would take its batches for some that are written already.
    (stream.folder / "checkpoint/access").rename(stream.folder / "lost")
    stream.start()
    assert stream.process.wait(START_LIMIT_S) == 2
    assert f"{stream.folder}/access has rows up to batch" in stream.process.last_words()
    assert f"{stream.folder}/checkpoint/access has none" in stream.process.last_words()


@pytest.mark.parametrize(
    ("written", "begun", "said"),
    [
        ([], [], ""),
        ([], ["0", "1"], ""),
        (["0", "1"], ["0", "1"], ""),
        (["8", "9.compact"], ["9", "10"], ""),
        (["8", "9.compact", ".10.0b6d8c55.tmp"], [], "has rows up to batch 9 of its checkpoint, and CHECKPOINT has none"),
        (["9.compact", "10"], ["8", "9"], "has rows up to batch 10 of its checkpoint, and CHECKPOINT ends with batch 9"),
    ],
)
def test_table_of_another_checkpoint_is_refused(tmp_path, written, begun, said):
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    for folder, names in ((table / "_spark_metadata", written), (checkpoint / "offsets", begun)):
        for name in names:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("v1\n")
    if not said:
        require_own(Local(), str(table), str(checkpoint))
        return
    with pytest.raises(ConfigError, match=re.escape(said.replace("CHECKPOINT", str(checkpoint)))):
        require_own(Local(), str(table), str(checkpoint))


def leave_a_draft(folder):
    """What Spark writes before it gives a batch's offsets their name."""
    for query in ("access", "quarantine"):
        offsets = folder / "checkpoint" / query / "offsets"
        offsets.mkdir(parents=True)
        (offsets / ".0.0b6d8c55-5c3c-4a8e-9a7e-0d6b0a0e3f11.tmp").write_text("v1\n")


def test_stop_while_starting_is_clean(run):
    start, _ = run
    stream = start("early")
    stream.wait(lambda: (stream.folder / "checkpoint").exists() or b"java" in children(stream.process.pid), "starting Spark")
    stream.process.stop(grace_s=START_LIMIT_S, sign=signal.SIGINT)
    assert stream.process.returncode == 0, stream.process.last_words()


def children(pid):
    """The command lines of a process's children."""
    from pathlib import Path

    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return b" ".join(Path(f"/proc/{child}/cmdline").read_bytes() for child in pids)
    except OSError:
        return b""
