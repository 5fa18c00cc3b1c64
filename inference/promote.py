"""Promotion: the alias ``champion`` moves to a version that passed its gates; roll-back moves it back.

Moving the alias is the whole deed: ``smartcache watch`` makes the champion live. What was champion before is remembered as a tag of the
version that followed it, written first, so that there is always a way back.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smartcache.config import Gates as Settings

from . import gates
from .gates import Gate
from .registry import CHAMPION, Registry, RegistryError, Version

PREVIOUS: Final = "smartcache.previous_champion"


@dataclass(frozen=True)
class Promotion:
    """What a promotion found and did. ``moved`` is False where a gate failed, on a dry run, and where the version was the champion
    already.
    """

    version: Version
    gates: list[Gate]
    previous: int | None
    moved: bool

    @property
    def passed(self) -> bool:
        """Whether all gates passed."""
        return gates.all_passed(self.gates)


def promote(
    registry: Registry, settings: Settings, schema_hash: str, number: int | None = None, *, dry_run: bool = False, force: str | None = None
) -> Promotion:
    """Ask the gates about version ``number`` (None: the newest) and move the alias if all pass, or if ``force`` gives a reason.

    On a dry run nothing is written. A bundle that cannot be read is not promoted even by force: there is nothing to serve.
    Raises :class:`~.registry.RegistryError`.
    """
    version = registry.newest() if number is None else registry.get(number)
    with tempfile.TemporaryDirectory(prefix="smartcache-promote-") as scratch:
        answers = gates.check_folder(registry.download_bundle(version, Path(scratch)), settings, schema_hash)
    champion = registry.champion()
    previous = champion.number if champion is not None and champion.number != version.number else None
    passed = gates.all_passed(answers)
    forced = force if not passed and answers[0].passed else None
    if dry_run:
        return Promotion(version, answers, previous, moved=False)
    registry.tag(version.number, gates.tags(answers, forced))
    if not passed and not forced:
        return Promotion(version, answers, previous, moved=False)
    if champion is not None and champion.number == version.number:
        return Promotion(version, answers, previous, moved=False)
    if previous is not None:
        registry.tag(version.number, {PREVIOUS: str(previous)})
    registry.move(CHAMPION, version.number)
    return Promotion(version, answers, previous, moved=True)


def rollback(registry: Registry) -> tuple[Version, Version]:
    """Move the alias back to what was champion before; returns what was and what now is. Raises :class:`~.registry.RegistryError`."""
    champion = registry.champion()
    if champion is None:
        raise RegistryError(f"MLflow at {registry.uri}: {registry.model} has no champion to roll back from; `smartcache promote` makes one")
    remembered = champion.tags.get(PREVIOUS, "")
    if not remembered.isdigit():
        raise RegistryError(
            f"MLflow at {registry.uri}: {registry.model} version {champion.number} is the first champion, there is none to roll back to; "
            "name a version with `smartcache promote VERSION`"
        )
    previous = registry.get(int(remembered))
    registry.move(CHAMPION, previous.number)
    return champion, previous
