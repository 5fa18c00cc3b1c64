"""``/metrics`` for Prometheus and ``/healthz``, on one port, from a thread of their own.

``/healthz`` answers 200 while the collector's loop turns, with ``ok`` or with one line for each thing that is not as it should be; it does
not fail for Kafka or a full disk, which a restart does not mend. No label ever holds an LFN, a user or a host.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .counters import MEANINGS, Counters

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

PREFIX = "smartcache_collector_"
#: Connections at once, and how long one may say nothing: each holds a thread and a file descriptor, which the spool needs too.
MAX_CONNECTIONS = 64
IDLE_S = 10.0

#: A value, or one for each stream.
Gauge = Callable[[], float | dict[str, int]]


class Health(NamedTuple):
    """``well``: a restart would not help; ``reasons``: what is not as it should be, one line each."""

    well: bool
    reasons: list[str]


class MetricsError(Exception):
    """The port cannot be bound; the text names the setting."""


class _Exporter(Collector):
    def __init__(self, counters: Counters, gauges: Mapping[tuple[str, str], Gauge]) -> None:
        self._counters = counters
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        families = {name: CounterMetricFamily(PREFIX + name, text, labels=("stream", "cause")) for name, text in MEANINGS.items()}
        for (name, stream, cause), count in self._counters.snapshot().items():
            families[name].add_metric((stream, cause), count)
        yield from families.values()
        for (name, text), gauge in self._gauges.items():
            value = gauge()
            if not isinstance(value, dict):
                yield GaugeMetricFamily(PREFIX + name, text, value=value)
                continue
            family = GaugeMetricFamily(PREFIX + name, text, labels=("stream",))
            for stream, each in value.items():
                family.add_metric((stream,), each)
            yield family


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a connection, bounded: with one too many, the oldest is cut off. So whoever asks is answered, and descriptors are left."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._connections: dict[Any, None] = {}  # oldest first
        self._guard = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._connections[request] = None
            if len(self._connections) > MAX_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes up and closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._connections.pop(request, None)
        super().shutdown_request(request)


class _Quiet(WSGIRequestHandler):
    timeout = IDLE_S

    def handle(self) -> None:
        """Answer one request; whoever asks nothing in time, or goes away, is no news either."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape is no news."""


class MetricsServer:
    """The HTTP server; ``close`` ends it."""

    def __init__(
        self, bind: str, port: int, counters: Counters, gauges: Mapping[tuple[str, str], Gauge], health: Callable[[], Health]
    ) -> None:
        """``gauges`` by (name, help text), called in the server's thread; ``health`` answers ``/healthz``."""
        registry = CollectorRegistry()
        registry.register(_Exporter(counters, gauges))
        ProcessCollector(registry=registry)
        metrics = make_wsgi_app(registry)

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ.get("PATH_INFO")
            if path == "/metrics":
                answer: Iterable[bytes] = metrics(environ, start_response)
                return answer
            if path == "/healthz":
                well, reasons = health()
                start_response("200 OK" if well else "503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
                return ["\n".join([*(["ok"] if well and not reasons else []), *(f"degraded: {each}" for each in reasons), ""]).encode()]
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics or /healthz\n"]

        try:
            self._server = make_server(bind, port, app, server_class=_Server, handler_class=_Quiet)
        except OSError as error:
            raise MetricsError(
                f"TCP {bind}:{port} cannot be bound ({error.strerror}); change [collector] metrics_bind or metrics_port"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
