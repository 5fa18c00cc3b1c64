"""Lost, late, duplicate: told apart, over the wrap too, and over the collector's end."""

import contextlib
import errno
import os
import random
import resource
import shutil

import pytest

from smartcache.ingestion import numbering, sequence
from smartcache.ingestion.counters import Counters
from smartcache.ingestion.jsontext import INT64_MAX
from smartcache.ingestion.numbering import Numbering
from smartcache.ingestion.sequence import AWAY, CLOCKS_DIFFER_US, MAX_STREAMS, ON_THE_WAY, REMEMBERED, Sequence, Sequences, Verdict

SERVER = ("cache:1094", 1_700_000_000)


def counts(numbers, modulus=1000, fingerprint=None):
    counters = Counters()
    sequences = Sequences("gstream", modulus, 1, counters)
    taken = [n for i, n in enumerate(numbers) if sequences.is_new("one", n, fingerprint(i) if fingerprint else f"packet {n}", 0)]
    lost, late, twice = (counters.total(f"packets_{name}", "gstream") for name in ("lost", "late", "duplicate"))
    return taken, lost, late, twice


@pytest.mark.parametrize(
    ("numbers", "lost", "late", "twice"),
    [
        ([1, 2, 3], 0, 0, 0),
        ([500, 501], 0, 0, 0),  # who starts late has lost nothing
        ([998, 999, 0, 1], 0, 0, 0),
        ([998, 1], 2, 0, 0),
        ([1, 2, 5, 6], 2, 0, 0),
        ([1, 2, 4, 3, 5], 1, 1, 0),
        ([999, 1, 0, 2], 1, 1, 0),
        ([1, 2, 2, 3, 1], 0, 0, 2),
        ([1, 3, 2, 2, 3], 1, 1, 2),
    ],
)
def test_verdicts(numbers, lost, late, twice):
    taken, *judged = counts(numbers)
    assert judged == [lost, late, twice]
    assert len(taken) == len(numbers) - twice


def test_a_thousand_packets_later_the_same_number_is_no_duplicate():
    taken, lost, late, twice = counts([n % 1000 for n in range(3500)], fingerprint=lambda i: i)
    assert (len(taken), lost, late, twice) == (3500, 0, 0, 0)


@pytest.mark.parametrize("modulus", [1000, 256, 0])
@pytest.mark.parametrize("lag", [65, 100, 120])
def test_all_of_it_again_much_later_is_no_loss(modulus, lag):
    """As where a server sends directly, and by way of a shoveler too."""
    numbers = []
    for number in range(1, 3000):
        numbers += [number, *([number - lag] if number > lag else [])]
    wrapped = [number % modulus if modulus else number for number in numbers]
    taken, lost, late, twice = counts(wrapped, modulus, fingerprint=lambda i: numbers[i])
    assert (len(taken), lost, late, twice) == (2999, 0, 0, 2999 - lag)


@pytest.mark.parametrize("modulus", [1000, 256, 0])
def test_a_packet_from_just_before_the_first_is_no_loss(modulus):
    assert counts([200, 198, 199, 201, 198, 202], modulus) == ([200, 198, 199, 201, 202], 0, 0, 1)


def test_a_loss_of_more_than_half_the_range_is_a_loss():
    assert counts([0, 1, 2, 900])[1:] == (897, 0, 0)


def test_shuffled_within_what_is_remembered_nothing_stays_lost():
    generator = random.Random(7)
    numbers = list(range(5000))
    for start in range(1, len(numbers) - 20, 20):
        part = numbers[start : start + 20]
        generator.shuffle(part)
        numbers[start : start + 20] = part
    taken, lost, late, twice = counts([n % 1000 for n in numbers], fingerprint=lambda i: numbers[i])
    assert (len(taken), lost - late, twice) == (5000, 0, 0)
    assert late > 1000


def test_without_a_wrap_a_very_old_number_is_late():
    sequence = Sequence(0)
    for number in range(1, 3 * REMEMBERED):
        assert sequence.observe(number, number).verdict is Verdict.NEXT
    assert sequence.observe(1, 1).verdict is Verdict.LATE


def test_a_loss_of_a_sender_that_was_forgotten_is_counted(tmp_path, monkeypatch):
    """In memory it is; its number is on disk."""
    monkeypatch.setattr(sequence, "MAX_STREAMS", 2)
    life = Life(tmp_path)
    for sender in ("a", "b", "c", "d"):
        life.hears(1, sender=sender)
    assert life.hears(4, sender="a").ends() == [0, 2]


def test_senders_are_bounded():
    counters = Counters()
    sequences = Sequences("gstream", 1000, 1, counters)
    for sender in range(MAX_STREAMS + 10):
        assert sequences.is_new(sender, 1, "", 0)
    assert len(sequences._sequences) == MAX_STREAMS


