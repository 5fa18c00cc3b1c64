"""Which decision and which pfc record belong to a client's open: the join, for one file at one cache, without Spark.

An **open** (f-stream record) is what a row is made from. Its times are windows, typically 10 s wide: the client opened somewhere in
``open_lo_us..open_hi_us``. A **decision** has the exact microsecond; it is the open's where

    open_lo_us - 1 s <= t_us <= min(open_hi_us, close_hi_us) + 1 s

A **pfc record** is one life of pfc's File object. It begins with the open that created it (clocks of 1 s) and ends with the last client,
so it is that first open's where

    open_lo_us - 1 s <= attach_us <= min(open_hi_us, close_hi_us) + 1 s  and  detach_us >= close_lo_us - 1 s
    and, where the decision is known,  t_us - 1 s <= attach_us <= t_us + 5 s

(a decision comes just before the File object). Each record is used once; opens take in the order of their windows, then of the server's
file ids, so of clients that overlap the first one gets both. Nothing is settled before the row is written: with each new record all open
questions are matched anew, so the order of arrival does not matter.

A row is written once both were found, or once the open's record has waited ``grace_ms``, and a `CATCH_UP`-th of the time by which it came
late to the stream: a stream that was away reads its topics batch by batch, and the three records of an open come less close together than
they were sent. An open that was answered bypass has no pfc record: it does not wait for one. A pfc record that belongs to no open is
dropped ``watermark_ms`` after it came, a decision after ``held_ms``, as its open's record comes when the file is closed; both are counted.
Record ids are remembered for ``watermark_ms``: a duplicate that comes later than that makes a second row.

What waits is looked at each ``beat_ms``, so a step that comes by more than ``tardy_ms`` later than it was due tells that the stream was
away. That time does not count for what waits, as the rest of its open may be in what piled up in Kafka, and not in the first batch of that;
nor for the ids that are remembered, as second copies may be there too. Ids alone have no beat: their step is due when the first of them is
forgotten.

All functions are pure: the same state, records and clock give the same outcome, which is what makes a restarted batch repeat itself.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

OPEN, DECISION, PFC = "open", "decision", "pfc"

SECOND_US = 1_000_000
#: How far apart two clocks of the same server may be: pfc's has a resolution of 1 s.
SLACK_US = SECOND_US
#: pfc attaches this long after the decision at most.
ATTACH_AFTER_DECISION_US = 5 * SECOND_US

#: A stream that was away reads at least so many times as fast as the records came.
CATCH_UP = 4

#: So many times within ``watermark_ms`` is looked at what waits.
BEATS = 4

#: So many answers of one file wait at most: where a cache sends no f-stream none is ever used, and each step reads and writes them all.
MOST_DECISIONS = 10_000

#: No file id of a server has more digits (64 bits).
_FILE_ID_DIGITS = 20

#: What a row takes from its pfc record as it is.
PFC_COUNTS = ("b_hit", "b_miss", "b_bypass", "b_todisk", "blk_size", "n_blks_done", "access_cnt", "detach_us")

Record = dict[str, Any]
Namer = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Times:
    """How long the join waits, in milliseconds of processing time."""

    grace_ms: int
    watermark_ms: int
    #: For how long a file may be open.
    held_ms: int
    #: Nothing waits longer for being late than if it were as late as this: what is older Kafka deletes.
    kept_ms: int

    @property
    def beat_ms(self) -> int:
        """How long nothing may happen to what waits."""
        return max(self.watermark_ms // BEATS, 1)

    @property
    def tardy_ms(self) -> int:
        """A step that comes by more than this later than it was due comes after an outage: a row may be due so long after its open came."""
        return min(self.beat_ms, self.grace_ms)


@dataclass(slots=True)
class Waiting:
    """A record that is not in the table yet. Its time of arrival moves by as long as the stream is away."""

    arrived_ms: int
    record: Record
    #: How much later the stream read it than it was received; how long the stream was away meanwhile, where that is more.
    late_ms: int

    @classmethod
    def since(cls, arrived_ms: int, record: Record) -> Waiting:
        """One that comes now."""
        received_us = record.get("recv_us")
        return cls(arrived_ms, record, 0 if received_us is None else max(arrived_ms - received_us // 1000, 0))


@dataclass(slots=True)
class State:
    """What is remembered of one file at one cache between batches."""

    opens: list[Waiting] = field(default_factory=list)
    decisions: list[Waiting] = field(default_factory=list)
    pfcs: list[Waiting] = field(default_factory=list)
    #: Ids of records that are used or dropped, and until when they are remembered.
    seen: dict[str, int] = field(default_factory=dict)
    #: Whether the step before came after an outage.
    away: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.opens or self.decisions or self.pfcs or self.seen)

    def to_json(self) -> dict[str, Any]:
        """As a JSON value, for the state store."""
        return {
            "v": 1,
            **{
                name: [[each.arrived_ms, each.record, each.late_ms] for each in getattr(self, name)]
                for name in ("opens", "decisions", "pfcs")
                if getattr(self, name)
            },
            "seen": self.seen,
            **({"away": True} if self.away else {}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> State:
        """Back from :meth:`to_json`."""
        state = cls(seen=value["seen"], away=value.get("away", False))
        for name in ("opens", "decisions", "pfcs"):
            # Those of an earlier version are without `late_ms`.
            setattr(state, name, [Waiting(*each) if len(each) > 2 else Waiting.since(*each) for each in value.get(name, [])])
        return state


@dataclass(slots=True)
class Outcome:
    """What one step of the join gave."""

    rows: list[Record] = field(default_factory=list)
    #: duplicates, unmatched_decisions, unmatched_pfcs: how many records ended so.
    dropped: dict[str, int] = field(default_factory=dict)
    #: When the next thing happens by itself; None: never.
    wake_ms: int | None = None

    def drop(self, what: str) -> None:
        """Count one."""
        self.dropped[what] = self.dropped.get(what, 0) + 1


def advance(
    state: State, incoming: Iterable[tuple[str, Record]], now_ms: int, times: Times, dataset_of: Namer, due_ms: int | None = None
) -> Outcome:
    """Take new records (kind and record) into ``state``, which is changed, and give what is due at ``now_ms``.

    ``due_ms``: the `wake_ms` of the step before; None where there was none.
    """
    outcome = Outcome()
    _stand_still(state, now_ms, now_ms if due_ms is None else due_ms, times)
    _take(state, incoming, now_ms, outcome)
    _write_due(state, now_ms, times, dataset_of, outcome)
    state.decisions = _expire(state.decisions, times.held_ms, "unmatched_decisions", state, now_ms, times, outcome)
    state.pfcs = _expire(state.pfcs, times.watermark_ms, "unmatched_pfcs", state, now_ms, times, outcome)
    if any(until <= now_ms for until in state.seen.values()):
        state.seen = {record_id: until for record_id, until in state.seen.items() if until > now_ms}
    _drop_oldest(state, now_ms, times, outcome)
    outcome.wake_ms = _wake(state, now_ms, times)
    return outcome


def match(opens: list[Record], decisions: list[Record], pfcs: list[Record]) -> list[tuple[Record | None, Record | None]]:
    """For each of ``opens`` its decision and its pfc record, as far as they are among the given ones."""
    order = sorted(range(len(opens)), key=lambda index: _open_order(opens[index]))
    # Both rise: when each was at the latest, and when it or any behind it was at the earliest. So of a file that is opened very often only
    # the opens near a moment are looked at.
    latest = [opens[index]["open_hi_us"] + SLACK_US for index in order]
    earliest = [*accumulate((opens[index]["open_lo_us"] - SLACK_US for index in reversed(order)), min)][::-1]

    def near(at_us: int) -> list[int]:
        return order[bisect_left(latest, at_us) : bisect_right(earliest, at_us)]

    found_decision: dict[int, Record] = {}
    for decision in sorted(decisions, key=lambda each: (each["t_us"], each["record_id"])):
        for index in near(decision["t_us"]):
            if index not in found_decision and _decides(decision, opens[index]):
                found_decision[index] = decision
                break
    found_pfc: dict[int, Record] = {}
    for pfc in sorted(pfcs, key=lambda each: (each["attach_us"], each["detach_us"], each["record_id"])):
        candidates = [
            index for index in near(pfc["attach_us"]) if index not in found_pfc and _lives(pfc, opens[index], found_decision.get(index))
        ]
        if candidates:
            found_pfc[min(candidates, key=lambda index: _distance(pfc, found_decision.get(index)))] = pfc
    return [(found_decision.get(index), found_pfc.get(index)) for index in range(len(opens))]


def access_row(opened: Record, decision: Record | None, pfc: Record | None, dataset: str) -> Record:
    """The row of the access table, by column name."""
    lo, hi = opened["open_lo_us"], opened["open_hi_us"]
    open_us = lo
    if decision is not None:
        open_us = decision["t_us"]
    elif pfc is not None and lo <= pfc["attach_us"] <= hi:
        open_us = pfc["attach_us"]
    size = opened.get("size")
    if (size is None or size < 0) and pfc is not None:
        size = pfc.get("size")
    read = None if opened.get("b_read") is None else opened["b_read"] + (opened.get("b_readv") or 0)
    row: Record = {
        "open_id": opened["record_id"],
        "open_us": open_us,
        "close_us": opened.get("close_hi_us"),
        "lfn": opened["lfn"],
        "dataset": dataset,
        "size": size,
        "b_read": read,
        **{name: None if pfc is None else pfc.get(name) for name in PFC_COUNTS},
        "pfc_id": None if pfc is None else pfc["record_id"],
        **{name: opened.get(name) for name in ("user", "client_host", "app")},
        "cache": opened["cache"],
        "day": datetime.fromtimestamp(open_us / SECOND_US, UTC).date(),
    }
    taken = decision or {}
    row |= {name: taken.get(name) for name in ("answer", "reason", "model", "t_us", "on_disk", "boot_us", "seq")}
    row |= {
        name: taken.get(name)
        for name in ("history_scanned", "history_boot_us", "history_seq", "side_table", "challenger_model", "challenger_answer")
    }
    numbers = ("score", "challenger_score", "probability", "fill", "read_share")
    row |= {name: None if taken.get(name) is None else float(taken[name]) for name in numbers}
    row |= {"known_size": taken.get("size"), "decision_id": taken.get("record_id")}
    if _bypassed(decision):
        row |= {"b_hit": 0, "b_miss": 0, "b_bypass": read}
    return row


def row_text(row: Record) -> str:
    """A row as JSON, as Spark reads it by the schema of the table; what is not known is not there."""
    known = {name: value for name, value in row.items() if value is not None}
    return json.dumps(known | {"day": row["day"].isoformat()}, separators=(",", ":"))


def _stand_still(state: State, now_ms: int, due_ms: int, times: Times) -> None:
    away_ms = now_ms - due_ms
    again, state.away = state.away, away_ms > times.tardy_ms
    if not state.away:
        return
    # Where all batches take so long, a beat of each counts still: nothing is kept for ever.
    for each in (*state.opens, *state.decisions, *state.pfcs):
        each.arrived_ms += away_ms
        # It went away before the step was due.
        each.late_ms = max(each.late_ms, away_ms + times.tardy_ms)
    # Once, for the same reason.
    if not again:
        until_ms = now_ms + max(times.watermark_ms, away_ms // CATCH_UP)
        state.seen = {record_id: max(until, until_ms) for record_id, until in state.seen.items()}


def _take(state: State, incoming: Iterable[tuple[str, Record]], now_ms: int, outcome: Outcome) -> None:
    places = {OPEN: state.opens, DECISION: state.decisions, PFC: state.pfcs}
    known = {each.record["record_id"] for place in places.values() for each in place}
    for kind, record in incoming:
        record_id = record["record_id"]
        if record_id in known or record_id in state.seen:
            outcome.drop("duplicates")
            continue
        known.add(record_id)
        places[kind].append(Waiting.since(now_ms, record))


def _write_due(state: State, now_ms: int, times: Times, dataset_of: Namer, outcome: Outcome) -> None:
    if not state.opens:
        return
    matches = match([each.record for each in state.opens], [each.record for each in state.decisions], [each.record for each in state.pfcs])
    used: set[str] = set()
    for waiting, (decision, pfc) in zip(state.opens, matches, strict=True):
        complete = decision is not None and (pfc is not None or _bypassed(decision))
        if not complete and now_ms < _due_ms(waiting, times):
            continue
        opened = waiting.record
        outcome.rows.append(access_row(opened, decision, pfc, dataset_of(opened["lfn"])))
        used.update(each["record_id"] for each in (opened, decision, pfc) if each is not None)
    if used:
        for name in ("opens", "decisions", "pfcs"):
            setattr(state, name, [each for each in getattr(state, name) if each.record["record_id"] not in used])
        state.seen.update(dict.fromkeys(sorted(used), now_ms + times.watermark_ms))
        outcome.rows.sort(key=lambda row: (row["open_us"], row["open_id"]))


def _expire(waiting: list[Waiting], lasts_ms: int, what: str, state: State, now_ms: int, times: Times, outcome: Outcome) -> list[Waiting]:
    kept = []
    for each in waiting:
        if now_ms < _forgotten_ms(each, lasts_ms, times):
            kept.append(each)
        else:
            outcome.drop(what)
            state.seen[each.record["record_id"]] = now_ms + times.watermark_ms
    return kept


def _drop_oldest(state: State, now_ms: int, times: Times, outcome: Outcome) -> None:
    for each in state.decisions[:-MOST_DECISIONS]:
        outcome.drop("unmatched_decisions")
        state.seen[each.record["record_id"]] = now_ms + times.watermark_ms
    state.decisions = state.decisions[-MOST_DECISIONS:]


def _wake(state: State, now_ms: int, times: Times) -> int | None:
    moments = [_due_ms(each, times) for each in state.opens]
    moments += [_forgotten_ms(each, times.watermark_ms, times) for each in state.pfcs]
    if moments:
        moments.append(now_ms + times.beat_ms)
    if state.decisions:
        # Not as often: there may be very many, where a cache sends no f-stream.
        moments.append(now_ms + max(times.held_ms // BEATS, 1))
        moments += [_forgotten_ms(each, times.held_ms, times) for each in state.decisions]
    if state.seen:
        # When the first of them is forgotten: a later look could not tell an outage before it.
        moments.append(min(state.seen.values()))
    return min(moments, default=None)


def _due_ms(opened: Waiting, times: Times) -> int:
    """When its row is written, whatever was found."""
    # No longer than the others are remembered.
    return int(opened.arrived_ms + max(times.grace_ms, min(times.grace_ms + opened.late_ms // CATCH_UP, times.watermark_ms)))


def _forgotten_ms(other: Waiting, lasts_ms: int, times: Times) -> int:
    """When a decision or pfc record is not joined any more: where the stream was away, its open may be read much later than it."""
    return int(other.arrived_ms + max(lasts_ms, min(other.late_ms, times.kept_ms) // CATCH_UP))


def _decides(decision: Record, opened: Record) -> bool:
    return bool(opened["open_lo_us"] - SLACK_US <= decision["t_us"] <= _latest_open(opened) + SLACK_US)


def _lives(pfc: Record, opened: Record, decision: Record | None) -> bool:
    if _bypassed(decision):
        return False
    attach: int = pfc["attach_us"]
    if not opened["open_lo_us"] - SLACK_US <= attach <= _latest_open(opened) + SLACK_US:
        return False
    closed = opened.get("close_lo_us")
    if closed is not None and pfc["detach_us"] < closed - SLACK_US:
        return False
    return decision is None or bool(decision["t_us"] - SLACK_US <= attach <= decision["t_us"] + ATTACH_AFTER_DECISION_US)


def _distance(pfc: Record, decision: Record | None) -> int:
    """How badly they fit; an open with a decision is preferred, as Decide is asked where the File object begins."""
    return 2 * ATTACH_AFTER_DECISION_US if decision is None else abs(pfc["attach_us"] - decision["t_us"])


def _latest_open(opened: Record) -> int:
    closed = opened.get("close_hi_us")
    return int(opened["open_hi_us"] if closed is None else min(opened["open_hi_us"], closed))


def _bypassed(decision: Record | None) -> bool:
    return decision is not None and decision["answer"] == "bypass"


def _open_order(opened: Record) -> tuple[int, int, int, str]:
    """First opened first: by window, then by the file id at the end of the record id, which the server counts up."""
    record_id = opened["record_id"]
    file_id = record_id.rpartition("/")[2]
    number = int(file_id) if file_id.isdecimal() and len(file_id) <= _FILE_ID_DIGITS else 0
    return opened["open_hi_us"], opened["open_lo_us"], number, record_id
