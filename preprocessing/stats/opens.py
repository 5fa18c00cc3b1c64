"""What the access table says about a cache, by day: what was asked for, what of it was different files, what was fetched for it.

A **life** is one of pfc's File object: from the open that made it to the close of its last client. Its counts are on its first open
(`pfc_id`); opens before its end (`detach_us`) that have none of their own belong to it. Lives whose record was lost, and opens of traces,
which have none, count as requests, and in nothing that follows here.

**Fetched.** pfc's own `b_hit` counts what was in the cache when a request was served, though the same open may have had it fetched a moment
before, and it counts requests where pfc fetches whole blocks. So what a life fetched is what came onto the disk in it, and what was passed
by (`b_bypass`). What came onto the disk: pfc's `b_todisk` where it says so (5.7.2 and later), else from the blocks that the file has at the
end of the life: all of them in its first life on the disk (`access_cnt` 1), else those more than at the end of the life before; where that
is not among the rows, `b_miss`, the least that it can be. What was answered bypass was fetched as it was read.

    reported hit rate = sum b_hit / sum (b_hit + b_miss + b_bypass)        true hit rate = 1 - sum fetched / sum delivered

`delivered` is what the clients of those lives have read, by their own counts (`b_read`). The true rate is negative where more was fetched
than delivered.

**Used**, of what a first life brought onto the disk: what its clients read, at most all of it. Who reads the same part twice makes this too
large, never too small, so the bytes fetched for each byte used are a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from ..privacy import of_a_user
from .moving import steps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Sums of single days.
ADDED = (
    "opens",
    "opened_bytes",
    "read_bytes",
    "sized_bytes",
    "sized_read_bytes",
    "hit_bytes",
    "counted_bytes",
    "delivered_bytes",
    "fetched_bytes",
    "disk_bytes",
)
#: Sums of the lives that began on an empty disk.
ADDED_BLOCKS = ("lives", "disk_bytes", "used_bytes")
#: What counts once in a window.
ONCE = ("unique_files", "unique_bytes")
OTHER = "other"
#: The tier of what users keep for themselves.
USER = "user"
#: Sizes of blocks are an administrator's, so few: what a hostile record says beside them is left out.
BLOCK_SIZES = 50
#: pfc takes no smaller ones.
LEAST_BLOCK = 4096
#: What the fill of a disk is counted in: sums of whole numbers are the same in any order.
PARTS = 1_000_000
#: An amount that is added. Ten digits above it are left for the sum.
_AMOUNT = "decimal(18,0)"
_MOST = 10**18 - 1


def prepared(opens: DataFrame, user_paths: Sequence[str]) -> DataFrame:
    """The opens with `tier` and the amounts of one open: 0 where they are unknown. Persist it: it is read several times.

    All that is below ``user_paths`` is one tier: the last level of such a name may be the user's.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    size = F.when(F.col("size") > 0, F.col("size"))
    read = F.when(F.col("b_read") >= 0, F.col("b_read"))
    blocks = F.try_multiply("n_blks_done", "blk_size")
    life = F.col("pfc_id").isNotNull()
    known = opens.withColumns({"known": size, "read": read}).withColumn("stored", F.when(life & (blocks >= 0), F.least(blocks, "known")))
    order = Window.partitionBy("cache", "lfn").orderBy("open_us", "open_id")
    earlier, until = order.rowsBetween(Window.unboundedPreceding, -1), order.rowsBetween(Window.unboundedPreceding, 0)
    known = known.withColumns(
        {
            "before": F.last("stored", ignorenulls=True).over(earlier),
            "life": F.count("pfc_id").over(until),
            "life_end": F.max(F.when(life, F.col("detach_us"))).over(until),
        }
    )
    passed_by = F.coalesce(F.col("answer") == "bypass", F.lit(False)) & ~life
    inside = life | (~passed_by & F.coalesce(F.col("open_us") <= F.col("life_end"), F.lit(False)))
    known = known.withColumn("passed_by", passed_by).withColumn("inside", inside)
    of_life = Window.partitionBy("cache", "lfn", "life")
    delivered = F.when(F.col("inside") | F.col("passed_by"), _amount("read"))
    known = known.withColumn("life_read", F.sum(F.when(F.col("inside"), _amount("read"))).over(of_life))

    first = F.col("access_cnt") <= 1
    disk = (
        F.when(F.col("b_todisk") >= 0, F.col("b_todisk"))
        .when(F.col("stored").isNull(), F.col("b_miss"))
        .when(first | (F.col("stored") < F.col("before")), F.col("stored"))
        .when(F.col("before").isNull(), F.col("b_miss"))
        .otherwise(F.col("stored") - F.col("before"))
    )
    both = F.col("known").isNotNull() & F.col("read").isNotNull()
    least = F.least("known", "read")
    nothing = F.lit(0).cast(_AMOUNT)
    counted = F.col("b_hit").isNotNull()
    in_first = life & first & (F.col("blk_size") > 0)
    return known.withColumn("disk", F.when(life, disk)).select(
        "cache",
        "day",
        "lfn",
        F.when(of_a_user(F.col("dataset"), user_paths), USER).otherwise(F.element_at(F.split("dataset", "/"), -1)).alias("tier"),
        F.when(in_first, F.col("blk_size")).alias("blk_size"),
        F.when(F.col("fill") >= 0, F.round(F.least("fill", F.lit(1.0)) * PARTS)).cast("long").alias("fill"),
        F.lit(1).cast(_AMOUNT).alias("opens"),
        _amount("known").alias("opened_bytes"),
        _amount("read").alias("read_bytes"),
        F.when(both, _amount("known")).otherwise(nothing).alias("sized_bytes"),
        F.when(both, _clipped(least)).otherwise(nothing).alias("sized_read_bytes"),
        F.when(counted, _amount("b_hit")).otherwise(nothing).alias("hit_bytes"),
        F.when(counted, _amount("b_hit") + _amount("b_miss") + _amount("b_bypass")).otherwise(nothing).alias("counted_bytes"),
        F.coalesce(delivered, nothing).alias("delivered_bytes"),
        F.when(counted, _amount("disk") + _amount("b_bypass")).otherwise(nothing).alias("fetched_bytes"),
        _amount("disk").alias("disk_bytes"),
        F.when(in_first, 1).otherwise(0).cast(_AMOUNT).alias("lives"),
        F.when(in_first, F.least(_amount("disk"), F.coalesce("life_read", nothing))).otherwise(nothing).alias("used_bytes"),
        F.when(both, least / F.col("known")).alias("part"),
    )


