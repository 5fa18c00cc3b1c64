"""The collector as one process: sockets, handlers, Kafka, metrics, and a clean end.

One thread receives, parses and produces. A second one serves metrics; a third waits for the broker at the start and ends once the topics
are there. Packets are taken from the first moment on: until the broker is there they wait in the producer's queue.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import sys
import threading
import time
from types import FrameType

from smartcache.config import Config

from . import pseudonym
from .counters import Counters
from .decision import DecisionHandler
from .gstream import GStreamHandler
from .metrics import MetricsServer
from .opens import FStreamHandler
from .output import Handler
from .receiver import Receiver
from .sink import BrokerAway, KafkaSink, SinkError

#: Datagrams taken from one socket before the next gets its turn.
BATCH = 256
#: The loop turns at least this often, for callbacks and signals.
TURN_S = 0.2
#: A loop that has not turned for this long is not well.
STUCK_S = 15.0
#: How long the end waits for the broker.
FLUSH_S = 15.0
#: How long what is still in the sockets may take at the end.
DRAIN_S = 5.0
_RETRY_S = 1.0


def say(text: str) -> None:
    """Tell a person, on standard error."""
    print(f"smartcache collect: {text}", file=sys.stderr, flush=True)


class Collector:
    """Everything, bound and connected; ``run`` until ``stop``."""

    def __init__(self, config: Config) -> None:
        """Bind all sockets. ConfigError, ReceiverError or MetricsError where that is impossible."""
        self._config = config
        self._counters = Counters()
        self._stopping = threading.Event()
        self._topics_ready = threading.Event()
        self._failure = ""
        self._turned = time.monotonic()
        settings = config.collector
        pseudonyms = pseudonym.load(settings.pseudonym_key_file)
        with contextlib.ExitStack() as undo:
            self._receivers: list[Receiver] = []
            for stream, port in (
                ("gstream", settings.gstream_port),
                ("fstream", settings.fstream_port),
                ("decision", settings.decision_port),
            ):
                receiver = Receiver(stream, settings.bind, port, settings.receive_buffer_bytes)
                undo.callback(receiver.close)
                self._receivers.append(receiver)
                for metric in ("packets_received", "records_parsed", "packets_lost", "packets_late", "packets_duplicate"):
                    self._counters.add(metric, stream, count=0)
            self._sink = KafkaSink(config.kafka, self._counters, say)
            self._fstream = FStreamHandler(self._sink, self._counters, pseudonyms)
            self._handlers: dict[str, Handler] = {
                "gstream": GStreamHandler(self._sink, self._counters),
                "fstream": self._fstream,
                "decision": DecisionHandler(self._sink, self._counters),
            }
            self._metrics = self._start_metrics() if settings.metrics_port else None
            self._undo = undo.pop_all()

    def run(self) -> int:
        """Work until ``stop``, a signal, or an error that waiting does not help; the exit status."""
        for receiver in self._receivers:
            if receiver.advice:
                say(receiver.advice)
        topics = threading.Thread(target=self._prepare_topics, name="topics", daemon=True)
        topics.start()
        announced = False
        with selectors.DefaultSelector() as selector:
            for receiver in self._receivers:
                selector.register(receiver, selectors.EVENT_READ, receiver)
            while not self._stopping.is_set():
                for key, _ in selector.select(TURN_S):
                    self._take(key.data)
                self._sink.poll()
                self._turned = time.monotonic()
                if not announced and self._topics_ready.is_set():
                    announced = True
                    print(f"ready: {self._addresses()}", flush=True)
                if self._sink.fatal:
                    self._failure = f"Kafka's producer cannot go on: {self._sink.fatal}; start the collector again"
                if self._failure:
                    break
        return self._finish()

    def stop(self, *_: int | FrameType | None) -> None:
        """Ask ``run`` to come to an end; also a signal handler. Thread-safe."""
        self._stopping.set()

    def _take(self, receiver: Receiver) -> int:
        batch = receiver.receive(BATCH)
        if not batch:
            return 0
        now_us = time.time_ns() // 1000
        handle = self._handlers[receiver.stream].handle
        for raw, source in batch:
            handle(raw, source, now_us)
        self._counters.add("packets_received", receiver.stream, count=len(batch))
        return len(batch)

    def _finish(self) -> int:
        self._stopping.set()
        deadline = time.monotonic() + DRAIN_S
        while sum(self._take(receiver) for receiver in self._receivers) and time.monotonic() < deadline:
            self._sink.poll()
        for handler in self._handlers.values():
            handler.close(time.time_ns() // 1000)
        left = self._sink.close(FLUSH_S)
        if self._metrics is not None:
            self._metrics.close()
        self._undo.close()
        if left:
            say(f"{left} records could not be delivered to Kafka at {self._config.kafka.bootstrap} and are lost")
        if self._failure:
            say(self._failure)
        return 1 if left or self._failure else 0

    def _prepare_topics(self) -> None:
        told = False
        while not self._stopping.is_set():
            try:
                self._sink.ensure_topics()
            except BrokerAway as error:
                if not told:
                    told = True
                    say(f"waiting for Kafka at [kafka] bootstrap {self._config.kafka.bootstrap}: {error}")
                self._stopping.wait(_RETRY_S)
            except SinkError as error:
                self._failure = str(error)
                return
            else:
                self._topics_ready.set()
                return

    def _start_metrics(self) -> MetricsServer:
        settings = self._config.collector
        gauges = {
            ("ready", "1 once the topics are there"): lambda: float(self._topics_ready.is_set()),
            ("kafka_queue", "Records that wait for the broker"): lambda: float(self._sink.queued),
            ("kafka_delivered", "Records that the broker has acknowledged since the start"): lambda: float(self._sink.delivered),
            ("fstream_opens", "Client opens that wait for their close"): lambda: float(self._fstream.open_count),
            ("fstream_waiting", "Records that wait for their server's identity"): lambda: float(self._fstream.waiting_count),
            ("receive_buffer_bytes", "Smallest receive buffer the kernel granted"): lambda: float(
                min(receiver.granted_bytes for receiver in self._receivers)
            ),
        }
        return MetricsServer(
            settings.metrics_bind,
            settings.metrics_port,
            self._counters,
            gauges,
            lambda: time.monotonic() - self._turned < STUCK_S,
        )

    def _addresses(self) -> str:
        bind = self._config.collector.bind
        streams = ", ".join(f"{receiver.stream} {bind}:{receiver.port}" for receiver in self._receivers)
        return f"{streams} (UDP) to Kafka at {self._config.kafka.bootstrap}"


def run(config: Config) -> int:
    """Run the collector until SIGTERM or SIGINT; the exit status."""
    collector = Collector(config)
    signal.signal(signal.SIGTERM, collector.stop)
    signal.signal(signal.SIGINT, collector.stop)
    return collector.run()
