"""The spool on disk: what was taken is there again, in order, whatever happened to the process, the file or the disk."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from smartcache import config
from smartcache.ingestion import segment
from smartcache.ingestion.aside import KEPT
from smartcache.ingestion.segment import Frame
from smartcache.ingestion.spool import Spool, SpoolError


class Place:
    """A spool's folder, and what was said and lost there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.lost: Counter[tuple[str, str]] = Counter()
        self._open: list[Spool] = []

    def open(self, **settings: object) -> Spool:
        values = {"dir": str(self.folder), "max_bytes": 1 << 20, "segment_bytes": 4096, "fsync": "never", **settings}
        spool = Spool(config.Spool.model_validate(values), self.said.append, self._on_lost)
        self._open.append(spool)
        return spool

    def _on_lost(self, stream: str, cause: str, count: int) -> None:
        self.lost[stream, cause] += count

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.spool"))

    def die(self, spool: Spool) -> None:
        """As after a kill -9: nothing is written any more, and the lock is free."""
        os.close(spool._lock)
        spool._lock = os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "spool")


def frame(number: int, stream: str = "gstream", records: int = 3, size: int = 100) -> Frame:
    return Frame(
        stream,
        1_000_000 + number,
        [f"key {number}".encode(), None, b""][:records],
        [b"%d/%d " % (number, each) + b"x" * size for each in range(records)],
    )


def drain(spool: Spool, acknowledge: bool = True) -> list[Frame]:
    found = []
    while (one := spool.read()) is not None:
        found.append(one[0])
        if acknowledge:
            spool.acknowledge(one[1])
    return found


def as_read(frame: Frame) -> Frame:
    return Frame(frame.stream, frame.time_us, list(frame.keys), list(frame.values))


def test_what_goes_in_comes_out_in_order_and_is_deleted(place):
    spool = place.open()
    frames = [frame(number, stream) for number in range(40) for stream in ("gstream", "gstream.dlq")]
    for each in frames:
        assert spool.append(each)
    assert len(place.segments()) > 5
    assert spool.unread == {"gstream": 120, "gstream.dlq": 120}
    assert spool.oldest_unread_us == 1_000_000
    assert drain(spool) == frames
    assert spool.caught_up
    assert spool.unread == {}
    assert len(place.segments()) == 1
    spool.close()
    assert place.segments() == []
    assert not place.said
    assert not place.lost


def test_a_later_collector_goes_on_where_kafka_had_acknowledged(place):
    spool = place.open()
    frames = [frame(number) for number in range(60)]
    for each in frames:
        spool.append(each)
    for _ in range(25):
        _, position = spool.read()
    spool.acknowledge(position)
    spool.tick(1.0)
    for _ in range(10):  # sent, but not acknowledged
        spool.read()
    place.die(spool)

    again = place.open()
    assert again.unread == {"gstream": 35 * 3}
    again.append(frame(60))
    assert drain(again, acknowledge=False) == [*frames[25:], frame(60)]
    again.rewind()
    assert again.unread == {"gstream": 36 * 3}
    assert drain(again) == [*frames[25:], frame(60)]
    assert not place.lost


def test_without_its_position_everything_is_sent_again(place):
    spool = place.open()
    for number in range(5):
        spool.append(frame(number))
    _, position = spool.read()
    spool.acknowledge(position)
    spool.close()
    (place.folder / "position").write_text("999999 deadbeef\n")
    assert drain(place.open()) == [frame(number) for number in range(5)]
    assert "position cannot be read" in place.said[0]


def test_a_position_ahead_of_the_data_hides_nothing_that_comes_later(place):
    """The machine died: the position reached the disk, the last records did not."""
    spool = place.open()
    for number in range(5):
        spool.append(frame(number))
    drain(spool)
    end = spool._end
    spool.tick(1.0)
    place.die(spool)
    os.truncate(place.segments()[0], 500)
    again = place.open()
    assert again.append(frame(7)) > end
    assert drain(again) == [frame(7)]


