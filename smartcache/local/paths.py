"""Where set-up has put what is not Python: jars, the plugin, the endpoint's binary."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

#: The checkout, or the folder that holds the installed package.
ROOT = Path(__file__).resolve().parents[2]
#: What ``make setup`` builds and fetches.
BUILD = ROOT / "build"

KAFKA_JARS = BUILD / "jars" / "kafka"
SPARK_JARS = BUILD / "jars" / "spark"
PLUGIN_FILE = BUILD / "plugin" / "libXrdPfcSmartCache-5.so"
#: What a configuration names: XRootD puts its own major version in before it looks for the file. $SMARTCACHE_PLUGIN names another build.
PLUGIN = Path(os.environ.get("SMARTCACHE_PLUGIN") or BUILD / "plugin" / "libXrdPfcSmartCache.so")
#: Another installation of XRootD than the system's: its folder, with bin/ and lib/ in it.
XROOTD_PREFIX = Path(os.environ["SMARTCACHE_XROOTD"]) if os.environ.get("SMARTCACHE_XROOTD") else None
ENDPOINT = BUILD / "bin" / "smartcache-endpoint"


class MissingPart(Exception):
    """Something that set-up provides is not there; the text says what and how to get it."""


def require(path: Path, what: str, made_by: str = "make setup") -> Path:
    """``path`` if it exists, else :class:`MissingPart`, which names what makes it."""
    if not path.exists():
        raise MissingPart(f"{what} is missing: {path} does not exist; run `{made_by}`")
    return path


def require_module(name: str) -> ModuleType:
    """The Python module ``name``, imported; :class:`MissingPart` where it is not installed or not compiled."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPart(f"the Python module {name} is missing ({error}); run `make setup`") from error


def xrootd_program(name: str) -> str:
    """How to start a program of XRootD (xrootd, xrdcp, xrdfs): by its name, or by its path under :data:`XROOTD_PREFIX`."""
    return name if XROOTD_PREFIX is None else str(XROOTD_PREFIX / "bin" / name)


def xrootd_env() -> dict[str, str]:
    """What its environment needs beside: the libraries under :data:`XROOTD_PREFIX`, which its programs and plugins load by name."""
    return {} if XROOTD_PREFIX is None else {"LD_LIBRARY_PATH": str(XROOTD_PREFIX / "lib")}


def search_path() -> str:
    """$PATH with the programs first that came with our Python packages (Go is one)."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
