"""Every record of every captured packet, field by field, against what a plain reading of the bytes gave (:mod:`golden_records`)."""

from __future__ import annotations

import json

import golden_records
import pytest

from smartcache.ingestion.gstream import GStreamHandler
from smartcache.ingestion.opens import FStreamHandler

NOW = 1_800_000_000_000_000


@pytest.mark.parametrize(("name", "stream"), golden_records.CAPTURES.items())
def test_each_record_of_a_capture_is_what_it_was(name, stream, captured, output, counters):
    handler = (
        GStreamHandler(output, counters, encoded=output.encoded)
        if stream == "gstream"
        else FStreamHandler(output, counters, golden_records.PSEUDONYMS)
    )
    for raw in captured(f"{name}.jsonl"):
        handler.handle(raw, "192.0.2.1", NOW)
    handler.close(NOW)
    expected = [json.loads(line) for line in (golden_records.FOLDER / f"{name}.jsonl").read_text().splitlines()]
    assert {record.pop("recv_us") for record in output.records} == {NOW}
    assert sorted(output.records, key=lambda record: record["record_id"]) == expected