class Life:
    """One life of a collector, as far as numbers go."""

    def __init__(self, folder, now_us=0, modulus=1000):
        self.said = []
        self.counters = Counters()
        self.folder_is_there = True
        self.numbering = Numbering(folder / "numbering", self.said.append, now_us, lambda: self.folder_is_there)
        self.sequences = Sequences("gstream", modulus, 1, self.counters, self.numbering)

    def hears(self, *numbers, sender=SERVER, start_us=-1, commit=True):
        for number in numbers:
            self.sequences.is_new(sender, number, f"packet {number}", start_us)
        if commit:
            self.numbering.commit(now_us=1)
        return self

    @property
    def lost(self):
        return [self.counters.get("packets_lost", "gstream", cause) for cause in (ON_THE_WAY, AWAY)]

    def ends(self):
        self.numbering.close()
        return self.lost


@pytest.mark.parametrize(
    ("before", "after", "lost"), [((5, 6), (7, 8), 0), ((5, 6), (9, 10), 2), ((998, 999), (1, 2), 1), ((5,), (5,), 999)]
)
def test_what_was_sent_while_no_collector_ran_is_lost(tmp_path, before, after, lost):
    assert Life(tmp_path).hears(*before).ends() == [0, 0]
    assert Life(tmp_path).hears(*after).ends() == [0, lost]


def test_each_sender_is_known_again_over_several_lives(tmp_path):
    senders = [("cache:1094", start) for start in range(50)]
    for life in range(4):
        one = Life(tmp_path)
        for sender in senders:
            one.hears(10 * life, 10 * life + 2 + sender[1] % 3, sender=sender)
        expected = sum(10 - 3 - sender[1] % 3 for sender in senders) if life else 0
        assert one.ends() == [sum(1 + sender[1] % 3 for sender in senders), expected]


def test_what_was_not_in_the_spool_yet_when_the_collector_was_killed_is_lost(tmp_path):
    Life(tmp_path).hears(1, 2).hears(3, 4, commit=False)  # killed: nothing is closed
    assert Life(tmp_path).hears(5).ends() == [0, 2]


def test_a_server_that_began_after_the_collector_owes_every_packet(tmp_path):
    begin, day = 1_000_000_000_000, 86_400_000_000
    assert Life(tmp_path, begin).hears(7, sender="old", start_us=begin - day).ends() == [0, 0]
    later = Life(tmp_path, begin + 2 * day)
    assert later.numbering.since_us == begin
    later.hears(7, sender="clock", start_us=begin + CLOCKS_DIFFER_US)
    assert later.lost == [0, 0]
    later.hears(1, sender="whole", start_us=begin + day)
    assert later.lost == [0, 0]
    later.hears(4, sender="began while away", start_us=begin + day)
    assert later.lost == [0, 3]
    later.hears(3, sender="began now", start_us=begin + 3 * day)
    assert later.ends() == [2, 3]


def test_numbers_of_another_stream_are_others(tmp_path):
    life = Life(tmp_path).hears(5)
    life.ends()
    again = Numbering(tmp_path / "numbering", life.said.append, 0)
    assert (again.expected("gstream", SERVER), again.expected("fstream", SERVER)) == (6, None)


def test_senders_on_disk_are_bounded_and_the_one_heard_longest_ago_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(numbering, "MAX_SENDERS", 8)
    life = Life(tmp_path)
    for sender, number in (*((each, 1) for each in range(8)), (0, 2), (8, 1), (9, 1)):
        life.hears(number, sender=sender)
    life.ends()
    again = Life(tmp_path).numbering
    assert {sender for sender in range(10) if again.expected("gstream", sender)} == {0, *range(3, 10)}
    assert (tmp_path / "numbering").stat().st_size == 9 * 40


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 4000, b"\0" * 400])
def test_a_file_that_is_none_is_begun_anew(tmp_path, damage):
    (tmp_path / "numbering").write_bytes(damage)
    life = Life(tmp_path)
    assert len(life.said) == 1, "an empty file is one that has lost its numbers"
    life.hears(1, 2).ends()
    assert Life(tmp_path).hears(4).ends() == [0, 1]


def test_a_start_writes_nothing_of_what_is_there(tmp_path):
    """So a full disk, or a kill -9 at that moment, costs no numbers."""
    file = tmp_path / "numbering"
    Life(tmp_path).hears(5, sender="a").hears(6, sender="b").ends()
    whole, inode = file.read_bytes(), file.stat().st_ino
    with full_disk():
        life = Life(tmp_path)
    assert (life.said, file.read_bytes(), file.stat().st_ino) == ([], whole, inode)
    assert life.hears(8, sender="a").hears(7, sender="b").ends() == [0, 2]


