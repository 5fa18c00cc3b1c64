"""``smartcache doctor``: what of smartcache's surroundings is present, missing, too old or of another version on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from .local.paths import ROOT
from .surroundings import checkout, machine
from .surroundings.finding import Finding


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(doctor)


def doctor() -> None:
    """Say what is present, missing, too old or of another version for smartcache on this machine, and what to do about it.

    Exit status 1 unless all is as it must be. What was built is compared with its sources, and what is installed with the lists that set-up
    works by; nothing is changed, and nothing asked for on the network.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    findings = list(examine())
    table = Table("what", "state", "found", "used by")
    for finding in findings:
        state = f"[{'green' if finding.state == 'present' else 'red'}]{finding.state}[/]"
        table.add_row(escape(finding.what), state, escape(finding.detail), escape(finding.used_by))
    console = Console()
    console.print(table)
    wrong = [finding for finding in findings if finding.state != "present"]
    for finding in wrong:
        # Once more, since the table cuts what is long.
        said = f"{finding.what}: {finding.state} ({finding.detail}); {finding.mend}"
        console.print(said, style="red", highlight=False, markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """Look at the machine, then at what set-up has put into this checkout."""
    yield from machine.examine()
    yield from checkout.examine(ROOT)
