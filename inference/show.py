"""Tables for people: what `smartcache promote` and `smartcache status` print."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from smartcache.terminal import Shown

    from .compare import Comparison
    from .promote import Promotion
    from .replay import Progress
    from .status import Judged, Place, Status, Tried


def promotion(done: Promotion, *, dry_run: bool, model: str) -> None:
    """What the gates said, and what was moved."""
    table = Table(title=f"{model} version {done.version.number}")
    for column in ("gate", "value", "rule", ""):
        table.add_column(column)
    for gate in done.gates:
        table.add_row(gate.name, escape(gate.value), escape(gate.rule), "[green]passed[/]" if gate.passed else "[red]failed[/]")
    console = Console()
    console.print(table)
    for note in done.notes:
        console.print(escape(note), highlight=False, soft_wrap=True)
    was = f" (was {done.previous})" if done.previous is not None else ""
    if done.moved:
        console.print(f"champion: version {done.version.number}{was}" + ("" if done.passed else ", forced"))
    elif dry_run:
        console.print("dry run: nothing was written")
    elif done.passed:
        console.print(f"version {done.version.number} is the champion already")
    else:
        console.print("[red]not promoted[/]: nothing was moved")


def replaying(shown: Shown) -> Progress:
    """How far a replay is, in ``shown``."""
    return lambda done, total, what: shown.update(done, done, f"replay, {what}" + (f": {done:,} of {total:,} opens" if total else ""))


def status(found: Status) -> None:
    """What serves where, the versions, what is pending."""
    console = Console()
    champion = f"version {found.champion}" if found.champion is not None else "none"
    console.print(f"{found.model} at {found.registry}: champion {champion}", highlight=False)
    if found.registry_error:
        console.print(f"[red]{escape(found.registry_error)}[/]", highlight=False)
    console.print(_places(found.places))
    if found.versions:
        console.print(_versions(found.versions))
    if found.tried:
        console.print(_tried(found.tried))
    if found.comparison is not None:
        comparison(found.comparison)
    elif found.comparison_note:
        console.print(f"no figures of the challenger: {escape(found.comparison_note)}", highlight=False, soft_wrap=True)
    for title, lines in (("pending", found.pending), ("the watcher says", found.troubles)):
        if lines:
            console.print(f"[bold]{title}[/]")
            for line in lines:
                console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    console.print("[green]all serve the champion[/]" if found.all_serve_champion else "[red]not all serve the champion[/]")


def comparison(found: Comparison) -> None:
    """The versions side by side, and where a shadow agrees."""
    console = Console()
    span = f"{_time(found.from_us)} to {_time(found.to_us)}, horizon {found.horizon_s:g} s"
    if not found.rows:
        console.print(f"no version has answered: {span}", highlight=False)
        return
    table = Table(title=span)
    for column in (
        "version",
        "as",
        "opens",
        "admit",
        "bypass",
        "evict",
        "score error",
        "bypassed, came",
        "stored, nobody came",
        "read",
        "missed",
    ):
        table.add_column(column, justify="left" if column in ("version", "as") else "right")
    for row in found.rows:
        answers = [f"{count / row.opens:.1%}" for count in (row.admit, row.bypass, row.evict)]
        shares = [_share(each) for each in (row.bypassed_and_opened, row.stored_and_not_opened)]
        error = "-" if row.score_error is None else f"{row.score_error:.4f}"
        read = "-" if row.read_bytes is None else f"{row.read_bytes / 1e9:.4g} GB"
        table.add_row(row.version, row.role, str(row.opens), *answers, error, *shares, read, _share(row.missed))
    console.print(table)
    if found.agreements:
        table = Table(title="the same opens")
        for column in ("version", "answered", "shadow", "would have answered", "opens"):
            table.add_column(column, justify="right" if column == "opens" else "left")
        for each in found.agreements:
            table.add_row(each.version, each.answer, each.shadow, each.shadow_answer, str(each.opens))
        console.print(table)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _places(places: list[Place]) -> Table:
    table = Table(title="what serves where")
    for column in ("", "where", "serves", "since", ""):
        table.add_column(column, overflow="fold")
    for place in places:
        away = f"[red]away[/] since {_time(place.away_since_us)}" if place.away_since_us else "[red]no[/]"
        table.add_row(place.kind, place.where, place.serves or "-", _time(place.since_us), "[green]right[/]" if place.right else away)
    return table


def _tried(tried: list[Tried]) -> Table:
    table = Table(title="the challenger")
    for column in ("where", "tried", "since", "files (canary)", "shadow", ""):
        table.add_column(column, overflow="fold")
    for each in tried:
        share = f"{100 * each.canary_share:.4g} %" if each.canary_share else "-"
        state = "[green]right[/]" if each.right else "[red]no[/]" if each.version or each.wanted else "not asked for"
        table.add_row(each.where, each.version or "-", _time(each.since_us), share, "yes" if each.shadow else "-", state)
    return table


def _versions(versions: list[Judged]) -> Table:
    table = Table(title="versions")
    for column in ("version", "", "registered", "gates", "figures on the test part"):
        table.add_column(column)
    for version in versions:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in version.figures.items())
        table.add_row(str(version.number), version.role, _time(version.created_us), escape(version.gates) or "not asked", figures)
    return table


def _time(us: int | None) -> str:
    """Local time to the second; a dash where it is not known."""
    return datetime.fromtimestamp(us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S") if us else "-"
