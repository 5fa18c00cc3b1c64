"""``smartcache simulate`` and ``smartcache evaluate-policies``."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, TypeVar

import typer

from smartcache.terminal import Stopper, say

if TYPE_CHECKING:
    from smartcache.config import Config

    from .compare import Comparison, Plan
    from .rules import Rules

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
_WIDTH = 240
_T = TypeVar("_T")

_Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="A policy; again for each more. uses2+NAME stores at the second request, lcs:NAME is libCacheSim's. Default: `policies` of "
        "section `simulate`.",
    ),
]
_Fractions = Annotated[
    list[float] | None,
    typer.Option(
        "--fraction",
        help="A cache size as a share of the unique bytes; again for each more. Default: `fractions` of section `simulate`.",
    ),
]
_Windows = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="Parts of a trace, for figures over time. Default: `windows` of section `simulate`.")
]
_Workers = Annotated[int | None, typer.Option(min=0, max=1024, help="Simulations at the same time; 0: one for each core.")]
_Sort = Annotated[
    bool, typer.Option("--sort", help="Put requests in the order of their times, where a trace is not; ties stay as they are.")
]
_Rules = Annotated[
    Literal["object", "xcache"],
    typer.Option(
        "--rules",
        help="object: the cache rules of the literature, whole files. xcache: XCache's own, blocks and purges, section `simulate`.",
    ),
]
_Seeds = Annotated[
    int,
    typer.Option("--seeds", min=1, max=100, help="Runs of each policy that is random, each with another seed: mean and 95 % interval."),
]
_Ablation = Annotated[
    bool,
    typer.Option("--ablation", help="Also learned-trees without each kind of feature, and with it alone: what each closes of the gap."),
]
_Mlflow = Annotated[bool, typer.Option("--mlflow", help="Log figures, tables and report to MLflow, by section `mlflow`.")]
_Config = Annotated[Path | None, typer.Option(envvar="SMARTCACHE_CONFIG", help="Configuration file.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this folder to ``app``."""
    app.command("simulate")(simulate)
    app.command("evaluate-policies")(evaluate_policies)


def simulate(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Parquet, CSV or oracleGeneral files; .csv and oracleGeneral also .gz, .zst.")
    ],
    policy: _Policies = None,
    fraction: _Fractions = None,
    capacity: Annotated[
        list[int] | None, typer.Option(min=1, metavar="BYTES", help="A cache size in bytes; again for each more. Alone: no --fraction.")
    ] = None,
    windows: _Windows = None,
    warm: Annotated[float, typer.Option(min=0, max=0.99, help="This share of the requests warms the caches and is not judged.")] = 0.0,
    workers: _Workers = None,
    sort: _Sort = False,
    rules: _Rules = "object",
    seeds: _Seeds = 1,
    ablation: _Ablation = False,
    output: Annotated[
        Path | None, typer.Option(help="Folder for results, tables and report. What it has already is not done again.")
    ] = None,
    mlflow: _Mlflow = False,
    config: _Config = None,
) -> None:
    """Replay access traces through caches of several sizes and policies, and compare.

    A trace has columns t (seconds) or time, lfn, size. Each simulation begins with an empty cache; a file that is missed is
    fetched whole, and each policy sees the same requests.

    With --rules xcache the cache is an XCache: files in blocks, as far as they were read (column bytes_read, where there is one),
    admission at open, a purge by last access from the high to the low mark at intervals. Policies then: lru (XCache as it is),
    uses2+lru, fallback (the plugin without a model), model:FOLDER (the plugin with the model of this bundle), belady (a purge that
    knows the future).

        smartcache simulate trace.parquet --policy lru --policy s3-fifo --policy belady --fraction 0.1

        smartcache simulate trace.parquet --rules xcache --policy lru --policy model:run/bundle

        smartcache simulate *.parquet --output run/simulate     # all policies; stop it with Ctrl-C, start it again to go on

    The table goes to standard output. In --output are runs.parquet and windows.parquet (a row for each run, and for each window of it),
    summary.csv, report.html (one file, for a browser, without network), and runs/ with what has been simulated so far: the same trace,
    policy, size and version are not simulated again.

    Exit: 0 done, 1 a trace or a simulation failed, 2 wrong usage, 130 interrupted.
    """
    from .compare import Plan
    from .costs import Site
    from .rules import Rules

    settings = _settings(config)
    defaults = settings.simulate
    kept = Rules.of(rules, settings)
    fractions = fraction or ([] if capacity else defaults.fractions)
    plan = Plan(
        _policies(policy or defaults.policies, kept, ablation),
        _unique(_shares(fractions)),
        _unique(capacity or []),
        windows or defaults.windows,
        warm,
        defaults.workers if workers is None else workers,
        sort,
        kept,
        seeds,
        Site.of(settings),
    )
    _run(traces, plan, output, settings, mlflow)


