"""``smartcache train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from smartcache.config import Config

FAILED = 1
WRONG_USAGE = 2


def register(app: typer.Typer) -> None:
    """Add the subcommands of this folder to the command line."""
    app.command("train")(train)


def train(
    dataset: Annotated[Path, typer.Option(help="Folder that `smartcache build-dataset` wrote.")],
    register: Annotated[bool, typer.Option(help="Record the run in MLflow and register a new version of the model.")] = True,
    output: Annotated[Path | None, typer.Option(help="Also write the bundle to this folder, which must not exist.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="SMARTCACHE_CONFIG", help="Configuration file.")] = None,
) -> None:
    """Train a model on a training set, judge it on the latest part of it, and register it as a new version."""
    from rich.console import Console

    from smartcache.config import ConfigError, load
    from smartcache.inference.bundle import BundleError
    from smartcache.inference.export import ExportError
    from smartcache.inference.registry import RegistryError

    from . import dataset as datasets
    from .train import TrainingError

    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        _train(dataset, load(config), register=register, output=output)
    except (ConfigError, datasets.DatasetError) as error:
        errors.print(str(error))
        raise typer.Exit(WRONG_USAGE) from error
    except (TrainingError, ExportError, BundleError, RegistryError) as error:
        errors.print(str(error))
        raise typer.Exit(FAILED) from error


def _train(dataset: Path, config: Config, *, register: bool, output: Path | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from smartcache.inference.export import ExportError
    from smartcache.inference.registry import Registry

    from . import record
    from . import train as training
    from .dataset import read

    console = Console(soft_wrap=True, highlight=False)
    training.require_thresholds(config)
    data = read(dataset)
    training.require_rows(data)
    if output is not None and output.exists():
        raise ExportError(f"{output}: exists already; bundles are never written over, name another folder with --output")
    if register:
        Registry(config.mlflow.tracking_uri, config.mlflow.model).require_server()
    console.print(
        f"training on {len(data.train)} opens, stopping by {len(data.validate)}, judging by {len(data.test)}; {len(data.names)} features"
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[losses]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("epoch", total=config.training.epochs, losses="")

        def progress(epoch: int, of: int, loss: float, validation: float) -> None:
            bar.update(task, completed=epoch, total=of, losses=f"loss {loss:.4f}, validation {validation:.4f}")

        trained = training.train(data, config, progress)
    metrics = trained.metrics
    console.print(
        f"test: loss {metrics['loss']:.4f}, base rates {metrics['base_loss']:.4f}, skill {metrics['skill']:.4f}"
        + (f", AUC {metrics['auc']:.4f}" if "auc" in metrics else "")
        + f"; {trained.epochs} epochs, {trained.seconds:.1f} s"
    )
    done = record.record(data, config, trained, register=register, output=output)
    if done.folder is not None:
        console.print(f"bundle: {done.folder}")
    if done.version is not None:
        console.print(f"registered: {config.mlflow.model} version {done.version}; `smartcache promote {done.version}` makes it live")


def main() -> None:
    """``python -m smartcache.training.cli``: this folder's subcommands alone."""
    app = typer.Typer(no_args_is_help=True)
    app.callback()(lambda: None)
    register(app)
    app()


if __name__ == "__main__":
    main()
