"""Records on their way to Kafka: into the spool first, from there to the producer, out of the spool once the broker has them.

There is one way only. A batch is appended to the spool (:mod:`.spool`) before it is sent; where all before it has been sent, it is handed
to the producer from memory, so that nothing is read back while the broker keeps up. Where the broker is away, the producer's queue fills
up, and what comes stays on disk, behind what is there already. So records of a key reach Kafka in the order in which they came:

- the producer is idempotent (acks=all): a broker that goes away and comes back gives neither loss, nor repetition, nor another order;
- where delivery fails for another reason (the topic is gone, the producer has a fatal error), all that waits for the broker is withdrawn
  and sent again, in order, from the last record on that Kafka had acknowledged. The same after a restart. Both repeat records; ids tell;
- a record that Kafka refuses as such (too large) is dropped and counted, since no repetition helps. Kafka refuses whole batches: what was
  on the way is sent again one by one, so that none of the others is dropped with it. What comes meanwhile waits in the spool.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from smartcache.config import Config

from .counters import Counters
from .jsontext import encode
from .output import Record, letter
from .segment import Frame
from .spool import Spool
from .topics import DEAD_LETTERS, PRODUCER, Topics, error_text, headers, with_dead_letters

#: Records appended to the spool at once, at most.
BATCH_RECORDS = 1024
#: A frame of more bytes is parted.
FRAME_BYTES = 8 << 20
#: What the producer is given before it has delivered, in messages and KiB; the rest stays on disk.
WINDOW_MESSAGES = 100_000
WINDOW_KIBIBYTES = 128 * 1024
#: Records read back from the spool and given to the producer before the sockets get their turn again.
TURN_RECORDS = 4096
#: How long to wait after a failed delivery before all is sent again.
AGAIN_S = 1.0
#: How often what is shown of the spool is brought up to date.
SURVEY_S = 0.1
#: A broker that answers, and yet acknowledges nothing for so long, has lost the topic: then all is sent again.
STALLED_S = 30.0
#: Failures of one record that no repetition helps against.
_REFUSED = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError.RECORD_LIST_TOO_LARGE))


class Left(NamedTuple):
    """What Kafka did not have at the end: records in the spool for the next start, and records that are nowhere."""

    spooled: int
    lost: int


@dataclass(slots=True, eq=False)
class _Block:
    """A frame that the producer has: ``end`` is the position behind it (None: it is not in the spool), ``left`` waits for the broker."""

    sink: KafkaSink
    stream: str
    time_us: int
    end: int | None
    left: int
    count: int
    refused: int = 0
    withdrawn: bool = False

    def report(self, error: KafkaError | None, _: object) -> None:
        """Take librdkafka's word on one record."""
        if error is None:
            self.left -= 1
        elif not self.withdrawn:
            self.sink.failed(self, error)


