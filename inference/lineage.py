"""Which version served before which, as tags of the versions in MLflow: what a roll-back goes by.

``smartcache.previous_champion`` of a version is the one that was champion before it. `smartcache promote` writes it, before it moves the
alias; `smartcache watch` writes it where it sees the alias moved by somebody else, in MLflow's own user interface, say. Going back writes
nothing, so that going back again goes further: a version that was left behind is not come back to.

``smartcache.served`` of a version is the moment at which it was first live anywhere. A roll-back passes by what was champion and never
served: refused by its gates, or overtaken before it could be live.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from .registry import Registry, RegistryAbsent, RegistryError, Version

PREVIOUS: Final = "smartcache.previous_champion"
SERVED: Final = "smartcache.served"


def before(registry: Registry, version: Version) -> Iterator[Version]:
    """What was champion before ``version``, the latest first, each once. Raises :class:`~.registry.RegistryError`."""
    known = {version.number}
    while (told := version.tags.get(PREVIOUS, "")).isdigit() and int(told) not in known:
        version = registry.get(int(told))
        known.add(version.number)
        yield version


def served_before(registry: Registry, version: Version) -> Version | None:
    """What a roll-back from ``version`` goes to: the latest before it that has served. None where it is the first.

    Where none is known to have served (no `smartcache watch` has seen them) it is the one before. Raises
    :class:`~.registry.RegistryError`.
    """
    latest = None
    try:
        for each in before(registry, version):
            latest = latest or each
            if SERVED in each.tags:
                return each
    except RegistryAbsent:
        raise
    except RegistryError:  # one that was deleted in the registry ends what is known
        if latest is None:
            raise
    return latest


def note_move(registry: Registry, was: int, now: Version, *, seen: bool) -> None:
    """The alias has moved from version ``was`` to ``now``: remember the way back, unless this was the way back.

    ``seen``: it was watched as it moved. Else ``was`` is only what served here last, and what ``now`` has noted stands where that leads to
    ``was``: others have seen the steps between. Raises :class:`~.registry.RegistryError`.
    """
    if now.tags.get(PREVIOUS) == str(was) or _leads_to(registry, registry.get(was), now.number):
        return
    if seen or not _leads_to(registry, now, was):
        registry.tag(now.number, {PREVIOUS: str(was)})


def note_served(registry: Registry, version: Version) -> None:
    """``version`` is live. Raises :class:`~.registry.RegistryError`."""
    if SERVED not in version.tags:
        registry.tag(version.number, {SERVED: datetime.now(UTC).isoformat(timespec="seconds")})


def _leads_to(registry: Registry, version: Version, number: int) -> bool:
    return any(each.number == number for each in before(registry, version))
