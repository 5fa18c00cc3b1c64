"""Kafka's topics: which stream goes to which, created where they are absent, checked where they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic, ResourceType, TopicMetadata

from smartcache.config import Kafka

#: What a dead letter's stream is called, behind the name of the stream that it comes from.
DEAD_LETTERS = ".dlq"
#: The largest message that the producer sends, in bytes, as librdkafka's default has it: a topic must take as much.
MAX_MESSAGE_BYTES = 1_000_000
#: How records are produced, by librdkafka's names: each once and in order per key, for as long as the process lives. One request at a time:
#: of a producer that it does not know yet a broker takes any batch as the first one. Where it refuses the first (it does not lead the new
#: partition yet) and takes the second, it holds the first, sent again, for a repetition, drops it, and says that it has it.
PRODUCER: dict[str, str | int | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "max.in.flight.requests.per.connection": 1,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # as Java clients do
    "linger.ms": 20,
    "batch.num.messages": 10_000,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "message.timeout.ms": 0,  # how long to wait is decided by who sends
    "reconnect.backoff.max.ms": 2_000,
}
#: How long one question to the broker may take.
TIMEOUT_S = 5.0
_CREATE_TIMEOUT_S = 30.0


class SinkError(Exception):
    """Kafka refuses what is asked of it; waiting does not help. The text says what to change."""


class BrokerAway(Exception):
    """No broker answers; worth another try."""


#: What the dead letters of every stream are.
DEAD_LETTER_SCHEMA: Final = "xcache.dead-letter.v1"
#: What the records of each stream are, whatever their topic is called: the names and versions of the JSON Schemas.
SCHEMAS: Final = {
    "gstream": "xcache.pfc.v1",
    "fstream": "xcache.fstream.v1",
    "decision": "xcache.decision.v1",
    "cinfo": "xcache.cinfo.v1",
    "job": "xcache.job.v1",
}


def headers(stream: str) -> list[tuple[str, bytes]]:
    """The headers of a record of ``stream``, or of a dead letter of it (:func:`with_dead_letters`)."""
    if stream.endswith(DEAD_LETTERS):
        return [("schema", DEAD_LETTER_SCHEMA.encode())]
    return [("schema", SCHEMAS[stream].encode())]


def topics(config: Kafka) -> dict[str, str]:
    """The topic of each stream."""
    return {
        "gstream": config.pfc_topic,
        "fstream": config.fstream_topic,
        "decision": config.decision_topic,
        "cinfo": config.cinfo_topic,
        "job": config.job_topic,
    }


def with_dead_letters(config: Kafka) -> dict[str, str]:
    """The topic of each stream, and of each stream's dead letters under the stream's name and :data:`DEAD_LETTERS`."""
    named = topics(config)
    return named | {stream + DEAD_LETTERS: topic + config.dlq_suffix for stream, topic in named.items()}


def error_text(error: KafkaException) -> str:
    """What librdkafka says of it."""
    return str(error.args[0].str())


class Topics:
    """The topics at one cluster. Blocks while it asks: to be called from a thread that may wait."""

    def __init__(self, config: Kafka, client: Mapping[str, object], say: Callable[[str], None]) -> None:
        """``client`` is librdkafka's configuration for reaching the cluster; nothing is connected to yet."""
        self._config = config
        self._client = dict(client)
        self._say = say
        self._told: set[str] = set()

    def ensure(self) -> None:
        """Create the topics that are absent; of those that are there, say once what would lose records.

        :class:`BrokerAway` where no broker answers, or too few are there yet; :class:`SinkError` where it refuses.
        """
        try:
            self._ensure(AdminClient(self._client))
        except KafkaException as error:
            raise BrokerAway(error_text(error)) from error

    def _ensure(self, admin: AdminClient) -> None:
        present = self._present(admin)
        wanted = list(dict.fromkeys(with_dead_letters(self._config).values()))
        self._create(admin, [name for name in wanted if name not in present])
        for topic in (present[name] for name in wanted if name in present):
            for warning in self._judge(admin, topic):
                if warning not in self._told:
                    self._told.add(warning)
                    self._say(warning)

    def probe(self) -> None:
        """:class:`BrokerAway` where no broker answers."""
        self._present(AdminClient(self._client))

    def _present(self, admin: AdminClient) -> dict[str, TopicMetadata]:
        try:
            return dict(admin.list_topics(timeout=TIMEOUT_S).topics)
        except KafkaException as error:
            raise BrokerAway(error_text(error)) from error

    def _create(self, admin: AdminClient, names: list[str]) -> None:
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(round(self._config.retention_s * 1000)),
            "min.insync.replicas": str(max(1, self._config.replication - 1)),
        }
        new = [
            NewTopic(name, num_partitions=self._config.partitions, replication_factor=self._config.replication, config=settings)
            for name in names
        ]
        for name, answer in admin.create_topics(new, operation_timeout=_CREATE_TIMEOUT_S).items() if new else ():
            try:
                answer.result(_CREATE_TIMEOUT_S)
            except KafkaException as error:
                code = error.args[0]
                if code.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if code.retriable() or code.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                    raise BrokerAway(error_text(error)) from error
                if code.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    # A cluster that starts has too few for a while.
                    raise BrokerAway(
                        f"topic {name} wants [kafka] replication {self._config.replication} brokers, and there are fewer "
                        f"({error_text(error)}); start them, or lower it"
                    ) from error
                raise SinkError(
                    f"topic {name} cannot be created: {error_text(error)}; create it, or change [kafka] partitions, replication"
                ) from error
            except TimeoutError as error:
                raise BrokerAway(f"topic {name} was not created in time") from error

    def _judge(self, admin: AdminClient, topic: TopicMetadata) -> Iterator[str]:
        name = topic.topic
        partitions = len(topic.partitions)
        if partitions < self._config.partitions:
            yield (
                f"topic {name} has {partitions} partitions, [kafka] partitions says {self._config.partitions}; "
                "it is used as it is (more partitions would part the records of a file)"
            )
        replicas = min((len(each.replicas) for each in topic.partitions.values()), default=0)
        if replicas < self._config.replication:
            yield (
                f"topic {name} has {replicas} replicas, [kafka] replication says {self._config.replication}: fewer brokers may fail; "
                "reassign its partitions, or lower the setting"
            )
        try:
            resource = ConfigResource(ResourceType.TOPIC, name)
            entries = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            said = error_text(error) if isinstance(error, KafkaException) else "no answer in time"
            yield f"topic {name}: its settings cannot be read ({said}), so what would lose records there is not checked"
            return
        for rule in _rules(self._config, replicas):
            value = _value(entries, rule.setting)
            if value and not rule.holds(value):
                yield f"topic {name}: {rule.setting} is {value}, {rule.meaning}; set {rule.setting}={rule.fix}"


