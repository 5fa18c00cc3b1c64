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
#: A whole decision with the embedded model, at its 99th percentile.
DECISION, DECISION_MOST_NS = "BM_DecideEmbedded/real_time/threads:1", 5000.0
#: An open whose endpoint says nothing: late by more than a millisecond no more often than a plain poll of as long.
SILENT = "BM_SilentEndpoint/"
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


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Whether a decision meets its bar, and how often the deadline is passed where the endpoint says nothing."""
    said = []
    for row in sorted(rows, key=lambda row: str(row["name"])):
        name = str(row["name"])
        if name == DECISION:
            met = "meets" if row["p99_ns"] <= DECISION_MOST_NS else "misses"
            said.append(
                f"history, features, embedded model and policy: {row['p99_ns']:,.0f} ns at p99 {met} its bar of {DECISION_MOST_NS:,.0f} ns"
            )
        if name.startswith(SILENT):
            threads = name.rpartition(":")[2]
            late, poll = row["over_1ms"], row["poll_over_1ms"]
            met = "no more often than a plain poll" if late <= poll else "more often than a plain poll"
            said.append(
                f"silent endpoint, {threads} thread{'s' if threads != '1' else ''}: {late:.2%} of the opens are answered more than 1 ms "
                f"after their deadline, {met} of as long ({poll:.2%})"
            )
    return said


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
