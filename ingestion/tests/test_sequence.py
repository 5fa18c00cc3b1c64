"""Lost, late, duplicate: told apart, over the wrap too."""

import random

import pytest

from smartcache.ingestion.counters import Counters
from smartcache.ingestion.sequence import MAX_STREAMS, REMEMBERED, Sequence, Sequences, Verdict


def counts(numbers, modulus=1000, fingerprint=None):
    counters = Counters()
    sequences = Sequences("gstream", modulus, counters)
    taken = [n for i, n in enumerate(numbers) if sequences.is_new("one", n, fingerprint(i) if fingerprint else f"packet {n}")]
    lost, late, twice = (counters.get(f"packets_{name}", "gstream") for name in ("lost", "late", "duplicate"))
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


def test_senders_are_bounded():
    counters = Counters()
    sequences = Sequences("gstream", 1000, counters)
    for sender in range(MAX_STREAMS + 10):
        assert sequences.is_new(sender, 1, "")
    assert len(sequences._sequences) == MAX_STREAMS
