"""What the commands of this folder share at the terminal."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from smartcache.config import Config, ConfigError, load

from .reason import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="The site's configuration, laid over the defaults; else the file that $SMARTCACHE_CONFIG names."),
]


def load_config(path: Path | None) -> Config:
    """The configuration; ends the program with status 2 where it cannot be used."""
    try:
        return load(path)
    except ConfigError as error:
        fail(str(error), 2)


@contextlib.contextmanager
def spark_job(
    config: Config, name: str, expected: tuple[type[Exception], ...] = ()
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session for one command, and what shows on the terminal what it is doing; both end with the block.

    Ends the program: with status 2 where the configuration cannot be used, 130 on SIGINT and SIGTERM, 1 on anything else, with the text of
    an ``expected`` error as it is.
    """
    from rich.console import Console
    from rich.markup import escape

    from .session import spark_session

    before: Any = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Console(stderr=True).status("starting Spark") as status:
            spark = spark_session(config, f"smartcache-{name}")
            try:
                yield spark, lambda text: status.update(escape(text))
            finally:
                spark.stop()
    except ConfigError as error:
        fail(str(error), 2)
    except KeyboardInterrupt:
        fail(f"{name}: interrupted", 130)
    except typer.Exit:
        raise
    except expected as error:
        fail(str(error), 1)
    except Exception as error:
        fail(f"{name}: {reason(error)}", 1)
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def fail(text: str, status: int) -> NoReturn:
    """End the program with ``status`` and a line that says why."""
    print(text, file=sys.stderr)
    raise typer.Exit(status)
