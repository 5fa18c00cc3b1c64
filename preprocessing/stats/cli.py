"""The command ``smartcache stats``."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from ..terminal import ConfigFile, fail, load_config, spark_job


def register(app: typer.Typer) -> None:
    """Add the command to the one command line."""
    app.command("stats")(stats)


def stats(
    output: Annotated[Path, typer.Option(help="Folder for the tables and the page; what is there of an earlier run is replaced.")],
    config: ConfigFile = None,
    start: Annotated[str | None, typer.Option("--from", help="First day: 2026-05-01. Default: [stats] days before the last.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Last day. Default: the newest in the tables.")] = None,
    cache: Annotated[
        list[str] | None, typer.Option(help="Only the opens at this cache (HOST:PORT); may be given more than once. Default: all.")
    ] = None,
) -> None:
    """What the caches and the jobs of a site did: tables and plots, each day with the days before it.

    From the access table: volume requested, read, unique, and written to disk; the hit rate that pfc reports, and the true one by what was
    fetched; the part of each file that is read; whether smaller blocks would fetch less; reuse by data tier. From the jobs table, where
    `smartcache import` has brought job monitoring: workflows that want a dataset, wall and CPU time, and CPU efficiency of jobs that read
    locally and remotely. Each figure holds for a window of [stats] window_days that ends with its day.

    Writes caches, tiers, parts, blocks, jobs and workflows, each as .parquet and .csv, and report.html, which needs no network.
    """
    settings = load_config(config)
    first, last = _day(start, "--from"), _day(end, "--to")
    from ..table import TableError
    from . import report, tables
    from .measure import Request, StatsError, measure

    with spark_job(settings, "stats", (StatsError, TableError, OSError)) as (spark, progress):
        measured = measure(spark, settings, Request(first, last, tuple(cache or ())), progress)
        progress("writing")
        about = {"command": shlex.join(["smartcache", *sys.argv[1:]]), "created": datetime.now(UTC).isoformat(timespec="seconds")}
        about |= {"window_days": str(measured.width), "access table": settings.streaming.table, "jobs table": settings.streaming.jobs}
        tables.write(measured, output, about)
        written = report.write(measured, output, [f"smartcache stats · {about['created']}", about["command"]])
    for name, table in measured.tables.items():
        print(f"{output / name}.parquet, .csv: {len(table.rows)} rows")
    print(written)


def _day(text: str | None, option: str) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        fail(f"{option}: {text!r} is no day; write 2026-05-01", 2)
