"""A real MLflow tracking server and registry: SQLite, artifacts proxied through it, on loopback."""

from __future__ import annotations

import sys
from pathlib import Path

from .ports import LOOPBACK
from .process import START_LIMIT_S, Process, Register, http_ok


def start(folder: Path, port: int, *, timeout_s: float = START_LIMIT_S) -> Process:
    """Start a server that keeps everything under ``folder``; returns once it is healthy (about 20 s)."""
    server = launch(folder, port)
    return wait_ready(server, port, timeout_s=timeout_s)


def launch(folder: Path, port: int, *, register: Register | None = None) -> Process:
    """Start it without waiting: its imports take long, other parts can start meanwhile. Follow with :func:`wait_ready`.

    ``register`` is called with the process before it starts.
    """
    scratch = folder / "tmp"  # what is uploaded and downloaded
    scratch.mkdir(parents=True, exist_ok=True)
    argv = [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
        *("--host", LOOPBACK, "--port", str(port), "--workers", "1"),
    ]
    # The job runner would start ten more processes that nothing here uses.
    env = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
    env["TMPDIR"] = str(scratch)
    server = Process("mlflow", argv, folder / "mlflow.log", env=env, cwd=folder)
    if register is not None:
        register(server)
    return server.start()


def wait_ready(server: Process, port: int, *, timeout_s: float = START_LIMIT_S) -> Process:
    """Wait until a launched server is healthy."""
    return server.wait_ready(http_ok(uri(port) + "/health"), f"healthy at {port}", timeout_s)


def uri(port: int) -> str:
    """The tracking URI of a server at ``port``."""
    return f"http://{LOOPBACK}:{port}"