@dataclass(frozen=True)
class _Rule:
    setting: str
    holds: Callable[[str], bool]
    meaning: str
    fix: str


def _rules(config: Kafka, replicas: int) -> list[_Rule]:
    retention_ms = round(config.retention_s * 1000)
    return [
        _Rule("cleanup.policy", lambda v: v == "delete", "so earlier records of a file are removed when later ones come", "delete"),
        _Rule(
            "retention.ms",
            lambda v: int(v) < 0 or int(v) >= retention_ms,
            f"so records go before [kafka] retention_s {config.retention_s:g} is over",
            str(retention_ms),
        ),
        _Rule("retention.bytes", lambda v: int(v) < 0, "so records go as soon as a partition is that large, read or not", "-1"),
        _Rule(
            "max.message.bytes",
            lambda v: int(v) >= MAX_MESSAGE_BYTES,
            f"so larger records are refused (up to {MAX_MESSAGE_BYTES} are sent)",
            str(MAX_MESSAGE_BYTES),
        ),
        _Rule(
            "min.insync.replicas",
            lambda v: int(v) <= replicas,
            f"so nothing can be written: it has {replicas} replicas",
            str(max(1, replicas - 1)),
        ),
        _Rule(
            "unclean.leader.election.enable",
            lambda v: v == "false",
            "so acknowledged records are lost when a broker without them becomes the leader",
            "false",
        ),
    ]


def _value(entries: Mapping[str, ConfigEntry], name: str) -> str:
    entry = entries.get(name)
    return str(entry.value) if entry is not None and entry.value is not None else ""