def test_a_slot_that_was_damaged_is_used_again(tmp_path):
    file = tmp_path / "numbering"
    Life(tmp_path).hears(5, sender="a").hears(6, sender="b").hears(7, sender="c").ends()
    raw = bytearray(file.read_bytes())
    raw[2 * 40 + 3] ^= 1
    file.write_bytes(raw)
    assert Life(tmp_path).hears(1, sender="d").hears(1, sender="e").ends() == [0, 0]
    found = Life(tmp_path).numbering
    assert [found.expected("gstream", sender) for sender in "abcde"] == [6, None, 8, 2, 2]
    assert file.stat().st_size == 5 * 40


def test_any_byte_of_the_file_changed_gives_no_number_that_was_not_written(tmp_path):
    file = tmp_path / "numbering"
    Life(tmp_path).hears(5, sender="a").hears(6, sender="b").ends()
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        found = Life(tmp_path).numbering
        assert found.expected("gstream", "a") in (6, None)
        assert found.expected("gstream", "b") in (7, None)
        found.close()
    for at in range(len(whole)):
        file.write_bytes(whole[:at])
        Life(tmp_path).ends()


def test_without_its_file_the_collector_works_on_and_says_so_once(tmp_path):
    (tmp_path / "numbering").mkdir()
    life = Life(tmp_path).hears(1).hears(3)
    assert life.ends() == [1, 0]
    assert len(life.said) == 1
    assert "numbering cannot be used (Is a directory)" in life.said[0]


@contextlib.contextmanager
def full_disk():
    """A limit on the size of files stands for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def looks_at_once(monkeypatch):
    monkeypatch.setattr(numbering, "LOOK_S", 0.0)


def test_a_full_disk_leaves_no_old_numbers(tmp_path):
    life = Life(tmp_path).hears(1)
    with full_disk():
        assert life.hears(2).hears(3).hears(5).ends() == [1, 0]
    assert len(life.said) == 1
    assert "numbering cannot be used (File too large)" in life.said[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("looks_at_once")
def test_once_a_full_disk_has_room_all_is_written_anew(tmp_path):
    life = Life(tmp_path).hears(7, sender="quiet").hears(1)
    with full_disk():
        life.hears(2).hears(3)
    life.hears(4)
    assert len(life.said) == 2
    assert "is written again" in life.said[1]
    assert life.ends() == [0, 0]
    assert Life(tmp_path).hears(6).hears(9, sender="quiet").ends() == [0, 2]


@pytest.mark.usefixtures("looks_at_once")
@pytest.mark.parametrize("other", [True, False], ids=["with an older file", "empty"])
def test_a_folder_that_was_exchanged_has_the_numbers_of_now(tmp_path, other):
    """As where a disk is mounted again, from a copy. While it is away nothing is written beneath its place, and nothing removed there."""
    folder, away = tmp_path / "spool", tmp_path / "away"
    folder.mkdir()
    life = Life(folder).hears(7, sender="quiet").hears(1)
    shutil.copytree(folder, tmp_path / "older")
    life.hears(2)
    folder.rename(away)
    life.folder_is_there = False
    folder.mkdir()
    (folder / "numbering").write_bytes(b"somebody's")
    life.hears(3).hears(4)
    assert [(each.name, each.read_bytes()) for each in folder.iterdir()] == [("numbering", b"somebody's")]
    shutil.rmtree(folder)
    if other:
        shutil.move(tmp_path / "older", folder)
    else:
        folder.mkdir()
    life.folder_is_there = True
    life.hears(5)
    assert ["cannot be used (it is not in its place any more)" in said for said in life.said] == [True, False]
    assert life.ends() == [0, 0]
    assert Life(folder).hears(6).hears(9, sender="quiet").ends() == [0, 1]


def test_an_error_at_close_is_none_of_the_collectors(tmp_path, monkeypatch):
    """As a network disk that is full or gone may give one. Only a disk can do that, so the call is replaced for this file."""
    life = Life(tmp_path).hears(1)
    ours, close = life.numbering._file, os.close

    def closes(file):
        close(file)
        if file == ours:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", closes)
    with full_disk():
        assert life.hears(2).hears(4).ends() == [1, 0]
    assert len(life.said) == 1


@pytest.mark.usefixtures("looks_at_once")
def test_a_file_that_could_not_be_begun_is_not_there_until_it_can(tmp_path):
    with full_disk():
        life = Life(tmp_path).hears(1)
        assert list(tmp_path.iterdir()) == []
    assert len(life.said) == 1
    assert "numbering cannot be used" in life.said[0]
    assert life.hears(3).ends() == [1, 0]
    assert Life(tmp_path).hears(6).ends() == [0, 2]


def test_a_number_too_large_for_its_slot(tmp_path):
    assert Life(tmp_path, modulus=0).hears(INT64_MAX).ends() == [0, 0]
    assert Life(tmp_path, modulus=0).hears(INT64_MAX).ends() == [0, 0]
