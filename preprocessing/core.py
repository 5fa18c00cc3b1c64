"""The C++ core (``smartcache._core``) as Spark's workers use it: from the same three sections of the configuration as the plugin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smartcache.config import Config

#: What features depend on; the other sections mean nothing to ``Core`` and ``schema``.
SECTIONS = ("dataset", "history", "features")
#: What the replay of a cache depends on besides.
REPLAY_SECTIONS = (*SECTIONS, "policy", "evictor", "budget", "portfolio")


def core_toml(config: Config, sections: Sequence[str] = SECTIONS) -> str:
    """The core's part of ``config`` as TOML text: what ``Core(text)`` and ``schema(text)`` take."""
    lines: list[str] = []
    for section in sections:
        lines.append(f"[{section}]")
        values = getattr(config, section).model_dump(by_alias=True)
        lines.extend(f"{key} = {_toml(value)}" for key, value in values.items())
    return "\n".join(lines) + "\n"


def core(text: str) -> Any:
    """A new core with an empty history; ValueError where ``text`` is not a configuration for it."""
    from smartcache._core import Core

    return Core(text)


def core_schema(text: str) -> dict[str, Any]:
    """The feature schema under ``text``: version, names, hash, text."""
    from smartcache._core import schema

    return dict(schema(text))


@lru_cache(maxsize=4)
def namer(text: str) -> Any:
    """A core that is only asked for dataset names; one per worker process, so its history stays empty."""
    return core(text)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return repr(value)
