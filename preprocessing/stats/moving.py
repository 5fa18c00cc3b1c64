"""Sums over a moving window of days, from sums of single days: exact, and without a row for each day that an event counts in.

What is counted once however often it was used in the window (a file, a workflow of a dataset) is laid out as steps: a use on day D counts
from D on, until the window of D has passed or the same thing is used again, where the next step takes over. So each use gives a step up and
a step down, :func:`steps`, and the value of a day is the sum of all steps until then, :func:`running`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Values = dict[str, int]


def steps(uses: DataFrame, once: Sequence[str], days: int, values: Sequence[str]) -> DataFrame:
    """Steps of what ``uses`` (one row for each of the columns ``once`` and `day`) counts in windows of ``days`` days.

    The columns of ``uses``, twice: with ``values`` as they are on the day where they begin to count, negated on the day where they do so
    no more.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    following = F.lead("day").over(Window.partitionBy(*once).orderBy("day"))
    ends = F.least(F.date_add("day", days), F.coalesce(following, F.date_add("day", days)))
    signs = F.explode(F.array(F.lit(1), F.lit(-1))).alias("_sign")
    both = uses.withColumn("_ends", ends).select("*", signs)
    both = both.withColumn("day", F.when(F.col("_sign") > 0, F.col("day")).otherwise(F.col("_ends")))
    return both.withColumns({name: F.col(name) * F.col("_sign") for name in values}).drop("_ends", "_sign")


def running(by_day: Mapping[date, Values], days: Iterable[date], names: Sequence[str]) -> dict[date, Values]:
    """The sums of all steps until each of ``days`` (which rise), that day included."""
    left = sorted(by_day)
    total, place, found = dict.fromkeys(names, 0), 0, {}
    for day in days:
        while place < len(left) and left[place] <= day:
            for name in names:
                total[name] += by_day[left[place]].get(name) or 0
            place += 1
        found[day] = dict(total)
    return found


def windows(by_day: Mapping[date, Values], days: Iterable[date], width: int, names: Sequence[str]) -> dict[date, Values]:
    """The sums over the ``width`` days that end with each of ``days`` (which rise), that day included."""
    later: dict[date, Values] = {}
    for day, values in by_day.items():
        for name in names:
            value = values.get(name) or 0
            for at, sign in ((day, 1), (day + timedelta(days=width), -1)):
                into = later.setdefault(at, {})
                into[name] = into.get(name, 0) + sign * value
    return running(later, days, names)
