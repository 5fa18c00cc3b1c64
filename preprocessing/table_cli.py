"""The commands that look after what the stream has written: ``smartcache compact``, ``retain`` and ``side-table``."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import ConfigFile, fail, load_config, spark_job

if TYPE_CHECKING:
    from smartcache.config import Config

    from .retention import Forgets, Forgotten


def register(app: typer.Typer) -> None:
    """Add the commands to the one command line."""
    app.command("compact")(compact)
    app.command("retain")(retain)
    app.command("side-table")(side_table)


def compact(
    config: ConfigFile = None,
    cache: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this cache (HOST:PORT), in the access table alone; may be given more than once. Default: all, and the other tables."
        ),
    ] = None,
) -> None:
    """Put the many small files of finished days together, in the access table, the jobs table and the quarantine.

    The stream writes files with each batch. Here those of each day that is over for [compaction] after_days become files of about
    [compaction] target_bytes, sorted by time. Their rows are read back and compared before they count; readers see the old files or the
    new ones, never both; `smartcache stream` may run meanwhile, and a kill at any moment loses nothing. The old files stay for
    [compaction] keep_replaced_s, for jobs that had begun to read them; a later run deletes them. The stream does the same by itself every
    [compaction] stream_every_s; where that is 0, or the work is to be another machine's, run it daily, from cron.
    """
    settings = load_config(config)
    from .compaction import Plan
    from .compaction import compact as put_together
    from .table import NoTable, TableError

    plan = Plan.of(settings.compaction, time.time(), tuple(cache or ()))
    with spark_job(settings, "compact", (TableError,)) as (spark, progress):
        for name, table in _tables(settings, every=not cache).items():
            try:
                done = put_together(spark, table, plan, progress)
            except NoTable:
                print(f"{name}: nothing is there yet")
                continue
            print(
                f"{name}: {done.files_before} files of {done.partitions} partitions before {plan.before} are {done.files_after} now, "
                f"{done.bytes_before} bytes are {done.bytes_after}, {done.rows} rows; {done.deleted} files of before deleted"
            )


def side_table(
    output: Annotated[Path | None, typer.Option(help="Where to publish it, on a local disk. Default: [side_table] file.")] = None,
    config: ConfigFile = None,
) -> None:
    """Publish what all caches saw of each dataset, now: one small file for plugins to load.

    Opens and bytes read over [side_table] windows_s, files, the share of opens of files that had been opened before at that cache, the part
    of the files that was read. `smartcache stream` does the same every [side_table] refresh_s where [side_table] file names a place. Who
    reads the file sees the one before or the new one, whole. Its format is contract 8.
    """
    settings = load_config(config)
    place = output or (Path(settings.side_table.file) if settings.side_table.file else None)
    if place is None:
        fail("side-table: say where with --output, or in [side_table] file", 2)
    from .popularity import publish
    from .table import TableError

    with spark_job(settings, "side-table", (TableError, OSError)) as (spark, progress):
        progress("adding up opens by dataset")
        published = publish(spark, settings, place, time.time_ns() // 1000)
    left = f", {published.left_out} left out" if published.left_out else ""
    print(f"{published.path}: version {published.version}, {published.datasets} datasets{left}")


def retain(
    keep_days: Annotated[int | None, typer.Option(min=0, help="Keep today (UTC) and so many days before it; delete what is older.")] = None,
    day: Annotated[
        list[datetime] | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="Instead: delete this day (UTC) alone; may be given more than once."),
    ] = None,
    config: ConfigFile = None,
    cache: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this cache (HOST:PORT), in the access table alone; may be given more than once. Default: all, and the other tables."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete days of the access table, the jobs table and the quarantine: those older than the site keeps them, or those named.

    A row's day is that of its open, a job's that of its state, a quarantined message's that of its arrival on Kafka. A day leaves the
    table as a whole: who begins to read sees all of it or nothing; a job that has begun before fails where it still needs its files.
    `smartcache stream` may run meanwhile. What it writes into such a day later (an import of an old trace, say) goes with the next run.
    Kafka keeps the records for [kafka] retention_s, and the stream those it waits with for [streaming] longest_open_s: that is not deleted
    here. With --keep-days, run it daily, from cron.
    """
    if (keep_days is None) == (not day):
        fail("retain: say which days: --keep-days N for all that are older, or --day YYYY-MM-DD for that one", 2)
    settings = load_config(config)
    from .retention import retain as forget
    from .table import NoTable, TableError

    now = time.time()
    forgets: Forgets
    if keep_days is None:
        named = {each.date() for each in day or ()}
        which, forgets = f"of {', '.join(map(str, sorted(named)))}", named.__contains__
    else:
        first_day = datetime.fromtimestamp(now, UTC).date() - timedelta(days=min(keep_days, 700_000))
        which, forgets = f"before {first_day}", first_day.__gt__
    with spark_job(settings, "retain", (TableError,)) as (spark, progress):
        for name, table in _tables(settings, every=not cache).items():
            try:
                gone = forget(spark, table, forgets, tuple(cache or ()), round(now * 1000), dry_run=dry_run, progress=progress)
            except NoTable:
                print(f"{name}: nothing is there yet")
                continue
            _say(name, gone, which, "would delete" if dry_run else "deleted")


def _tables(settings: Config, *, every: bool) -> dict[str, str]:
    """The tables by name; ``every``: also those that are not by cache."""
    from .table import tables_of

    tables = tables_of(settings)
    return tables if every else {"access table": tables["access table"]}


def _say(table: str, gone: list[Forgotten], which: str, verb: str) -> None:
    for each in gone:
        where = f"{each.cache} {each.day}".strip()
        if each.young:
            print(f"{table}: {where}: {each.young} files in no list are younger than a day and stay: a batch may write them: run it again")
        if not (each.files or each.strays):
            continue
        stray = f" and {len(each.strays)} that were in no list" if each.strays else ""
        print(f"{table}: {where}: {verb} {each.rows} rows in {len(each.files)} files{stray}, {each.size} bytes")
    rows, size = sum(each.rows for each in gone), sum(each.size for each in gone)
    count = sum(len(each.files) + len(each.strays) for each in gone)
    print(f"{table}: {verb} {rows} rows {which} in {count} files, {size} bytes")
