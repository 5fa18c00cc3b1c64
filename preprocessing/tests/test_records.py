"""The types that Spark reads with against the JSON Schemas that the collector writes by."""

import json
from pathlib import Path

import pytest

from smartcache.config import load
from smartcache.preprocessing.records import KINDS, topics

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
