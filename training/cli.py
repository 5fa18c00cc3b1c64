"""``smartcache train``, ``reproduce`` and ``drift``; the commands of :mod:`.simulate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smartcache.terminal import Stopper, say

from . import retrain_cli
from .simulate import cli as simulation

if TYPE_CHECKING:
    from rich.console import Console

    from smartcache.config import Config

    from .dataset import TrainingSet
    from .drift import Drift
    from .train import How, Trained

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
#: Of what is known of the epoch that was chosen: its number.
EPOCH = "validation_epoch"

ConfigFile = Annotated[Path | None, typer.Option(envvar="SMARTCACHE_CONFIG", help="Configuration file.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands of this folder to the command line."""
    app.command("train")(train)
    app.command("reproduce")(reproduce)
    app.command("drift")(drift)
    retrain_cli.register(app)
    simulation.register(app)


@dataclass(frozen=True)
class Wanted:
    """What `smartcache train` was asked for."""

    dataset: Path
    register: bool
    output: Path | None
    replay: str | None
    cache_bytes: int | None
    warm_start: str | None
    drift: bool
    compare_trees: bool

    @property
    def state(self) -> Path:
        """Where what has been reached is kept: beside the output, or the training set."""
        base = self.dataset if self.output is None else self.output
        return base.absolute().with_name(f".{base.absolute().name}.training")


