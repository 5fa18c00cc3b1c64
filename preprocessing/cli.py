"""The commands ``smartcache stream`` and ``smartcache build-dataset``; spark-submit takes this file, so it imports by whole names.

The others of this folder come with them.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from smartcache.config import ConfigError
from smartcache.preprocessing import table_cli
from smartcache.preprocessing.reason import reason
from smartcache.preprocessing.stats import cli as stats_cli
from smartcache.preprocessing.terminal import ConfigFile, fail, load_config, spark_job


def register(app: typer.Typer) -> None:
    """Add the commands to the one command line."""
    app.command("stream")(stream)
    app.command("build-dataset")(build_dataset)
    stats_cli.register(app)
    table_cli.register(app)


def stream(
    config: ConfigFile = None,
    metrics: Annotated[Path | None, typer.Option(help="Prometheus text file for node_exporter, rewritten with each batch.")] = None,
) -> None:
    """Turn the records on Kafka into the access table, one row per open of a file, until stopped.

    Each client open is joined with the plugin's answer and with pfc's own counts. A row appears once all three are there, or [streaming]
    join_grace_s after the client's close. Records that cannot be read go to [streaming] quarantine with the reason. Stop it with SIGTERM or
    Ctrl-C; started again it goes on where it was, without loss or duplicates. One process per checkpoint.
    """
    settings = load_config(config)
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stop.set())
    from smartcache.preprocessing.streaming import Stream, StreamError

    work = Stream(settings)
    try:
        work.start()
        while not stop.is_set() and not work.ready():
            stop.wait(0.2)
        if not stop.is_set():
            print(f"ready: {settings.kafka.bootstrap} -> {settings.streaming.table}", flush=True)
        while not stop.wait(settings.streaming.trigger_s):
            work.check()
            if metrics is not None:
                _replace(metrics, work.counters.prometheus())
    except ConfigError as error:
        fail(str(error), 2)
    except Exception as error:
        # A signal to the process group ends Spark's JVM too: what it says then is no failure.
        if not stop.is_set():
            fail(str(error) if isinstance(error, StreamError) else f"stream: {reason(error)}", 1)
    finally:
        with contextlib.suppress(Exception):
            work.stop()
    if metrics is not None:
        _replace(metrics, work.counters.prometheus())
    print(f"stopped: {work.counters.line()}", file=sys.stderr)


def build_dataset(
    output: Annotated[
        str, typer.Option(help="Folder for the training set, on any Hadoop file system; must be new or hold an earlier one.")
    ],
    config: ConfigFile = None,
    cache: Annotated[list[str] | None, typer.Option(help="Only this cache (HOST:PORT); may be given more than once. Default: all.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Opens from here on: 2026-05-01, 2026-05-01T06:00:00Z or Unix seconds.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Opens before this; also where watching ends. Default: the last open.")] = None,
) -> None:
    """Make a training set from the access table: features, time to the next open, split by time.

    Features come from the C++ core, replayed over the opens of each cache in the order of time, as the plugin computed them. Opens whose
    file was not seen again before the window's end are marked as censored. The same table, window and configuration give the same bytes;
    manifest.json holds what is needed to make it again.
    """
    settings = load_config(config)
    try:
        from smartcache.preprocessing.dataset import DatasetError, Request, build, moment_us

        request = Request(output, tuple(cache or ()), moment_us(start, "--from"), moment_us(end, "--to"))
    except ValueError as error:
        fail(str(error), 2)
    with spark_job(settings, "build-dataset", (DatasetError,)) as (spark, progress):
        manifest = build(spark, settings, request, progress)
    splits = ", ".join(f"{count} {name}" for name, count in manifest["splits"].items())
    print(f"{output}: {manifest['rows']} rows ({splits}), SHA-256 {manifest['sha256'][:16]}…")


def _replace(path: Path, text: str) -> None:
    """Never half a file, for whoever reads it just now."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    main = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
    register(main)
    main()
