"""What an import refuses, since the stream would: the cache's id, numbers of jobs; what it quotes, and how it says to go on."""

import re
import struct
import threading
from collections import deque

import pytest
from test_import import CACHE, CMS, PANDA, PSEUDONYMS, START_S, command, stopped, write_csv, write_lines

from smartcache.ingestion import cache_id
from smartcache.ingestion.importer import Importer, Settings
from smartcache.preprocessing import records


@pytest.fixture
def take(output):
    def run(path, kind):
        one = Importer(output, Settings(CACHE, START_S * 1_000_000, "", PSEUDONYMS), print, threading.Event())
        return deque(one.jobs(path) if kind == "jobs" else one.trace(path, kind), maxlen=1).pop()

    return run


@pytest.mark.parametrize(
    ("changed", "said_of_it"),
    [
        ({**CMS, "InputGB": 2**50 / 1e9 + 1}, "InputGB must be no more than 1125899906842624 bytes, not 1125900.9"),
        ({**PANDA, "inputfilebytes": 2**50 + 1}, "inputfilebytes must be no more than 1125899906842624 bytes, not 1125899906842625"),
        ({**CMS, "RequestCpus": -1}, "RequestCpus must be an integer of 0 to 2^50, not -1"),
        ({**PANDA, "actualcorecount": 2**50 + 1}, "actualcorecount must be an integer of 0 to 2^50, not"),
    ],
)
def test_a_number_of_a_job_that_the_stream_would_not_take_is_refused(changed, said_of_it, tmp_path, take, output):
    assert take(write_lines(tmp_path / "j", CMS, changed, PANDA), "jobs").errors == {"field": 1}
    assert len(output.records) == 2
    assert said_of_it in output.letters[0][0]


def test_the_largest_numbers_of_a_job_that_the_stream_takes(tmp_path, take, output):
    take(write_lines(tmp_path / "j", {**PANDA, "inputfilebytes": 2**50, "actualcorecount": 0, "transexitcode": -1}), "jobs")
    assert [(each["b_input"], each["cores"], each["exit_code"]) for each in output.records] == [(records.MOST, 0, -1)]


@pytest.mark.parametrize(
    "cache", ["h\u00e9:1094", "h|x:1094", "h x:1094", "h\x7f:1", "h\n:1", "h:\u0661", "h:123456", "h", "x" * 300 + ":1"]
)
def test_a_cache_that_the_stream_would_not_take_is_refused(cache, tmp_path):
    answer = command(write_csv(tmp_path / "t.csv"), "--cache", cache, "--start", START_S, "--dry-run")
    assert answer.returncode == 2, answer.stderr
    assert "--cache must be " in answer.stderr


def test_a_cache_that_names_the_longest_folder():
    """`cache=`, the host, `%3A1094`."""
    longest = "x" * (records.LONGEST_NAME - len("cache=%3A1094")) + ":1094"
    assert cache_id.problem(longest) == ""
    assert "256 octets" in cache_id.problem("x" + longest)
    assert cache_id.problem("[2001:db8::1]:1094") == ""
    assert (cache_id.LONGEST_NAME, cache_id.ESCAPED) == (records.LONGEST_NAME, records._ESCAPED)


def test_a_row_that_names_nobody_is_quoted(tmp_path, take, output):
    path = tmp_path / "x.oracleGeneral"
    row = struct.pack("<IQIq", 2**32 - 1, 5, 6, 7)
    path.write_bytes(struct.pack("<IQIq", 1, 2, 3, 4) + row + b"rest")
    take(path, "oracle")
    assert [raw for _, raw in output.letters] == [row, b"rest"]
    assert len(output.records) == 1


def test_who_is_stopped_is_told_all_files_that_are_left(tmp_path):
    done, last, out = write_lines(tmp_path / "a", CMS), write_lines(tmp_path / "c d", PANDA), tmp_path / "out"
    said = stopped("--format", "jobs", done, "-", last, "--output", out, lines=["{}"])
    skip = re.search(r"go on with --skip (\d) - (.*)", said)
    assert skip, said
    assert 1 <= int(skip[1]) <= 4
    assert skip[2] == f"'{last}'"
    assert len(out.read_text().splitlines()) == 1
