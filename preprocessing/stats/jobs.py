"""What job monitoring says about demand, by day: how many workflows want a dataset, and what CPU efficiency jobs have, by where they read.

Of each job the newest state counts, on the day of that state; jobs that have not run (no wall time) do not. A **hit** of a dataset is one
workflow that has jobs on it, however many, within the window. Efficiency is CPU time over wall time times cores, of the jobs that say both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .moving import steps

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

#: Sums of single days, of jobs by where they read.
JOBS = ("jobs", "wall_ms", "cpu_ms", "core_ms")
#: Where the input was.
INPUTS = ("local", "remote", "unknown")
#: A dataset counts where so many workflows, at least, wanted it in the window.
AT_LEAST = (1, 2, 3)
#: What is summed of the datasets that count: how many they are, their hits, the time of the jobs that read them, what those read.
DATASETS = ("datasets", "hits", "wall_ms", "input_bytes")
_AMOUNT, _SUM = "decimal(18,0)", "decimal(30,0)"
_MOST = 10**18 - 1
#: No job runs for longer (30 years), nor on more cores.
_LONGEST_S, _CORES = 1e9, 4096


def jobs(states: DataFrame, first: date, last: date) -> DataFrame:
    """One row a job that has run: `day dataset workflow input` and amounts, from ``first`` to ``last``."""
    from pyspark.sql import functions as F

    # A job whose newest state is older is none of these days'.
    newest = (
        states.where(F.col("day") >= first).groupBy("job_id").agg(F.max_by(F.struct("*"), F.struct(*_order())).alias("job")).select("job.*")
    )
    ran = newest.where((F.col("wall_s") > 0) & (F.col("wall_s") <= _LONGEST_S))
    cores = F.when(F.col("cores").between(1, _CORES), F.col("cores")).otherwise(1)
    timed = F.col("cpu_s").between(0, _LONGEST_S * _CORES)
    wall = F.round(F.col("wall_s") * 1000)
    return ran.where(F.col("day").between(first, last)).select(
        "day",
        "dataset",
        "workflow",
        F.when(F.col("input_local"), "local").when(~F.col("input_local"), "remote").otherwise("unknown").alias("input"),
        F.lit(1).cast(_AMOUNT).alias("jobs"),
        wall.cast(_AMOUNT).alias("wall_ms"),
        F.when(timed, F.round(F.col("cpu_s") * 1000)).otherwise(0).cast(_AMOUNT).alias("cpu_ms"),
        F.when(timed, wall * cores).otherwise(0).cast(_AMOUNT).alias("core_ms"),
        F.least(F.when(F.col("b_input") >= 0, F.col("b_input")).otherwise(0), F.lit(_MOST)).cast(_AMOUNT).alias("input_bytes"),
    )


def by_input(ran: DataFrame) -> DataFrame:
    """The sums of each `input` and `day`."""
    from pyspark.sql import functions as F

    return ran.groupBy("input", "day").agg(*(F.sum(name).alias(name) for name in JOBS))


def by_popularity(ran: DataFrame, width: int) -> DataFrame:
    """Steps, by `at_least` and `day`, of the datasets that so many different workflows wanted in a window of ``width`` days."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    named = ran.where(F.col("dataset").isNotNull() & F.col("workflow").isNotNull())
    wanting = named.groupBy("dataset", "workflow", "day").agg(F.lit(1).cast(_AMOUNT).alias("hits"))
    wanting = steps(wanting, ("dataset", "workflow"), width, ("hits",)).select("dataset", "day", "hits")
    amounts = named.groupBy("dataset", "day").agg(*(F.sum(name).alias(name) for name in DATASETS[2:]))
    gone = amounts.select("dataset", F.date_add("day", width).alias("day"), *((-F.col(name)).alias(name) for name in DATASETS[2:]))
    changes = wanting.unionByName(amounts, allowMissingColumns=True).unionByName(gone, allowMissingColumns=True)
    # By dataset: what holds from each day on at which anything changes.
    daily = changes.groupBy("dataset", "day").agg(*(F.coalesce(F.sum(name), F.lit(0)).cast(_SUM).alias(name) for name in DATASETS[1:]))
    until = Window.partitionBy("dataset").orderBy("day").rowsBetween(Window.unboundedPreceding, 0)
    state = daily.select("dataset", "day", *(F.sum(name).over(until).alias(name) for name in DATASETS[1:]))
    state = state.withColumn("datasets", F.lit(1)).withColumn("at_least", F.explode(F.array(*map(F.lit, AT_LEAST))))
    counts = F.col("hits") >= F.col("at_least")
    state = state.select(
        "dataset", "day", "at_least", *(F.when(counts, F.col(name)).otherwise(0).cast(_SUM).alias(name) for name in DATASETS)
    )
    each = Window.partitionBy("dataset", "at_least").orderBy("day")
    moved = state.select(
        "day", "at_least", *((F.col(name) - F.coalesce(F.lag(name).over(each), F.lit(0))).alias(name) for name in DATASETS)
    )
    return moved.groupBy("at_least", "day").agg(*(F.sum(name).alias(name) for name in DATASETS))


def _order() -> list[str]:
    # The same whichever of two states of one moment comes first.
    return ["record_us", "wall_s", "cpu_s", "dataset", "workflow", "b_input", "cores", "input_local"]
