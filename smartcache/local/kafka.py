"""A real Kafka broker: one node, KRaft, on loopback."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

from . import paths
from .ports import LOOPBACK
from .process import START_LIMIT_S, Process, ProcessError, Register, port_open

_NODE = 1
#: How long it may take to answer one question, until it is asked again.
_ASKED_S = 5.0
_HEAP = ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC"]


def start(
    folder: Path,
    port: int,
    controller_port: int,
    *,
    advertised_port: int | None = None,
    timeout_s: float = START_LIMIT_S,
    register: Register | None = None,
) -> Process:
    """Start a broker that keeps its log segments under ``folder`` and listens at ``port``; returns once it answers.

    ``folder`` may hold the data of an earlier broker: then that one goes on. ``advertised_port`` is where clients are sent, where something
    stands before the broker. ``register`` is called with the process before it starts.
    """
    jars = paths.require(paths.KAFKA_JARS, "Kafka")
    scratch = folder / "tmp"  # what its libraries unpack
    scratch.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    properties.write_text(_properties(folder / "data", port, controller_port, advertised_port or port))
    java = ["java", *_HEAP, f"-Djava.io.tmpdir={scratch}", f"-Dlog4j2.configurationFile={_log4j(folder)}", "-cp", f"{jars}/*"]
    if not (folder / "data" / "meta.properties").exists():
        _format_storage(java, properties, timeout_s)
    broker = Process("kafka", [*java, "kafka.Kafka", str(properties)], folder / "kafka.log")
    if register is not None:
        register(broker)
    return broker.start().wait_ready(_answers(port), f"answering at {port}", timeout_s)


def _answers(port: int) -> Callable[[], bool]:
    """Whether the broker says something of the cluster and of itself: a cold one takes seconds for that once it listens."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    listens = port_open(port)
    admin: AdminClient | None = None
    itself = ConfigResource(ResourceType.BROKER, str(_NODE))

    def check() -> bool:
        nonlocal admin
        if not listens():
            return False
        admin = admin or AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0, "error_cb": lambda _: None})
        try:
            admin.list_topics(timeout=_ASKED_S)
            admin.describe_configs([itself], request_timeout=_ASKED_S)[itself].result(_ASKED_S)
        except (KafkaException, TimeoutError):
            return False
        return True

    return check


def cluster_id() -> str:
    """A random id for a cluster, as Kafka writes them. None begins with a dash: the tool that takes it would read an option."""
    while (drawn := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return drawn


def _format_storage(java: list[str], properties: Path, timeout_s: float) -> None:
    cluster = cluster_id()
    # It is over before the JVM's second compiler would pay.
    argv = [java[0], "-XX:TieredStopAtLevel=1", *java[1:], "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=timeout_s)
    except FileNotFoundError as error:
        raise ProcessError("kafka: java is not installed; run `make setup`") from error
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"kafka: still formatting its storage after {error.timeout:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise ProcessError(f"kafka: cannot format its storage:\n{error.stdout}{error.stderr}") from error


def _properties(data: Path, port: int, controller_port: int, advertised_port: int) -> str:
    return f"""\
process.roles=broker,controller
node.id={_NODE}
controller.quorum.voters={_NODE}@{LOOPBACK}:{controller_port}
listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners=PLAINTEXT://{LOOPBACK}:{advertised_port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
"""


def _log4j(folder: Path) -> Path:
    """Warnings to standard output, where the process's log takes them."""
    path = folder / "log4j2.xml"
    path.write_text("""\
<Configuration status="WARN">
  <Appenders><Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
""")
    return path
