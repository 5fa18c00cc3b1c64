"""``smartcache promote | rollback | watch | status | compare | endpoint``."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from smartcache.config import Config

    from .registry import Registry
    from .serving import Endpoint

FAILED = 1
#: The gates said no: nothing is broken, and nothing was moved.
REFUSED = 3
WRONG_USAGE = 2
#: As typer has it.
INTERRUPTED = 130

ConfigOption = Annotated[Path | None, typer.Option("--config", envvar="SMARTCACHE_CONFIG", help="Configuration file.")]
EndpointOption = Annotated[
    list[str] | None,
    typer.Option("--endpoint", help="URL of an endpoint, repeatable; default: [promote] endpoints, else that of [model]."),
]
SchemaHash = Annotated[str, typer.Option(help="Hash of the feature schema that is served; default: what the core computes here.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands of this folder to the command line."""
    app.command("promote")(_ending(promote))
    app.command("rollback")(_ending(rollback))
    app.command("watch")(_ending(watch))
    app.command("status")(_ending(status))
    app.command("compare")(_ending(compare))
    app.command("endpoint")(endpoint)


def promote(
    version: Annotated[int | None, typer.Argument(help="Number of the registered version; default: the newest.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Ask the gates, write nothing.")] = False,
    force: Annotated[
        str | None, typer.Option(metavar="REASON", help="Promote in spite of failed gates; the reason is kept with the version.")
    ] = None,
    endpoint: EndpointOption = None,
    schema_hash: SchemaHash = "",
    config: ConfigOption = None,
) -> None:
    """Ask the gates about a version and, if all pass, make it the champion. Exit status 3 where they refuse it: then nothing is moved.

    The bundle; a replay of the latest opens of the access table, against the champion and LRU ([gates] replay_days 0: none); and, at each
    endpoint that can be reached from here, its golden rows and how long they take. What was measured is shown, and kept in MLflow: as tags
    of the version, and as the artifact gates/promote.md of its run.
    """
    from smartcache.terminal import counter

    from . import promote as promotion
    from . import show
    from .gates import expected_schema_hash
    from .rollout import Fleet

    if force is not None and not force.strip():
        raise typer.BadParameter("--force needs a reason that is not empty")
    with _errors(), ExitStack() as stack:
        settings = _load(config)
        done = promotion.promote(
            _registry(settings),
            settings,
            schema_hash or expected_schema_hash(settings),
            version,
            fleet=Fleet(_endpoints(settings, endpoint, stack), wait_s=0),
            dry_run=dry_run,
            force=force,
            progress=show.replaying(stack.enter_context(counter("opens"))),
        )
    show.promotion(done, dry_run=dry_run, model=settings.mlflow.model)
    if not done.passed and not done.moved and not (dry_run and force):
        raise typer.Exit(REFUSED)


def rollback(config: ConfigOption = None) -> None:
    """Make the version that served before the present champion champion again.

    It has served, so no gate is asked, here or by `smartcache watch`, and no endpoint is waited for: one that is down or full gets it when
    it is back. The same holds where the alias is moved back in MLflow. Again, and it goes back one further.
    """
    from . import promote as promotion

    with _errors():
        was, now = promotion.rollback(_registry(_load(config)))
    typer.echo(f"champion: version {now.number} (was {was.number})")


def watch(
    endpoint: EndpointOption = None,
    schema_hash: SchemaHash = "",
    config: ConfigOption = None,
) -> None:
    """Follow the champion: each promoted version is installed, tried and made live at all endpoints and on this host, or nowhere.

    An endpoint that is away is waited for [promote] wait_s, then left behind; it gets the version when it returns. `smartcache status`
    shows what serves where.
    """
    from smartcache.config import ConfigError
    from smartcache.terminal import Stopper

    from . import webhook
    from .gates import expected_schema_hash
    from .install import BundleDir
    from .rollout import Fleet
    from .watch import Watch

    wake = threading.Event()
    with _errors(), ExitStack() as stack:
        stop = stack.enter_context(Stopper(wake)).event
        settings = _load(config)
        if not settings.model.bundle_dir:
            raise ConfigError("[model] bundle_dir is empty: set it to the folder that the plugin reads bundles from")
        registry = _registry(settings)
        if settings.watch.webhook_port:
            secret = webhook.read_secret(settings.watch.webhook_secret_file)
            stack.enter_context(webhook.listen(settings.watch, secret, wake))
            if settings.watch.webhook_url and (trouble := webhook.register(registry, settings.watch.webhook_url, secret)):
                print(trouble, flush=True)
        Watch(
            registry,
            BundleDir(Path(settings.model.bundle_dir), settings.mlflow.model),
            Fleet(_endpoints(settings, endpoint, stack), settings.promote.wait_s),
            settings,
            schema_hash or expected_schema_hash(settings),
            say=lambda line: print(line, flush=True),
        ).run(stop, settings.watch.poll_s, wake)


