"""What the watcher knows of the endpoints, left in ``bundle_dir/.state.json``: for `smartcache status`, and for the watcher after it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from smartcache.config import Challenger as Settings

from .install import BundleDir
from .rollout import Member


class Known:
    """What is in that file. One thread, the writer of the folder."""

    def __init__(self) -> None:
        self._noted: dict[str, Any] = {}

    def remember(self, folder: BundleDir, members: Sequence[Member]) -> None:
        """Tell the endpoints what the process before this one knew of them."""
        self._noted = folder.read_state()
        told = self._noted.get("endpoints")
        known = {str(each.get("url")): each for each in told if isinstance(each, dict)} if isinstance(told, list) else {}
        for member in members:
            since_us = known.get(member.endpoint.url, {}).get("since_us")
            if isinstance(since_us, int):
                member.before = (str(known[member.endpoint.url].get("serves")), since_us)

    def note(self, folder: BundleDir, live: str | None, troubles: Sequence[str], members: Sequence[Member], tried: Settings) -> None:
        """Leave what this process knows, where that has changed."""
        endpoints = [
            {
                "url": member.endpoint.url,
                "serves": member.serves,
                "since_us": member.since_us,
                "away_since_us": member.away_since_us,
                "trouble": member.trouble,
            }
            for member in members
        ]
        challenger = {"canary_share": tried.canary_share, "shadow": tried.shadow}
        state = {"format": 1, "live": live, "troubles": list(troubles), "endpoints": endpoints, "challenger": challenger}
        if state != self._noted:
            # What cannot be noted costs a line in a table.
            with contextlib.suppress(OSError):
                folder.write_state(state)
                self._noted = state