class KafkaSink:
    """The :class:`.output.Output` that produces to Kafka. One thread calls everything but ``ensure_topics`` and ``probe``."""

    def __init__(self, config: Config, counters: Counters, say: Callable[[str], None]) -> None:
        """``say`` takes what a person should know. Nothing is connected to yet. SpoolError where the spool cannot be used."""
        self._config = config.kafka
        self._counters = counters
        self._say = say
        self._routes = {stream: (topic, headers(stream)) for stream, topic in with_dead_letters(config.kafka).items()}
        self._batches: dict[str, tuple[list[bytes | None], list[bytes]]] = {stream: ([], []) for stream in self._routes}
        self._batched = 0
        client = {"bootstrap.servers": config.kafka.bootstrap, "client.id": "smartcache-collector", "log_level": 0}
        self._client = {**client, "error_cb": self._on_error}
        self._topics = Topics(config.kafka, {**client, "error_cb": lambda _: None}, say)
        self._spool = Spool(config.spool, say, self._on_lost)
        self._blocks: deque[_Block] = deque()
        self._sending: tuple[_Block, Frame, int] | None = None
        self._flying: dict[str, int] = {}
        self._again_at = 0.0
        self._moved_at = time.monotonic()
        self._failure = ""
        #: Up to this position of the spool records are sent one by one; nothing behind it is, until Kafka has all before it.
        self._singly_until: int | None = None
        self._producer = self._connect()
        #: Whether the topics are there: nothing is sent before.
        self.open = False
        #: Whether no broker answers, and since when (Unix seconds).
        self.away = False
        self.away_since_s = 0.0
        #: Records that Kafka does not have yet, by stream, and when the oldest of them came (Unix microseconds, 0: none), as of the last
        #: :meth:`poll`.
        self.lag: dict[str, int] = {}
        self.oldest_us = 0
        self._survey_due = 0.0
        self._told_away = False
        self._survey()

    def record(self, stream: str, record: Record) -> None:
        """See :class:`.output.Output`."""
        self._add(stream, f"{record['cache']}|{record['lfn']}".encode(), encode(record).encode())

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """See :class:`.output.Output`."""
        self._add(stream + DEAD_LETTERS, None, encode(letter(stream, reason, raw, recv_us)).encode())

    def encoded(self, stream: str, key: bytes, value: bytes) -> None:
        """Take one finished record as it is sent: JSON, with the key that :meth:`record` would give it."""
        self._add(stream, key, value)

    def commit(self) -> None:
        """Put what was taken into the spool: from now on it survives the death of this process. Does not wait for Kafka."""
        if not self._batched:
            return
        self._batched = 0
        now_us = time.time_ns() // 1000
        for stream, (keys, values) in self._batches.items():
            if values:
                self._batches[stream] = ([], [])
                self._take(Frame(stream, now_us, keys, values))

    def poll(self) -> None:
        """Serve librdkafka's callbacks and send what waits; call it several times a second. Does not wait for Kafka."""
        self._serve(0)
        self._settle()
        if self._blocks and not self.away and time.monotonic() - self._moved_at > STALLED_S:
            self._fail(f"nothing was acknowledged for {STALLED_S:.0f} s")
        if self._failure:
            self._withdraw()
        elif self.open:
            self._pump()
        now_s = time.monotonic()
        self._spool.tick(now_s)
        if now_s >= self._survey_due:
            self._survey_due = now_s + SURVEY_S
            self._survey()

    @property
    def eager(self) -> bool:
        """Whether there is something to send and room to send it: call ``poll`` again soon."""
        if not self.open or self._failure or self._sending is not None or self._held_back:
            return False
        return not (self._spool.caught_up or self._spool.resting)

    @property
    def in_flight(self) -> int:
        """Records that the producer has and the broker has not acknowledged."""
        return len(self._producer)

    @property
    def spool_bytes(self) -> int:
        """What the spool takes on disk."""
        return self._spool.held_bytes

    @property
    def spool_trouble(self) -> str:
        """What is wrong with the spool's disk; empty where nothing is."""
        return self._spool.trouble

    def has_spool_folder(self) -> bool:
        """Whether the spool's folder is its own: where a disk is not mounted any more, another one may be in its place."""
        return self._spool.has_folder()

    @property
    def wants_topics(self) -> bool:
        """Whether ``ensure_topics`` is to be called (again)."""
        return not self.open and time.monotonic() >= self._again_at

    def ensure_topics(self) -> None:
        """Create and check the topics, then sending begins. Raises as :meth:`.topics.Topics.ensure` does; waits for the broker's answer."""
        self._topics.ensure()
        self._is_back()
        self.open = True

    def probe(self) -> None:
        """Ask a broker that is away whether it is back; :class:`BrokerAway` where it is not."""
        self._topics.probe()
        self._is_back()

    def close(self, timeout_s: float) -> Left:
        """Wait up to ``timeout_s`` for Kafka to take everything, not at all where it is known to be away; the rest stays in the spool."""
        self.commit()
        deadline = time.monotonic() + timeout_s
        while self.open and time.monotonic() < deadline and (self._blocks or self._sending or not self._spool.caught_up):
            if self.away and all(block.end is not None for block in self._blocks):
                break
            self._serve(0.02)
            self.poll()
        self._survey()
        waiting = sum(self.lag.values())
        lost = self._abandon()
        self._producer.purge()
        self._serve(0)
        self._spool.close()
        return Left(waiting - lost, lost)

    # --- into the spool ---------------------------------------------------------------------------------------------------------------

    def _add(self, stream: str, key: bytes | None, value: bytes) -> None:
        keys, values = self._batches[stream]
        keys.append(key)
        values.append(value)
        self._batched += 1
        if self._batched >= BATCH_RECORDS:
            self.commit()

    def _take(self, frame: Frame) -> None:
        stream, time_us, keys, values = frame
        count = len(values)
        if count > 1 and sum(map(len, values)) > FRAME_BYTES:
            self._take(Frame(stream, time_us, keys[: count // 2], values[: count // 2]))
            self._take(Frame(stream, time_us, keys[count // 2 :], values[count // 2 :]))
            return
        direct = self.open and not self._failure and self._sending is None and self._singly_until is None and self._spool.caught_up
        self.lag[stream] = self.lag.get(stream, 0) + count
        end = self._spool.append(frame)
        if end is not None:
            self._counters.add("records_spooled", stream, count=count)
            if direct:
                self._spool.skip(frame)
        elif not direct:
            self._counters.add("records_dropped", stream, "disk_full", count)
            return
        if direct:
            self._begin(frame, end)
            self._push()

    # --- from the spool to the broker -------------------------------------------------------------------------------------------------

    @property
    def _held_back(self) -> bool:
        """Whether the next record in the spool waits until all before it, which are sent one by one, are with Kafka."""
        return self._singly_until is not None and self._spool.next >= self._singly_until

    def _pump(self) -> None:
        limit = TURN_RECORDS
        while limit > 0:
            if self._sending is None:
                if self._held_back:
                    return
                found = self._spool.read()
                if found is None:
                    return
                self._begin(*found)
                limit -= len(found[0].values)
            self._push()
            if self._sending is not None:
                return

    def _serve(self, timeout_s: float) -> None:
        """librdkafka's callbacks; the exception that it makes of a fatal error is one more failure of delivery."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            self._fail(error_text(error))

    def _begin(self, frame: Frame, end: int | None) -> None:
        count = len(frame.values)
        block = _Block(self, frame.stream, frame.time_us, end, count, count)
        if not self._blocks:
            self._moved_at = time.monotonic()
        self._blocks.append(block)
        self._flying[frame.stream] = self._flying.get(frame.stream, 0) + count
        if frame.stream in self._routes:
            self._sending = (block, frame, 0)
        else:  # a spool that another version of this program has written
            self._counters.add("records_dropped", frame.stream, "unknown_stream", count)
            block.left, block.refused = 0, count

    def _push(self) -> None:
        """Give the producer the frame at hand, as far as it has room."""
        if self._sending is None:
            return
        block, frame, start = self._sending
        produce, report = self._producer.produce, block.report
        topic, headers = self._routes[frame.stream]
        keys, values = frame.keys, frame.values
        for index in range(start, len(values)):
            try:
                produce(topic, values[index], keys[index], headers=headers, on_delivery=report)
            except BufferError:
                self._sending = (block, frame, index)
                return
            except KafkaException as error:
                self.failed(block, error.args[0])
                if self._failure:
                    self._sending = None
                    return
        self._sending = None

    def failed(self, block: _Block, error: KafkaError) -> None:
        """A record of ``block`` was not delivered: drop it where Kafka does not want it, else have all sent again."""
        if error.code() in _REFUSED and self._singly:
            block.left -= 1
            block.refused += 1
            self._counters.add("records_dropped", block.stream, "refused")
            return
        if error.code() in _REFUSED:
            self._singly_until = self._spool.end
        self._fail(str(error.str()))

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._again_at = time.monotonic() + AGAIN_S

    def _settle(self) -> None:
        """Forget what the broker has: the blocks at the front of which nothing is left."""
        blocks, end = self._blocks, None
        if not blocks or not blocks[0].left or self.away:
            self._moved_at = time.monotonic()
        while blocks and not blocks[0].left:
            block = blocks.popleft()
            self._counters.add("records_delivered", block.stream, count=block.count - block.refused)
            self._flying[block.stream] -= block.count
            end = block.end if block.end is not None else end
        if end is not None:
            self._spool.acknowledge(end)
        if self._held_back and not blocks and not self._failure:
            self._singly_until = None
            self._producer = self._connect()

    def _withdraw(self) -> None:
        """After a failure: a new producer, and all again from what was acknowledged last."""
        repeated = sum(self._flying.values())
        self._say(
            f"delivery to Kafka at {self._config.bootstrap} failed ({self._failure}); the {repeated} records on the way are sent again"
        )
        self._producer.purge()
        self._serve(0.1)  # with the last word on each record: some may be refused as such
        lost = self._abandon()
        self._counters.add("deliveries_repeated", "kafka", count=repeated - lost)
        self._producer = self._connect()
        self._spool.rewind()
        self._failure = ""
        self.open = False

    def _abandon(self) -> int:
        """Count what is on the way to the broker and cannot be read again; how many records that is."""
        lost = 0
        for block in self._blocks:
            block.withdrawn = True
            if block.end is None or block.end <= self._spool.begin:
                self._counters.add("records_dropped", block.stream, "disk_full" if block.end is None else "spool_full", block.left)
                lost += block.left
        self._blocks.clear()
        self._flying.clear()
        self._sending = None
        return lost

    def _connect(self) -> Producer:
        self._singly = singly = self._singly_until is not None
        return Producer(
            {
                **self._client,
                **PRODUCER,
                **({"batch.num.messages": 1} if singly else {}),
                "enable.gapless.guarantee": not singly,  # where one fails for good, none behind it may be delivered
                "queue.buffering.max.messages": WINDOW_MESSAGES,
                "queue.buffering.max.kbytes": WINDOW_KIBIBYTES,
            }
        )

    # --- what others are told ---------------------------------------------------------------------------------------------------------

    def _survey(self) -> None:
        unread = self._spool.unread
        self.lag = {stream: unread.get(stream, 0) + self._flying.get(stream, 0) for stream in {**unread, **self._flying, **self._routes}}
        self.oldest_us = self._blocks[0].time_us if self._blocks else self._spool.oldest_unread_us

    def _on_lost(self, stream: str, cause: str, count: int) -> None:
        self._counters.add("records_dropped" if stream != "spool" else "spool_damaged", stream, cause, count)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fail(error.str())
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and not self.away:
            self.away_since_s = time.time()
            self.away = True
            if self.open:  # else whoever waits for the topics says so
                self._told_away = True
                self._say(f"Kafka at {self._config.bootstrap} is away; records wait in the spool")

    def _is_back(self) -> None:
        self.away = False
        if self._told_away:
            self._told_away = False
            self._say(f"Kafka at {self._config.bootstrap} is back")
