"""The records of ``docs/contracts.md`` as Spark reads them, and what makes one malformed.

The JSON Schemas that the collector writes by are in ``ingestion/schemas``; a test holds the types here against them. Fields that are not
named here are ignored: schemas grow by optional fields.
"""

from __future__ import annotations

from collections.abc import Collection
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
#: Nothing happens later than it was received but for clocks that differ; an open of a day to come would stay in the table for ever.
AHEAD_US = 86_400_000_000
#: More bytes than any file has (1 PiB): sums of some thousands of them are still numbers of 64 bits.
MOST = 1 << 50
#: Octets of the name of a folder, on local disks and HDFS.
LONGEST_NAME = 255
#: What Spark writes as % and two digits in the name of a partition's folder; other characters that it so writes are in no cache id.
_ESCAPED = "[\"#%'*/:=?\\\\\\[\\]^{]"

ANSWERS = ("admit", "bypass", "evict")
#: A state of a batch job; the other kinds are of an open of a file.
JOB = "job"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of record: its fields with their Spark types, and which of them a record must have."""

    name: str
    fields: tuple[tuple[str, str], ...]
    required: tuple[str, ...]

    @property
    def times(self) -> tuple[str, ...]:
        """The fields that are moments."""
        return tuple(name for name, _ in self.fields if name.endswith("_us") and name not in ("latency_us", "boot_us", "history_boot_us"))

    @property
    def counts(self) -> tuple[str, ...]:
        """The fields that are bytes, or how often something was done."""
        numbers = (name for name, kind in self.fields if kind == "long" and not name.endswith("_us"))
        return tuple(name for name in numbers if name not in ("v", "seq", "history_seq", "side_table", "exit_code"))

    def schema(self) -> StructType:
        """As Spark's type."""
        from pyspark.sql.types import ArrayType, StringType, StructType

        schema = StructType()
        for name, kind in self.fields:
            schema = schema.add(name, ArrayType(StringType()) if kind == "list" else kind, True)
        return schema


#: Where Spark puts the whole text if any of it is not as the schema says.
_NOT_AS_SAID = "_not_as_said"

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
            ("challenger_model", "string"),
            ("challenger_answer", "string"),
            ("challenger_score", "double"),
            ("latency_us", "double"),
            ("on_disk", "boolean"),
            ("size", "long"),
            ("fill", "double"),
            ("read_share", "double"),
            ("history_scanned", "boolean"),
            ("history_boot_us", "long"),
            ("history_seq", "long"),
            ("side_table", "long"),
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
    JOB: Kind(
        JOB,
        (
            ("record_id", "string"),
            ("job_id", "string"),
            ("record_us", "long"),
            ("recv_us", "long"),
            *((name, "string") for name in ("site", "workflow", "dataset", "type", "status")),
            *((name, "double") for name in ("cpu_s", "wall_s", "queue_s", "read_s")),
            *((name, "long") for name in ("b_input", "cores", "exit_code")),
            ("input_local", "boolean"),
        ),
        ("record_id", "job_id", "record_us", "recv_us", "site"),
    ),
}
#: What the access table is made of.
OF_OPENS = (OPEN, DECISION, PFC)


def topics(kafka: Kafka, kinds: Collection[str] = tuple(KINDS)) -> dict[str, str]:
    """Kind of record by topic, of those kinds."""
    every = {kafka.fstream_topic: OPEN, kafka.decision_topic: DECISION, kafka.pfc_topic: PFC, kafka.job_topic: JOB}
    return {topic: kind for topic, kind in every.items() if kind in kinds}


