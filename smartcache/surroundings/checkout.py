"""What set-up would do in a checkout if it ran now, and would not where all is as it must be.

Each part looks at what ``setup/setup.sh`` works by, so that nothing is listed twice: ``setup/apt-packages.txt``, the version of uv in the
script itself, ``uv.lock``, the poms and sums of ``setup/kafka`` and ``setup/spark``, Ninja's own idea of what is older than its sources.
Nothing is changed, and nothing asked for on the network. What belongs to the rarer targets (lint, fuzz, deb, xrootd6), those install
themselves.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .finding import SET_UP, Finding, State

_PATIENCE_S = 60.0
#: Folder under setup/ and build/jars/ → what it is, what needs it.
_JARS: Final = {"kafka": ("Kafka's jars", "demo, tests"), "spark": ("Spark's Kafka connector", "stream")}
_PLUGIN: Final = "libXrdPfcSmartCache-5.so"
_ENDPOINT: Final = "smartcache-endpoint"


def examine(root: Path) -> Iterator[Finding]:
    """Look at the checkout ``root``. Of an installed package, which has no set-up, only at what is built beside it."""
    if (root / "setup" / "setup.sh").exists():
        yield from debian_packages(root / "setup" / "apt-packages.txt")
        yield from python_environment(root)
    for name, (what, used_by) in _JARS.items():
        yield jars(root, name, what, used_by)
    yield plugin(root)
    yield endpoint(root)


def debian_packages(listed: Path) -> Iterator[Finding]:
    """One finding for each package of ``listed`` that dpkg does not call installed, or one for all. Without dpkg: none, it is no Debian."""
    if shutil.which("dpkg-query") is None:
        return
    wanted: dict[str, str] = {}
    comment = ""
    for line in listed.read_text().splitlines():
        names, _, said = line.partition("#")
        comment = said.strip() or comment
        wanted |= dict.fromkeys(names.split(), comment)
    # It fails where it does not know a package, and says the others nonetheless.
    answer = _run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted)
    installed = {line.split()[0] for line in answer.stdout.splitlines() if line.endswith(" installed")}
    missing = [name for name in wanted if name not in installed]
    for name in missing:
        yield Finding(name, "missing", f"Debian package, of setup/{listed.name}", wanted[name], f"{SET_UP}, as root or with sudo")
    if not missing:
        yield Finding("Debian packages", "present", f"all {len(wanted)} of setup/{listed.name}", "set-up, demo, tests")


def python_environment(root: Path) -> Iterator[Finding]:
    """Whether uv is the one that set-up takes, and what it would install or build anew in the environment that this runs in."""
    uv = root / "build" / "uv" / "bin" / "uv"
    script = (root / "setup" / "setup.sh").read_text()
    pinned = re.search(r"\buv_version=([\w.]+)", script)
    if not uv.exists():
        yield Finding("uv", "missing", str(uv), "set-up: Python packages")
        return
    version = _run(str(uv), "--version").stdout.split()[1:2]
    if pinned and version != [pinned[1]]:
        yield Finding(
            "uv", "other version", f"{''.join(version) or 'unknown'}; setup/setup.sh takes {pinned[1]}", "set-up: Python packages"
        )
    else:
        yield Finding("uv", "present", "".join(version), "set-up: Python packages")
    environment = {"UV_PROJECT_ENVIRONMENT": sys.prefix, "UV_PYTHON": sys.executable}
    plan = _run(str(uv), "sync", "--project", str(root), *_UV_SYNC, env=environment)
    if plan.returncode:
        # Where the lock does not do, uv would look for versions that do, and may not.
        if "needs to be updated" in plan.stderr or "No solution found" in plan.stderr:
            said, mend = "does not hold what pyproject.toml asks for", "run `build/uv/bin/uv lock`, then `make setup`"
        else:
            said, mend = " ".join(plan.stderr.split())[-300:], SET_UP
        yield Finding("uv.lock", "too old", said, "set-up: Python packages", mend)
        return
    changes = list(_planned(plan.stderr))
    yield from changes
    if not changes:
        yield Finding("Python packages, core binding", "present", "as uv.lock and the core's sources say", "everything")


_UV_SYNC: Final = ("--locked", "--all-extras", "--inexact", "--dry-run", "--offline", "--no-progress", "--color", "never")


def _planned(said: str) -> Iterator[Finding]:
    """What ``uv sync --dry-run`` would put in: lines ``+ NAME==VERSION``, after a ``- NAME==VERSION`` where there is another one."""
    there = dict(re.findall(r"^ - ([\w.-]+)==(\S+)", said, re.MULTILINE))
    for name, wanted in re.findall(r"^ [+~] ([\w.-]+)(?:==| @ )(\S+)", said, re.MULTILINE):
        if name == "smartcache":
            state: State = "too old" if name in there else "missing"
            detail = "not built from these sources: what cache-keys in pyproject.toml names has changed since"
            yield Finding("core binding", state, detail, "every step that computes features")
        elif name in there:
            yield Finding(name, "other version", f"{there[name]}; {wanted} is in uv.lock", "Python packages")
        else:
            yield Finding(name, "missing", f"{wanted} is in uv.lock", "Python packages")


def jars(root: Path, name: str, what: str, used_by: str) -> Finding:
    """Whether ``build/jars/NAME`` holds what ``setup/NAME/SHA256SUMS`` pins, bit by bit."""
    sums, folder = root / "setup" / name / "SHA256SUMS", root / "build" / "jars" / name
    if not folder.is_dir():
        return Finding(what, "missing", str(folder), used_by)
    if sums.exists():
        pom = root / "setup" / name / "pom.xml"
        if not (folder / pom.name).exists() or pom.read_bytes() != (folder / pom.name).read_bytes():
            return Finding(what, "too old", f"{folder} is of another setup/{name}/pom.xml", used_by)
        for line in sums.read_text().splitlines():
            wanted, file = line.split("  ", 1)
            path = folder / file
            if not path.exists():
                return Finding(what, "missing", str(path), used_by)
            if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
                return Finding(what, "other version", f"{path} is not what setup/{name}/SHA256SUMS pins", used_by)
        pinned = {line.split("  ", 1)[1] for line in sums.read_text().splitlines()}
        for path in sorted(folder.iterdir()):
            if path.name not in pinned:
                return Finding(what, "other version", f"{path} is not in setup/{name}/SHA256SUMS", used_by)
    return Finding(what, "present", str(folder), used_by)


def plugin(root: Path) -> Finding:
    """Whether the plugin is there, and Ninja has nothing to do for it."""
    what, folder = "XCache plugin", root / "build" / "plugin"
    built = folder / _PLUGIN
    if not built.exists():
        return Finding(what, "missing", str(built), "smart cache")
    if (folder / "build.ninja").exists() and shutil.which("ninja"):
        plan = _run("ninja", "-n", "-C", str(folder), _PLUGIN)
        if plan.returncode or "no work to do" not in plan.stdout:
            said = (plan.stderr or plan.stdout).strip().splitlines()
            return Finding(
                what, "too old", f"older than its sources; Ninja's last step would be: {said[-1] if said else ''}", "smart cache"
            )
    return Finding(what, "present", str(built), "smart cache")


def endpoint(root: Path) -> Finding:
    """Whether the endpoint is there, and made after the last change of its sources. Set-up gives it a new date even if nothing changed."""
    what, built = "serving endpoint", root / "build" / "bin" / _ENDPOINT
    if not built.exists():
        return Finding(what, "missing", str(built), "endpoint")
    folder = root / "inference" / "server"
    sources = [path for path in folder.rglob("*") if path.suffix in _GO_SOURCES and not path.name.endswith("_test.go")]
    newest = max(sources, key=lambda path: path.stat().st_mtime, default=built)
    if newest.stat().st_mtime > built.stat().st_mtime:
        return Finding(what, "too old", f"older than {newest.relative_to(root)}", "endpoint")
    return Finding(what, "present", str(built), "endpoint")


_GO_SOURCES: Final = (".go", ".c", ".h", ".mod", ".sum", ".sh")


def _run(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        argv, capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=_PATIENCE_S, env=environment
    )