def status(
    endpoint: EndpointOption = None,
    bundle_dir: Annotated[
        list[Path] | None, typer.Option(help="Folder that a plugin reads bundles from, repeatable; default: [model] bundle_dir.")
    ] = None,
    figures: Annotated[
        bool, typer.Option(help="Where a challenger is tried: both versions' figures, as `smartcache compare` has them.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show what serves where, since when, with what figures, and what is pending. Exit status 0 where all serve the champion, else 1.

    Asks MLflow, each bundle folder and each endpoint (its golden rows too, where the champion's bundle is on this disk); changes nothing.
    Who may not read [endpoint] admin_token_file asks the endpoints with the token in [model] token_file, or with none.
    Where a challenger is tried beside the champion: which version, since when, for which share of the files or as a shadow, and, from the
    last [challenger] compare_days of the access table, what came of the answers of both.
    """
    import json

    from . import compare as comparison
    from . import show
    from . import status as statuses
    from .install import BundleDir

    with _errors(), ExitStack() as stack:
        settings = _load(config)
        folders = bundle_dir or ([Path(settings.model.bundle_dir)] if settings.model.bundle_dir else [])
        found = statuses.gather(
            _registry(settings),
            [BundleDir(folder, settings.mlflow.model) for folder in folders],
            _endpoints(settings, endpoint, stack, ask_only=True),
            (lambda challenger: comparison.of(settings, challenger)) if figures else None,
        )
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        show.status(found)
    if not found.all_serve_champion:
        raise typer.Exit(FAILED)


def compare(
    days: Annotated[float | None, typer.Option(min=0.001, help="How far back; default: [challenger] compare_days.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    config: ConfigOption = None,
) -> None:
    """Champion and challenger side by side, by what they answered and what came of it: from the access table.

    [challenger] canary_share lets the challenger decide for a share of the files, shadow asks it besides. An answer is judged by whether
    the file was opened again within [training] horizon_s.
    """
    import json

    from . import compare as comparison
    from . import show
    from .registry import CHALLENGER, RegistryError

    with _errors():
        settings = _load(config)
        registry = _registry(settings)
        challenger = ""
        try:
            if (version := registry.alias(CHALLENGER)) is not None:
                challenger = registry.name_of(version.number)
        except RegistryError as error:  # only the role's name is lost
            print(error, file=sys.stderr)
        found = comparison.of(settings, challenger, days)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        show.comparison(found)


def endpoint(config: ConfigOption = None) -> None:
    """Serve models over TFaaS's HTTP API (becomes the endpoint's binary)."""
    from . import endpoint as server

    with _errors():
        server.become(_load(config).endpoint)


def _load(config: Path | None) -> Config:
    from smartcache.config import load

    return load(config)


def _endpoints(settings: Config, urls: list[str] | None, stack: ExitStack, *, ask_only: bool = False) -> list[Endpoint]:
    """Those that are named on the command line, else in [promote], else the one in [model]; closed with ``stack``.

    ``ask_only``: nothing is to be changed there, so another token than the administrator's does, or none.
    """
    from .serving import Endpoint, read_token, token_to_ask

    urls = urls or settings.promote.endpoints or ([settings.model.endpoint_url] if settings.model.endpoint_url else [])
    admin, other = settings.endpoint.admin_token_file, settings.model.token_file
    token = partial(token_to_ask, admin, other) if ask_only else partial(read_token, admin)
    return [stack.enter_context(Endpoint(url, token, ca_file=settings.model.ca_file)) for url in urls]


def _registry(settings: Config) -> Registry:
    from .registry import Registry

    return Registry(settings.mlflow.tracking_uri, settings.mlflow.model)


@contextmanager
def _errors() -> Iterator[None]:
    """What a person can act on goes to standard error as one line, with the right exit status."""
    from smartcache.config import ConfigError
    from smartcache.local.paths import MissingPart

    from .bundle import BundleError
    from .compare import CompareError
    from .gates import GateError
    from .install import InstallError
    from .registry import RegistryError
    from .serving import ServingError
    from .webhook import WebhookError

    try:
        yield
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(WRONG_USAGE) from error
    except (BundleError, CompareError, GateError, InstallError, MissingPart, RegistryError, ServingError, WebhookError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(FAILED) from error
    except BrokenPipeError:
        raise  # who read our output has gone
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        print(f"{error}; {'make room there' if full else 'mend the path or its rights'}", file=sys.stderr)
        raise typer.Exit(FAILED) from error


def _ending(command: Callable[..., None]) -> Callable[..., None]:
    """``command``, whose process ends with it, also where a call to the registry goes on that nobody waits for any more: Python would wait
    for the download of a bundle, and only the server knows how long.
    """

    @wraps(command)
    def ending(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except BaseException as error:
            if not _calls_go_on():
                raise
            _end(_status_of(error))
        if _calls_go_on():
            _end(0)

    return ending


def _calls_go_on() -> bool:
    from . import registry

    return registry.calls_go_on()


def _end(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # who read it has gone
            stream.flush()
    os._exit(status)


def _status_of(error: BaseException) -> int:
    """The exit status, as typer has it; what nobody expected is shown."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if not isinstance(error, BrokenPipeError):
        traceback.print_exception(error)
    return FAILED


def main() -> None:
    """``python -m smartcache.inference.cli``: this folder's subcommands alone."""
    app = typer.Typer(no_args_is_help=True)
    register(app)
    app()


if __name__ == "__main__":
    main()
