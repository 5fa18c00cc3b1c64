"""The scan of a cache's tree: what it finds, what it passes over, and a cache that changes under it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from cinfo_bytes import access, make
from collector_site import until
from terminal_of import shown_on_a_terminal

from smartcache.ingestion import batch, known, scan
from smartcache.ingestion.known import Known
from smartcache.ingestion.scan import Scan

CACHE = "h:1094"
IDENTITY = {"folder": "/f", "cache": CACHE, "prefix": "/", "destination": "x"}


@pytest.fixture(autouse=True)
def _at_rest(monkeypatch):
    """Files that these tests have just written count as at rest."""
    monkeypatch.setattr(scan, "SETTLED_S", -1.0)


def put(root, lfn, content=None):
    path = root / (lfn.lstrip("/") + ".cinfo")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(make() if content is None else content)
    return path


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "cache"
    root.mkdir()
    return root


def run(root, output, known_files=None, **options):
    one = Scan(root, CACHE, output, known_files or Known(), **options)
    for _ in one.run():
        pass
    return one


def test_each_cinfo_becomes_a_record(tree, output):
    for lfn in ("/store/a/f1.root", "/store/a/b/f2.root", "/f3"):
        put(tree, lfn)
        (tree / lfn.lstrip("/")).write_bytes(b"data")
    put(tree, "/store/.hidden")
    (tree / ".cinfo").write_bytes(b"the cinfo of nothing")
    done = run(tree, output)
    assert sorted(record["lfn"] for record in output.records) == ["/f3", "/store/.hidden", "/store/a/b/f2.root", "/store/a/f1.root"]
    assert {record["cache"] for record in output.records} == {CACHE}
    assert (done.counts.found, done.counts.records, done.counts.folders) == (4, 4, 4)
    assert output.letters == []


def test_lfns_below_a_prefix_and_lfns_that_are_no_utf8(tree, output):
    put(tree, "/x/" + os.fsdecode(b"\xff\xfe"))
    put(tree, '/x/"q"\n')
    run(tree, output, prefix="/store/user/")
    assert sorted(record["lfn"] for record in output.records) == ['/store/user/x/"q"\n', "/store/user/x/\ufffd\ufffd"]


def test_what_has_not_changed_is_passed_over_the_next_time(tree, output, tmp_path):
    paths = [put(tree, f"/d{n}/f") for n in range(5)]
    os.utime(paths[1], (1, 1))  # a clock of ticks may give a change within the next few milliseconds the same time
    first = run(tree, output)
    state = tmp_path / "state" / "s"
    Known().merged(first.seen).save(state, IDENTITY)
    paths[1].write_bytes(make(bits=b"\x7f"))
    paths[2].unlink()
    replaced = put(tree, "/d3/new")  # the same bytes, another inode
    replaced.rename(paths[3])
    put(tree, "/d9/f")
    seen, problem = known.load(state, IDENTITY)
    assert problem == ""
    output.records.clear()
    second = run(tree, output, seen)
    assert sorted(record["lfn"] for record in output.records) == ["/d1/f", "/d3/f", "/d9/f"]
    assert second.counts.unchanged == 2
    assert len(second.seen) == 5


def test_the_same_state_gives_the_same_record_again(tree, output):
    put(tree, "/f")
    run(tree, output)
    run(tree, output)
    assert len(output.records) == 2
    assert len({record["record_id"] for record in output.records}) == 1


def test_what_cannot_be_parsed_is_a_dead_letter_with_its_name(tree, output):
    put(tree, "/cut", make()[:-1])
    put(tree, "/old", make(version=1))
    put(tree, "/long", b"\4\0\0\0" + bytes(100_000))
    done = run(tree, output)
    assert done.counts.refused == {"truncated": 1, "version": 1, "checksum": 1}
    reasons = sorted(reason for reason, _ in output.letters)
    assert "long.cinfo: the checksum" in reasons[0]
    assert reasons[0].endswith(f"(its first {scan.QUOTED_BYTES} of 100004 bytes are here)")
    assert reasons[1].startswith("truncated: ")
    assert "old.cinfo: it is of version 1" in reasons[2]
    assert sorted(len(raw) for _, raw in output.letters) == sorted([len(make()) - 1, len(make()), scan.QUOTED_BYTES])


def test_what_is_no_file_is_refused_and_never_waited_for(tree, output):
    os.mkfifo(tree / "pipe.cinfo")
    (tree / "folder.cinfo").mkdir()
    put(tree, "/folder.cinfo/f")
    (tree / "gone.cinfo").symlink_to(tree / "nowhere")
    elsewhere = tree.parent / "disk2"
    put(elsewhere, "/moved")
    (tree / "moved.cinfo").symlink_to(elsewhere / "moved.cinfo")
    (tree / "loop").symlink_to(tree)
    done = run(tree, output)
    assert sorted(record["lfn"] for record in output.records) == ["/folder.cinfo/f", "/moved"]
    assert (done.counts.refused, done.counts.vanished) == ({"record": 1}, 1)


def test_a_file_that_is_too_large_is_refused_unread_and_once(tree, output, monkeypatch):
    monkeypatch.setattr(scan, "MAX_BYTES", 100)
    put(tree, "/large")
    first = run(tree, output)
    assert first.counts.refused == {"record": 1}
    again = run(tree, output, Known().merged(first.seen))
    assert (again.counts.unchanged, again.counts.refused, len(output.letters)) == (1, {}, 1)


def test_a_record_larger_than_any_message_is_refused_and_no_record(tree, monkeypatch):
    monkeypatch.setattr(batch, "MAX_MESSAGE_BYTES", 1000)  # no real one comes near it
    put(tree, "/f")
    put(tree, "/" + "x" * 200 + "/" + "y" * 200)
    sink = batch.Nowhere()
    counts = run(tree, sink).counts
    assert (counts.records, counts.refused) == (1, {"too_large": 1})
    assert (sink.records.total(), sink.letters.total()) == (1, 1)


def test_one_that_changes_while_it_is_read_is_read_again(tree, output, monkeypatch):
    path = put(tree, "/f")
    os.utime(path, (1, 1))  # a clock of ticks gives a change within a few milliseconds the same time
    fstat, calls = os.fstat, []

    def meanwhile(handle):
        calls.append(handle)
        if len(calls) == 2:  # it was read: now somebody writes
            path.write_bytes(make(bits=b"\x01"))
        return fstat(handle)

    monkeypatch.setattr(scan.os, "fstat", meanwhile)
    run(tree, output)
    assert output.records[0]["n_blks_done"] == 1
    assert len(output.records) == 1


def test_one_that_never_comes_to_rest_is_left_to_the_next_scan(tree, output, monkeypatch):
    path = put(tree, "/f")
    fstat, calls = os.fstat, []

    def meanwhile(handle):
        calls.append(handle)
        path.write_bytes(make(accesses=[access()] * (len(calls) + 2)))
        return fstat(handle)

    monkeypatch.setattr(scan.os, "fstat", meanwhile)
    done = run(tree, output)
    assert (done.counts.changing, done.counts.records, len(done.seen)) == (1, 0, 0)
    assert "scan again" in done.counts.line()


def test_one_written_a_moment_ago_is_no_dead_letter_yet_and_is_read_again_next_time(tree, output, monkeypatch):
    monkeypatch.setattr(scan, "SETTLED_S", 3600.0)
    put(tree, "/half", make()[:-1])
    put(tree, "/whole")
    done = run(tree, output)
    assert (done.counts.changing, done.counts.records, len(done.seen)) == (1, 1, 0)
    assert output.letters == []


def test_a_broken_one_whose_time_is_in_the_future_is_a_dead_letter_all_the_same(tree, output, monkeypatch):
    soon, later = put(tree, "/soon", make()[:-1]), put(tree, "/later", make()[:-1])
    now = soon.stat().st_ctime + 10  # at rest for ten seconds, by this clock
    monkeypatch.setattr(scan.time, "time", lambda: now)
    monkeypatch.setattr(scan, "SETTLED_S", 1.0)
    os.utime(soon, (now + 5, now + 5))
    os.utime(later, (now + 86_400, now + 86_400))
    done = run(tree, output)
    assert (done.counts.refused, done.counts.changing) == ({"truncated": 1}, 1)
    assert "later.cinfo" in output.letters[0][0]


def test_files_and_folders_that_vanish_are_counted(tree, output):
    for n in range(20):
        put(tree, f"/d{n}/f")
    one = Scan(tree, CACHE, output, Known())
    for counts in one.run():
        if counts.found == 5:
            for n in range(20):
                (tree / f"d{n}" / "f.cinfo").unlink(missing_ok=True)
                (tree / f"d{n}").rmdir()
    assert len(output.records) == 5
    assert one.counts.vanished == 15


def test_a_tree_that_is_rewritten_all_the_while(tree, output):
    """Readers and a writer at once: each file is a record, a count or a dead letter, and what is sent was once a whole state."""
    paths = [put(tree, f"/d{n % 7}/f{n}") for n in range(70)]
    bits = [bytes([value]) for value in (0, 1, 3, 7)]
    stop = threading.Event()

    def rewrite():
        turn = 0
        while not stop.is_set():
            path = paths[turn % len(paths)]
            path.write_bytes(make(bits=bits[turn % len(bits)]))
            if turn % 5 == 0:
                path.unlink()
                path.write_bytes(make())
            turn += 1

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        total = 0
        for _ in range(30):
            counts = run(tree, output).counts
            assert counts.found == counts.records + counts.vanished + counts.changing + sum(counts.refused.values())
            assert set(counts.refused) <= {"truncated"}
            total += counts.records
    finally:
        stop.set()
        writer.join()
    assert total > 1000
    assert {record["n_blks_done"] for record in output.records} <= {0, 1, 2, 3, 8}


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "other", "text"])
def test_a_state_that_is_damaged_or_of_another_scan_begins_anew(harm, tmp_path):
    path = tmp_path / "state"
    from array import array

    Known().merged(array("Q", [5, 3, 3, 2**64 - 1])).save(path, IDENTITY)
    seen, problem = known.load(path, IDENTITY)
    assert (len(seen), problem) == (3, "")
    assert 5 in seen
    assert 4 not in seen
    good = path.read_bytes()
    identity = IDENTITY
    if harm == "flip":
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    elif harm == "cut":
        path.write_bytes(good[:-8])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "text":
        path.write_bytes(b"[]\n")
    else:
        identity = {**IDENTITY, "cache": "other:1"}
    seen, problem = known.load(path, identity)
    assert len(seen) == 0
    assert str(path) in problem


def command(*arguments, **options):
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "scan-cinfo", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **options)


def test_the_command_writes_lines_and_says_what_it_found(tree, tmp_path, validate):
    put(tree, "/store/f")
    bad = put(tree, "/bad", b"x")
    os.utime(bad, (1, 1))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    arguments = (tree, "--cache", CACHE, "--output", out, "--state", state)
    answer = command(*arguments)
    assert answer.returncode == 0, answer.stderr
    record = json.loads(out.read_text())
    validate("xcache.cinfo.v1", record)
    assert record["lfn"] == "/store/f"
    assert "2 .cinfo files in 2 folders, 1 records" in answer.stderr
    to_screen = command(tree, "--cache", CACHE, "--output", "-")
    assert json.loads(to_screen.stdout)["record_id"] == record["record_id"]


def test_lines_of_a_second_scan_go_behind_those_of_the_first(tree, tmp_path):
    out = tmp_path / "out.jsonl"
    arguments = (tree, "--cache", CACHE, "--output", out, "--state", tmp_path / "state")
    lfns = lambda: sorted(json.loads(line)["lfn"] for line in out.read_text().splitlines())  # noqa: E731
    os.utime(put(tree, "/first"), (1, 1))
    until_settled(tree)
    assert command(*arguments).returncode == 0
    put(tree, "/second")
    with out.open("a") as file:
        file.write('{"lfn":"/half')  # as after a kill -9 in the midst of a line
    assert command(*arguments).returncode == 0
    lines = out.read_text().splitlines()
    assert [json.loads(lines[n])["lfn"] for n in (0, 2)] == ["/first", "/second"]
    assert command(*arguments, "--full").returncode == 0
    assert lfns() == ["/first", "/second"]


def test_a_folder_that_cannot_be_read_is_said_and_is_a_failure(tree, tmp_path):
    """One whose path is longer than any that the system takes cannot be read by root either."""
    put(tree, "/store/f")
    folder = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    out = tmp_path / "out.jsonl"
    answer = command(tree, "--cache", CACHE, "--output", out)
    shutil.rmtree(tree)
    assert answer.returncode == 1, answer.stderr
    assert [json.loads(line)["lfn"] for line in out.read_text().splitlines()] == ["/store/f"]
    assert "1 folders unreadable" in answer.stderr
    assert f"the first is {tree}/ddd" in answer.stderr
    assert "(File name too long)" in answer.stderr


def test_a_file_that_cannot_be_read_is_said_and_is_a_failure(tree, tmp_path):
    """A link to itself cannot be read by root either."""
    put(tree, "/store/f")
    put(tree, "/store/g")
    loop = tree / "store" / "f.cinfo"
    loop.unlink()
    loop.symlink_to(loop)
    out = tmp_path / "out.jsonl"
    answer = command(tree, "--cache", CACHE, "--output", out)
    assert answer.returncode == 1, answer.stderr
    assert [json.loads(line)["lfn"] for line in out.read_text().splitlines()] == ["/store/g"]
    assert f"1 files could not be read, and 0 folders with all below them: the first is {loop} (Too many levels" in answer.stderr


def until_settled(tree):
    """Wait until the files are as old as a scan wants them."""
    until(lambda: time.time() - max(path.stat().st_ctime for path in tree.iterdir()) > 1.1, "at rest")


def test_wrong_usage_is_named(tmp_path):
    for arguments, said in (
        ((tmp_path / "no", "--cache", CACHE), "is no folder"),
        ((tmp_path, "--cache", "me"), "HOST:PORT"),
        ((tmp_path, "--cache", "hé:1"), "visible ASCII"),
    ):
        answer = command(*arguments)
        assert answer.returncode == 2
        assert said in answer.stderr
    (tmp_path / "file").write_text("")
    answer = command(tmp_path, "--cache", CACHE, "--output", "-", "--state", tmp_path / "file" / "state")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "cannot be made" in answer.stderr
    assert "--state" in answer.stderr
    config = tmp_path / "c.toml"
    config.write_text('[kafka]\nbootstrap = "127.0.0.1:1"\n')
    answer = command(tmp_path, "--cache", CACHE, "--config", config, "--state", tmp_path / "s")
    assert answer.returncode == 1
    assert "does not answer" in answer.stderr
    assert "--output" in answer.stderr


def test_a_signal_ends_it_with_130_and_saves_what_was_done(tree, tmp_path):
    for n in range(3000):
        put(tree, f"/d{n % 50}/f{n}")
    os.mkfifo(tmp_path / "slow")
    state = tmp_path / "state"
    argv = [
        sys.executable,
        "-m",
        "smartcache.ingestion.cli",
        "scan-cinfo",
        tree,
        "--cache",
        CACHE,
        "--output",
        tmp_path / "slow",
        "--state",
        state,
    ]
    process = subprocess.Popen(list(map(str, argv)), stderr=subprocess.PIPE, text=True)
    with open(tmp_path / "slow") as reader:
        lines = 1 if reader.readline() else 0  # from here on it waits for us whenever the pipe is full
        process.send_signal(signal.SIGTERM)
        lines += sum(1 for _ in reader)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert 1 <= lines < 3000
    assert "stopped: " in said
    assert state.exists()


def test_a_person_sees_how_far_it_is(tree, tmp_path):
    for number in range(200):
        put(tree, f"/store/{number}.root")
    argv = [sys.executable, "-m", "smartcache", "scan-cinfo", tree, "--cache", CACHE, "--output", tmp_path / "out.jsonl"]
    argv += ["--config", tmp_path / "c.toml"]
    (tmp_path / "c.toml").write_text(f'[scan]\nstate_dir = "{tmp_path / "state"}"\n')
    status, shown = shown_on_a_terminal([*map(str, argv)])
    assert status == 0, shown
    assert "files/s" in shown
    assert "200 records" in shown
