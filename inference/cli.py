"""``smartcache promote | rollback | watch | endpoint``."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from smartcache.config import Config

    from .promote import Promotion
    from .registry import Registry

FAILED = 1
#: The gates said no: nothing is broken, and nothing was moved.
REFUSED = 3
WRONG_USAGE = 2

ConfigOption = Annotated[Path | None, typer.Option("--config", envvar="SMARTCACHE_CONFIG", help="Configuration file.")]
SchemaHash = Annotated[str, typer.Option(help="Hash of the feature schema that is served; default: what the core computes here.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands of this folder to the command line."""
    app.command("promote")(promote)
    app.command("rollback")(rollback)
    app.command("watch")(watch)
    app.command("endpoint")(endpoint)


def promote(
    version: Annotated[int | None, typer.Argument(help="Number of the registered version; default: the newest.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Ask the gates, write nothing.")] = False,
    force: Annotated[
        str | None, typer.Option(metavar="REASON", help="Promote in spite of failed gates; the reason is kept with the version.")
    ] = None,
    schema_hash: SchemaHash = "",
    config: ConfigOption = None,
) -> None:
    """Ask the gates about a version and, if all pass, make it the champion. Exit status 3 where they refuse it: then nothing is moved."""
    from . import promote as promotion
    from .gates import expected_schema_hash

    if force is not None and not force.strip():
        raise typer.BadParameter("--force needs a reason that is not empty")
    with _errors():
        settings = _load(config)
        expected = schema_hash or expected_schema_hash(settings)
        done = promotion.promote(_registry(settings), settings.gates, expected, version, dry_run=dry_run, force=force)
    _show(done, dry_run=dry_run, model=settings.mlflow.model)
    if not done.passed and not done.moved and not (dry_run and force):
        raise typer.Exit(REFUSED)


def rollback(config: ConfigOption = None) -> None:
    """Make the version that was champion before the present one champion again."""
    from . import promote as promotion

    with _errors():
        was, now = promotion.rollback(_registry(_load(config)))
    typer.echo(f"champion: version {now.number} (was {was.number})")


def watch(
    endpoint: Annotated[list[str] | None, typer.Option(help="Endpoint to upload to, repeatable; default: [model] endpoint_url.")] = None,
    schema_hash: SchemaHash = "",
    config: ConfigOption = None,
) -> None:
    """Follow the champion: install each promoted version on this host and at the endpoint."""
    from smartcache.config import ConfigError

    from .gates import expected_schema_hash
    from .install import BundleDir
    from .serving import Endpoint, read_token
    from .watch import Watch

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with _errors(), ExitStack() as stack:
        settings = _load(config)
        if not settings.model.bundle_dir:
            raise ConfigError("[model] bundle_dir is empty: set it to the folder that the plugin reads bundles from")
        urls = endpoint or ([settings.model.endpoint_url] if settings.model.endpoint_url else [])
        token = read_token(settings.endpoint.admin_token_file)
        endpoints = [stack.enter_context(Endpoint(url, token, ca_file=settings.model.ca_file)) for url in urls]
        Watch(
            _registry(settings),
            BundleDir(Path(settings.model.bundle_dir), settings.mlflow.model),
            endpoints,
            settings.gates,
            schema_hash or expected_schema_hash(settings),
            say=lambda line: print(line, flush=True),
        ).run(stop, settings.watch.poll_s)


def endpoint(config: ConfigOption = None) -> None:
    """Serve models over TFaaS's HTTP API (becomes the endpoint's binary)."""
    from . import endpoint as server

    with _errors():
        server.become(_load(config).endpoint)


def _load(config: Path | None) -> Config:
    from smartcache.config import load

    return load(config)


def _registry(settings: Config) -> Registry:
    from .registry import Registry

    return Registry(settings.mlflow.tracking_uri, settings.mlflow.model)


@contextmanager
def _errors() -> Iterator[None]:
    """What a person can act on goes to standard error as one line, with the right exit status."""
    from smartcache.config import ConfigError
    from smartcache.local.paths import MissingPart

    from .bundle import BundleError
    from .gates import GateError
    from .install import InstallError
    from .registry import RegistryError
    from .serving import ServingError

    try:
        yield
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_USAGE) from error
    except (BundleError, GateError, InstallError, MissingPart, RegistryError, ServingError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from error


def _show(done: Promotion, *, dry_run: bool, model: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{model} version {done.version.number}")
    for column in ("gate", "value", "rule", ""):
        table.add_column(column)
    for gate in done.gates:
        table.add_row(gate.name, gate.value, gate.rule, "[green]passed[/]" if gate.passed else "[red]failed[/]")
    console = Console()
    console.print(table)
    was = f" (was {done.previous})" if done.previous is not None else ""
    if done.moved:
        console.print(f"champion: version {done.version.number}{was}" + ("" if done.passed else ", forced"))
    elif dry_run:
        console.print("dry run: nothing was written")
    elif done.passed:
        console.print(f"version {done.version.number} is the champion already")
    else:
        console.print("[red]not promoted[/]: nothing was moved")


def main() -> None:
    """``python -m smartcache.inference.cli``: this folder's subcommands alone."""
    app = typer.Typer(no_args_is_help=True)
    register(app)
    app()


if __name__ == "__main__":
    main()
