"""What is on this machine beside the checkout: programs, headers, libraries, the servers' user, Python packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import operator
import os
import pwd
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..local import paths, xrootd
from .finding import SET_UP, Finding, State

_PATIENCE_S = 15.0
Version = tuple[int, ...]


@dataclass(frozen=True)
class _Program:
    name: str
    version_argv: tuple[str, ...]
    minimum: Version
    used_by: str


@dataclass(frozen=True)
class _Header:
    path: str
    used_by: str
    #: The library's name to pkg-config and the version that xcache-plugin/CMakeLists.txt asks for; (): any.
    module: str = ""
    minimum: Version = ()


#: Without arguments that make it say its version: only whether it is there.
_PROGRAMS: Final = (
    _Program("xrootd", ("-v",), (5, 5), "origin and caches"),
    _Program("xrdcp", ("--version",), (5, 5), "tests"),
    _Program("xrdfs", (), (), "tests"),
    _Program("java", ("-version",), (17,), "Kafka, Spark"),
    _Program("ps", (), (), "Spark"),
    _Program("mvn", ("--version",), (3, 6), "set-up: Kafka's and Spark's jars"),
    _Program("g++", ("-dumpfullversion",), (12,), "core and plugin"),
    _Program("cmake", ("--version",), (3, 25), "core and plugin"),
    _Program("ninja", ("--version",), (1, 10), "core and plugin"),
    _Program("pkg-config", ("--version",), (0, 29), "plugin: to build it"),
    _Program("make", (), (), "set-up, demo, tests"),
    _Program("git", ("--version",), (2,), "the revision in reports and models"),
    _Program("go", ("version",), (1, 24), "endpoint"),
    _Program("wrk", ("--version",), (4,), "bench"),
)
#: What the compiler and the servers find beside the programs, and what needs it.
_HEADERS: Final = (
    _Header("XrdPfc/XrdPfcDecision.hh", "plugin"),
    _Header("XrdOss/XrdOss.hh", "plugin"),
    _Header("XrdCl/XrdClFile.hh", "plugin"),
    _Header("Python.h", "core"),
    _Header("curl/curl.h", "plugin", "libcurl", (7, 87)),
    _Header("microhttpd.h", "plugin", "libmicrohttpd", (0, 9, 70)),
    _Header("nlohmann/json.hpp", "core", "nlohmann_json", (3, 11)),
    _Header("openssl/evp.h", "core", "openssl"),
    _Header("toml++/toml.h", "plugin"),
    _Header("gtest/gtest.h", "C++ tests", "gtest"),
    _Header("gmock/gmock.h", "C++ tests", "gmock"),
    _Header("benchmark/benchmark.h", "C++ tests", "benchmark"),
)
_LIBRARIES: Final = {
    "libXrdPfc-5.so": "caches",
    "libXrdPss-5.so": "caches",
    "faketime/libfaketimeMT.so.1": "tests that set a server's clock",
}
_MULTIARCH = sysconfig.get_config_var("MULTIARCH") or ""
_INCLUDE = (
    *(top / sub for top in (Path("/usr/include"), Path("/usr/local/include")) for sub in ("", _MULTIARCH, "xrootd", "xrootd/private")),
    Path(sysconfig.get_path("include")),
)
_LIB = tuple(Path(top) for top in (f"/usr/lib/{_MULTIARCH}", "/usr/lib64", "/usr/lib", "/usr/local/lib"))
_COMPARE: Final = {">=": operator.ge, "<": operator.lt}


def examine() -> Iterator[Finding]:
    """Look at programs, headers, libraries and Python packages, one after the other."""
    for program in _PROGRAMS:
        yield _look_at_program(program)
    for header in _HEADERS:
        yield _look_at_header(header)
    for library, used_by in _LIBRARIES.items():
        yield _look_for_file(library, _LIB, "library", used_by)
    if os.geteuid() == 0:
        yield _look_for_user(xrootd.SERVER_USER)
    compiled = importlib.util.find_spec("smartcache._core") is not None
    yield Finding("smartcache._core", "present" if compiled else "missing", "compiled core for Python", "every step that computes features")
    for name, (specifiers, used_by) in _required().items():
        yield _look_at_distribution(name, specifiers, used_by)


def _look_at_program(program: _Program) -> Finding:
    wanted = ".".join(map(str, program.minimum))
    path = shutil.which(program.name, path=paths.search_path())
    if path is None:
        return Finding(program.name, "missing", f"at least {wanted} is needed" if wanted else "program", program.used_by)
    if not program.version_argv:
        return Finding(program.name, "present", path, program.used_by)
    mend = f"{SET_UP}, and let no other {program.name} come first in PATH"
    try:
        answer = _run(path, *program.version_argv)
    except subprocess.TimeoutExpired:
        said = f"{path} {' '.join(program.version_argv)} does not answer within {_PATIENCE_S:.0f} s"
        return Finding(program.name, "other version", f"{said}; at least {wanted} is needed", program.used_by, mend)
    except OSError as error:
        return Finding(program.name, "missing", f"{path} cannot be run: {error.strerror}", program.used_by, mend)
    version = _version(answer.stdout + answer.stderr)
    if not version:
        return Finding(program.name, "other version", f"{path} does not say which; at least {wanted} is needed", program.used_by, mend)
    detail = ".".join(map(str, version))
    if version < program.minimum:
        return Finding(program.name, "too old", f"{path} is {detail}; at least {wanted} is needed", program.used_by, mend)
    return Finding(program.name, "present", detail, program.used_by)


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=_PATIENCE_S)


def _look_at_header(header: _Header) -> Finding:
    found = _look_for_file(header.path, _INCLUDE, "header", f"{header.used_by}: to build it")
    if found.state != "present" or not header.minimum or shutil.which("pkg-config") is None:
        return found
    version = _version(_run("pkg-config", "--modversion", header.module).stdout)
    if not version:
        return replace(found, state="missing", detail=f"pkg-config knows no {header.module} for {found.detail}")
    said = ".".join(map(str, version))
    if version < header.minimum:
        wanted = ".".join(map(str, header.minimum))
        return replace(found, state="too old", detail=f"{header.module} {said}; at least {wanted} is needed")
    return replace(found, detail=f"{found.detail}, {said}")


def _version(said: str) -> Version:
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


def _required() -> dict[str, tuple[str, str]]:
    """By Python package that smartcache asks for: which versions, and the extras that need it."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in importlib.metadata.requires("smartcache") or []:
        if match := re.match(r"([\w.-]+)([^;\[]*)(?:;.*extra == ['\"]([\w-]+)['\"])?", line):
            name, specifiers, extra = match.groups()
            if name != "smartcache":
                found.setdefault(name, (specifiers.strip(), []))[1].append(extra or "")
    return {name: (wanted, f"smartcache[{','.join(extras)}]".replace("[]", "")) for name, (wanted, extras) in found.items()}


def _look_at_distribution(name: str, specifiers: str, used_by: str) -> Finding:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", "Python package", used_by)
    for specifier in filter(None, specifiers.split(",")):
        match = re.match(r"\s*(==|>=|<)\s*([\w.]+)", specifier)
        if match and not (found == match[2] if match[1] == "==" else _COMPARE[match[1]](_version(found), _version(match[2]))):
            state: State = "too old" if match[1] != "<" and _version(found) < _version(match[2]) else "other version"
            return Finding(name, state, f"{found}; {specifiers.strip()} is needed", used_by)
    return Finding(name, "present", found, used_by)