def test_memory_hands_over_what_was_just_appended(place):
    spool = place.open()
    assert spool.caught_up
    spool.append(frame(0))
    spool.skip(frame(0))
    assert spool.caught_up
    assert spool.read() is None
    spool.append(frame(1))
    assert drain(spool, acknowledge=False) == [frame(1)]
    spool.rewind()
    assert drain(spool) == [frame(0), frame(1)]


def test_full_drops_the_oldest_and_counts_only_what_was_not_read(place):
    spool = place.open(max_bytes=16_384, segment_bytes=4096)
    frames = [frame(number, "gstream" if number % 2 else "fstream") for number in range(200)]
    for each in frames[:5]:
        spool.append(each)
    sent = [spool.read()[0] for _ in range(5)]
    for each in frames[5:]:
        spool.append(each)
    assert spool.held_bytes <= 16_384
    assert sum(path.stat().st_size for path in place.segments()) == spool.held_bytes
    rest = drain(spool)
    assert rest == frames[-len(rest) :]
    assert sent == frames[:5]
    gone = frames[5 : len(frames) - len(rest)]
    assert place.lost == {
        (stream, "spool_full"): sum(len(each.values) for each in gone if each.stream == stream) for stream in ("gstream", "fstream")
    }


@pytest.mark.parametrize("cut", [1, 20, 60, 200])
def test_a_torn_tail_is_cut_off_and_counted(place, cut):
    spool = place.open()
    for number in range(3):
        spool.append(frame(number))
    place.die(spool)
    path = place.segments()[0]
    whole = path.stat().st_size // 3
    os.truncate(path, 2 * whole + cut)
    again = place.open()
    assert path.stat().st_size == 2 * whole
    again.append(frame(9))
    assert drain(again) == [frame(0), frame(1), frame(9)]
    assert place.lost == {("spool", "torn"): 1}
    assert "cut off behind byte" in place.said[0]


def test_zeros_that_a_dead_machine_leaves_are_a_torn_tail(place):
    spool = place.open()
    spool.append(frame(0))
    place.die(spool)
    path = place.segments()[0]
    os.truncate(path, path.stat().st_size + 3000)
    again = place.open()
    assert drain(again) == [frame(0)]
    assert place.lost == {("spool", "torn"): 1}


@pytest.mark.parametrize("where", ["header", "records"])
def test_a_corrupt_segment_is_set_aside_and_the_others_are_delivered(place, where):
    spool = place.open()
    frames = [frame(number) for number in range(30)]
    for each in frames:
        spool.append(each)
    place.die(spool)
    size = len(segment.encode(frames[0]))
    path = place.segments()[1]
    per_segment = path.stat().st_size // size
    raw = bytearray(path.read_bytes())
    raw[size * 2 + (10 if where == "header" else 100)] ^= 0x40
    path.write_bytes(raw)

    again = place.open()
    expected = frames[: per_segment + 2] + frames[2 * per_segment :]
    assert drain(again) == expected
    assert not path.exists()
    assert path.with_suffix(".corrupt").read_bytes() == raw
    assert [text for text in place.said if str(path) in text and "set aside" in text]
    # How many records stood behind a header that cannot be read, nobody knows.
    known = {("gstream", "corrupt"): 3 * (per_segment - 2)} if where == "records" else {}
    assert place.lost == {("spool", "corrupt"): 1, **known}
    again.close()


def test_corruption_of_what_is_being_written_costs_only_what_stands_behind_it(place):
    spool = place.open(segment_bytes=1 << 16)
    for number in range(4):
        spool.append(frame(number))
    size = len(segment.encode(frame(0)))
    with place.segments()[0].open("r+b") as file:
        file.seek(size * 2 + 100)
        file.write(b"\xff\xff")
    assert drain(spool) == [frame(0), frame(1)]
    spool.append(frame(4))
    assert drain(spool) == [frame(4)]
    assert place.lost == {("gstream", "corrupt"): 6, ("spool", "corrupt"): 1}


