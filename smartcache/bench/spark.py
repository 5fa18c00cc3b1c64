"""What preprocessing does in a second, and how its time and memory grow: each command as users start it, on `local[1]` and `local[2]`.

For each number of opens a stream that takes all their records from a real Kafka, and the batch commands over an access table of that many
opens. Time is the whole command's, Spark's start included, which is measured alone as well (a table of one open); memory is the most
that the command and its children held at once (the sum of their PSS: a page that some of them share counts once). The heap is
what [spark] gives: 1 GB where nothing else is said, however many opens there are.

What was measured is kept after each number of opens: a failure later loses no more than the number that it was at.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from ..config import load
from ..local import kafka, paths
from ..local.ports import LOOPBACK, free_ports
from ..local.process import Process, ProcessError
from . import results, spark_load

NAME = "spark"
EVENTS = (1_000_000, 5_000_000, 20_000_000)
MASTERS = ("local[1]", "local[2]")
BATCH = ("build-dataset", "stats", "side-table", "compact")
_POLL_S = 0.1
#: The share of a core that looking at the memory may take: the kernel goes through all pages of a JVM, which has to wait for that.
_LOOKING = 0.05
#: No job of this benchmark takes longer.
_LIMIT_S = 6 * 3600.0

Tell = Callable[[str], None]


@dataclass
class Spent:
    """What a command took."""

    seconds: float = 0.0
    peak_bytes: int = 0
    #: Without the JVM: the driver's Python, and the workers'.
    python_peak_bytes: int = 0


def run(events: tuple[int, ...], masters: tuple[str, ...], command: str, tell: Tell) -> Path:
    """Measure and keep the result, after each of ``events`` (one at least). Raises ProcessError or MissingPart, naming what failed."""
    where, rows = results.machine(), []
    results.FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results.FOLDER) as name:
        folder = Path(name)
        for number, opens in enumerate((1, *events)):
            shared = folder / f"opens{opens}"
            _make_table(shared, opens)
            for master in masters:
                for job in BATCH:
                    # Compaction changes the table: it is the last, and has one of its own each time.
                    spent = _batch(
                        job, _config(shared / _plain(master), master, shared / "access" if job != "compact" else _copy(shared, master))
                    )
                    rows.append(_row(job, master, opens, opens, spent))
                    tell(_said(rows[-1]))
                if opens > 1:
                    rows.append(_row("stream", master, opens, *_stream(shared / f"{_plain(master)}-stream", master, opens)))
                    tell(_said(rows[-1]))
            subprocess.run(["rm", "-rf", str(shared)], check=True)
            if number:
                kept = results.save(NAME, command, where, {"events": list(events[:number]), "rows": rows})
    return kept


def _row(job: str, master: str, opens: int, records: int, spent: Spent) -> dict[str, Any]:
    return {
        "job": job,
        "master": master,
        "opens": opens,
        "records": records,
        "seconds": round(spent.seconds, 2),
        "peak_bytes": spent.peak_bytes,
        "python_peak_bytes": spent.python_peak_bytes,
    }


def _said(row: dict[str, Any]) -> str:
    return f"{row['job']}, {row['master']}, {row['opens']:,} opens: {row['seconds']:.1f} s, {row['peak_bytes'] / 1e6:,.0f} MB"


def _config(folder: Path, master: str, table: Path, bootstrap: str = "") -> Path:
    """A configuration of its own below ``folder``; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    overlay: dict[str, Any] = {
        "spark": {
            "master": master,
            "shuffle_partitions": 4,
            "jars_dir": str(paths.SPARK_JARS),
            "options": {"spark.local.dir": str(folder)},
        },
        "streaming": {
            "table": str(table),
            **{part: str(folder / part) for part in ("jobs", "quarantine", "checkpoint")},
            "trigger_s": 1.0,
            # Longer than any batch: nothing waits for it, as every record comes.
            "join_grace_s": 3000.0,
        },
        "compaction": {"after_days": 0},
        "side_table": {"windows_s": [86_400.0, 864_000.0, 8_640_000.0, 864_000_000.0]},
    }
    if bootstrap:
        overlay["kafka"] = {"bootstrap": bootstrap}
    path = folder / "smartcache.toml"
    path.write_text(tomli_w.dumps(overlay))
    return path


def _make_table(folder: Path, opens: int) -> None:
    from ..preprocessing.session import spark_session

    config = _config(folder / "make", MASTERS[-1], folder / "access")
    spark = spark_session(load(config), "smartcache-bench")
    try:
        spark_load.table(spark, str(folder / "access"), opens)
    finally:
        spark.stop()


def _copy(shared: Path, master: str) -> Path:
    """The table once more, to be changed; its list names its files, so it is written anew."""
    to = shared / f"{_plain(master)}-copy" / "access"
    to.parent.mkdir()
    subprocess.run(["cp", "-r", str(shared / "access"), str(to)], check=True)
    listed = to / "_spark_metadata" / "0"
    listed.write_text(listed.read_text().replace((shared / "access").as_uri()[7:], to.as_uri()[7:]))
    return to


