"""What the gates said of a version, kept with it in MLflow: tags of the version, and a report among the artifacts of its run.

``gates/promote.md`` and ``gates/watch-HOST.md`` (and ``.json``, the same for machines), by who asked: promotion judges by the whole of
them, each host's watcher by what it sees of the bundle and of the endpoints. The tags are those of whoever wrote last.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from . import gates, replay
from .gates import Gate
from .registry import Registry, Version

FOLDER = "gates"
#: Who asks: once for all, or each host for itself.
PROMOTE: Final = "promote"
WATCH: Final = "watch"


def render(name: str, asked_by: str, answers: Sequence[Gate], forced: str | None) -> str:
    """The report for people, Markdown."""
    verdict = "passed" if gates.all_passed(answers) else f"forced: {forced}" if forced else "failed: not promoted"
    rows = "\n".join(f"| {gate.name} | {_cell(gate.value)} | {_cell(gate.rule)} | {_word(gate)} |" for gate in answers)
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    asked = f"`smartcache {asked_by}` on {socket.gethostname()}, {moment}"
    return f"# {name}: {verdict}\n\n{asked}\n\n| gate | value | rule | |\n|---|---|---|---|\n{rows}\n"


def keep(
    registry: Registry, version: Version, asked_by: str, answers: Sequence[Gate], forced: str | None = None, against: str = replay.NOBODY
) -> None:
    """Write tags and report. Raises :class:`~.registry.RegistryError`.

    ``forced``: the reason for which it goes live in spite of failed gates. That it was forced before stays said. ``against``: what it was
    compared with, where it was replayed.
    """
    tags = gates.tags(answers, forced)
    if forced is None and gates.forced(version.tags) is not None and gates.all_passed(answers):
        del tags[gates.TAG]
    if any(gate.name.startswith(replay.PREFIX) for gate in answers):
        tags |= replay.replayed_now(against)
    registry.tag(version.number, tags)
    report = render(registry.name_of(version.number), asked_by, answers, forced)
    place = f"{FOLDER}/{asked_by}" + ("" if asked_by == PROMOTE else f"-{_host()}")
    registry.log_text(version, report, f"{place}.md")
    registry.log_text(version, json.dumps([vars(gate) for gate in answers], indent=1) + "\n", f"{place}.json")


def _host() -> str:
    """As part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _word(gate: Gate) -> str:
    return gates.PASSED if gate.passed else f"**{gates.FAILED}**"