def parsed(messages: DataFrame, kafka: Kafka, kinds: Collection[str] = tuple(KINDS)) -> DataFrame:
    """Kafka's messages as records: their columns and `kind`, `record` (JSON), `reason` (null where it is well-formed); and for records of
    opens `cache` and `lfn`. ``kinds``: those that are on the topics of the messages.

    `record` is written anew from what was parsed, so it holds known fields of the right type and nothing else.
    """
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    # Each message is read once: as what its topic says.
    of_topic = {name: F.col("topic") == topic for topic, name in topics(kafka, kinds).items()}
    fields = messages.withColumns({f"_{name}": F.when(here, _read(text, KINDS[name])) for name, here in of_topic.items()})
    names, records, reasons, caches, lfns = [], [], [], [], []
    for topic, name in topics(kafka, kinds).items():
        here = F.col("topic") == topic
        record = F.col(f"_{name}")
        names.append(F.when(here, F.lit(name)))
        records.append(F.when(here, F.to_json(record.dropFields(_NOT_AS_SAID))))
        reasons.append(F.when(here, _reason(record, text, KINDS[name])))
        if name in OF_OPENS:
            caches.append(F.when(here, record["cache"]))
            lfns.append(F.when(here, record["lfn"]))
    return fields.withColumns(
        {
            "kind": F.coalesce(*names),
            "record": F.coalesce(*records),
            "reason": F.coalesce(*reasons),
            **({"cache": F.coalesce(*caches), "lfn": F.coalesce(*lfns)} if caches else {}),
        }
    ).drop(*(f"_{name}" for name in kinds))


def _read(text: Column, kind: Kind) -> Column:
    from pyspark.sql import functions as F

    schema = kind.schema().add(_NOT_AS_SAID, "string", True)
    return F.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _NOT_AS_SAID})


def _reason(record: Column, text: Column, kind: Kind) -> Column:
    """What is wrong with it, the first thing that is; null where nothing is."""
    from pyspark.sql import functions as F

    nothing = reduce(lambda left, right: left & right, [record[name].isNull() for name, _ in kind.fields])
    checks = [F.when(record.isNull() | nothing, F.lit("not a JSON object of this record"))]
    checks += [F.when(record[name].isNull(), F.lit(f"{name} is missing or has the wrong type")) for name in kind.required]
    # A field of another type is null, as if it were not there.
    bad = record[_NOT_AS_SAID].isNotNull()
    checks += [
        F.when(bad & record[name].isNull() & F.get_json_object(text, f"$.{name}").isNotNull(), F.lit(f"{name} has the wrong type"))
        for name, _ in kind.fields
        if name not in kind.required
    ]
    checks.append(F.when(bad, F.lit("not the JSON of this record")))
    checks += [
        F.when(F.length(record[name]) == 0, F.lit(f"{name} is empty")) for name in ("record_id", "cache", "lfn") if name in kind.required
    ]
    checks += [
        F.when(~record[name].between(EARLIEST_US, LATEST_US), F.lit(f"{name} is not a time in microseconds since 1970"))
        for name in kind.times
        if name != "server_start_us"
    ]
    # Every check stands for itself: Spark may try the later ones first, and a sum that is too large for 64 bits would end the query.
    latest = F.least(record["recv_us"], F.lit(LATEST_US)) + AHEAD_US
    checks += [
        F.when(record[name] > latest, F.lit(f"{name} is more than a day after recv_us"))
        for name in kind.times
        if name not in ("server_start_us", "recv_us")
    ]
    for name in kind.counts:
        least = -1 if name == "size" and kind.name != PFC else 0
        checks.append(F.when(~record[name].between(least, MOST), F.lit(f"{name} is not from {least} to {MOST}")))
    if "cache" in kind.required:
        checks += _of_folder(record["cache"])
    if kind.name == OPEN:
        checks += [
            F.when(record[f"{which}_lo_us"] > record[f"{which}_hi_us"], F.lit(f"{which}_lo_us is after {which}_hi_us"))
            for which in ("open", "close")
        ]
    if kind.name == DECISION:
        checks.append(F.when(~record["answer"].isin(*ANSWERS), F.lit(f"answer is none of {', '.join(ANSWERS)}")))
    return F.coalesce(*checks)


def _of_folder(cache: Column) -> list[Column]:
    """What is wrong with an id that is to name a folder of the access table: a batch whose folder cannot be made is tried for ever."""
    from pyspark.sql import functions as F

    name = F.concat(F.lit("cache="), F.regexp_replace(cache, _ESCAPED, "%00"))
    return [
        F.when(~cache.rlike(r"^[!-~]*\z"), F.lit("cache has other characters than visible ones of ASCII")),
        F.when(
            F.octet_length(name) > LONGEST_NAME, F.lit(f"cache is too long: its folder's name would have more than {LONGEST_NAME} octets")
        ),
    ]
