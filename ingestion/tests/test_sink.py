"""The way from the spool to the producer, where the disk gives nothing for a while."""

from __future__ import annotations

import resource

from smartcache.config import load
from smartcache.ingestion.counters import Counters
from smartcache.ingestion.sink import KafkaSink
from smartcache.local.ports import LOOPBACK


def test_a_spool_that_cannot_be_read_is_not_asked_all_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr("smartcache.ingestion.spool.READ_AGAIN_S", 600.0)  # none of it passes between two lines here
    config = tmp_path / "c.toml"
    config.write_text(f'[kafka]\nbootstrap = "{LOOPBACK}:1"\n[spool]\ndir = "{tmp_path / "spool"}"\n')
    said = []
    sink = KafkaSink(load(config), Counters(), said.append)
    try:
        for number in range(5):
            sink.encoded("gstream", b"h:1|/f", b"%d" % number)
        sink.commit()
        sink.open = True  # as once the topics are there; the producer takes records for a broker that is away
        assert sink.eager
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            sink.poll()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert sink.spool_trouble == "cannot be read: Too many open files"
        assert not sink.eager
        assert sink.lag["gstream"] == 5
    finally:
        sink.close(0)
    assert len([text for text in said if "cannot be read" in text]) == 1