def train(
    dataset: Annotated[Path, typer.Option(help="Folder that `smartcache build-dataset` wrote.")],
    register: Annotated[bool, typer.Option(help="Record the run in MLflow and register a new version of the model.")] = True,
    output: Annotated[Path | None, typer.Option(help="Also write the bundle to this folder, which must not exist.")] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE|TRACE",
            help="Access table or trace (Parquet, CSV, oracleGeneral) that the training set was made of: keep the epoch whose model misses "
            "and writes least in a replay of the validate part's time. Default: the epoch with the lowest loss there.",
        ),
    ] = None,
    cache_bytes: Annotated[
        int | None, typer.Option(min=1, help="Size of the replayed cache, of each. Default: as the gate of replay has it, section [gates].")
    ] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="champion|BUNDLE",
            help="Begin with the weights of the champion or of a bundle's folder, where features, buckets and layers are the same.",
        ),
    ] = None,
    drift: Annotated[
        bool,
        typer.Option("--drift", help="Report how these opens differ from those that the champion was trained on: `smartcache drift`."),
    ] = False,
    compare_trees: Annotated[
        bool, typer.Option("--compare-trees", help="Train LightGBM on the same rows too, and keep its figures beside the network's.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Train a model on a training set, judge it on the latest part of it, and register it as a new version.

    Which epoch's weights are kept is decided on the validate part: by loss or, with --replay, by the bytes that a cache with these weights
    would have missed and written, by the code that the plugin decides with ([training] replay_every, replay_write_price, patience).

    A training that was stopped (Ctrl-C, SIGTERM) or killed goes on after its last whole epoch when the same command is given again. What it
    has reached is kept beside --output, else beside the training set, in .NAME.training, until it is recorded. With another training set,
    seed, configuration or version it begins anew, and says so.

    Exit: 0 done, 1 failed, 2 wrong training set or configuration, 130 stopped.
    """
    from smartcache.config import load

    with ending("the same command goes on after the last whole epoch"):
        _train(Wanted(dataset, register, output, replay, cache_bytes, warm_start, drift, compare_trees), load(config))


def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN_ID", help="The MLflow run that a model came from (the tag smartcache.run_id).")],
    dataset: Annotated[Path | None, typer.Option(help="Its training set. Default: the folder where it was then.")] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="TABLE|TRACE", help="What its epochs were judged by. Default: what the run names, if any.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the bundle that came of it to this folder, which must not exist.")] = None,
    config: ConfigFile = None,
) -> None:
    """Train again what an MLflow run says, and compare the weights, to the bit.

    Data, seed, [training] configuration, what judged the epochs and what it began with are the run's. What is not as it was then (code
    revision, SHA-256 of the data, opens replayed, versions, processor) is named, one by one. Nothing is registered.

    Exit: 0 the same weights, 1 others or not possible, 2 wrong training set or configuration, 130 stopped.
    """
    from smartcache.config import load

    with ending("nothing of it is kept"):
        _reproduce(run, dataset, replay, output, load(config))


def drift(
    dataset: Annotated[Path, typer.Option(help="Folder that `smartcache build-dataset` wrote, of newer opens.")],
    output: Annotated[Path | None, typer.Option(help="Write the report to this HTML file.")] = None,
    config: ConfigFile = None,
) -> None:
    """Say how the opens of a training set differ from those that the champion was trained on.

    Features and times to the next open by their population stability index, the champion's calibration bucket by bucket; thresholds and
    what they mean are in section [drift]. A value beyond them is a warning, no error.

    Exit: 0 done, warnings or not, 1 failed, 2 wrong training set or configuration.
    """
    from smartcache.config import load

    from .dataset import read

    with ending(""):
        settings = load(config)
        data = read(dataset)
        found = drift_of(data, settings)
        if found is not None and output is not None:
            from . import drift_page

            output.write_text(drift_page.render(found, settings, {"training set": f"{dataset}, SHA-256 {data.sha256}"}))
            say(f"{output}: the report")


def drift_of(data: TrainingSet, config: Config) -> Drift | None:
    """The drift since the champion's training, said; None where there is no champion."""
    from smartcache.inference.registry import Registry

    from .drift import of_champion

    registry = Registry(config.mlflow.tracking_uri, config.mlflow.model)
    found = of_champion(data, config, registry)
    if found is None:
        say(f"no drift report: {registry.model} has no champion yet")
        return None
    for note in found.notes:
        say(note)
    say(f"drift since {found.champion}: {found.verdict}")
    return found


@contextmanager
def ending(after_a_stop: str) -> Iterator[None]:
    """What a command may raise ends it with its exit status, and is said."""
    from smartcache.config import ConfigError
    from smartcache.inference.bundle import BundleError
    from smartcache.inference.export import ExportError
    from smartcache.inference.registry import RegistryError

    from .dataset import DatasetError
    from .epochs import Stopped
    from .judge import JudgeError
    from .reproduce import NotReproducible
    from .state import StateError
    from .train import TrainingError

    try:
        yield
    except (ConfigError, DatasetError) as error:
        say(str(error))
        raise typer.Exit(WRONG_USAGE) from error
    except Stopped as stopped:
        say(f"stopped {stopped}; {after_a_stop}")
        raise typer.Exit(INTERRUPTED) from stopped
    except (TrainingError, JudgeError, StateError, ExportError, BundleError, RegistryError, NotReproducible) as error:
        say(str(error))
        raise typer.Exit(FAILED) from error


def _train(wanted: Wanted, config: Config) -> None:
    import shutil

    from rich.console import Console

    from smartcache.config import ConfigError
    from smartcache.inference.export import ExportError
    from smartcache.inference.registry import Registry

    from . import record
    from . import train as training
    from .dataset import read

    console = Console(soft_wrap=True, highlight=False, markup=False)
    training.require_thresholds(config)
    data = read(wanted.dataset)
    training.require_rows(data)
    if wanted.output is not None and wanted.output.exists():
        raise ExportError(f"{wanted.output}: exists already; bundles are never written over, name another folder with --output")
    if wanted.register:
        Registry(config.mlflow.tracking_uri, config.mlflow.model).require_server()
    if wanted.compare_trees and not find_spec("lightgbm"):
        raise ConfigError("--compare-trees needs LightGBM: pip install 'smartcache[simulate]'")
    since = drift_of(data, config) if wanted.drift else None
    how = _how(wanted, data, config)
    console.print(
        f"training on {len(data.train)} opens, stopping by {len(data.validate)}, judging by {len(data.test)}; {len(data.names)} features\n"
        f"the epoch is chosen by {how.judge.name}"
    )
    trained = fit(data, config, how)
    if wanted.compare_trees:
        with Console(stderr=True).status("training LightGBM on the same rows"):
            trained = training.with_trees(trained, data, config)
    _tell(console, trained)
    done = record.record(data, config, trained, register=wanted.register, output=wanted.output, drift=since)
    shutil.rmtree(wanted.state, ignore_errors=True)
    if done.folder is not None:
        console.print(f"bundle: {done.folder}")
    if done.version is not None:
        console.print(f"registered: {config.mlflow.model} version {done.version}; `smartcache promote {done.version}` makes it live")


def _reproduce(run_id: str, dataset: Path | None, replay: str | None, output: Path | None, config: Config) -> None:
    import tempfile

    from rich.console import Console

    from smartcache.inference.export import ExportError
    from smartcache.inference.registry import Registry

    from . import record, reproduce
    from .dataset import read

    console = Console(soft_wrap=True, highlight=False, markup=False)
    if output is not None and output.exists():
        raise ExportError(f"{output}: exists already; bundles are never written over, name another folder with --output")
    registry = Registry(config.mlflow.tracking_uri, config.mlflow.model)
    with tempfile.TemporaryDirectory(prefix="smartcache-reproduce-") as scratch:
        made = reproduce.original(registry, run_id, Path(scratch))
        for line in reproduce.settings_differ(made, config):
            console.print(line)
        config = made.configuration(config)
        data = read(dataset or Path(made.dataset))
        how = reproduce.how(made, data, config, registry, replay, say)
        before = list(reproduce.differences(made, data, how))
        for line in before:
            console.print(f"not as it was: {line}")
        if data.sha256 != made.provenance["dataset_sha256"]:
            raise reproduce.NotReproducible(
                f"run {run_id}: {data.folder} holds other rows; name its own training set with --dataset, or build that again"
            )
        trained = fit(data, config, how)
        differ = reproduce.outcome(made, trained)
    if output is not None:
        record.record(data, config, trained, register=False, output=output)
        console.print(f"bundle: {output}")
    for line in differ:
        console.print(f"not the same: {line}")
    if differ:
        raise reproduce.NotReproducible(f"run {run_id} is not reproduced; not as it was: {len(before)}, named above")
    console.print(f"reproduced: run {run_id}, weights {made.provenance['weights_sha256']}")


def _how(wanted: Wanted, data: TrainingSet, config: Config) -> How:
    from smartcache.config import ConfigError

    from . import judge, record, warm
    from .train import How

    by: judge.Judge = judge.ByLoss()
    if wanted.replay is not None:
        by = judge.by_replay(data, config, record.bundle_info(data, config, {}, {}), wanted.replay, wanted.cache_bytes)
    elif wanted.cache_bytes is not None:
        raise ConfigError("--cache-bytes is the size of the cache that opens are replayed through: give --replay too")
    begin = warm.find(wanted.warm_start, data, config, say) if wanted.warm_start else None
    return How(judge=by, warm=begin, state=wanted.state, say=say)


def fit(data: TrainingSet, config: Config, how: How) -> Trained:
    """Train with a bar on the terminal. Raises what training does; :class:`~.epochs.Stopped` for an interrupt at any moment."""
    from dataclasses import replace

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from . import train as training
    from .epochs import Stopped
    from .judge import BYTE_MISS, WRITTEN

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[losses]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar, Stopper() as stopper:
        task = bar.add_task("epoch", total=config.training.epochs, losses="")

        def progress(epoch: int, of: int, loss: float, validation: float, figures: dict[str, float]) -> None:
            replayed = f", byte miss {figures[BYTE_MISS]:.4f}, written {figures[WRITTEN]:.4f}" if figures else ""
            bar.update(task, completed=epoch, total=of, losses=f"loss {loss:.4f}, validation {validation:.4f}{replayed}")

        made = training.train(data, config, replace(how, progress=progress, stop=stopper.event.is_set))
        if stopper.event.is_set():  # while it was evaluated, say; its state is there still
            raise Stopped("after the last epoch")
        return made


def _tell(console: Console, trained: Trained) -> None:
    metrics, chosen = trained.metrics, trained.chosen
    figures = ", ".join(
        f"{name.removeprefix('validation_').replace('_', ' ')} {value:.4f}" for name, value in chosen.items() if name != EPOCH
    )
    console.print(f"kept: epoch {chosen[EPOCH]:.0f} of {trained.epochs}, {trained.seconds:.1f} s; {figures}")
    console.print(
        f"test: loss {metrics['loss']:.4f}, base rates {metrics['base_loss']:.4f}, skill {metrics['skill']:.4f}"
        + (f", AUC {metrics['auc']:.4f}" if "auc" in metrics else "")
    )
    if "trees_loss" in metrics:
        console.print(
            f"LightGBM on the same rows: loss {metrics['trees_loss']:.4f}, skill {metrics['trees_skill']:.4f}"
            + (f", AUC {metrics['trees_auc']:.4f}" if "trees_auc" in metrics else "")
            + f"; {metrics['trees_rounds']:.0f} rounds, {metrics['trees_seconds']:.1f} s"
        )


def main() -> None:
    """``python -m smartcache.training.cli``: this folder's subcommands alone."""
    app = typer.Typer(no_args_is_help=True)
    app.callback()(lambda: None)
    register(app)
    app()


if __name__ == "__main__":
    main()
