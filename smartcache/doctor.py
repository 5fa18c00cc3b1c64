"""``smartcache doctor``: what of smartcache's surroundings is present, missing or too old on this machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from .local import paths

State = Literal["present", "missing", "too old"]
_FIX = "run `make setup`"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    #: Its version, or what was looked for.
    detail: str
    #: What needs it.
    used_by: str


@dataclass(frozen=True)
class _Program:
    name: str
    version_argv: tuple[str, ...]
    minimum: tuple[int, ...]
    used_by: str


_PROGRAMS = (
    _Program("xrootd", ("-v",), (5, 5), "origin and caches"),
    _Program("java", ("-version",), (17,), "Kafka, Spark"),
    _Program("mvn", ("--version",), (3, 6), "set-up: Kafka's and Spark's jars"),
    _Program("g++", ("-dumpfullversion",), (12,), "core and plugin"),
    _Program("cmake", ("--version",), (3, 25), "core and plugin"),
    _Program("ninja", ("--version",), (1, 10), "core and plugin"),
    _Program("go", ("version",), (1, 24), "endpoint"),
)
_EXTRAS = {
    "collect": ("confluent-kafka", "prometheus-client"),
    "spark": ("pyspark", "pandas", "pyarrow"),
    "train": ("tensorflow-cpu", "keras", "mlflow"),
    "promote": ("mlflow", "httpx"),
    "demo": ("xrootd", "matplotlib"),
}
_FILES: tuple[tuple[str, Callable[[], bool], Path, str], ...] = (
    ("Kafka's jars", lambda: any(paths.KAFKA_JARS.glob("kafka_*.jar")), paths.KAFKA_JARS, "demo, tests"),
    ("Spark's Kafka connector", lambda: any(paths.SPARK_JARS.glob("spark-sql-kafka*.jar")), paths.SPARK_JARS, "stream"),
    ("XCache plugin", paths.PLUGIN_FILE.exists, paths.PLUGIN_FILE, "smart cache"),
    ("serving endpoint", paths.ENDPOINT.exists, paths.ENDPOINT, "endpoint"),
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(doctor)


def doctor() -> None:
    """Say what is present, missing or too old for smartcache on this machine. Exit status 1 where something is not as it must be."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    findings = list(examine())
    table = Table("what", "state", "found", "used by")
    colour = {"present": "green", "missing": "red", "too old": "red"}
    for finding in findings:
        state = f"[{colour[finding.state]}]{finding.state}[/]"
        table.add_row(escape(finding.what), state, escape(finding.detail), escape(finding.used_by))
    console = Console()
    console.print(table)
    if any(finding.state != "present" for finding in findings):
        console.print(f"To mend it: {_FIX}", style="red")
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Look at programs, Python packages and built files, one after the other."""
    for program in _PROGRAMS:
        yield _look_at_program(program)
    compiled = importlib.util.find_spec("smartcache._core") is not None
    yield Finding("smartcache._core", "present" if compiled else "missing", "compiled core for Python", "every step that computes features")
    for extra, distributions in _EXTRAS.items():
        yield from (_look_at_distribution(name, extra) for name in distributions)
    for what, present, path, used_by in _FILES:
        yield Finding(what, "present" if present() else "missing", str(path), used_by)


def _look_at_program(program: _Program) -> Finding:
    wanted = ".".join(map(str, program.minimum))
    path = shutil.which(program.name, path=paths.search_path())
    if path is None:
        return Finding(program.name, "missing", f"at least {wanted} is needed", program.used_by)
    answer = subprocess.run([path, *program.version_argv], capture_output=True, text=True, timeout=30)
    version = _version(answer.stdout + answer.stderr)
    detail = ".".join(map(str, version)) or "unknown version"
    if version < program.minimum:
        return Finding(program.name, "too old", f"{detail}; at least {wanted} is needed", program.used_by)
    return Finding(program.name, "present", detail, program.used_by)


def _version(said: str) -> tuple[int, ...]:
    """The first dotted number in what a program says of itself, () where there is none."""
    match = re.search(r"\d+(?:\.\d+)+", said)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _look_at_distribution(name: str, extra: str) -> Finding:
    used_by = f"smartcache[{extra}]"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", "Python package", used_by)
    wanted = _required(name)
    if wanted and found != wanted:
        return Finding(name, "too old", f"{found}; {wanted} is pinned", used_by)
    return Finding(name, "present", found, used_by)


def _required(name: str) -> str:
    """The version that smartcache pins exactly, "" where it allows several."""
    for line in importlib.metadata.requires("smartcache") or []:
        match = re.match(rf"{re.escape(name)}==([\w.]+)", line)
        if match:
            return match[1]
    return ""