def test_only_so_many_corrupt_segments_are_kept(place):
    place.folder.mkdir()
    for number in range(KEPT + 3):
        (place.folder / f"{number * 1000:020d}.spool").write_bytes(b"garbage " * 20)
    spool = place.open()
    assert drain(spool) == []
    assert len(list(place.folder.glob("*.corrupt"))) == KEPT
    assert spool.append(frame(1))
    assert drain(spool) == [frame(1)]


def test_a_spool_in_use_is_refused_with_the_way_out(place):
    spool = place.open()
    with pytest.raises(SpoolError, match=rf"in use by another collector \(process {os.getpid()}\).*\[spool\] dir"):
        place.open()
    spool.close()
    place.open().close()


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match=r"cannot be used \(Not a directory\).*\[spool\] dir"):
        Place(tmp_path / "file" / "spool").open()


def test_a_full_disk_costs_only_what_did_not_fit(place, monkeypatch):
    """A limit on the size of a file stands for the disk: the kernel cuts a write short there as it does on a full one."""
    monkeypatch.setattr("smartcache.ingestion.spool.TROUBLE_S", 3600.0)
    spool = place.open(segment_bytes=1 << 19)
    for number in range(3):
        spool.append(frame(number))
    size = place.segments()[0].stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 150, before[1]))
    try:
        assert spool.append(frame(3)) is None
        assert spool.append(frame(4)) is None
        assert spool.trouble
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert place.segments()[0].stat().st_size == size
    assert spool.append(frame(5))
    assert spool.trouble, "a nearly full disk takes this and that"
    monkeypatch.setattr("smartcache.ingestion.spool.TROUBLE_S", 0.0)
    assert spool.append(frame(6))
    assert not spool.trouble
    assert [text for text in place.said if "takes no records" in text and "[spool] dir" in text]
    assert place.said[-1].endswith("takes records again")
    assert len(place.said) == 2
    assert drain(spool) == [frame(0), frame(1), frame(2), frame(5), frame(6)]


