"""``smartcache scan-cinfo``."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from smartcache.config import Config, ConfigError, load
from smartcache.terminal import Stopper, counter, say

from . import cache_id

#: How often a long scan saves what it has done.
SAVE_S = 60.0


def scan_cinfo(
    folder: Annotated[
        Path, typer.Argument(help="The cache's folder: oss.localroot of its configuration, or a folder below it (--prefix).")
    ],
    cache: Annotated[str, typer.Option(help="The cache id, HOST:PORT as XRootD names the server; the same as in its other records.")],
    prefix: Annotated[str, typer.Option(help="What the LFNs of the files in the folder begin with.")] = "/",
    output: Annotated[
        str, typer.Option(help="Write JSON lines to this file (-: standard output), not to Kafka. With --state: behind those there.")
    ] = "",
    state: Annotated[
        Path | None, typer.Option(help="What was seen is kept here. Default: in `state_dir` of section `scan`; with --output, none.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Read every file, unchanged ones too.")] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="SMARTCACHE_CONFIG", help="What differs from smartcache.toml, in the same form."),
    ] = None,
) -> None:
    """Turn the .cinfo files of a cache's disk into records: what is there, how much of it, and how it was accessed.

    Each file that XCache stores has a .cinfo beside it. One record for each goes to `cinfo_topic` of section `kafka`; what cannot be read
    goes to the topic's dead letters, with the reason. The cache may be in use meanwhile, and the next scan reads only what has changed
    since. A record of the same state has the same id, however often it is sent.

        smartcache scan-cinfo /data/cache --cache xcache01.example.org:1094

    Whoever runs it must be allowed to read the cache's files. Ends with a line that says what was found, and with exit status 1 where
    folders or files could not be read; Ctrl-C and SIGTERM stop it, and what was done until then need not be done again.
    """
    from .batch import BatchError, Stopped
    from .known import StateError

    if wrong := cache_id.problem(cache):
        say(f"--cache must be {wrong}")
        sys.exit(2)
    if not folder.is_dir():
        say(f"{folder} is no folder; name the cache's oss.localroot")
        sys.exit(2)
    try:
        settings = load(config)
        with Stopper() as stop:
            status = _run(settings, folder.resolve(), cache, prefix, output, state, full, stop.event)
    except ConfigError as error:
        say(str(error))
        sys.exit(2)
    except (BatchError, StateError) as error:
        say(str(error))
        sys.exit(1)
    except Stopped:
        status = 130
    sys.exit(status)


def _run(config: Config, folder: Path, cache: str, prefix: str, output: str, state: Path | None, full: bool, stop: threading.Event) -> int:
    from .batch import BatchOutput, KafkaOutput, LinesOutput
    from .known import Known, load, require_writable
    from .scan import Counts, Scan

    destination = str(Path(output).absolute()) if output else f"{config.kafka.bootstrap} {config.kafka.cinfo_topic}"
    identity = {"folder": str(folder), "cache": cache, "prefix": prefix, "destination": destination}
    if state is None and not output:
        state = Path(config.scan.state_dir) / f"{_name(cache)}-{hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()}"
    if state is not None:
        require_writable(state)
    known, problem = load(state, identity) if state and not full else (Known(), "")
    if problem:
        say(f"{problem}; every file is read")
    # Where a state is gone by, only what has changed comes now: it goes behind what is there.
    going_on = state is not None and state.exists() and not full and not problem
    sink: BatchOutput = LinesOutput(output, config.kafka.dlq_suffix, say, append=going_on) if output else KafkaOutput(config, say, stop)
    scan = Scan(folder, cache, sink, known, prefix=prefix, stop=stop)

    def save(final: bool) -> None:
        sink.flush()
        if state is not None:
            # Until the end what is known stays so: those files may still come.
            (Known().merged(scan.seen) if final else known.merged(scan.seen)).save(state, identity)

    counts = Counts()
    saved = time.monotonic()
    try:
        with counter("files") as shown:
            for counts in scan.run():
                shown.update(counts.found, counts.found, counts.line())
                if time.monotonic() - saved > SAVE_S:
                    save(final=False)
                    saved = time.monotonic()
        save(final=not stop.is_set())
    finally:
        sink.close()
    counts = scan.counts
    say(("stopped: " if stop.is_set() else "") + counts.line())
    unreadable = counts.folders_unreadable or counts.unreadable
    if unreadable:
        say(
            f"{counts.unreadable} files could not be read, and {counts.folders_unreadable} folders with all below them: the first is "
            f"{counts.first_unreadable}; run it as a user that may read all of the cache, when its disks are there"
        )
    return 130 if stop.is_set() else 1 if unreadable else 0


def _name(cache: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", cache)


def register(app: typer.Typer) -> None:
    """Add the command ``scan-cinfo`` to ``app``."""
    app.command("scan-cinfo")(scan_cinfo)
