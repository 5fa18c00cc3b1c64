"""The spool where its disk gives errors or is not mounted, or was full when the collector was killed."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from test_spool import Place, drain, frame

from smartcache.ingestion import numbering, segment
from smartcache.ingestion.numbering import Numbering
from smartcache.ingestion.spool import SpoolError


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "spool")


@pytest.fixture
def bad_disk(monkeypatch):
    """Files whose bytes from an offset on the disk does not give. Only a disk can do that, so the call is replaced for these."""
    bad = {}
    pread = os.pread

    def read(descriptor, size, offset):
        begin = bad.get(str(Path(f"/proc/self/fd/{descriptor}").readlink()), offset + size)
        if offset >= begin:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, min(size, begin - offset), offset)

    monkeypatch.setattr(os, "pread", read)
    monkeypatch.setattr("smartcache.ingestion.spool.READ_AGAIN_S", 0.0)
    return bad


def filled(place, frames, **settings):
    """A spool with these frames whose collector was killed."""
    spool = place.open(**settings)
    for each in frames:
        assert spool.append(each)
    place.die(spool)


@pytest.mark.parametrize("begin", [0, 30, 1000])
def test_a_segment_that_the_disk_does_not_give_at_the_start_is_kept_and_read_later(place, bad_disk, begin):
    frames = [frame(number) for number in range(40)]
    filled(place, frames)
    path = place.segments()[1]
    before = place.segments()[0].stat().st_size // len(segment.encode(frames[0]))
    bad_disk[str(path)] = begin
    again = place.open()
    assert [text for text in place.said if f"{path} cannot be read (Input/output error)" in text]
    readable = before + begin // len(segment.encode(frames[0]))
    assert [again.read()[0] for _ in range(readable)] == frames[:readable]
    assert again.read() is None
    assert again.trouble == "cannot be read: Input/output error"
    assert again.append(frame(40))
    bad_disk.clear()
    assert drain(again) == [*frames[readable:], frame(40)]
    assert not place.lost
    assert not list(place.folder.glob("*.corrupt"))


def test_a_disk_error_while_all_is_to_be_sent_again_loses_nothing(place, bad_disk):
    frames = [frame(number) for number in range(40)]
    spool = place.open()
    for each in frames:
        spool.append(each)
    assert drain(spool, acknowledge=False) == frames
    bad_disk[str(place.segments()[0])] = 0
    spool.rewind()
    assert spool.read() is None
    bad_disk.clear()
    assert drain(spool) == frames
    assert not place.lost


def test_a_file_of_which_nothing_can_be_said_is_named(place, monkeypatch):
    """As where the folder's own block is damaged; only a disk can do that."""
    filled(place, [frame(number) for number in range(40)])
    path, stat = place.segments()[1], os.stat

    def no_stat(where, **options):
        if os.fspath(where) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(where, **options)

    monkeypatch.setattr(os, "stat", no_stat)
    with pytest.raises(SpoolError, match=rf"cannot be used \(Input/output error: {path}\).*\[spool\] dir"):
        place.open()
    monkeypatch.undo()
    place.open().close()


def test_an_unreadable_position_sends_all_again(place, monkeypatch):
    spool = place.open()
    for number in range(5):
        spool.append(frame(number))
    spool.acknowledge(spool.read()[1])
    spool.close()
    (place.folder / "position").unlink()
    (place.folder / "position").mkdir()
    assert drain(place.open()) == [frame(number) for number in range(5)]
    assert "position cannot be read (Is a directory): all that is in the spool is sent again" in place.said[0]


@pytest.mark.parametrize("small", [64, 1 << 16])
def test_counting_from_header_to_header_is_the_same_however_much_is_read_at_once(place, monkeypatch, small):
    monkeypatch.setattr(segment, "_AT_ONCE", small)
    frames = [frame(number, size=number * 37 % 3000) for number in range(40)]
    path = place.folder.with_name("one.spool")
    raws = [segment.encode(each) for each in frames]
    path.write_bytes(b"".join(raws))
    assert segment.survey(path) == segment.Survey(0, sum(map(len, raws)), {"gstream": 120}, None)
    behind = sum(map(len, raws[:7]))
    assert segment.survey(path, behind + 1) == segment.Survey(behind, sum(map(len, raws)), {"gstream": 99}, None)
    for left in (len(raws[-1]) - 1, 52, 51, 1):
        os.truncate(path, sum(map(len, raws[:-1])) + left)
        found = segment.survey(path)
        assert (found.end, found.records) == (sum(map(len, raws[:-1])), {"gstream": 117})
        assert isinstance(found.problem, segment.Torn)


