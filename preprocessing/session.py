"""The one way to a SparkSession: from the configuration, quiet, on loopback where the master is local."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from smartcache.config import ConfigError

from .reason import reason
from .storage import Hadoop, Local, Reader
from .table import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from smartcache.config import Config

_LOG = Path(__file__).with_name("log4j2.properties")


def spark_session(config: Config, app: str, *, streaming: bool = False) -> SparkSession:
    """Start (or get) the session that [spark] describes; `streaming`: with the Kafka connector's jars.

    [spark] options come last. Under ``spark-submit`` the master, the deploy mode and the log settings stay what the user gave.
    :class:`ConfigError` where [spark] jars_dir holds no jars.
    """
    local = config.spark.master.startswith("local")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = _settings(config)
    if streaming and config.spark.jars_dir:
        settings["spark.jars"] = ",".join(connector_jars(config.spark.jars_dir))
    if not submitted:
        settings["spark.master"] = config.spark.master
        options = [f"-Dlog4j2.configurationFile={_LOG.as_uri()}"]
        if local:
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            options.append("-XX:+UseSerialGC")
            if streaming and config.spark.quick_start:
                options.append("-XX:TieredStopAtLevel=1")
                settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
        settings["spark.driver.extraJavaOptions"] = " ".join(options)
    settings |= config.spark.options

    from pyspark.sql import SparkSession

    # What it would log it raises too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def table_reader(config: Config, table: str) -> Iterator[Reader]:
    """What reads the files of ``table`` in this process: on a local disk Python alone; on any other file system Spark's Hadoop, in a
    session on this machine that has [spark] options and ends with the context.

    :class:`.table.TableError` where there is no Spark here, and for whatever Hadoop says meanwhile.
    """
    if urlsplit(table).scheme in ("", "file"):
        yield Local()
        return
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise TableError(f"{table}: is on no local disk, and no Spark is here to read it ({error}); install smartcache[spark]") from error
    ours = SparkSession.getActiveSession() is None
    # Files are only copied: a cluster has nothing to do.
    here = config.model_copy(update={"spark": config.spark.model_copy(update={"master": "local[1]"})})
    spark = None
    try:
        with _own_interrupt():
            spark = spark_session(here, "smartcache")
        yield Hadoop(spark)
    except (Py4JError, PySparkException) as error:
        raise TableError(f"{table}: {reason(error)}") from error
    finally:
        if ours and spark is not None:
            spark.stop()


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """A session takes Ctrl-C for itself when it starts; whoever reads a table has a use for it of their own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def connector_jars(folder: str) -> list[str]:
    """The jars in [spark] jars_dir; :class:`ConfigError` where there are none."""
    jars = sorted(str(path) for path in Path(folder).glob("*.jar"))
    if not jars:
        raise ConfigError(
            f"[spark] jars_dir: {folder!r} holds no jars; run `make setup`, or leave it empty where Spark has the Kafka connector itself"
        )
    return jars


def _settings(config: Config) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(config.spark.shuffle_partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        # Commit what changed, not a snapshot.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
