"""``smartcache collect``; registers the folder's other commands too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def collect(
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="SMARTCACHE_CONFIG", help="What differs from smartcache.toml, in the same form."),
    ] = None,
) -> None:
    """Receive XCache's monitoring by UDP and put it on Kafka.

    Three ports (section `collector` of the configuration): pfc's g-stream, XRootD's f-stream, the plugin's decision log. Each becomes a
    topic (section `kafka`), created where it is absent; what does not parse goes to the topic's dead letters, with the reason. Users and
    client hosts are replaced by pseudonyms. Records are written to a folder on disk first (section `spool`), so that none is lost while
    Kafka is away or when this process dies.

    XCache's side, with this host as COLLECTOR:

        xrootd.mongstream pfc use flush 1s maxlen 8k send json fullhdr COLLECTOR:9931
        xrootd.monitor all auth flush 1s fstat 10s lfn ops xfr 1 ident 60s dest fstat info user COLLECTOR:9932
        xrootd.async off

    Where servers send to the XRootD monitoring shoveler instead, let that forward to us (its `outputs.destinations`), at `shoveler_port`.

    Counters are at /metrics of metrics_bind:metrics_port, /healthz says whether it is well. Prints one line `ready: …` when it serves;
    SIGTERM and Ctrl-C end it cleanly: sockets drained, open files sent, Kafka flushed; what Kafka does not take within `shutdown_s` stays
    in the spool for the next start.
    """
    from smartcache.config import ConfigError, load

    from .collector import run, say
    from .metrics import MetricsError
    from .receiver import ReceiverError
    from .spool import SpoolError

    try:
        status = run(load(config))
    except ConfigError as error:
        say(str(error))
        sys.exit(2)
    except (MetricsError, ReceiverError, SpoolError) as error:
        say(str(error))
        sys.exit(1)
    sys.exit(status)


def register(app: typer.Typer) -> None:
    """Add the folder's commands to ``app``."""
    from . import import_cli, scan_cli

    app.command("collect")(collect)
    scan_cli.register(app)
    import_cli.register(app)


if __name__ == "__main__":
    main = typer.Typer(no_args_is_help=True)
    main.callback()(lambda: None)
    register(main)
    main()
