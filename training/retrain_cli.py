"""``smartcache retrain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smartcache.terminal import Stopper, say

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def register(app: typer.Typer) -> None:
    """Add the subcommand to the command line."""
    app.command("retrain")(retrain)


def retrain(
    every: Annotated[bool, typer.Option("--every", help="Go on: a round each [retraining] every_s, until SIGTERM or Ctrl-C.")] = False,
    config: Annotated[Path | None, typer.Option(envvar="SMARTCACHE_CONFIG", help="Configuration file.")] = None,
) -> None:
    """Train a challenger on the last days of the access table.

    A round makes a training set of [retraining] window_days (`smartcache build-dataset`), trains on it, beginning with the champion's
    weights, keeps the epoch that a replay of the access table likes best, reports the drift since the champion's training and registers the
    outcome as the challenger (`smartcache train`). `smartcache promote` and its gates decide what becomes of it.

    A round that was stopped within its training goes on there. Training sets are in [retraining] dir, and last.json says what was done
    last; two of this command never work there at the same time.

    Exit: 0 done, or stopped between two rounds, 1 a round failed or another one is at work, 2 wrong configuration, 130 stopped within one.
    """
    from smartcache.config import ConfigError, load

    from . import retrain as retraining

    try:
        settings = load(config)
    except ConfigError as error:
        say(str(error))
        raise typer.Exit(WRONG_USAGE) from error
    work = retraining.Work(Path(settings.retraining.dir))
    try:
        with Stopper() as stopper, work.held() as lock:
            if every:
                print(f"ready: {settings.streaming.table} -> {settings.mlflow.model}, each {settings.retraining.every_s:g} s", flush=True)
            (retraining.every if every else retraining.once)(settings, config, work, lock, stopper.event, say)
    except retraining.Stopped as stopped:
        say("stopped within a round; the same command goes on")
        raise typer.Exit(INTERRUPTED) from stopped
    except retraining.RetrainError as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
