"""``smartcache import``."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from smartcache.config import Config, ConfigError, load
from smartcache.terminal import Stopper, counter, say

from . import cache_id


class Format(StrEnum):
    """What ``--format`` takes."""

    auto = "auto"
    parquet = "parquet"
    csv = "csv"
    oracle = "oracle"
    jobs = "jobs"
    shoveler = "shoveler"


def import_(
    files: Annotated[list[Path], typer.Argument(help="Files, read one after the other; - is standard input (jobs and shoveler).")],
    format_: Annotated[
        Format, typer.Option("--format", help="auto tells .parquet, .csv and names with oracleGeneral apart; .gz and .zst may follow.")
    ] = Format.auto,
    cache: Annotated[str, typer.Option(help="Traces: the cache id, HOST:PORT, that the accesses are taken to be of.")] = "",
    start: Annotated[
        str,
        typer.Option(help="Traces whose times count from their start: when that was; 2026-05-01, 2026-05-01T06:00:00Z or Unix seconds."),
    ] = "",
    prefix: Annotated[str, typer.Option(help="Traces: put before each LFN.")] = "",
    skip: Annotated[
        int, typer.Option(min=0, help="Pass over so many rows of the first file: to go on where an import was stopped. Not with shoveler.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every row, send nothing; exit 1 where there are errors.")] = False,
    output: Annotated[str, typer.Option(help="Write JSON lines to this file (-: standard output), not to Kafka.")] = "",
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="SMARTCACHE_CONFIG", help="What differs from smartcache.toml, in the same form."),
    ] = None,
) -> None:
    """Turn traces, archives and other monitoring into records.

    Access traces (parquet, csv: columns time or t, lfn, size, and where there are any bytes_read, user; oracle: libCacheSim's
    oracleGeneral) become opens on `fstream_topic` of section `kafka`, and rows of the access table. Job monitoring (jobs: JSON lines of
    CMS's HTCondor or of PanDA, as MonIT archives them) goes to `job_topic`. What XRootD's monitoring shoveler has put on a message bus
    (shoveler: one message a line) goes through the collector's own parsers.

        smartcache import trace.parquet --cache xcache01.example.org:1094 --start 2026-05-01
        smartcache import --format jobs condor-2026-05-01.json.gz
        consume-from-the-bus | smartcache import --format shoveler -

    A row that cannot be used is named, with its file, rule and value, and goes to the topic's dead letters. The same row of the same file
    has the same id each time. Ctrl-C and SIGTERM stop it after what was read is safe, and it says how to go on.
    """
    from smartcache.traces import SourceError

    from .batch import BatchError, Stopped

    try:
        settings = load(config)
        with Stopper() as stop:
            status = _run(settings, files, format_, cache, start, prefix, skip, dry_run, output, stop.event)
    except ConfigError as error:
        say(str(error))
        sys.exit(2)
    except (BatchError, SourceError) as error:
        say(str(error))
        sys.exit(1)
    except Stopped:
        say("stopped before all that was read was delivered; the same rows have the same ids, so start it again")
        status = 130
    sys.exit(status)


def _run(
    config: Config,
    files: list[Path],
    format_: Format,
    cache: str,
    start: str,
    prefix: str,
    skip: int,
    dry_run: bool,
    output: str,
    stop: threading.Event,
) -> int:
    from smartcache import traces
    from smartcache.traces import unix_us

    from . import pseudonym
    from .batch import BatchOutput, KafkaOutput, LinesOutput, Nowhere
    from .importer import STDIN, Done, Importer, Settings

    kinds = [_kind(path, format_, cache) for path in files]
    if skip and "shoveler" in kinds:
        _usage(
            "--skip does not go with shoveled packets: an open finds its close only where all lines are read; start from the first line, "
            "the same records have the same ids"
        )
    start_us = unix_us(start) if start else None
    if start and start_us is None:
        _usage(f"--start must be 2026-05-01, 2026-05-01T06:00:00Z or Unix seconds, not {start!r}")
    sink: BatchOutput = (
        Nowhere() if dry_run else LinesOutput(output, config.kafka.dlq_suffix, lambda _: None) if output else KafkaOutput(config, say, stop)
    )
    if not config.collector.pseudonym_key_file:
        say("users get pseudonyms that no other run will give them: set [collector] pseudonym_key_file")
    settings = Settings(cache, start_us, prefix, pseudonym.load(config.collector.pseudonym_key_file))
    importer = Importer(sink, settings, say, stop)
    errors = 0
    try:
        for number, (path, kind) in enumerate(zip(files, kinds, strict=True)):
            work: Iterator[Done]
            if kind == "jobs":
                work = importer.jobs(path, skip)
            elif kind == "shoveler":
                work = importer.shoveler(path)
            else:
                work = importer.trace(path, kind, skip)
            done = Done()
            with counter("rows", None if path == STDIN else traces.total(path, kind)) as shown:
                try:
                    for done in work:
                        shown.update(done.at, done.rows, f"{path.name}: {done.line()}")
                finally:
                    sink.flush()
            errors += done.errors.total()
            if stop.is_set():
                left = f"--skip {done.rows} {shlex.join(map(str, files[number:]))}"
                again = "start it again, with all files" if kind == "shoveler" else f"go on with {left}"
                say(f"stopped: {path}: {done.line()}, all delivered; {again}")
                return 130
            say(f"{path}: {done.line()}{', checked only' if dry_run else ''}")
            skip = 0
        if "shoveler" in kinds:
            done = importer.end_shoveler()
            sink.flush()
            errors += done.errors.total()
            if done.records or done.errors:
                say(f"at the end: {done.records} records of opens whose close is in no file" + done.error_text())
    finally:
        sink.close()
    return 1 if dry_run and errors else 0


def _kind(path: Path, format_: Format, cache: str) -> str:
    from smartcache.traces import kind_of

    is_stdin = str(path) == "-"
    if not is_stdin and not path.is_file():
        _usage(f"{path} is no file")
    kind = kind_of(path) if format_ is Format.auto else str(format_)
    if not kind:
        _usage(f"{path}: its name does not tell what it is; say so with --format")
    if kind not in ("jobs", "shoveler"):
        if is_stdin:
            _usage("a trace has to be a file: its rows' ids are made from all of it")
        if not cache:
            _usage(f"{path}: a trace needs --cache HOST:PORT, the cache that the accesses are taken to be of")
        if wrong := cache_id.problem(cache):
            _usage(f"--cache must be {wrong}")
    return kind


def _usage(text: str) -> None:
    say(text)
    raise typer.Exit(2)


def register(app: typer.Typer) -> None:
    """Add the command ``import`` to ``app``."""
    app.command("import")(import_)
