"""The types that Spark reads with against the JSON Schemas that the collector writes by."""

import json
from pathlib import Path

import pytest

from smartcache.config import load
from smartcache.preprocessing.records import AHEAD_US, KINDS, MOST, OF_OPENS, parsed, topics

SCHEMAS = Path(__file__).parents[2] / "ingestion" / "schemas"
TYPES = {"string": "string", "long": "integer", "double": "number", "boolean": "boolean", "list": "array"}


def allowed(property_schema):
    types = property_schema.get("type", [])
    found = {types} if isinstance(types, str) else set(types)
    for way in ("anyOf", "oneOf"):
        for each in property_schema.get(way, []):
            found |= allowed(each)
    if "enum" in property_schema and not found:
        found = {"string"}
    return found - {"null"}


@pytest.mark.parametrize(("topic", "kind"), topics(load().kafka).items())
def test_fields_are_those_of_the_schema(topic, kind):
    schema = json.loads((SCHEMAS / f"{topic}.json").read_text())
    properties = schema["properties"]
    for name, spark_type in KINDS[kind].fields:
        if name == "v":
            continue
        assert name in properties, f"{topic} has no {name}"
        wanted = TYPES[spark_type]
        # A double takes what the schema calls an integer; the other way round it would be read as missing.
        assert allowed(properties[name]) <= ({wanted, "integer"} if wanted == "number" else {wanted}), name
    assert set(KINDS[kind].required) <= set(schema["required"]), "we ask for more than the collector promises"


T0_US = 1_790_000_000_000_000
#: Well-formed ones.
RECORDS = {
    "open": {"open_lo_us": T0_US, "open_hi_us": T0_US, "size": -1, "b_read": 0, "b_readv": MOST, "close_hi_us": None},
    "decision": {"t_us": T0_US, "answer": "admit", "reason": "rule", "on_disk": False, "size": -1, "fill": 0.5, "boot_us": 1, "seq": 1},
    "pfc": {"attach_us": T0_US, "detach_us": T0_US, "b_hit": 0, "b_miss": MOST, "b_bypass": 0, "size": 0, "server_start_us": T0_US},
    "job": {"job_id": "x", "record_us": T0_US, "site": "T2", "b_input": 0, "cores": 1, "exit_code": -9, "cpu_s": None},
}
COMMON = {"record_id": "r", "recv_us": T0_US}


def reasons(spark, records):
    """What is wrong with each of (kind, record)."""
    kafka = load().kafka
    topic = {kind: name for name, kind in topics(kafka).items()}
    made = []
    for number, (kind, record) in enumerate(records):
        where = {"cache": "c:1", "lfn": "/a"} if kind in OF_OPENS else {}
        made.append((number, topic[kind], json.dumps({**COMMON, **where, **record}).encode()))
    rows = parsed(spark.createDataFrame(made, "number int, topic string, value binary"), kafka).select("number", "reason")
    return [row["reason"] for row in sorted(rows.collect())]


@pytest.mark.slow
def test_what_is_malformed(spark):
    cases = [(kind, record, None) for kind, record in RECORDS.items()]
    for kind, record in RECORDS.items():
        for name in KINDS[kind].counts:
            least = -1 if name == "size" and kind != "pfc" else 0
            told = f"{name} is not from {least} to {MOST}"
            cases += [(kind, record | {name: value}, None) for value in (least, MOST)]
            cases += [(kind, record | {name: value}, told) for value in (least - 1, MOST + 1, 2**63 - 1, -(2**63))]
        for name in {*KINDS[kind].times} - {"recv_us", "server_start_us", "open_lo_us"}:
            cases.append((kind, record | {name: T0_US + AHEAD_US}, None))
            cases.append((kind, record | {name: T0_US + AHEAD_US + 1}, f"{name} is more than a day after recv_us"))
        for name, type_of in KINDS[kind].fields:
            told = f"{name} is missing or has the wrong type" if name in KINDS[kind].required else f"{name} has the wrong type"
            wrong = {"long": (2**63, 1.5, "x", True, [1]), "double": ("x", [1.5]), "boolean": (1, "x"), "list": ("x", 1), "string": ()}
            cases += [(kind, record | {name: value}, told) for value in wrong[type_of]]
            cases.append((kind, record | {name: None}, told if name in KINDS[kind].required else None))
    assert {name for kind in RECORDS for name in KINDS[kind].counts} > {
        "b_read",
        "b_readv",
        "b_hit",
        "b_miss",
        "b_todisk",
        "blk_size",
        "cores",
    }
    assert reasons(spark, [(kind, record) for kind, record, _ in cases]) == [told for _, _, told in cases]


@pytest.mark.slow
def test_caches_that_pass_are_folders(spark, tmp_path):
    """Each character, alone and as often as it fits into a name: Spark writes them all, and what is one longer is malformed."""
    escaped = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.escapePathName
    most = {character: (255 - len("cache=")) // len(escaped(character)) for character in map(chr, range(0x21, 0x7F))}
    fit = [*most, *(character * count for character, count in most.items())]
    longer = [character * (count + 1) for character, count in most.items()]
    told = reasons(spark, [("open", RECORDS["open"] | {"cache": cache}) for cache in (*fit, *longer)])
    assert told == [None] * len(fit) + ["cache is too long: its folder's name would have more than 255 octets"] * len(longer)
    table = str(tmp_path / "table")
    spark.createDataFrame([(cache, 1) for cache in fit], "cache string, n int").coalesce(1).write.partitionBy("cache").parquet(table)
    assert sorted(row["cache"] for row in spark.read.schema("n int, cache string").parquet(table).collect()) == sorted(fit)
    others = ["a b", "caf\u00e9:1", "c:1\n", "\x00", "\x7f"]
    assert set(reasons(spark, [("pfc", RECORDS["pfc"] | {"cache": cache}) for cache in others])) == {
        "cache has other characters than visible ones of ASCII"
    }
