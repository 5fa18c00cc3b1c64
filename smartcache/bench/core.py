"""The core's own benchmark: nanoseconds for each step of a decision."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ..local import paths
from . import results

NAME = "core"
ROUNDS = 7
PROGRAM = paths.BUILD / "plugin" / "core_bench"
#: What google-benchmark adds to a row beside our counters.
_FRAME = {"iterations", "real_time", "cpu_time", "repetitions", "repetition_index", "threads", "family_index", "per_family_instance_index"}


def run(repetitions: int, command: str) -> Path:
    """Run it; its own output goes to the terminal. Raises :class:`subprocess.CalledProcessError` where it fails."""
    program = paths.require(PROGRAM, "the core's benchmark", "make bench ARGS=core")
    where = results.machine()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "core.json"
        argv = [
            str(program),
            f"--benchmark_repetitions={repetitions}",
            "--benchmark_enable_random_interleaving=true",
            f"--benchmark_out={out}",
            "--benchmark_out_format=json",
        ]
        subprocess.run(argv, check=True)
        raw = json.loads(out.read_text())
    return results.save(NAME, command, where, {"repetitions": repetitions, "rows": rows(raw)})


def rows(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a benchmark: its name, the median over the repetitions of its time (ns) and of each counter."""
    return [
        {
            "name": row["run_name"],
            "time_ns": row["real_time"],
            **{key: value for key, value in row.items() if isinstance(value, float) and key not in _FRAME},
        }
        for row in raw["benchmarks"]
        if row.get("aggregate_name") == "median"
    ]
