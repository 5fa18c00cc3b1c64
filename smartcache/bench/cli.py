"""The command ``smartcache bench``."""

from __future__ import annotations

import functools
import shlex
import subprocess
import sys
from enum import StrEnum
from typing import Annotated

import typer


class Which(StrEnum):
    """The benchmarks."""

    ALL = "all"
    CORE = "core"
    OPENS = "opens"
    ENDPOINT = "endpoint"
    COLLECTOR = "collector"
    SPARK = "spark"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(bench)


def bench(
    which: Annotated[Which, typer.Argument(help="Which of them.")] = Which.ALL,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Interleaved repetitions; the medians are shown.", show_default="7; opens: 60; endpoint: 20")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.2,
            help="How long each server (opens, endpoint) or rate (collector) is measured in a round.",
            show_default="collector: 3; opens: 0.4; endpoint: 1, whole seconds",
        ),
    ] = None,
    events: Annotated[
        list[int] | None,
        typer.Option(min=10, help="Opens that Spark works on; may be given more than once.", show_default="1000000, 5000000, 20000000"),
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Also write the figures into docs/benchmarks.md.")] = False,
) -> None:
    """Measure what a decision costs, what the endpoint serves and what the collector and Spark can take, on this machine.

    `core`: nanoseconds for each step in the core. `opens`: open, read, close of warm files through real XCaches without the plugin, with
    the embedded model, and with the endpoint asked, as ratios within one run. `endpoint`: requests a second, processor time and latency
    of the serving endpoint under wrk, against a Go handler that does nothing and, where SMARTCACHE_TFAAS_URL and SMARTCACHE_TFAAS_MODELS
    name one, against a stock TFaaS. `collector`: g-stream records a second on one core without loss, at rates that rise until packets
    are lost, without and with a broker. `spark`: rows a second of the stream and of the batch commands, and how their time and memory
    grow, on local[1] and local[2] with the heap that Spark has by default; it takes long, and some forty gigabytes of disk for twenty
    million opens. Results go to run/bench/NAME.json, with the command and the machine. Anything else that runs on the machine shows in the
    figures: leave it alone meanwhile.
    """
    from rich.console import Console

    from ..inference.serving import ServingError
    from ..local.paths import MissingPart
    from ..local.process import ProcessError
    from . import collector, core, endpoint, opens, spark
    from . import page as docs

    console = Console()
    command = shlex.join(["smartcache", *sys.argv[1:]])
    try:
        if which in (Which.ALL, Which.CORE):
            console.print(f"core: {rounds or core.ROUNDS} repetitions")
            console.print(f"kept: {core.run(rounds or core.ROUNDS, command)}")
        if which in (Which.ALL, Which.OPENS):
            length = opens.Length(rounds or opens.Length.rounds, seconds or opens.Length.seconds)
            about_s = len(opens.SERVERS) * len(opens.CONNECTIONS) * length.rounds * length.seconds
            console.print(f"opens: {len(opens.SERVERS)} XCaches, {length.rounds} rounds, about {about_s / 60:.0f} minutes and one to start")
            console.print(f"kept: {opens.run(length, command)}")
        tell = functools.partial(console.print, highlight=False, soft_wrap=True)
        if which in (Which.ALL, Which.ENDPOINT):
            times, each_s = rounds or endpoint.ROUNDS, seconds or endpoint.SECONDS
            asked = f"{', '.join(map(str, endpoint.CONNECTIONS))} connections"
            console.print(f"endpoint: {asked}, {times} rounds of {endpoint.whole_seconds(each_s)} s for each server")
            console.print(f"kept: {endpoint.run(times, each_s, command, tell)}")
        if which in (Which.ALL, Which.COLLECTOR):
            times, each_s = rounds or collector.ROUNDS, seconds or collector.SECONDS
            console.print(f"collector: rates rise until packets are lost, {each_s:g} s each; the last that held {times} times more")
            console.print(f"kept: {collector.run(times, each_s, command, tell)}")
        if which in (Which.ALL, Which.SPARK):
            tell = functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)
            console.print(f"kept: {spark.run(tuple(events or spark.EVENTS), spark.MASTERS, command, tell)}")
        if page:
            console.print(f"written into {docs.PAGE}: {', '.join(docs.write()) or 'nothing'}")
    except (ProcessError, MissingPart, ServingError, docs.PageError, subprocess.CalledProcessError, OSError) as error:
        console.print(f"[red]bench: {error}[/red]", highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        console.print(
            "bench: interrupted; of the benchmark that was running nothing was kept, of spark the numbers of opens that were done"
        )
        raise typer.Exit(130) from None