def test_what_the_producer_had_when_the_full_spool_dropped_it_is_counted_after_a_kill_9(place):
    spool = place.open(max_bytes=16_384)
    frames = [frame(number, "gstream" if number % 2 else "fstream") for number in range(200)]
    for each in frames[:25]:
        spool.append(each)
    sent = [spool.read() for _ in range(20)]
    spool.acknowledge(sent[4][1])
    for each in frames[25:]:
        spool.append(each)
    place.die(spool)
    unread = Counter(place.lost)
    again = place.open(max_bytes=16_384)
    rest = drain(again)
    assert rest == frames[-len(rest) :]
    gone = frames[5 : len(frames) - len(rest)]
    assert unread == {(stream, "spool_full"): sum(3 for each in gone[15:] if each.stream == stream) for stream in ("gstream", "fstream")}
    assert place.lost == {(stream, "spool_full"): sum(3 for each in gone if each.stream == stream) for stream in ("gstream", "fstream")}
    assert "45 records that had been dropped from it" in place.said[-1]
    place.die(again)
    lost = Counter(place.lost)
    drain(place.open(max_bytes=16_384))
    assert place.lost == lost, "they are counted once"


@pytest.mark.parametrize("then", ["acknowledged", "withdrawn", "closed"])
def test_what_the_full_spool_dropped_is_no_news_after_it_was_delivered_or_counted(place, then):
    """Who takes records away from the producer, or ends, counts those that are on disk no more."""
    spool = place.open(max_bytes=16_384)
    for number in range(5):
        spool.append(frame(number))
    sent = [spool.read() for _ in range(5)]
    for number in range(5, 200):
        spool.append(frame(number))
    lost = Counter(place.lost)
    if then == "acknowledged":
        spool.acknowledge(sent[-1][1])
        spool.tick(1.0)
    elif then == "withdrawn":
        spool.rewind()
        spool.tick(1.0)
    else:
        spool.close()
    if then != "closed":
        place.die(spool)
    place.open(max_bytes=16_384)
    assert place.lost == lost


def test_what_kafka_acknowledged_is_written_not_what_the_full_spool_dropped(place):
    """So the dropped records that Kafka takes after all are counted by nobody, and the others by the next start."""
    spool = place.open(max_bytes=16_384)
    for number in range(25):
        spool.append(frame(number))
    sent = [spool.read() for _ in range(20)]
    for number in range(25, 200):
        spool.append(frame(number))
    lost = place.lost["gstream", "spool_full"]
    spool.acknowledge(sent[9][1])
    spool.tick(1.0)
    place.die(spool)
    place.open(max_bytes=16_384)
    assert place.lost["gstream", "spool_full"] == lost + 10 * 3


@pytest.mark.parametrize("how", ["the lock is deleted", "the disk is mounted under another number"])
def test_a_spool_that_is_there_again_is_locked_again(place, how):
    spool = place.open()
    taken = [frame(number) for number in range(10)]  # a whole segment: the next frame begins one
    for each in taken:
        assert spool.append(each)
    if how == "the lock is deleted":
        (place.folder / "lock").unlink()
    else:  # a copy's files have other numbers
        disk = place.folder.rename(place.folder.with_name("disk"))
        shutil.copytree(disk, place.folder)
    taken += [frame(number) for number in range(10, 80)]
    for each in taken[10:]:
        assert spool.append(each)
    assert place.said == [f"the lock of the spool {place.folder} was not ours any more; it is locked anew"]
    with pytest.raises(SpoolError, match="in use by another collector"):
        place.open()
    assert drain(spool) == taken
    assert not place.lost


def test_what_is_taken_after_a_disk_was_exchanged_is_on_the_new_one(place):
    """Copied elsewhere, and that mounted in its place, in the middle of a segment."""
    spool = place.open()
    for number in range(5):
        assert spool.append(frame(number))
    disk = place.folder.rename(place.folder.with_name("disk"))
    shutil.copytree(disk, place.folder)
    spool.tick(1.0)
    assert place.said == [f"the lock of the spool {place.folder} was not ours any more; it is locked anew"]
    for number in range(5, 10):
        assert spool.append(frame(number))
    place.die(spool)
    assert drain(place.open()) == [frame(number) for number in range(10)]
    assert not place.lost


