"""Files become arrays: every format gives the same, and a row that cannot be used is named."""

import csv
import gzip
import struct
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smartcache.traces import SourceError
from smartcache.training.simulate.trace import MAX_TOTAL_BYTES, read

ROWS = [(0.0, "/b", 7), (1.5, "/a", 3), (1.5, "/b", 7), (9.25, "/ü,c", 2**40)]


def write_csv(path, rows, header=("t", "lfn", "size"), opener=open):
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def write_oracle(path, rows):
    path.write_bytes(b"".join(struct.pack("<IQIq", *row, -1) for row in rows))
    return path


def expect(trace):
    assert trace.objects.tolist() == [0, 1, 0, 2]
    assert trace.sizes.tolist() == [row[2] for row in ROWS]
    assert trace.times.tolist() == [row[0] for row in ROWS]
    assert (len(trace), trace.files, trace.unique_bytes, trace.resized) == (4, 3, 10 + 2**40, 0)


def columns(rows=ROWS):
    return {name: [row[index] for row in rows] for index, name in enumerate(("t", "lfn", "size"))}


@pytest.mark.parametrize("row_group_size", [1, 100])
def test_parquet(tmp_path, row_group_size):
    pq.write_table(pa.table(columns()), tmp_path / "t.parquet", row_group_size=row_group_size)
    expect(read(tmp_path / "t.parquet"))


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_names_of_any_type(tmp_path, kind):
    table = pa.table(columns())
    table = table.set_column(1, "lfn", table["lfn"].cast(kind))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    expect(read(tmp_path / "t.parquet"))


def test_csv_also_compressed(tmp_path):
    expect(read(write_csv(tmp_path / "t.csv", ROWS)))
    expect(read(write_csv(tmp_path / "t.csv.gz", ROWS, opener=gzip.open)))
    content = (tmp_path / "t.csv").read_bytes()
    with pa.OSFile(str(tmp_path / "t.csv.zst"), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(content)
    expect(read(tmp_path / "t.csv.zst"))


def test_csv_columns_in_any_order_and_others_between(tmp_path):
    rows = [(size, "x", lfn, "", t) for t, lfn, size in ROWS]
    expect(read(write_csv(tmp_path / "t.csv", rows, ("size", "site", " lfn", "user", "t"))))


def test_oracle_also_compressed(tmp_path):
    rows = [(0, 5, 7), (1, 2**63, 3), (1, 5, 7)]
    plain = read(write_oracle(tmp_path / "t.oracleGeneral", rows))
    assert plain.objects.tolist() == [0, 1, 0]
    assert plain.sizes.tolist() == [7, 3, 7]
    with pa.OSFile(str(tmp_path / "u.oracleGeneral.zst"), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write((tmp_path / "t.oracleGeneral").read_bytes())
    again = read(tmp_path / "u.oracleGeneral.zst")
    assert again.objects.tolist() == plain.objects.tolist()
    assert again.digest != plain.digest


def test_times_as_text_and_as_timestamps(tmp_path):
    moments = [datetime(2026, 5, 1, 6, tzinfo=UTC), datetime(2026, 5, 1, 7, 30, tzinfo=UTC)]
    rows = [(moment.isoformat(), "/a", 1) for moment in moments]
    seconds = [moment.timestamp() for moment in moments]
    assert read(write_csv(tmp_path / "t.csv", rows, ("time", "lfn", "size"))).times.tolist() == seconds
    pq.write_table(pa.table({"time": pa.array(moments, pa.timestamp("ns")), "lfn": ["/a", "/a"], "size": [1, 1]}), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").times.tolist() == seconds


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, "/a", -1)], r"row 1: size must be an integer of 0 to \d+, not -1"),
        ([(0, "/a", 1), (0, "/a", 1.5)], r"row 2: size must be an integer .*, not 1.5"),
        ([(0, "/a", 1.0), (0, "/a", float("nan"))], "row 2: size must be"),
        ([(0, "/a", 2**62), (0, "/b", 2**62)], "add up to less than"),
        ([(0, "/a", 1), (5, "/b", 1), (4, "/c", 1)], r"row 3: its time 4.0 is before that of row 2, 5.0 \(1 such rows\); .*--sort"),
        ([(0, "/a", 1), (float("inf"), "/b", 1)], "row 2: the time must be a finite number, not inf"),
        ([(0, "", 1)], "row 1: lfn must not be empty"),
        ([(0, "/a", 1), (1, None, 1)], "row 2: lfn is missing"),
        ([(0, "/a", 1), (None, "/a", 1)], "row 2: t is missing"),
        ([(0, "/a", 0), (1, "/b", 0)], "every size is 0"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, rows, said):
    pq.write_table(pa.table(columns(rows)), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=rf"t\.parquet: .*{said}"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, "/a", "x")], r"row 1: size must be an integer .*, not 'x'"),
        ([(0, "/a", 1), (0, "/a", 2**64)], "row 2: size must be"),
        ([(0, "/a", 1), ("noon", "/a", 1)], "row 2: the time must be seconds or ISO 8601, not 'noon'"),
        ([(0, "/a", 1), (0, "", 1)], "row 2: lfn is missing"),
        ([(0, "/a", 1), (0, "/b")], "Expected 3 columns, got 2"),
    ],
)
def test_the_same_of_a_csv(tmp_path, rows, said):
    with pytest.raises(SourceError, match=rf"t\.csv: .*{said}"):
        read(write_csv(tmp_path / "t.csv", rows))


