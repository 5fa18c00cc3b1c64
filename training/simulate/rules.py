"""The rules that a simulated cache keeps, whoever decides in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from smartcache.config import Config

#: The names of the two sets of rules.
OBJECT: Final = "object"
XCACHE: Final = "xcache"
NAMES: Final = (OBJECT, XCACHE)


@dataclass(frozen=True)
class Rules:
    """One of :data:`NAMES`, and for :data:`XCACHE` what pfc is configured by.

    ``object``: the rules of the literature. A file is stored whole or not, and removed at the moment that room is needed.
    ``xcache``: pfc's own, by the core's ``CacheReplay`` (``xcache-plugin/core/include/smartcache/cache_replay.hh``): admission at open,
    files in blocks of ``block_bytes``, each ``purge_interval_s`` a purge by last access from ``purge_high`` to ``purge_low`` of the
    capacity. ``core_toml`` is the part of the configuration that the plugin's core decides by.
    """

    name: str = OBJECT
    block_bytes: int = 0
    purge_interval_s: float = 0.0
    purge_high: float = 0.0
    purge_low: float = 0.0
    core_toml: str = ""

    @classmethod
    def of(cls, name: str, config: Config) -> Rules:
        """The rules of this name under ``config``."""
        if name == OBJECT:
            return cls()
        from smartcache.preprocessing.core import REPLAY_SECTIONS, core_toml

        pfc = config.simulate
        return cls(name, pfc.block_bytes, pfc.purge_interval_s, pfc.purge_high, pfc.purge_low, core_toml(config, REPLAY_SECTIONS))

    @property
    def key(self) -> str:
        """What tells results under different rules apart."""
        if self.name == OBJECT:
            return OBJECT
        return f"{self.name} {hashlib.blake2b(json.dumps(asdict(self)).encode(), digest_size=8).hexdigest()}"


#: What is simulated where nobody chose.
OBJECT_RULES: Final = Rules()
