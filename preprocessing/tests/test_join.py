"""The join without Spark: times in seconds after T0, `at` is when a record reaches the join."""

import json
import random
import sys
from dataclasses import replace

import pytest

from smartcache.preprocessing.access import COLUMNS
from smartcache.preprocessing.join import DECISION, MOST_DECISIONS, OPEN, PFC, Outcome, State, Times, advance, match, row_text

T0 = 1_790_000_000
CACHE, LFN = "cache.site:1094", "/store/mc/C/P/T/f.root"
TIMES = Times(grace_ms=60_000, watermark_ms=3_600_000, held_ms=3_600_000, kept_ms=1_209_600_000)


def us(seconds):
    return round((T0 + seconds) * 1_000_000)


def ms(seconds):
    return round((T0 + seconds) * 1_000)


def an_open(file_id, opened, closed, window=10, **more):
    """An f-stream record of an open and close somewhere in windows of `window` seconds."""
    lo = opened // window * window
    close = {} if closed is None else {"close_lo_us": us(closed // window * window), "close_hi_us": us(closed // window * window + window)}
    return OPEN, {
        "record_id": f"{CACHE}/1/2/{file_id}",
        "cache": CACHE,
        "lfn": LFN,
        "open_lo_us": us(lo),
        "open_hi_us": us(lo + window),
        "size": 1000,
        "b_read": 700,
        "b_readv": 50,
        "user": "u",
        **close,
        **more,
    }


def a_decision(seq, t, answer="admit", **more):
    record = {"record_id": f"{CACHE}/7/{seq}", "cache": CACHE, "lfn": LFN, "t_us": us(t), "answer": answer, "reason": "model", "score": 0.5}
    return DECISION, {**record, "probability": 1, "model": "reuse_v1", "on_disk": False, "size": -1, "fill": -1, **more}


def a_pfc(index, attach, detach, **more):
    record = {"record_id": f"{CACHE}/1/3/{index}", "cache": CACHE, "lfn": LFN, "attach_us": us(int(attach)), "detach_us": us(int(detach))}
    return PFC, {**record, "size": 1000, "b_hit": 100, "b_miss": 600, "b_bypass": 0, **more}


class Join:
    """Drives the join as the streaming query does: through the stored form, timers included."""

    def __init__(self, times=TIMES):
        self.times = times
        self.stored = None
        self.wake_ms = self.now_ms = None
        self.rows = []
        self.dropped = {}

    def take(self, at, *records):
        """Records that reach the join at `at`; timers that were due before go first."""
        self.run_timers(ms(at) - 1)
        self._step(ms(at), records)
        return self

    def run_timers(self, until_ms=None):
        while self.wake_ms is not None and (until_ms is None or self.wake_ms <= until_ms):
            self._step(self.wake_ms, [])
        return self

    def until(self, at):
        return self.run_timers(ms(at))

    def restart(self, at, *records):
        """The first batch after the stream was away: no timer has fired since, and the records are not all that piled up."""
        self._step(ms(at), records)
        return self

    def _step(self, now_ms, records):
        self.now_ms = now_ms
        state = State.from_json(json.loads(self.stored)) if self.stored else State()
        outcome: Outcome = advance(state, records, now_ms, self.times, lambda lfn: "/store/mc/C/P/T", self.wake_ms)
        self.stored = None if state.empty else json.dumps(state.to_json())
        self.wake_ms = outcome.wake_ms
        assert outcome.wake_ms is None or outcome.wake_ms > now_ms, "would fire for ever"
        assert (outcome.wake_ms is None) == state.empty
        self.rows += outcome.rows
        for name, count in outcome.dropped.items():
            self.dropped[name] = self.dropped.get(name, 0) + count


def test_all_three_make_a_row_at_once():
    join = Join().take(3, a_decision(1, 3.25)).take(25, an_open(5, 3, 14), a_pfc(0, 3.3, 14))
    (row,) = join.rows
    assert set(row) == {name for name, _ in COLUMNS}
    assert row["open_us"] == row["t_us"] == us(3.25)
    assert row["close_us"] == us(20)
    assert (row["b_read"], row["b_hit"], row["b_miss"], row["b_bypass"]) == (750, 100, 600, 0)
    assert (row["answer"], row["reason"], row["model"], row["score"], row["probability"]) == ("admit", "model", "reuse_v1", 0.5, 1.0)
    assert (row["decision_id"], row["pfc_id"], row["known_size"]) == (f"{CACHE}/7/1", f"{CACHE}/1/3/0", -1)
    assert row["dataset"] == "/store/mc/C/P/T"
    assert json.loads(row_text(row)) == {name: value for name, value in row.items() if value is not None} | {"day": str(row["day"])}
    assert join.dropped == {}


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
def test_order_of_arrival_does_not_matter(order):
    records = [an_open(5, 3, 14), a_decision(1, 3.25), a_pfc(0, 3.3, 14)]
    join = Join()
    for step, index in enumerate(order):
        join.take(20 + step * 10, records[index])
    (row,) = join.rows
    assert row["decision_id"]
    assert row["pfc_id"]


def test_pfc_record_within_the_grace_is_waited_for():
    join = Join().take(3, a_decision(1, 3.25)).take(20, an_open(5, 3, 14))
    assert join.rows == []
    join.take(79.9, a_pfc(0, 3.3, 14))
    assert join.rows[0]["pfc_id"]


def test_row_without_pfc_record_is_written_when_the_grace_is_over():
    join = Join().take(3, a_decision(1, 3.25)).take(20, an_open(5, 3, 14)).until(79.9)
    assert join.rows == []
    join.until(80)
    (row,) = join.rows
    assert row["decision_id"]
    assert row["pfc_id"] is row["b_hit"] is row["b_miss"] is row["b_bypass"] is None


def test_what_comes_late_to_the_stream_waits_longer_for_the_rest():
    """After four hours it finds the pfc record half an hour after the open; an open of a week ago waits as long as all is remembered."""
    away = 4 * 3600
    join = Join().take(away, a_decision(1, 3.2)).take(away, an_open(5, 3, 14, recv_us=us(20)))
    assert join.until(away + 1800).rows == []
    (row,) = join.take(away + 1800, a_pfc(0, 3.3, 14)).rows
    assert row["pfc_id"]
    assert join.dropped == {}
    week = 7 * 86_400
    join = Join().take(week, an_open(5, 3, 14, recv_us=us(20)))
    assert join.until(week + 3599).rows == []
    assert len(join.until(week + 3600).rows) == 1
    # A clock of the collector that is ahead changes nothing.
    assert len(Join().take(20, an_open(5, 3, 14, recv_us=us(1000))).until(20 + 60).rows) == 1


def test_answers_wait_for_opens_that_are_read_much_later_than_they():
    """Where the stream was away, one topic may have piled up more than another."""
    day = 86_400
    join = Join().take(day, a_decision(1, 3.2, recv_us=us(4))).until(day + 2 * 3600)
    (row,) = join.take(day + 2 * 3600, an_open(5, 3, 14, recv_us=us(20))).until(day + 4 * 3600).rows
    assert row["decision_id"]
    assert join.dropped == {}


@pytest.mark.parametrize("away", [0.9, 1.5, 24], ids="{} h".format)
@pytest.mark.parametrize("held", [0.05, 0.6])
def test_an_outage_does_not_count_for_what_waits(away, held):
    """Answered before the stream went away, closed meanwhile, and read when nearly all that piled up is: not in the first batch."""
    back = (0.1 + away) * 3600
    opened = an_open(5, 3, held * 3600, recv_us=us(held * 3600 + 9))
    join = Join().take(3, a_decision(1, 3.25, recv_us=us(4))).until(0.1 * 3600).restart(back)
    (row,) = join.take(back + away * 3600 / 5, opened, a_pfc(0, 3.3, held * 3600)).rows
    assert (row["decision_id"], row["pfc_id"]) == (f"{CACHE}/7/1", f"{CACHE}/1/3/0")
    assert join.run_timers().dropped == {}
    assert join.stored is None


@pytest.mark.parametrize("away", [100, 600, 850, 7155], ids="{} s".format)
def test_an_open_that_waited_before_an_outage_waits_for_the_rest_after_it(away):
    """The pfc record was received when the stream had just gone, and is not in its first batch after that."""
    join = Join().take(4, a_decision(1, 3.25, recv_us=us(4))).take(20, an_open(5, 3, 14, recv_us=us(20))).until(45).restart(45 + away)
    assert join.rows == []
    (row,) = join.take(45 + away + max(30, away / 5), a_pfc(0, 3.3, 14, recv_us=us(45))).rows
    assert row["pfc_id"]


def test_a_batch_that_is_a_little_late_writes_what_was_due():
    join = Join().take(20, an_open(5, 3, 14, recv_us=us(20))).restart(80 + 59)
    assert len(join.rows) == 1


@pytest.mark.parametrize("batch_s", [130, 200, 1000, 3600, 36_000])
def test_a_row_is_written_however_long_each_batch_takes(batch_s):
    join = Join().take(20, an_open(5, 3, 14, recv_us=us(20)))
    for batch in range(1, 7):
        join.restart(20 + batch * batch_s)
    assert len(join.rows) == 1


@pytest.mark.parametrize("batch_s", [1000, 3600, 36_000])
def test_what_waits_for_nothing_is_forgotten_however_long_each_batch_takes(batch_s):
    join = Join().take(3, a_decision(1, 3.25, recv_us=us(3)), a_pfc(0, 3.3, 4, recv_us=us(3)))
    for batch in range(1, 16):
        assert join.dropped == {} or batch > 3
        join.restart(3 + batch * batch_s)
    assert join.dropped == {"unmatched_decisions": 1, "unmatched_pfcs": 1}


def test_state_of_an_earlier_version_is_read():
    opened, decision = (record for _, record in (an_open(5, 3, 14, recv_us=us(20)), a_decision(1, 3.25)))
    join = Join()
    join.stored, join.wake_ms = (
        json.dumps({"v": 1, "opens": [[ms(7220), opened]], "decisions": [[ms(7220), decision]], "seen": {}}),
        ms(9020),
    )
    assert join.until(7220 + 60 + 1799).rows == []
    (row,) = join.until(7220 + 60 + 1800).rows
    assert row["decision_id"]


def test_late_pfc_record_changes_no_row_and_is_counted_once():
    join = Join().take(3, a_decision(1, 3.25)).take(20, an_open(5, 3, 14)).take(81, a_pfc(0, 3.3, 14)).run_timers()
    assert len(join.rows) == 1
    assert join.rows[0]["pfc_id"] is None
    assert join.dropped == {"unmatched_pfcs": 1}
    assert join.stored is None, "nothing is remembered for ever"


def test_late_decision_is_not_the_next_opens():
    """Its open was written without it; the next open of the file is half an hour on."""
    join = (
        Join()
        .take(20, an_open(5, 3, 14))
        .take(85, a_decision(1, 3.25))
        .take(1820, an_open(6, 1803, 1814), a_pfc(1, 1803, 1814))
        .run_timers()
    )
    assert [row["decision_id"] for row in join.rows] == [None, None]
    assert join.dropped == {"unmatched_decisions": 1}


def test_bypass_waits_for_no_pfc_record():
    join = Join().take(3, a_decision(1, 3.25, "bypass")).take(20, an_open(5, 3, 14))
    (row,) = join.rows
    assert (row["b_hit"], row["b_miss"], row["b_bypass"], row["pfc_id"]) == (0, 0, 750, None)


def test_bypassed_open_leaves_the_pfc_record_to_the_admitted_one():
    records = [an_open(5, 1, 3), an_open(6, 4, 8), a_decision(1, 1.5, "bypass"), a_decision(2, 4.5), a_pfc(0, 4.6, 8)]
    join = Join().take(20, *records)
    bypassed, admitted = join.rows
    assert (bypassed["answer"], bypassed["pfc_id"]) == ("bypass", None)
    assert (admitted["answer"], admitted["pfc_id"]) == ("admit", f"{CACHE}/1/3/0")


def test_of_overlapping_opens_the_first_gets_decision_and_pfc_record():
    """Two clients, one life of the File object, Decide asked once."""
    join = Join().take(3, a_decision(1, 3.25)).take(70, an_open(6, 25, 62)).take(90, an_open(5, 3, 84), a_pfc(0, 3.3, 84)).until(300)
    first, second = sorted(join.rows, key=lambda row: row["open_id"])
    assert (first["decision_id"], first["pfc_id"]) == (f"{CACHE}/7/1", f"{CACHE}/1/3/0")
    assert (second["answer"], second["t_us"], second["pfc_id"]) == (None, None, None)
    assert second["open_us"] == us(20), "nothing says more than the f-stream's window"


def test_overlapping_opens_in_one_window_go_by_the_servers_file_id():
    join = Join().take(20, an_open(10, 4, 14), an_open(9, 3, 14), a_decision(1, 3.25), a_pfc(0, 3.3, 14)).until(300)
    by_id = {row["open_id"].rpartition("/")[2]: row for row in join.rows}
    assert by_id["9"]["decision_id"]
    assert by_id["10"]["decision_id"] is None


def test_pfc_record_that_outlives_the_first_client_is_not_the_second_ones():
    """A closes and its grace passes, B keeps the File object alive: the record comes late and belongs to A's open."""
    join = Join().take(3, a_decision(1, 3.25)).take(20, an_open(5, 3, 14)).take(200, an_open(6, 12, 190), a_pfc(0, 3.3, 190)).until(500)
    assert [row["pfc_id"] for row in join.rows] == [None, None]


def test_opens_one_after_another_in_one_window_each_get_their_own():
    records = [an_open(5, 1, 2), an_open(6, 4, 5), an_open(7, 7, 8)]
    records += [a_decision(1, 1.1), a_decision(2, 4.1), a_decision(3, 7.1), a_pfc(0, 1.2, 2), a_pfc(1, 4.2, 5), a_pfc(2, 7.2, 8)]
    for seed in range(20):
        random.Random(seed).shuffle(records)
        join = Join().take(20, *records)
        got = [(row["open_id"][-1], row["decision_id"][-1], row["pfc_id"][-1]) for row in join.rows]
        assert got == [("5", "1", "0"), ("6", "2", "1"), ("7", "3", "2")]


def test_pfc_record_with_the_decision_of_its_open_goes_there():
    """The first open's record was lost: the second one's must not slip forward."""
    records = [an_open(5, 1, 2), an_open(6, 8, 9), a_decision(1, 1.1), a_decision(2, 8.1), a_pfc(1, 8.2, 9)]
    rows = Join().take(20, *records).until(300).rows
    assert {row["open_id"][-1]: row["pfc_id"] for row in rows} == {"5": None, "6": f"{CACHE}/1/3/1"}


def test_duplicates_are_dropped_before_and_after_the_row():
    join = Join().take(3, a_decision(1, 3.25), a_decision(1, 3.25)).take(20, an_open(5, 3, 14), an_open(5, 3, 14), a_pfc(0, 3.3, 14))
    join.take(21, an_open(5, 3, 14), a_pfc(0, 3.3, 14), a_decision(1, 3.25)).take(3000, an_open(5, 3, 14)).run_timers()
    assert len(join.rows) == 1
    assert join.dropped == {"duplicates": 6}


@pytest.mark.parametrize(("back", "behind"), [(3700, 0), (3700, 30), (7200, 0), (7200, 3000), (86_400, 20_000)])
def test_a_duplicate_behind_an_outage_makes_no_second_row(back, behind):
    """The collector repeats after a failure; the second copy lies in Kafka while the stream is away for longer than ids are remembered."""
    again = an_open(5, 3, 14, recv_us=us(60))
    join = Join().take(3, a_decision(1, 3.25)).take(20, an_open(5, 3, 14), a_pfc(0, 3.3, 14))
    join = join.restart(back).take(back + behind, again) if behind else join.restart(back, again)
    join.run_timers()
    assert len(join.rows) == 1
    assert join.dropped == {"duplicates": 1}
    assert join.stored is None, "nothing is remembered for ever"


def test_a_duplicate_behind_an_outage_makes_no_second_row_where_younger_ids_are_remembered_too():
    join = Join().take(3, a_decision(1, 3.25)).take(20, an_open(5, 3, 14), a_pfc(0, 3.3, 14))
    join.take(3500, a_decision(2, 3490)).take(3520, an_open(6, 3490, 3510), a_pfc(1, 3490.1, 3510))
    join.restart(7000, a_decision(3, 6990)).take(7030, an_open(5, 3, 14)).run_timers()
    assert len(join.rows) == 2
    assert join.dropped == {"duplicates": 1, "unmatched_decisions": 1}


def test_a_duplicate_in_the_batch_that_would_forget_its_id_makes_no_second_row():
    join = Join().take(20, an_open(5, 3, 14), a_decision(1, 3.25), a_pfc(0, 3.3, 14)).restart(3620 + 59, an_open(5, 3, 14)).run_timers()
    assert (len(join.rows), join.dropped) == (1, {"duplicates": 1})


@pytest.mark.parametrize("batch_s", [1000, 5000, 36_000])
def test_ids_are_forgotten_however_long_each_batch_takes(batch_s):
    join = Join().take(20, an_open(5, 3, 14), a_decision(1, 3.25), a_pfc(0, 3.3, 14))
    for batch in range(1, 10):
        if join.wake_ms is not None and join.wake_ms <= ms(20 + batch * batch_s):
            join.restart(20 + batch * batch_s)
    assert join.stored is None


def test_a_file_may_be_open_for_longer_than_records_are_late():
    times = replace(TIMES, held_ms=86_400_000)
    join = Join(times).take(3, a_decision(1, 3.25), a_pfc(7, 9, 12)).until(70_000)
    assert join.dropped == {"unmatched_pfcs": 1}, "its close has come long ago"
    (row,) = join.take(80_000, an_open(5, 3, 79_990), a_pfc(0, 3.3, 79_990)).rows
    assert row["decision_id"]
    join = Join(times).take(3, a_decision(1, 3.25)).until(86_402)
    assert join.dropped == {}
    assert join.until(86_403).dropped == {"unmatched_decisions": 1}


def test_answers_of_a_file_whose_cache_sends_no_f_stream_are_bounded():
    count = MOST_DECISIONS + 5
    join = Join().take(3, *(a_decision(seq, 1 + seq / count) for seq in range(count)))
    assert join.dropped == {"unmatched_decisions": 5}
    (row,) = join.take(10, an_open(5, 1, 2), a_pfc(0, 1.5, 2)).rows
    assert row["decision_id"] == f"{CACHE}/7/5", "the oldest were dropped"
    assert join.run_timers().dropped["unmatched_decisions"] == count - 1


def test_what_is_years_late_is_not_kept_for_years():
    """Of a server and a collector whose clocks were wrong; or a topic that was put back from a copy."""
    old = us(-100_000_000)
    join = Join().take(3, a_decision(1, -100_000_000, recv_us=old), a_pfc(0, -100_000_000, -99_999_990, recv_us=old)).run_timers()
    assert join.dropped == {"unmatched_decisions": 1, "unmatched_pfcs": 1}
    assert join.now_ms <= ms(3) + TIMES.kept_ms // 4 + TIMES.watermark_ms


def test_decision_without_open_is_dropped_after_the_watermark_and_counted():
    join = Join().take(3, a_decision(1, 3.25)).until(3602)
    assert join.dropped == {}
    join.until(3603)
    assert join.dropped == {"unmatched_decisions": 1}
    join.run_timers()
    assert join.stored is None


def test_decision_waits_for_an_open_that_lasts_long():
    join = Join().take(3, a_decision(1, 3.25)).take(3500, an_open(5, 3, 3490), a_pfc(0, 3.3, 3490))
    assert join.rows[0]["decision_id"]


def test_without_a_plugin_the_pfc_record_gives_the_time():
    join = Join().take(40, an_open(5, 13, 24), a_pfc(0, 13.9, 24)).until(300)
    (row,) = join.rows
    assert row["open_us"] == us(13)
    assert row["answer"] is None


def test_attach_a_clock_tick_before_the_window_is_not_the_opens_time():
    join = Join().take(40, an_open(5, 10, 24, size=None), a_pfc(0, 9, 24)).until(300)
    (row,) = join.rows
    assert row["pfc_id"]
    assert (row["open_us"], row["size"]) == (us(10), 1000)


def test_open_that_was_never_closed():
    join = Join().take(3, a_decision(1, 3.25)).take(500, an_open(5, 3, None, b_read=None, b_readv=None)).until(560)
    (row,) = join.rows
    assert (row["close_us"], row["b_read"]) == (None, None)
    assert row["decision_id"]


def test_an_id_of_any_text_is_no_number():
    """A number of so many digits is an error of Python's, which would end the stream for ever."""
    records = [an_open("9" * 5000, 3, 14), an_open("\u0663", 3, 14), an_open("x", 3, 14)]
    assert len(Join().take(20, *records).until(300).rows) == 3


@pytest.mark.parametrize(("t", "fits"), [(-1.0, True), (-1.01, False), (11.0, True), (11.01, False)])
def test_edges_of_the_decisions_window(t, fits):
    (found,) = match([an_open(5, 3, 14)[1]], [a_decision(1, t)[1]], [])
    assert (found[0] is not None) is fits


def test_decision_after_the_close_is_not_the_opens():
    opened = an_open(5, 3, 4)[1] | {"close_hi_us": us(5)}
    assert match([opened], [a_decision(1, 6.5)[1]], []) == [(None, None)]


def test_pfc_record_that_ends_before_the_close_is_not_the_opens():
    assert match([an_open(5, 3, 24)[1]], [], [a_pfc(0, 3, 18)[1]]) == [(None, None)]


def test_day_is_of_the_open_in_utc():
    midnight = 86_400 - T0 % 86_400
    records = [an_open(5, midnight - 1, midnight + 5, window=1), a_decision(1, midnight - 0.5), a_pfc(0, midnight - 0.4, midnight + 5)]
    (row,) = Join().take(midnight + 10, *records).rows
    assert row["day"].isoformat() == "2026-09-21"


def test_restart_repeats_a_batch_to_the_letter():
    """The state store hands the batch the state it began with, the offset log the same records and clock."""
    join = Join().take(3, a_decision(1, 3.25))
    before = join.stored
    outcomes = []
    for _ in range(2):
        state = State.from_json(json.loads(before))
        outcome = advance(state, [an_open(5, 3, 14), a_pfc(0, 3.3, 14)], ms(20), TIMES, str)
        outcomes.append((outcome, json.dumps(state.to_json())))
    assert outcomes[0] == outcomes[1]


def test_a_file_that_is_opened_very_often_costs_as_much_for_each_open():
    """Opens that were not read for long come in one batch. Four times as many cost 16 times as much where each is held against each."""

    def lines_run(count):
        records = [
            record
            for n in range(count)
            for record in (an_open(n, n * 20, n * 20 + 5), a_decision(n, n * 20 + 1), a_pfc(n, n * 20 + 1.2, n * 20 + 5))
        ]
        join, lines = Join(), 0

        def look(frame, event, _):
            nonlocal lines
            lines += event == "line"
            return look

        before = sys.gettrace()
        sys.settrace(look)
        try:
            join.take(count * 20 + 100, *records)
        finally:
            sys.settrace(before)
        assert sum(bool(row["decision_id"] and row["pfc_id"]) for row in join.rows) == count
        return lines

    assert lines_run(1000) < 6 * lines_run(250)


def test_windows_of_any_width_are_matched_as_if_each_were_held_against_each():
    """One wide window behind narrow ones, and before them."""
    narrow = [an_open(n, n * 20, n * 20 + 5)[1] for n in range(10)]
    wide = [an_open(n, 0, 195)[1] | {"open_lo_us": us(lo), "open_hi_us": us(hi)} for n, lo, hi in ((20, 0, 200), (21, 95, 96))]
    decisions = [a_decision(n, n * 20 + 1)[1] for n in range(10)] + [
        a_decision(20, 95.5)[1],
        a_decision(21, 155)[1],
        a_decision(22, 300)[1],
    ]
    found = match([*wide, *narrow], decisions, [])
    assert [decision and decision["record_id"].rpartition("/")[2] for decision, _ in found] == ["21", "20", *map(str, range(10))]


def test_random_traffic_uses_each_record_once_and_loses_no_open():
    for seed in range(30):
        chance = random.Random(seed)
        events, t = [], 0.0
        for number in range(40):
            t += chance.expovariate(1 / 20)
            last = t + chance.uniform(0.1, 40)
            events.append((last + chance.uniform(0, 15), an_open(number, t, last)))
            if chance.random() < 0.9:
                events.append((t + chance.uniform(0, 1), a_decision(number, t, chance.choice(["admit", "bypass"]))))
            if chance.random() < 0.9:
                events.append((last + chance.uniform(0, 90), a_pfc(number, t, last)))
            if chance.random() < 0.1:
                events.append((events[-1][0] + 1, events[-1][1]))
        join = Join()
        for at, record in sorted(events, key=lambda event: event[0]):
            join.take(at, record)
        join.run_timers()
        assert sorted(row["open_id"] for row in join.rows) == sorted({r["record_id"] for _, (kind, r) in events if kind == OPEN})
        for column in ("decision_id", "pfc_id"):
            used = [row[column] for row in join.rows if row[column]]
            assert len(used) == len(set(used))
        distinct = len({r["record_id"] for _, (kind, r) in events if kind != OPEN})
        used_all = sum(bool(row["decision_id"]) + bool(row["pfc_id"]) for row in join.rows)
        assert used_all + join.dropped.get("unmatched_decisions", 0) + join.dropped.get("unmatched_pfcs", 0) == distinct
        assert join.stored is None