def with_tiers(opens: DataFrame, count: int) -> DataFrame:
    """Only the ``count`` tiers that most was read of by name."""
    from pyspark.sql import functions as F

    most = opens.groupBy("tier").agg(F.sum("read_bytes").alias("bytes")).orderBy(F.desc("bytes"), "tier").limit(count).collect()
    names = [row["tier"] for row in most if row["tier"]]
    return opens.withColumn("tier", F.when(F.col("tier").isin(names), F.col("tier")).otherwise(OTHER))


def added(opens: DataFrame) -> DataFrame:
    """The sums of each `cache`, `tier` and `day`."""
    from pyspark.sql import functions as F

    return opens.groupBy("cache", "tier", "day").agg(*(F.sum(name).alias(name) for name in ADDED))


def unique(opens: DataFrame, width: int) -> DataFrame:
    """Steps of the different files, and their bytes, of each `cache`, `tier` and `day`, in windows of ``width`` days."""
    from pyspark.sql import functions as F

    uses = opens.groupBy("cache", "tier", "lfn", "day").agg(F.max("opened_bytes").alias("unique_bytes"))
    uses = uses.withColumn("unique_files", F.lit(1).cast(_AMOUNT))
    parts = steps(uses, ("cache", "tier", "lfn"), width, ONCE)
    return parts.groupBy("cache", "tier", "day").agg(*(F.sum(name).alias(name) for name in ONCE))


def fills(opens: DataFrame) -> DataFrame:
    """How full the disk was when opens were answered, by `cache` and `day`: the sum in millionths as `fill`, of so many `answers`."""
    from pyspark.sql import functions as F

    return opens.where(F.col("fill").isNotNull()).groupBy("cache", "day").agg(F.sum("fill").alias("fill"), F.count("fill").alias("answers"))


def parts_read(opens: DataFrame) -> DataFrame:
    """How many `opens` read how much of the file: by `cache`, `day` and `tenth` (0: up to a tenth)."""
    from pyspark.sql import functions as F

    tenth = F.least(F.floor(F.col("part") * 10), F.lit(9)).cast("int").alias("tenth")
    return opens.where(F.col("part").isNotNull()).groupBy("cache", tenth, "day").agg(F.sum("opens").alias("opens"))


def blocks(opens: DataFrame, since: date) -> DataFrame:
    """What first lives brought onto the disk, and what of it was used: by `cache`, `blk_size` and `day`.

    Of the :data:`BLOCK_SIZES` sizes with which most was brought since that day.
    """
    from pyspark.sql import functions as F

    lives = opens.where(F.col("blk_size").isNotNull())
    most = (
        lives.where(F.col("day") >= since)
        .groupBy("blk_size")
        .agg(F.sum("disk_bytes").alias("bytes"))
        .orderBy(F.desc("bytes"), "blk_size")
        .limit(BLOCK_SIZES)
        .collect()
    )
    sizes = [row["blk_size"] for row in most]
    kept = lives.where(F.col("blk_size").isin(sizes)) if sizes else lives.limit(0)
    return kept.groupBy("cache", "blk_size", "day").agg(*(F.sum(name).alias(name) for name in ADDED_BLOCKS))


def advice(disk_bytes: int, used_bytes: int, blk_size: int, waste: float) -> str:
    """What a site could do about its `pfc.blocksize`; empty where nothing was brought onto the disk."""
    if not disk_bytes:
        return ""
    if disk_bytes > waste * used_bytes:
        if blk_size <= LEAST_BLOCK:
            return "pfc.prefetch 0; pfc has no smaller blocks"
        return f"try smaller blocks (pfc.blocksize below {size_text(blk_size)}), and pfc.prefetch 0"
    return "keep it: smaller blocks would save little"


def size_text(count: int) -> str:
    """A size of blocks as `pfc.blocksize` takes it."""
    return f"{count >> 20}m" if count % (1 << 20) == 0 else f"{count >> 10}k" if count % 1024 == 0 else str(count)


def _amount(name: str) -> Column:
    """A column as an amount for sums: not negative, 0 where it is unknown."""
    from pyspark.sql import functions as F

    return _clipped(F.coalesce(F.when(F.col(name) >= 0, F.col(name)), F.lit(0)))


def _clipped(column: Column) -> Column:
    """No sum of amounts overflows, whatever a record says."""
    from pyspark.sql import functions as F

    return F.least(column, F.lit(_MOST)).cast(_AMOUNT)
