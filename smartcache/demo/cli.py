"""The command ``smartcache demo``."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_SEED = 7


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(demo)


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Five minutes or less instead of a quarter of an hour.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = DEFAULT_SEED,
    learn_s: Annotated[float | None, typer.Option(min=5, help="Seconds that clients read before a model is trained.")] = None,
    decide_s: Annotated[float | None, typer.Option(min=5, help="Seconds that clients read with the model answering.")] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder for data, logs and the report; emptied first. [default: run/ of the checkout]")
    ] = None,
    port_base: Annotated[int | None, typer.Option(help="The parts use consecutive loopback ports from here.")] = None,
    port: Annotated[list[str] | None, typer.Option(help="NAME=PORT: another port for one part; may be repeated.")] = None,
) -> None:
    """Run the whole main path on this machine and report.

    Starts, on loopback: an origin, two XCaches of the same size (one plain, one with the plugin), the collector, Kafka, the Spark stream,
    MLflow and the serving endpoint. Real XRootD clients then read a generated HEP-like population of files through both caches. A model
    is trained on what was seen, passes its gates, is promoted and answers each further open at the smart cache. The report compares the
    two caches by the servers' own counters. Everything that was started is stopped at the end, also on Ctrl-C.
    """
    from rich.console import Console

    from ..local.paths import ROOT, MissingPart
    from ..local.ports import PortInUse
    from ..local.process import ProcessError
    from . import plan, report
    from .folder import FolderInUse
    from .run import Demo, DemoError

    console = Console()
    run = (run_dir or ROOT / "run").resolve()
    try:
        ports = plan.Ports.from_base(plan.DEFAULT_PORT_BASE if port_base is None else port_base, _changed(port or []))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    chosen = (plan.quick if quick else plan.full)(seed, learn_s, decide_s)
    # What ends us, a closed terminal too, must stop the servers as Ctrl-C does.
    for sign in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sign) is not signal.SIG_IGN:
            signal.signal(sign, signal.default_int_handler)
    # xrootd runs as its own user where root starts it, and must read what we write.
    os.umask(0o022)
    try:
        measured = Demo(chosen, ports, run, console)()
        page = report.write(measured, run / "report")
        report.show(measured, console)
        console.print(f"report: {page}", markup=False, highlight=False, soft_wrap=True)
    except (FolderInUse, PortInUse, MissingPart, ProcessError, DemoError, TimeoutError, OSError) as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        console.print("demo: interrupted; every server that it had started is stopped", style="yellow")
        raise typer.Exit(130) from None


def _changed(options: list[str]) -> dict[str, int]:
    changed = {}
    for option in options:
        name, _, number = option.partition("=")
        if not number.isdigit():
            raise ValueError(f"--port takes NAME=PORT, not {option!r}")
        changed[name] = int(number)
    return changed