@pytest.mark.parametrize("fsync", ["never", "segment", "always"])
def test_what_was_taken_survives_a_kill_9(place, fsync):
    """A process appends and says each position; it is killed in the middle."""
    code = f"""
import sys
from smartcache import config
from smartcache.ingestion.segment import Frame
from smartcache.ingestion.spool import Spool
settings = config.Spool(dir={str(place.folder)!r}, max_bytes=1 << 28, segment_bytes=65536, fsync={fsync!r})
spool = Spool(settings, print, print)
number = 0
while True:
    assert spool.append(Frame("gstream", 1, [b"k"], [b"%d" % number + b" " * 500]))
    print(number, flush=True)
    number += 1
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        taken = -1
        while taken < 500:
            taken = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        taken = max([taken, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
    numbers = [int(value.split()[0]) for each in drain(place.open(max_bytes=1 << 28)) for value in each.values]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > taken


def test_a_frame_of_another_make_is_refused():
    raw = bytearray(segment.encode(frame(1)))
    header = segment.parse_header(bytes(raw), 0, len(raw))
    assert segment.parse_payload(header, bytes(raw[segment.HEADER_BYTES :])) == as_read(frame(1))
    for offset in range(len(raw)):
        changed = bytearray(raw)
        changed[offset] ^= 1
        with pytest.raises(segment.Corrupt):
            segment.parse_payload(segment.parse_header(bytes(changed), 0, len(changed)), bytes(changed[segment.HEADER_BYTES :]))
    for length in range(1, len(raw)):
        with pytest.raises(segment.Torn):
            segment.parse_header(bytes(raw[:length]), 0, length)


def test_what_cannot_be_read_for_a_while_is_no_corruption(place, monkeypatch):
    """No file descriptor is left, as it may be for a moment; the segments are whole."""
    monkeypatch.setattr("smartcache.ingestion.spool.READ_AGAIN_S", 600.0)  # none of it passes between two lines here
    spool = place.open()
    frames = [frame(number) for number in range(200)]
    for each in frames:
        spool.append(each)
    assert len(place.segments()) > 15
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        assert spool.read() is None
        assert spool.resting
        assert not spool.caught_up
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert spool.trouble == "cannot be read: Too many open files"
    assert spool.read() is None, "it is left alone for a while"
    monkeypatch.setattr("smartcache.ingestion.spool.time.monotonic", lambda now=spool._read_at: now)
    assert drain(spool) == frames
    assert not spool.trouble
    assert not place.lost
    assert not list(place.folder.glob("*.corrupt"))
    assert [text.partition(" cannot be read")[1] or text.rpartition(" is ")[2] for text in place.said] == [" cannot be read", "read again"]


def test_a_segment_that_somebody_has_taken_away_holds_up_no_other(place):
    spool = place.open()
    frames = [frame(number) for number in range(40)]
    for each in frames:
        spool.append(each)
    path = place.segments()[0]
    gone = path.stat().st_size // len(segment.encode(frames[0]))
    path.unlink()
    assert drain(spool) == frames[gone:]
    assert place.lost == {("spool", "corrupt"): 1, ("gstream", "corrupt"): 3 * gone}


def test_after_an_error_a_segment_is_looked_for_by_its_name(place, monkeypatch):
    """The error cannot be made here. The old descriptor shows neither that the file was moved away nor that its disk was mounted anew."""
    monkeypatch.setattr("smartcache.ingestion.spool.READ_AGAIN_S", 0.0)
    spool = place.open()
    frames = [frame(number) for number in range(40)]
    for each in frames:
        spool.append(each)
    path = place.segments()[0]
    gone = path.stat().st_size // len(segment.encode(frames[0]))
    assert spool.read()[0] == frames[0]

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as disk:
        disk.setattr(segment, "read", fails)
        assert spool.read() is None
    assert spool.trouble == "cannot be read: Input/output error"
    path.rename(place.folder / "elsewhere")
    assert drain(spool) == frames[gone:]
    assert place.lost == {("spool", "corrupt"): 1, ("gstream", "corrupt"): 3 * (gone - 1)}
    assert not spool.trouble


@pytest.mark.parametrize("other", ["no folder", "an empty one", "one with another lock"])
def test_a_disk_that_is_not_mounted_for_a_while_costs_no_records(place, monkeypatch, other):
    """A folder of the same name stands for the empty one that a disk is mounted on."""
    monkeypatch.setattr("smartcache.ingestion.spool.READ_AGAIN_S", 0.0)
    spool = place.open()
    frames = [frame(number) for number in range(40)]
    for each in frames:
        spool.append(each)
    disk = place.folder.rename(place.folder.with_name("disk"))
    if other != "no folder":
        place.folder.mkdir()
    if other == "one with another lock":
        (place.folder / "lock").touch()
    assert spool.read() is None
    assert spool.read() is None
    assert spool.trouble == "cannot be read: No such file or directory"
    assert len(place.said) == 1
    assert place.said[0].endswith(f"bring {place.folder} back, or start the collector anew")
    if place.folder.exists():
        place.folder.rename(place.folder.with_name("other"))
    disk.rename(place.folder)
    assert drain(spool) == frames
    assert not spool.trouble
    assert not place.lost


def test_what_was_set_aside_counts_and_goes_before_good_records(place):
    spool = place.open(max_bytes=16_384)
    frames = [frame(number) for number in range(20)]
    for each in frames:
        spool.append(each)
    first = place.segments()[0]
    with first.open("r+b") as file:
        file.write(b"garbage")
    behind = first.stat().st_size // len(segment.encode(frames[0]))
    assert [spool.read()[0] for _ in range(3)] == frames[behind : behind + 3]
    spool.acknowledge(spool._next)
    on_disk = lambda: sum(path.stat().st_size for path in place.folder.iterdir() if path.suffix in (".spool", ".corrupt"))  # noqa: E731
    assert list(place.folder.glob("*.corrupt"))
    assert spool.held_bytes == on_disk()
    lost = Counter(place.lost)
    place.die(spool)
    again = place.open(max_bytes=16_384)
    assert again.held_bytes == on_disk()
    more = 20
    while list(place.folder.glob("*.corrupt")):
        assert place.lost == lost, "a good record went before"
        again.append(frame(more))
        more += 1
        assert again.held_bytes == on_disk() <= 16_384
    assert place.lost == lost