def evaluate_policies(
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Folder of Parquet traces: columns t, lfn, size.")],
    output: Annotated[Path, typer.Option(help="Folder for summary.csv, report.html and all else. What it has already is not done again.")],
    policy: _Policies = None,
    fraction: _Fractions = None,
    windows: _Windows = None,
    warm: Annotated[
        float | None,
        typer.Option(min=0, max=0.99, help="This share of the requests warms the caches, unjudged. Default: `warm` of section `simulate`."),
    ] = None,
    workers: _Workers = None,
    sort: _Sort = False,
    rules: _Rules = "object",
    seeds: _Seeds = 1,
    ablation: _Ablation = False,
    mlflow: _Mlflow = False,
    config: _Config = None,
) -> None:
    """Compare all policies on all traces of a folder, judged on the last part of each.

    As `smartcache simulate` on every .parquet file of TRACES, with LRU and Belady among the policies in any case, so that the share of the
    gap between them is known. `make evaluate TRACES=DIR OUT=DIR` is this.
    """
    from .compare import Plan
    from .costs import Site
    from .policies import BOUND, FLOOR
    from .rules import Rules

    settings = _settings(config)
    defaults = settings.simulate
    kept = Rules.of(rules, settings)
    if not traces.is_dir():
        _usage(f"{traces} is no folder")
    paths = sorted(path for path in traces.iterdir() if path.suffix == ".parquet" and path.is_file())
    if not paths:
        _usage(f"{traces}: has no .parquet file; `smartcache simulate` takes single files, of other formats too")
    others = sorted(path.name for path in traces.iterdir() if path not in paths)
    if others:
        say(f"passed over, as they are no .parquet files: {', '.join(others)}")
    plan = Plan(
        _unique([*_policies(policy or defaults.policies, kept, ablation), FLOOR, BOUND]),
        _unique(_shares(fraction or defaults.fractions)),
        [],
        windows or defaults.windows,
        defaults.warm if warm is None else warm,
        defaults.workers if workers is None else workers,
        sort,
        kept,
        seeds,
        Site.of(settings),
    )
    _run(paths, plan, output, settings, mlflow)


def _settings(path: Path | None) -> Config:
    from smartcache.config import ConfigError, load

    try:
        return load(path)
    except ConfigError as error:
        _usage(str(error))


def _policies(chosen: list[str], rules: Rules, ablate: bool) -> list[str]:
    from . import ablation, policies
    from .rules import OBJECT

    chosen = chosen or policies.defaults(rules)
    if ablate:
        if rules.name != OBJECT:
            _usage(f"--ablation is of {policies.LEARNED}, which there is under --rules object only")
        chosen = [*chosen, policies.FLOOR, policies.BOUND, *ablation.names()]
    chosen = _unique(chosen)
    try:
        for name in chosen:
            policies.resolve(name, rules)
    except policies.UnknownPolicy as error:
        _usage(str(error))
    return chosen


def _shares(fractions: list[float]) -> list[float]:
    for fraction in fractions:
        if not 0 < fraction <= 1:
            _usage(f"--fraction must be more than 0 and at most 1, not {fraction}; a larger cache is named by --capacity BYTES")
    return fractions


def _unique(values: list[_T]) -> list[_T]:
    return list(dict.fromkeys(values))


def _run(paths: list[Path], plan: Plan, output: Path | None, settings: Config, mlflow: bool) -> None:
    from smartcache.inference.registry import RegistryError
    from smartcache.traces import SourceError

    from . import report, tables, tracking
    from .compare import Stopped, compare
    from .pool import SimulationError

    for path in paths:
        if not path.is_file():
            _usage(f"{path} is no file")
    twice = [name for name, count in Counter(path.name.partition(".")[0] for path in paths).items() if count > 1]
    if twice:
        _usage(f"traces are told apart by their files' names up to the first dot, and there are several of {', '.join(twice)}: rename them")
    if (output or mlflow) and not find_spec("matplotlib"):
        _usage("the report needs matplotlib: pip install 'smartcache[simulate]'")
    command = shlex.join(["smartcache", *sys.argv[1:]])
    try:
        if mlflow:
            tracking.require_server(settings)
        with Stopper() as stop:
            comparison = compare(paths, plan, output, command, stop.event, say)
        _show(comparison)
        if output:
            tables.write(comparison, output)
            say(f"{report.write(comparison, output)}: the report; tables beside it")
        if mlflow:
            say(f"MLflow: run {tracking.log(comparison, settings, output)}")
    except Stopped as stopped:
        kept = f"; they are in {output}: the same command goes on there" if output else "; nothing is kept without --output"
        say(f"stopped: {stopped}{kept}")
        raise typer.Exit(INTERRUPTED) from stopped
    except (SourceError, SimulationError, RegistryError) as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
    except OSError as error:
        say(f"{error.filename or output}: {error.strerror}")
        raise typer.Exit(FAILED) from error


def _show(comparison: Comparison) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from . import report

    if comparison.damaged:
        say(f"{comparison.damaged} results of an earlier command were damaged, and were made again")
    # As wide as the tables are: a figure that is cut to fit a terminal says nothing.
    console = Console(highlight=False, soft_wrap=True, width=_WIDTH)
    for facts in comparison.traces:
        console.print(report.described(facts), markup=False)
        for title, means in report.by_size(comparison, facts.name):
            table = Table(title=f"{facts.name}, {title}", title_justify="left", box=box.SIMPLE_HEAD)
            for number, name in enumerate(report.HEAD):
                table.add_column(name, justify="right" if number else "left", no_wrap=True)
            for mean in means:
                table.add_row(*report.cells(mean))
            console.print(table)
    for title, rows in report.ablations(comparison):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        for number, name in enumerate(report.ABLATION_HEAD):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for remark in report.remarks(comparison):
        console.print(remark, markup=False)


def _usage(text: str) -> NoReturn:
    say(text)
    raise typer.Exit(WRONG_USAGE)
