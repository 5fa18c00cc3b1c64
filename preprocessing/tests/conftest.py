"""Real Kafka and real Spark for these tests: one broker, as few sessions as can be."""

import json
from pathlib import Path

import pytest

from smartcache.local import kafka, paths, ports


class Topics:
    """A broker with the topics of one test, and a producer."""

    def __init__(self, port):
        self.bootstrap = f"{ports.LOOPBACK}:{port}"

    def create(self, prefix):
        """Fresh topics; their names by kind of record."""
        from confluent_kafka.admin import AdminClient, NewTopic

        names = {kind: f"{prefix}.{kind}.v1" for kind in ("open", "decision", "pfc")}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in names.values()]).values():
            made.result()
        return names

    def send(self, names, records):
        """(kind, record as a dictionary or raw bytes): all are on the broker when this returns."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        for kind, record in records:
            raw = record if isinstance(record, bytes) else json.dumps(record).encode()
            key = None if isinstance(record, bytes) else f"{record.get('cache')}|{record.get('lfn')}"
            producer.produce(names[kind], raw, key=key)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    port, controller = ports.free_ports(2)
    with kafka.start(tmp_path_factory.mktemp("kafka"), port, controller):
        yield Topics(port)


@pytest.fixture(scope="module")
def write_config():
    """Write a configuration whose tables are under a folder; its path."""
    return _write_config


def _write_config(folder: Path, bootstrap="127.0.0.1:9", names=None, grace_s=4.0, more=""):
    folder.mkdir(parents=True, exist_ok=True)
    names = names or {"open": "o", "decision": "d", "pfc": "p"}
    path = folder / "smartcache.toml"
    path.write_text(f"""
[kafka]
bootstrap = "{bootstrap}"
fstream_topic = "{names["open"]}"
decision_topic = "{names["decision"]}"
pfc_topic = "{names["pfc"]}"
[spark]
master = "local[2]"
shuffle_partitions = 2
jars_dir = "{paths.SPARK_JARS}"
[streaming]
table = "{folder}/access"
quarantine = "{folder}/quarantine"
checkpoint = "{folder}/checkpoint"
trigger_s = 1.0
join_grace_s = {grace_s}
{more}
""")
    return path