def test_a_size_of_uint64_is_held_to_the_same_rule(tmp_path):
    pq.write_table(pa.table({"t": [0], "lfn": ["/a"], "size": pa.array([2**63 + 1], pa.uint64())}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=f"row 1: size must be an integer of 0 to {MAX_TOTAL_BYTES}, not {2**63 + 1}"):
        read(tmp_path / "t.parquet")


def test_missing_columns_and_what_may_be_meant(tmp_path):
    path = write_csv(tmp_path / "t.csv", [], ("timestamp", "LFN", "file_size"))
    with pytest.raises(SourceError, match=r"column lfn, size, time \(or t\) is missing; it has timestamp, LFN, file_size") as error:
        read(path)
    assert str(error.value).endswith("; did you mean 'LFN' by lfn, 'file_size' by size, 'timestamp' by time?")


def test_an_empty_trace(tmp_path):
    pq.write_table(
        pa.table({"t": pa.array([], pa.float64()), "lfn": pa.array([], pa.string()), "size": pa.array([], pa.int64())}),
        tmp_path / "t.parquet",
    )
    write_csv(tmp_path / "t.csv", [])
    (tmp_path / "t.oracleGeneral").touch()
    for name in ("t.parquet", "t.csv", "t.oracleGeneral"):
        with pytest.raises(SourceError, match="has no requests"):
            read(tmp_path / name)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv.gz", "t.oracleGeneral.zst", "t.csv.zst"])
def test_a_file_of_another_kind(tmp_path, name):
    (tmp_path / name).write_bytes(b"neither of these\n" * 9)
    with pytest.raises(SourceError, match=name.replace(".", r"\.")):
        read(tmp_path / name)


def test_a_name_that_does_not_tell(tmp_path):
    (tmp_path / "t.dat").touch()
    with pytest.raises(SourceError, match="its name does not tell"):
        read(tmp_path / "t.dat")


def test_a_file_that_is_cut(tmp_path):
    path = write_oracle(tmp_path / "t.oracleGeneral", [(0, 1, 1), (1, 2, 1)])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SourceError, match="row 2: 23 bytes are left"):
        read(path)
    whole = write_csv(tmp_path / "t.csv.gz", [(number, f"/{number}", 1) for number in range(1000)], opener=gzip.open)
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"t\.csv\.gz"):
        read(whole)


def test_sorting_keeps_ties_and_counts_files_in_the_new_order(write):
    trace = read(write(["/late", "/x", "/y", "/x"], [4, 1, 2, 1], [9.0, 5.0, 5.0, 1.0]), sort=True)
    assert trace.times.tolist() == [1, 5, 5, 9]
    assert trace.objects.tolist() == [0, 0, 1, 2]
    assert trace.sizes.tolist() == [1, 1, 2, 4]


def test_groups_are_the_folders_of_the_names(write):
    path = write(["/b/2", "/a/x/1", "/b/1", "plain", "/a/x/1", "/a/1"], times=[0, 1, 2, 3, 4, 5])
    assert read(path).groups.tolist() == [0, 1, 0, 2, 3]
    path = write(["/b/2", "/a/x/1", "/b/1", "/c/1"], times=[3, 2, 1, 0])
    assert read(path, sort=True).groups.tolist() == [2, 0, 1, 0]  # of /c/1, /b/1, /a/x/1, /b/2


def test_a_size_that_changes_counts_with_the_largest(write):
    trace = read(write(["/a", "/b", "/a", "/a"], [5, 1, 9, 7]))
    assert (trace.resized, trace.unique_bytes) == (1, 10)
    assert trace.capacity(0.5) == 5


def test_the_development_traces(development_traces):
    for path in sorted(development_traces.glob("*.parquet")):
        trace = read(path)
        assert trace.files == trace.objects.max() + 1 == len(np.unique(trace.objects))
        assert trace.unique_bytes <= trace.sizes.sum()
