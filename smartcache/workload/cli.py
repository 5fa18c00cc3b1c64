"""``smartcache generate-trace``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from smartcache.terminal import Stopper, counter, say

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("generate-trace")(generate_trace)


def generate_trace(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="campaigns, chaotic, production, sparse or site.")],
    output: Annotated[Path | None, typer.Option(help="The Parquet file to write; one that is there is replaced.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws everything: the same seed and parameters give the same trace.")] = 1,
    days: Annotated[float | None, typer.Option(help="Length of the trace. Short for --set days=N.")] = None,
    opens_per_day: Annotated[float | None, typer.Option(help="Mean opens a day. Short for --set opens_per_day=N.")] = None,
    given: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the kind; again for more.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the kind's parameters, their bounds and sources, and write nothing.")] = False,
) -> None:
    """Write an access trace that looks like HEP's, for the simulator, drawn from a seed.

    campaigns: datasets are read file by file, and again after days; some are abandoned.
    chaotic: many users, popular and unpopular files, in no order.
    production: datasets are read whole, once, beside a pile-up library.
    sparse: small parts of each file, again and again for a few days.
    site: the first three at one cache, with the rhythm of day and week.

        smartcache generate-trace campaigns --output traces/campaigns.parquet --seed 3

        smartcache generate-trace site --days 90 --set weekend_rate=0.2 --output traces/site.parquet

        smartcache generate-trace sparse --show

    Columns: t (seconds from the beginning), lfn, size, bytes_read (bytes), user. No trace is real: --show says which publication each
    parameter is from, or that it is assumed, as docs/workloads.md does. Memory does not grow with the length of the trace.

    Exit: 0 done, 1 the file cannot be written, 2 wrong usage, 130 interrupted (nothing is left then).
    """
    from smartcache.page import amount
    from smartcache.traces import SourceError

    from . import kinds, write
    from .parameters import WrongParameter

    texts = _texts(given or [], days, opens_per_day)
    try:
        parameters = kinds.parameters(kind, texts)
    except WrongParameter as error:
        _usage(str(error))
    if show:
        _show(kind)
        return
    if output is None:
        _usage("say where to: --output FILE.parquet (or --show, to see the parameters)")
    if output.suffix != ".parquet":
        _usage(f"--output must end in .parquet, as the simulator goes by that, not {output.name!r}")
    try:
        with Stopper() as stop, counter("opens", total=max(1, round(parameters.days))) as shown:
            done = write.write(parameters, seed, output, stop.event, lambda day, opens: shown.update(int(day), opens, f"{day:.1f} days"))
    except WrongParameter as error:  # of a part that a kind is made of: its own parameters follow from those given
        _usage(f"{kind}: with these parameters a part of it cannot be made: {error}")
    except write.Stopped as stopped:
        say("stopped; nothing was written")
        raise typer.Exit(INTERRUPTED) from stopped
    except SourceError as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
    except OSError as error:
        say(f"{error.filename or output}: {error.strerror}")
        raise typer.Exit(FAILED) from error
    volume = f"{amount(done.bytes_requested)} opened, {amount(done.bytes_read)} read"
    say(f"{output}: {done.opens:,} opens over {parameters.days:g} days; {volume}")


def _texts(given: list[str], days: float | None, opens_per_day: float | None) -> dict[str, str]:
    texts = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            _usage(f"--set must be NAME=VALUE, not {text!r}")
        texts[name.strip()] = value.strip()
    for name, number in (("days", days), ("opens_per_day", opens_per_day)):
        if number is not None:
            if name in texts:
                _usage(f"{name} is given twice")
            texts[name] = str(number)
    return texts


def _show(kind: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from . import kinds
    from .parameters import rows

    about = kinds.of(kind)
    table = Table(title=f"{kind}: {about.about}", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("parameter", "default", "bounds", "is", "from"):
        table.add_column(name, overflow="fold", min_width=8)
    for row in rows(about):
        table.add_row(row.name, f"{row.default:g}", f"{row.low:g} to {row.high:g}", row.meaning, row.source)
    Console(highlight=False, width=160).print(table)


def _usage(text: str) -> NoReturn:
    say(text)
    raise typer.Exit(WRONG_USAGE)