def test_the_numbering_is_where_the_spool_is(place, monkeypatch):
    """A disk that is not mounted for a while, with another folder in its place; then a copy of it."""
    monkeypatch.setattr(numbering, "LOOK_S", 0.0)
    spool = place.open()
    assert spool.append(frame(0))
    kept = Numbering(place.folder / "numbering", place.said.append, 0, spool.has_folder)

    def hears(number):
        kept.moved("gstream", "server", number)
        kept.commit(1)

    hears(1)
    disk = place.folder.rename(place.folder.with_name("disk"))
    place.folder.mkdir()
    hears(2)
    hears(3)
    assert list(place.folder.iterdir()) == []
    place.folder.rmdir()
    shutil.copytree(disk, place.folder)
    hears(4)
    hears(5)
    kept.close()
    place.die(spool)
    assert Numbering(place.folder / "numbering", place.said.append, 0).expected("gstream", "server") == 5
    assert Numbering(disk / "numbering", place.said.append, 0).expected("gstream", "server") == 2  # before it was looked


def test_a_full_spool_whose_disk_was_exchanged_takes_what_comes(place):
    """It is found when what is dropped, and the producer has, is written down."""
    spool = place.open(max_bytes=16_384)
    number = 0
    while spool.held_bytes + len(segment.encode(frame(99))) <= 16_384:
        assert spool.append(frame(number))
        number += 1
    assert number % 10, "there is room in the segment that is open"
    for _ in range(10):
        spool.read()
    disk = place.folder.rename(place.folder.with_name("disk"))
    shutil.copytree(disk, place.folder)
    for each in range(number, 200):
        assert spool.append(frame(each)), each
    assert (place.folder / "position").exists()
    assert not spool.trouble


def test_a_close_that_fails_closes_no_other_file(place, monkeypatch):
    """As on a network's disk, which may say only then that it is full. The number is another file's at once."""
    spool = place.open()
    close, others = os.close, []

    def close_and_fail(descriptor):
        is_segment = os.readlink(f"/proc/self/fd/{descriptor}").endswith(".spool")  # noqa: PTH115
        close(descriptor)
        if is_segment:
            others.append(os.open(os.devnull, os.O_RDONLY))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "close", close_and_fail)
    frames = [frame(number) for number in range(40)]
    for each in frames:
        assert spool.append(each)
    monkeypatch.undo()
    assert others
    for each in others:
        assert os.readlink(f"/proc/self/fd/{each}") == os.devnull  # noqa: PTH115
        close(each)
    assert drain(spool) == frames
    assert not place.lost


def test_a_spool_that_another_collector_has_had_meanwhile_is_left_alone(place):
    """It has stopped since, with Kafka away: what it left has the name that our next segment would have."""
    spool = place.open()
    for number in range(10):
        assert spool.append(frame(number))
    (place.folder / "lock").unlink()
    other = place.open()
    taken = [frame(number) for number in range(10)]
    for number in range(10, 20):
        assert other.append(frame(number))
    place.die(other)
    (place.folder / "lock").unlink()
    late = [number for number in range(20, 80) if spool.append(frame(number))]
    assert len(late) < 20
    assert spool.trouble == "takes no records: No such device"
    place.die(spool)
    found = drain(place.open())
    assert [each for each in found if each in taken] == taken
    assert [each for each in found if each not in taken][-10:] == [frame(number) for number in range(10, 20)]


def test_a_spool_that_another_collector_has_taken_meanwhile_is_left_to_it(place):
    spool = place.open()
    for number in range(10):
        assert spool.append(frame(number))
    (place.folder / "lock").unlink()
    other = place.open()
    taken = [number for number in range(10, 80) if spool.append(frame(number))]
    assert len(taken) < 40
    assert spool.trouble == "takes no records: No such device"
    assert drain(other) == [frame(number) for number in range(10)]


def test_nothing_is_written_beneath_the_place_of_a_disk_that_is_not_mounted(place):
    """A folder of the same name, which this user may write to, stands for the place that a disk is mounted on."""
    spool = place.open()
    taken = [frame(number) for number in range(40)]
    for each in taken:
        assert spool.append(each)
    spool.acknowledge(spool.read()[1])
    disk = place.folder.rename(place.folder.with_name("disk"))
    place.folder.mkdir()
    more = [frame(number) for number in range(40, 80)]
    taken += [each for each in more if spool.append(each)]  # the segment that is open takes what there is room for
    assert len(taken) < 60
    assert spool.trouble == "takes no records: No such device"
    spool.tick(1.0)
    assert list(place.folder.iterdir()) == []
    assert place.said[-1].endswith(f"bring {place.folder} back, or start the collector anew")
    place.folder.rmdir()
    disk.rename(place.folder)
    assert spool.append(frame(80))
    assert drain(spool) == [*taken[1:], frame(80)]
    assert not place.lost
