"""``smartcache doctor``: what of smartcache's surroundings is present, missing or of a wrong version on this machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from .local import paths, xrootd

State = Literal["present", "missing", "too old", "other version"]
_FIX = "run `make setup`"
_PATIENCE_S = 15.0


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
    _Program("wrk", ("--version",), (4,), "bench"),
)
_EXTRAS = {
    "collect": ("confluent-kafka", "prometheus-client"),
    "spark": ("pyspark", "pandas", "pyarrow"),
    "train": ("tensorflow-cpu", "keras", "mlflow"),
    "promote": ("mlflow", "httpx"),
    "demo": ("xrootd", "matplotlib"),
}
#: What the compiler and the servers find beside the programs, and what needs it.
_HEADERS = {
    "XrdPfc/XrdPfcDecision.hh": "plugin",
    "Python.h": "core",
    "curl/curl.h": "plugin",
    "nlohmann/json.hpp": "core",
    "openssl/evp.h": "core",
    "toml++/toml.h": "plugin",
    "gtest/gtest.h": "C++ tests",
    "benchmark/benchmark.h": "C++ tests",
}
_LIBRARIES = {"libXrdPfc-5.so": "caches", "libXrdPss-5.so": "caches"}
_MULTIARCH = sysconfig.get_config_var("MULTIARCH") or ""
_INCLUDE = (
    *(top / sub for top in (Path("/usr/include"), Path("/usr/local/include")) for sub in ("", _MULTIARCH, "xrootd", "xrootd/private")),
    Path(sysconfig.get_path("include")),
)
_LIB = tuple(Path(top) for top in (f"/usr/lib/{_MULTIARCH}", "/usr/lib64", "/usr/lib", "/usr/local/lib"))
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
    """Say what is present, missing or of a wrong version for smartcache on this machine. Exit status 1 unless all is as it must be."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    findings = list(examine())
    table = Table("what", "state", "found", "used by")
    for finding in findings:
        state = f"[{'green' if finding.state == 'present' else 'red'}]{finding.state}[/]"
        table.add_row(escape(finding.what), state, escape(finding.detail), escape(finding.used_by))
    console = Console()
    console.print(table)
    if any(finding.state != "present" for finding in findings):
        console.print(f"To mend it: {_FIX}", style="red")
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Look at programs, headers, libraries, Python packages and built files, one after the other."""
    for program in _PROGRAMS:
        yield _look_at_program(program)
    for header, used_by in _HEADERS.items():
        yield _look_for_file(header, _INCLUDE, "header", f"{used_by}: to build it")
    for library, used_by in _LIBRARIES.items():
        yield _look_for_file(library, _LIB, "library", used_by)
    if os.geteuid() == 0:
        yield _look_for_user(xrootd.SERVER_USER)
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
    try:
        answer = subprocess.run([path, *program.version_argv], capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        said = f"{path} {' '.join(program.version_argv)} does not answer within {_PATIENCE_S:.0f} s"
        return Finding(program.name, "other version", f"{said}; at least {wanted} is needed", program.used_by)
    except OSError as error:
        return Finding(program.name, "missing", f"{path} cannot be run: {error.strerror}", program.used_by)
    version = _version(answer.stdout + answer.stderr)
    if not version:
        return Finding(program.name, "other version", f"{path} does not say which; at least {wanted} is needed", program.used_by)
    detail = ".".join(map(str, version))
    if version < program.minimum:
        return Finding(program.name, "too old", f"{detail}; at least {wanted} is needed", program.used_by)
    return Finding(program.name, "present", detail, program.used_by)


def _version(said: str) -> tuple[int, ...]:
    """The version in what a program says of itself: the number after that word, else the first dotted one, else the first; else ()."""
    number = r"(\d+(?:\.\d+)*)"
    for pattern in (rf'\bversion "?(?:go|v)?{number}', r"(\d+(?:\.\d+)+)", number):
        match = re.search(pattern, said)
        if match:
            return tuple(int(part) for part in match[1].split("."))
    return ()


def _look_for_file(name: str, folders: Iterable[Path], what: str, used_by: str) -> Finding:
    for folder in folders:
        if (folder / name).exists():
            return Finding(name, "present", str(folder / name), used_by)
    return Finding(name, "missing", what, used_by)


def _look_for_user(name: str) -> Finding:
    used_by = "XRootD's servers, when root starts them"
    try:
        return Finding(f"user {name}", "present", f"uid {pwd.getpwnam(name).pw_uid}", used_by)
    except KeyError:
        return Finding(f"user {name}", "missing", "comes with Debian's package xrootd-server", used_by)


def _look_at_distribution(name: str, extra: str) -> Finding:
    used_by = f"smartcache[{extra}]"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", "Python package", used_by)
    wanted = _required(name)
    if wanted and found != wanted:
        state: State = "too old" if _version(found) < _version(wanted) else "other version"
        return Finding(name, state, f"{found}; {wanted} is pinned", used_by)
    return Finding(name, "present", found, used_by)


def _required(name: str) -> str:
    """The version that smartcache pins exactly, "" where it allows several."""
    for line in importlib.metadata.requires("smartcache") or []:
        match = re.match(rf"{re.escape(name)}==([\w.]+)", line)
        if match:
            return match[1]
    return ""
