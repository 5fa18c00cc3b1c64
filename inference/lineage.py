"""Which version served before which, as tags of the versions in MLflow: what a roll-back goes by.

``smartcache.previous_champion`` of a version is the one that was champion before it, ``smartcache.previous_noted`` when that was written
(Unix seconds). `smartcache promote` writes them, before it moves the alias; `smartcache watch` writes them where it sees the alias moved by
somebody else, in MLflow's own user interface, say: many watchers do, and some look again after a long time, so what is noted is written
over only by who has looked since. Going back writes nothing, so that going back again goes further: a version that was left behind is not
come back to.

``smartcache.served`` of a version is the moment at which it was first live anywhere. A roll-back passes by what was champion and never
served: refused by its gates, or overtaken before it could be live.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from .registry import Registry, RegistryAbsent, RegistryError, Version

PREVIOUS: Final = "smartcache.previous_champion"
NOTED: Final = "smartcache.previous_noted"
SERVED: Final = "smartcache.served"
#: The registry is asked for each version on the way.
MAX_STEPS = 100


def way_back(was: int) -> dict[str, str]:
    """The tags of a version that becomes champion after version ``was``."""
    return {PREVIOUS: str(was), NOTED: f"{time.time():.3f}"}


def before(registry: Registry, version: Version) -> Iterator[Version]:
    """What was champion before ``version``, the latest first, each once, :data:`MAX_STEPS` at most. Raises
    :class:`~.registry.RegistryError`.
    """
    known = {version.number}
    while len(known) <= MAX_STEPS and (told := version.tags.get(PREVIOUS, "")).isdigit() and int(told) not in known:
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


def note_move(registry: Registry, was: int, now: Version, looked_s: float | None) -> None:
    """The alias has moved from version ``was`` to ``now``: remember the way back, unless this was the way back, or others know better.

    ``looked_s``: when ``was`` was seen to be the champion (Unix seconds); None where it is only what served here last. Raises
    :class:`~.registry.RegistryError`.
    """
    if now.tags.get(PREVIOUS) and (now.tags[PREVIOUS] == str(was) or looked_s is None or _noted_s(now) > looked_s):
        return
    if not _leads_to(registry, registry.get(was), now.number):
        registry.tag(now.number, way_back(was))


def note_served(registry: Registry, version: Version) -> None:
    """``version`` is live. Raises :class:`~.registry.RegistryError`."""
    if SERVED not in version.tags:
        registry.tag(version.number, {SERVED: datetime.now(UTC).isoformat(timespec="seconds")})


def _leads_to(registry: Registry, version: Version, number: int) -> bool:
    try:
        return any(each.number == number for each in before(registry, version))
    except RegistryAbsent:
        raise
    except RegistryError:  # one that was deleted in the registry ends what is known
        return False


def _noted_s(version: Version) -> float:
    try:
        return float(version.tags[NOTED])
    except (KeyError, ValueError):
        return 0.0
