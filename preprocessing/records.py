"""The records of ``docs/contracts.md`` as Spark reads them, and what makes one malformed.

The JSON Schemas that the collector writes by are in ``ingestion/schemas``; a test holds the types here against them. Fields that are not
named here are ignored: schemas grow by optional fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from .join import DECISION, OPEN, PFC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from smartcache.config import Kafka

#: Times outside of this (years 2000 to 2100) are no times of an open: such a record is malformed.
EARLIEST_US = 946_684_800_000_000
LATEST_US = 4_102_444_800_000_000

ANSWERS = ("admit", "bypass", "evict")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of record: its fields with their Spark types, and which of them a record must have."""

    name: str
    fields: tuple[tuple[str, str], ...]
    required: tuple[str, ...]

    @property
    def times(self) -> tuple[str, ...]:
        """The fields that are moments."""
        return tuple(name for name, _ in self.fields if name.endswith("_us") and name not in ("latency_us", "boot_us"))

    def schema(self) -> StructType:
        """As Spark's type."""
        from pyspark.sql.types import ArrayType, StringType, StructType

        schema = StructType()
        for name, kind in self.fields:
            schema = schema.add(name, ArrayType(StringType()) if kind == "list" else kind, True)
        return schema


_COMMON = (("record_id", "string"), ("cache", "string"), ("lfn", "string"), ("recv_us", "long"))
_COMMON_NAMES = tuple(name for name, _ in _COMMON)

KINDS: dict[str, Kind] = {
    OPEN: Kind(
        OPEN,
        (
            *_COMMON,
            *((name, "long") for name in ("open_lo_us", "open_hi_us", "close_lo_us", "close_hi_us")),
            *((name, "long") for name in ("size", "b_read", "b_readv", "b_write", "n_read", "n_readv")),
            ("forced", "boolean"),
            *((name, "string") for name in ("user", "client_host", "app")),
        ),
        (*_COMMON_NAMES, "open_lo_us", "open_hi_us"),
    ),
    DECISION: Kind(
        DECISION,
        (
            *_COMMON,
            *((name, "long") for name in ("v", "boot_us", "seq", "t_us")),
            ("answer", "string"),
            ("reason", "string"),
            ("score", "double"),
            ("probability", "double"),
            ("model", "string"),
            ("latency_us", "double"),
            ("on_disk", "boolean"),
            ("size", "long"),
            ("fill", "double"),
        ),
        (*_COMMON_NAMES, "t_us", "answer", "reason", "on_disk", "size", "fill"),
    ),
    PFC: Kind(
        PFC,
        (
            *_COMMON,
            *((name, "long") for name in ("size", "blk_size", "n_blks", "n_blks_done", "access_cnt", "attach_us", "detach_us")),
            ("remotes", "list"),
            *((name, "long") for name in ("b_hit", "b_miss", "b_bypass", "n_cks_errs", "b_todisk", "b_prefetch", "server_start_us")),
            *((name, "string") for name in ("instance", "version", "site")),
        ),
        (*_COMMON_NAMES, "attach_us", "detach_us", "b_hit", "b_miss", "b_bypass"),
    ),
}


def topics(kafka: Kafka) -> dict[str, str]:
    """Kind of record by topic."""
    return {kafka.fstream_topic: OPEN, kafka.decision_topic: DECISION, kafka.pfc_topic: PFC}


def parsed(messages: DataFrame, kafka: Kafka) -> DataFrame:
    """Kafka's messages as records: their columns and `kind`, `cache`, `lfn`, `record` (JSON), `reason` (null where it is well-formed).

    `record` is written anew from what was parsed, so it holds known fields of the right type and nothing else.
    """
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    fields = messages.withColumns({f"_{name}": _read(text, kind) for name, kind in KINDS.items()})
    kinds, records, reasons, caches, lfns = [], [], [], [], []
    for topic, name in topics(kafka).items():
        here = F.col("topic") == topic
        record = F.col(f"_{name}")
        kinds.append(F.when(here, F.lit(name)))
        records.append(F.when(here, F.to_json(record)))
        reasons.append(F.when(here, _reason(record, KINDS[name])))
        caches.append(F.when(here, record["cache"]))
        lfns.append(F.when(here, record["lfn"]))
    return fields.withColumns(
        {
            "kind": F.coalesce(*kinds),
            "record": F.coalesce(*records),
            "reason": F.coalesce(*reasons),
            "cache": F.coalesce(*caches),
            "lfn": F.coalesce(*lfns),
        }
    ).drop(*(f"_{name}" for name in KINDS))


def _read(text: Column, kind: Kind) -> Column:
    from pyspark.sql import functions as F

    return F.from_json(text, kind.schema(), {"mode": "PERMISSIVE"})


def _reason(record: Column, kind: Kind) -> Column:
    """What is wrong with it, the first thing that is; null where nothing is."""
    from pyspark.sql import functions as F

    nothing = reduce(lambda left, right: left & right, [record[name].isNull() for name, _ in kind.fields])
    checks = [F.when(record.isNull() | nothing, F.lit("not a JSON object of this record"))]
    checks += [F.when(record[name].isNull(), F.lit(f"{name} is missing or has the wrong type")) for name in kind.required]
    checks += [F.when(F.length(record[name]) == 0, F.lit(f"{name} is empty")) for name in ("record_id", "cache", "lfn")]
    checks += [
        F.when(~record[name].between(EARLIEST_US, LATEST_US), F.lit(f"{name} is not a time in microseconds since 1970"))
        for name in kind.times
        if name != "server_start_us"
    ]
    if kind.name == OPEN:
        checks += [
            F.when(record[f"{which}_lo_us"] > record[f"{which}_hi_us"], F.lit(f"{which}_lo_us is after {which}_hi_us"))
            for which in ("open", "close")
        ]
    if kind.name == DECISION:
        checks.append(F.when(~record["answer"].isin(*ANSWERS), F.lit(f"answer is none of {', '.join(ANSWERS)}")))
    return F.coalesce(*checks)
