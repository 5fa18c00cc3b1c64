"""Kafka: records to their topics, what did not parse to the dead letter topics.

The producer is idempotent (acks=all), so a broker that goes away and comes back gives neither loss nor repetition nor another order within
a key. While it is away, records wait in librdkafka's own queue, in memory, for as long as there is room; when that is full, new ones are
dropped and counted. (Nothing survives the end of this process: there is no spool on disk yet.)
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from smartcache.config import Kafka

from .counters import Counters
from .jsontext import encode
from .output import Record

#: What waits for the broker, at most: five minutes of 1500 records/s, or 256 MiB.
QUEUE_MESSAGES = 500_000
QUEUE_KIBIBYTES = 256 * 1024
#: How long one question to the broker about topics may take.
ADMIN_TIMEOUT_S = 5.0
_CREATE_TIMEOUT_S = 30.0


class SinkError(Exception):
    """Kafka refuses what is asked of it; waiting does not help. The text says what to change."""


class BrokerAway(Exception):
    """No broker answers; worth another try."""


class KafkaSink:
    """The :class:`.output.Output` that produces to Kafka. One thread calls everything but ``ensure_topics``, which may block another."""

    def __init__(self, config: Kafka, counters: Counters, say: Callable[[str], None]) -> None:
        """``say`` takes what a person should know: when the broker is gone, and when it is back. Nothing is connected to yet."""
        self._config = config
        self._counters = counters
        self._say = say
        self._topics = {"gstream": config.pfc_topic, "fstream": config.fstream_topic, "decision": config.decision_topic}
        self._dead_letter_topics = {stream: topic + config.dlq_suffix for stream, topic in self._topics.items()}
        self._headers = {topic: [("schema", topic.encode())] for topic in (*self._topics.values(), *self._dead_letter_topics.values())}
        self._queued_ever = 0
        self._failed = 0
        self._away_since_delivered: int | None = None
        self.fatal = ""
        common = {"bootstrap.servers": config.bootstrap, "client.id": "smartcache-collector", "log_level": 0, "error_cb": self._on_error}
        self._admin_config = {**common, "error_cb": lambda _: None}
        self._producer = Producer(
            {
                **common,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "partitioner": "murmur2_random",  # as Java clients do
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_KIBIBYTES,
                "message.timeout.ms": 0,  # a broker may be away for as long as the queue has room
                "reconnect.backoff.max.ms": 2_000,
                "delivery.report.only.error": True,
                "on_delivery": self._on_failed,
            }
        )

    def record(self, stream: str, record: Record) -> None:
        """See :class:`.output.Output`."""
        self._produce(stream, self._topics[stream], f"{record['cache']}|{record['lfn']}".encode(), encode(record).encode())

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """See :class:`.output.Output`."""
        letter = {"reason": reason, "stream": stream, "recv_us": recv_us, "raw": base64.b64encode(raw).decode()}
        self._produce(stream, self._dead_letter_topics[stream], None, encode(letter).encode())

    def poll(self) -> None:
        """Serve librdkafka's callbacks; call it several times a second. Does not block."""
        self._producer.poll(0)
        if self._away_since_delivered is not None and self.delivered > self._away_since_delivered:
            self._away_since_delivered = None
            self._say(f"Kafka at {self._config.bootstrap} is back")

    @property
    def queued(self) -> int:
        """Records that wait for the broker's acknowledgement."""
        return len(self._producer)

    @property
    def delivered(self) -> int:
        """Records that the broker has acknowledged."""
        return self._queued_ever - self._failed - len(self._producer)

    def ensure_topics(self) -> None:
        """Create the topics that are absent, look at those that are there.

        :class:`BrokerAway` where no broker answers; :class:`SinkError` where it refuses.
        """
        admin = AdminClient(self._admin_config)
        wanted = [*self._topics.values(), *self._dead_letter_topics.values()]
        try:
            present = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        except KafkaException as error:
            raise BrokerAway(_text(error)) from error
        for name in wanted:
            if name in present and len(present[name].partitions) < self._config.partitions:
                self._say(
                    f"topic {name} has {len(present[name].partitions)} partitions, [kafka] partitions says {self._config.partitions}; "
                    "it is used as it is (more partitions would part the records of a file)"
                )
        new = [
            NewTopic(name, num_partitions=self._config.partitions, replication_factor=self._config.replication)
            for name in wanted
            if name not in present
        ]
        if not new:
            return
        for name, answer in admin.create_topics(new, operation_timeout=_CREATE_TIMEOUT_S).items():
            try:
                answer.result(_CREATE_TIMEOUT_S)
            except KafkaException as error:
                code = error.args[0]
                if code.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if code.retriable() or code.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                    raise BrokerAway(_text(error)) from error
                raise SinkError(
                    f"topic {name} cannot be created: {_text(error)}; create it, or change [kafka] partitions, replication"
                ) from error
            except TimeoutError as error:
                raise BrokerAway(f"topic {name} was not created in time") from error

    def close(self, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` for what is queued; how many records were left behind (they are counted as dropped)."""
        deadline = time.monotonic() + timeout_s
        while self.queued and not self.fatal and time.monotonic() < deadline:
            self._producer.flush(0.1)
            self.poll()
        left = self.queued
        if left:
            self._counters.add("records_dropped", "kafka", "undelivered_at_exit", left)
        return left

    def _produce(self, stream: str, topic: str, key: bytes | None, value: bytes) -> None:
        for last_try in (False, True):
            try:
                self._producer.produce(topic, value, key, headers=self._headers[topic])
            except BufferError:
                if last_try:
                    self._counters.add("records_dropped", stream, "queue_full")
                self._producer.poll(0)
            except KafkaException as error:
                self._counters.add("records_dropped", stream, "refused")
                if error.args[0].fatal():
                    self.fatal = _text(error)
                return
            else:
                self._queued_ever += 1
                return

    def _on_failed(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self._failed += 1
            self._counters.add("records_dropped", "kafka", "delivery_failed")

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = error.str()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._away_since_delivered is None:
            self._away_since_delivered = self.delivered
            self._say(
                f"Kafka at {self._config.bootstrap} is away; records wait in memory (up to {QUEUE_MESSAGES}), then new ones are dropped"
            )


def _text(error: KafkaException) -> str:
    return str(error.args[0].str())