def argv(job: str, config: Path) -> list[str]:
    """The command line of a job, after `smartcache`: what it makes goes beside its configuration."""
    to = {"build-dataset": "set", "stats": "stats", "side-table": "side.json"}.get(job)
    return [job, "--config", str(config), *(("--output", str(config.parent / to)) if to else ())]


def _batch(job: str, config: Path) -> Spent:
    process = Process(job, [sys.executable, "-m", "smartcache", *argv(job, config)], config.parent / f"{job}.log")
    with process:
        spent = _watch(process.start(), lambda: not process.running)
        if process.returncode:
            raise ProcessError(f"{job} ended with status {process.returncode}\n{process.last_words()}")
    return spent


def _stream(folder: Path, master: str, opens: int) -> tuple[int, Spent]:
    """How many records there were, and what it took until every open was in the table."""
    from ..preprocessing.table import TableError

    port, controller = free_ports(2)
    config = _config(folder, master, folder / "access", f"{LOOPBACK}:{port}")
    with kafka.start(folder / "kafka", port, controller):
        records = spark_load.send(load(config).kafka, opens)
        process = Process("stream", [sys.executable, "-m", "smartcache", *argv("stream", config)], folder / "stream.log")
        read = _Count(folder / "access")

        def done() -> bool:
            process.require_running()
            try:
                return read.rows() >= opens
            except TableError:
                return False

        with process:
            spent = _watch(process.start(), done)
        if read.rows() != opens:
            raise ProcessError(f"the stream wrote {read.rows()} rows for {opens} opens\n{process.last_words()}")
    return records, spent


def _plain(master: str) -> str:
    """As the name of a folder: Spark takes brackets in a path for a pattern."""
    return master.replace("[", "").replace("]", "")


class _Count:
    """Rows of an access table that grows, by its files' footers; each is read once."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._rows: dict[Path, int] = {}

    def rows(self) -> int:
        import pyarrow.parquet as pq

        from ..preprocessing.access import table_files

        for file in table_files(self._table):
            if file not in self._rows:
                self._rows[file] = pq.read_metadata(file).num_rows
        return sum(self._rows.values())


def _watch(process: Process, done: Callable[[], bool]) -> Spent:
    """Until ``done``: for how long, and the most memory that the process and its children held at once."""
    spent, began = Spent(), time.monotonic()
    look_at = began
    while not done():
        if (looked := time.monotonic()) >= look_at:
            jvm, python = _resident(process.pid)
            spent.peak_bytes = max(spent.peak_bytes, jvm + python)
            spent.python_peak_bytes = max(spent.python_peak_bytes, python)
            look_at = time.monotonic() + (time.monotonic() - looked) / _LOOKING
        if time.monotonic() - began > _LIMIT_S:
            raise ProcessError(f"{process.name}: not done after {_LIMIT_S:.0f} s\n{process.last_words()}")
        time.sleep(_POLL_S)
    spent.seconds = time.monotonic() - began
    return spent


def _resident(pid: int) -> tuple[int, int]:
    """The bytes of a process and its children: of those that are JVMs, and of the others.

    A JVM's child that is its program still is about to become another one, and has until then its parent's memory, which counts once.
    """
    jvm = python = 0
    jvms = set()
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0
    for each in family:
        try:
            is_jvm = Path(each.exe()).name == "java"
            if is_jvm and each.ppid() in jvms:
                continue
            # What workers share with who forked them counts once.
            size = each.memory_full_info().pss
            if is_jvm:
                jvms.add(each.pid)
                jvm += size
            else:
                python += size
        except psutil.NoSuchProcess:
            continue
    return jvm, python


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row with its rate, and how time and memory grew from the next smaller number of opens on: 1 is as much as the opens did.

    Time is without what the same command takes for one open (the stream: than any batch command does), which is Spark's start.
    """
    start = {(row["job"], row["master"]): row["seconds"] for row in rows if row["opens"] == 1}
    shown: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["job"], row["master"], row["opens"])):
        if row["opens"] == 1:
            continue
        own = start.get(
            (row["job"], row["master"]), min((value for (_, master), value in start.items() if master == row["master"]), default=0.0)
        )
        work_s = max(row["seconds"] - own, 0.0)
        line = {
            **row,
            "start_seconds": own,
            "per_s": row["records"] / work_s if work_s else None,
            "time_growth": None,
            "memory_growth": None,
        }
        before = shown[-1] if shown and (shown[-1]["job"], shown[-1]["master"]) == (row["job"], row["master"]) else None
        if before is not None:
            more = row["opens"] / before["opens"]
            before_s = max(before["seconds"] - own, 0.0)
            line["time_growth"] = work_s / before_s / more if before_s else None
            line["memory_growth"] = row["peak_bytes"] / before["peak_bytes"] / more
        shown.append(line)
    return shown
