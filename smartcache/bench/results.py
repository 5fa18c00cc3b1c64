"""What a benchmark leaves: figures, the command that made them, and where."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..local import paths

FOLDER = paths.ROOT / "run" / "bench"


def machine() -> dict[str, Any]:
    """The processor, how many of it, how busy it was, and the system."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"cpu": model, "cores": os.cpu_count(), "load_at_start": round(os.getloadavg()[0], 1), "system": platform.platform()}


def revision() -> str:
    """The commit that was measured, with a + where the tree differs from it; empty outside a checkout."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=paths.ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def save(name: str, command: str, where: dict[str, Any], figures: dict[str, Any]) -> Path:
    """Write ``run/bench/NAME.json``; ``where`` is :func:`machine` as it was before the benchmark began."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    head = {"benchmark": name, "command": command, "time": datetime.now(UTC).isoformat(timespec="seconds"), "revision": revision()}
    path.write_text(json.dumps({**head, "machine": where, **figures}, indent=1) + "\n")
    return path


def load(name: str) -> dict[str, Any] | None:
    """What :func:`save` wrote last, None where there is nothing."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content
