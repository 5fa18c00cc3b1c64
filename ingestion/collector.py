"""The collector as one process: sockets, handlers, Kafka, metrics, and a clean end.

One thread receives, parses, writes to the spool and produces. A second one serves metrics; a third asks the broker what takes time to be
answered: for the topics at the start, and whether it is back while it is away. Packets are taken from the first moment on: until the broker
is there, their records wait in the spool.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from smartcache.config import Config

from . import pseudonym
from .counters import Counters
from .decision import DecisionHandler
from .gstream import GStreamHandler
from .metrics import Gauge, Health, MetricsServer
from .numbering import Numbering
from .opens import FStreamHandler
from .output import Handler
from .receiver import Receiver
from .sequence import CAUSES
from .shoveler import ShovelerHandler
from .sink import KafkaSink
from .topics import BrokerAway, SinkError

#: Datagrams taken from one socket before the next gets its turn.
BATCH = 256
#: The loop turns at least this often, for callbacks and signals.
TURN_S = 0.2
#: A loop that has not turned for this long is not well.
STUCK_S = 15.0
#: Records that have waited for this long are a reason to look, and so is a spool that is full to this share.
LATE_S = 60.0
FULL = 0.9
#: How long what is still in the sockets may take at the end.
DRAIN_S = 5.0
#: How often a broker that is away is asked.
_RETRY_S = 1.0


def say(text: str) -> None:
    """Tell a person, on standard error."""
    print(f"smartcache collect: {text}", file=sys.stderr, flush=True)


class Collector:
    """Everything, bound and connected; ``run`` until ``stop``."""

    def __init__(self, config: Config) -> None:
        """Bind all sockets, take the spool. ConfigError, ReceiverError, SpoolError or MetricsError where that is impossible."""
        self._config = config
        self._counters = Counters()
        self._stopping = threading.Event()
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
                *([("shoveler", settings.shoveler_port)] if settings.shoveler_port else []),
            ):
                receiver = Receiver(stream, settings.bind, port, settings.receive_buffer_bytes)
                undo.callback(receiver.close)
                self._receivers.append(receiver)
                for metric in ("packets_received", "records_parsed", "packets_late", "packets_duplicate"):
                    self._counters.add(metric, stream, count=0)
                for cause in CAUSES:
                    self._counters.add("packets_lost", stream, cause, 0)
            self._sink = KafkaSink(config, self._counters, say)
            undo.callback(lambda: self._sink.close(0))
            # In the spool's folder, which is this process's alone from here on.
            self._numbering = Numbering(Path(config.spool.dir) / "numbering", say, time.time_ns() // 1000, self._sink.has_spool_folder)
            undo.callback(self._numbering.close)
            self._fstream = FStreamHandler(self._sink, self._counters, pseudonyms, self._numbering)
            gstream = GStreamHandler(self._sink, self._counters, self._numbering, self._sink.encoded)
            self._handlers: dict[str, Handler] = {
                "gstream": gstream,
                "fstream": self._fstream,
                "decision": DecisionHandler(self._sink, self._counters, self._numbering),
                "shoveler": ShovelerHandler(self._sink, self._counters, gstream, self._fstream),
            }
            self._metrics = self._start_metrics() if settings.metrics_port else None
            undo.pop_all()

    def run(self) -> int:
        """Work until ``stop``, a signal, or an error that waiting does not help; the exit status."""
        for receiver in self._receivers:
            if receiver.advice:
                say(receiver.advice)
        watch = threading.Thread(target=self._watch_broker, name="broker", daemon=True)
        watch.start()
        announced = False
        with selectors.DefaultSelector() as selector:
            for receiver in self._receivers:
                selector.register(receiver, selectors.EVENT_READ, receiver)
            while not self._stopping.is_set() and not self._failure:
                for key, _ in selector.select(0 if self._sink.eager else TURN_S):
                    self._take(key.data)
                self._sink.poll()
                self._turned = time.monotonic()
                if not announced and self._sink.open:
                    announced = True
                    print(f"ready: {self._addresses()}", flush=True)
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
        self._sink.commit()
        self._numbering.commit(now_us)
        self._counters.add("packets_received", receiver.stream, count=len(batch))
        return len(batch)

    def _finish(self) -> int:
        self._stopping.set()
        begin, shutdown_s = time.monotonic(), self._config.collector.shutdown_s
        drained = begin + min(DRAIN_S, shutdown_s / 2)
        while sum(self._take(receiver) for receiver in self._receivers) and time.monotonic() < drained:
            self._sink.poll()
        for handler in self._handlers.values():
            handler.close(time.time_ns() // 1000)
        self._sink.commit()
        self._numbering.commit(time.time_ns() // 1000)
        self._numbering.close()
        left = self._sink.close(max(0.0, begin + shutdown_s - time.monotonic()))
        if self._metrics is not None:
            self._metrics.close()
        for receiver in self._receivers:
            receiver.close()
        if left.spooled:
            say(f"{left.spooled} records wait in the spool {self._config.spool.dir}; the next start sends them to Kafka")
        if left.lost:
            say(f"{left.lost} records could not be delivered to Kafka at {self._config.kafka.bootstrap}, nor spooled, and are lost")
        if self._failure:
            say(self._failure)
        return 1 if left.lost or self._failure else 0

    def _watch_broker(self) -> None:
        told = ""
        while not self._stopping.is_set():
            try:
                if self._sink.wants_topics:
                    self._sink.ensure_topics()
                    told = ""
                elif self._sink.away:
                    self._sink.probe()
            except BrokerAway as error:
                if not told and not self._sink.open:
                    told = f"waiting for Kafka at [kafka] bootstrap {self._config.kafka.bootstrap}: {error}"
                    say(told)
            except SinkError as error:
                self._failure = str(error)
                return
            except Exception as error:  # whatever it is: without this thread nothing would be sent, ever
                text = f"asking Kafka at {self._config.kafka.bootstrap} failed, and is tried again each second: {error!r}"
                if text != told:
                    told = text
                    say(told)
            self._stopping.wait(_RETRY_S)

    def _health(self) -> Health:
        """Whether the loop turns, and what else a person should look at: neither Kafka nor the disk is a reason to restart this process."""
        turns = time.monotonic() - self._turned < STUCK_S
        reasons = [] if turns else [f"the loop has not turned for {time.monotonic() - self._turned:.0f} s"]
        sink = self._sink
        if not sink.open:
            reasons.append(f"Kafka at {self._config.kafka.bootstrap} has not answered yet")
        elif sink.away:
            reasons.append(f"Kafka at {self._config.kafka.bootstrap} is away since {time.time() - sink.away_since_s:.0f} s")
        waiting = sum(sink.lag.values())
        if waiting and self._lag_s() > LATE_S:
            reasons.append(f"{waiting} records wait for Kafka, the oldest for {self._lag_s():.0f} s")
        if sink.spool_trouble:
            reasons.append(f"the spool {self._config.spool.dir} {sink.spool_trouble}")
        if sink.spool_bytes > FULL * self._config.spool.max_bytes:
            reasons.append(f"the spool {self._config.spool.dir} is nearly full: {sink.spool_bytes} of {self._config.spool.max_bytes} bytes")
        reasons += [receiver.advice for receiver in self._receivers if receiver.advice]
        return Health(turns, reasons)

    def _lag_s(self) -> float:
        oldest_us = self._sink.oldest_us
        return max(0.0, time.time() - oldest_us / 1e6) if oldest_us else 0.0

    def _start_metrics(self) -> MetricsServer:
        settings = self._config.collector
        sink = self._sink
        gauges: dict[tuple[str, str], Gauge] = {
            ("ready", "1 once the topics are there"): lambda: float(sink.open),
            ("kafka_away", "1 while no broker answers"): lambda: float(sink.away),
            ("kafka_in_flight", "Records sent that the broker has not acknowledged yet"): lambda: float(sink.in_flight),
            ("lag_records", "Records received that Kafka does not have yet: in the spool, or on their way"): lambda: dict(sink.lag),
            ("lag_seconds", "Age of the oldest of them"): self._lag_s,
            ("spool_bytes", "What the spool takes on disk"): lambda: float(sink.spool_bytes),
            ("spool_limit_bytes", "What it may take: [spool] max_bytes"): lambda: float(self._config.spool.max_bytes),
            ("spool_failing", "1 while the disk takes no records, or gives none back"): lambda: float(bool(sink.spool_trouble)),
            ("fstream_opens", "Client opens that wait for their close"): lambda: float(self._fstream.open_count),
            ("fstream_waiting", "Records that wait for their server's identity"): lambda: float(self._fstream.waiting_count),
            ("receive_buffer_bytes", "Receive buffer that the kernel granted"): lambda: {
                receiver.stream: receiver.granted_bytes for receiver in self._receivers
            },
        }
        return MetricsServer(settings.metrics_bind, settings.metrics_port, self._counters, gauges, self._health)

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
