"""Champion and challenger side by side, from the decision log as it is in the access table: for ``smartcache compare``.

Three roles: a version that *served* all files or those outside the canary, one that decided for the *canary*'s files, and one that was
asked as a *shadow*. The canary's files are another sample than the champion's; the shadow was asked about the very same opens.

An answer that something else gave past the model (:data:`NOT_THE_MODELS`) is none of its, and is not counted; a shadow's is its own
whatever was answered.

What an answer was worth shows later: whether the file was opened again at that cache within the horizon. Only opens that were followed by
one, or watched for the whole horizon, say so. What was read, hit and missed can be told of what was served, not of a shadow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from smartcache.config import Config

_COLUMNS: Final = (
    *("cache", "open_us", "lfn", "answer", "reason", "score", "model", "challenger_model", "challenger_answer", "challenger_score"),
    *("on_disk", "b_read", "b_hit", "b_miss", "b_bypass"),
)
_ANSWERS: Final = ("admit", "bypass", "evict")
#: Reasons of answers that no model gave, though it was asked: a rule, the other policies, chance, a budget and the guard decide past it.
NOT_THE_MODELS: Final = ("rule", "vote", "explore", "budget", "guard", "off")


class CompareError(Exception):
    """There is nothing to compare; the text says why and the way out."""


@dataclass(frozen=True)
class Row:
    """One version in one role. Shares are None where nothing can be said."""

    version: str
    role: str
    opens: int
    admit: int
    bypass: int
    evict: int
    #: Opens of which it is known whether the file came again.
    known: int
    #: Mean squared difference between the score and what came.
    score_error: float | None
    #: Of the opens answered bypass: the file came again, and had to be fetched again.
    bypassed_and_opened: float | None
    #: Of the files that were stored: nobody came.
    stored_and_not_opened: float | None
    read_bytes: int | None
    #: Of the bytes read: fetched over the WAN, stored or not.
    missed: float | None


@dataclass(frozen=True)
class Agreement:
    """The same opens: what served, and what the shadow said."""

    version: str
    shadow: str
    answer: str
    shadow_answer: str
    opens: int


@dataclass(frozen=True)
class Comparison:
    """Everything that `smartcache compare` shows. Times in Unix microseconds."""

    from_us: int
    to_us: int
    horizon_s: float
    rows: list[Row]
    agreements: list[Agreement]

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def of(config: Config, challenger: str, days: float | None = None) -> Comparison:
    """As a site is configured: the last ``days`` (None: ``[challenger] compare_days``) and the horizon of its models."""
    return compare(config, days or config.challenger.compare_days, config.training.horizon_s, challenger)


def compare(config: Config, days: float, horizon_s: float, challenger: str = "") -> Comparison:
    """The versions that answered in the last ``days`` of the access table; ``challenger`` is the version that the canary has.

    Raises :class:`CompareError`.
    """
    try:
        from smartcache.preprocessing import access, session
        from smartcache.preprocessing.table import TableError
    except ImportError as error:
        raise CompareError(f"{error}; install smartcache[promote]") from error
    table = config.streaming.table
    try:
        with session.table_reader(config, table) as files:
            snapshot = access.Snapshot.of(files, table)
            if not snapshot.days:
                raise CompareError(f"[streaming] table {table}: has no opens yet")
            opens = snapshot.read(_COLUMNS, from_day=snapshot.days[-1] - timedelta(days=int(days) + 1)).to_pandas()
    except (TableError, OSError, ValueError) as error:
        raise CompareError(f"[streaming] table {table}: {error}; compare where the table is") from error
    if opens.empty:  # files that are listed may have no row
        raise CompareError(f"[streaming] table {table}: has no opens of its last {days:g} days")
    opens = opens[opens["open_us"] > opens["open_us"].max() - days * 86400e6]
    end_us = int(opens["open_us"].max())
    opens = opens.sort_values(["cache", "lfn", "open_us"], kind="stable")
    gap_s = (opens.groupby(["cache", "lfn"], sort=False)["open_us"].shift(-1) - opens["open_us"]) / 1e6
    came = gap_s <= horizon_s
    opens = opens.assign(came=came, known=came | ((end_us - opens["open_us"]) / 1e6 >= horizon_s))
    # Of what the model did not decide there is no answer of it.
    opens = opens.assign(score=opens["score"].where(~opens["reason"].isin(NOT_THE_MODELS)))
    opens = opens[opens["score"].notna() | opens["challenger_score"].notna()]
    return Comparison(
        int(opens["open_us"].min()) if len(opens) else 0, end_us, horizon_s, list(_rows(opens, challenger)), list(_agree(opens))
    )


def _rows(opens: Any, challenger: str) -> Iterator[Row]:
    served = opens[opens["score"].notna() & (opens["model"] != "")]
    for version, rows in served.groupby("model", sort=True):
        yield _row(str(version), "canary" if version == challenger else "served", rows, "answer", "score")
    shadowed = opens[opens["challenger_score"].notna()]
    for version, rows in shadowed.groupby("challenger_model", sort=True):
        yield _row(str(version), "shadow", rows, "challenger_answer", "challenger_score")


def _row(version: str, role: str, rows: Any, answer: str, score: str) -> Row:
    known = rows[rows["known"]]
    bypassed = known[known[answer] == "bypass"]
    stored = known[(known[answer] == "admit") & (known["on_disk"] == False)]  # noqa: E712 - a column that may have nulls
    counts = rows[answer].value_counts()
    read = fetched = None
    if role != "shadow":
        read = int(rows["b_read"].fillna(0).sum())
        # pfc counts a life of its file, which several clients may share: shares of what it counted.
        of = {name: float(rows[name].fillna(0).sum()) for name in ("b_hit", "b_miss", "b_bypass")}
        total = sum(of.values())
        fetched = (of["b_miss"] + of["b_bypass"]) / total if total else None
    return Row(
        version=version,
        role=role,
        opens=len(rows),
        **{each: int(counts.get(each, 0)) for each in _ANSWERS},
        known=len(known),
        score_error=float(((known[score] - known["came"]) ** 2).mean()) if len(known) else None,
        bypassed_and_opened=float(bypassed["came"].mean()) if len(bypassed) else None,
        stored_and_not_opened=float(1 - stored["came"].mean()) if len(stored) else None,
        read_bytes=read,
        missed=fetched,
    )


def _agree(opens: Any) -> Iterator[Agreement]:
    both = opens[opens["challenger_score"].notna() & opens["score"].notna()]
    for (version, shadow, answer, other), rows in both.groupby(["model", "challenger_model", "answer", "challenger_answer"], sort=True):
        yield Agreement(str(version), str(shadow), str(answer), str(other), len(rows))
