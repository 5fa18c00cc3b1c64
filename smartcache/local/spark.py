"""A real standalone Spark cluster on loopback: one master and some workers, each a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from . import paths
from .ports import LOOPBACK, free_ports
from .process import START_LIMIT_S, Process, line_in

#: No daemon of Spark listens but on loopback, its pages included.
_ENV = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_PUBLIC_DNS": LOOPBACK, "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
#: They have little to do: the JVM's second compiler and a second thread for its garbage cost more than they save.
_ENV |= {"SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class Cluster:
    """Use as a context manager: entering starts it, and returns once all workers are registered; leaving stops it."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        """``folder`` takes logs and the workers' files; each worker lends ``cores`` and ``memory``."""
        self.folder = folder
        self.url = ""
        self._shape = (workers, cores, memory)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        program = str(Path(str(paths.require_module("pyspark").__file__)).parent / "bin" / "spark-class")
        port, page, *pages = free_ports(2 + self._shape[0])
        self.url = f"spark://{LOOPBACK}:{port}"
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            at = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(page)]
            self._start("master", [program, "org.apache.spark.deploy.master.Master", *at], "New state: ALIVE")
            _, cores, memory = self._shape
            for number, own_page in enumerate(pages):
                lends = ["--cores", str(cores), "--memory", memory, "--work-dir", str(self.work(number))]
                at = ["--host", LOOPBACK, "--webui-port", str(own_page)]
                argv = [program, "org.apache.spark.deploy.worker.Worker", *at, *lends, self.url]
                self._start(f"worker{number}", argv, "Successfully registered with master")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def work(self, number: int) -> Path:
        """Where that worker keeps what its executors write: a folder for each application."""
        return self.folder / f"work{number}"

    def _start(self, name: str, argv: list[str], ready: str) -> None:
        log = self.folder / f"{name}.log"
        process = self._stack.enter_context(Process(f"spark {name}", argv, log, env=_ENV).start())
        process.wait_ready(line_in(log, ready), ready, START_LIMIT_S)
