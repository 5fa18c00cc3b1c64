"""``smartcache watch``: the registry's champion becomes what serves, on this host and at the endpoint.

Each round compares the alias with what is live. Where they differ: download, gates, upload, ask the endpoint for the golden rows, place on
disk, move the link. Only the last step makes the version live, for the plugin reads the link; whatever fails before it leaves what serves
as it was, and the next round starts again. A model that somebody made champion past `smartcache promote` meets the gates here.

A round is cheap where nothing changed: one question to the registry, one to the endpoint (one that was restarted empty gets its model
again).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smartcache.config import Gates as Settings

from . import bundle as bundles
from . import gates
from .bundle import Bundle, BundleError
from .install import BundleDir, InstallError
from .registry import Registry, RegistryError, Version
from .serving import Endpoint, ServingError

#: Bundles kept on disk and at the endpoint, the live one among them: rolling back to one of them needs no download.
KEEP: Final = 3


class Refused(Exception):
    """The champion must not be live: its gates say no, or its name is taken by another model."""


@dataclass
class Watch:
    """The loop and what it counts. One thread."""

    registry: Registry
    bundles_: BundleDir
    endpoints: list[Endpoint]
    settings: Settings
    schema_hash: str
    say: Callable[[str], None]
    keep: int = KEEP
    promotions: int = 0
    failures: int = 0
    _said: str = ""
    _ready: bool = False

    def run(self, stop: threading.Event, poll_s: float) -> None:
        """Rounds until ``stop`` is set."""
        with self.bundles_.writer():
            while not stop.is_set():
                self.round()
                stop.wait(poll_s)

    def round(self) -> bool:
        """Compare and follow once; False where something was in the way. Says each new trouble once, and its end."""
        try:
            line = self._follow()
        except (RegistryError, ServingError, BundleError, InstallError, Refused, OSError) as error:
            self.failures += 1
            if str(error) != self._said:
                self._said = str(error)
                self.say(f"{error}; {self.bundles_.current() or 'no model'} stays live, trying again")
            return False
        if self._said:
            self._said = ""
            self.say("well again")
        if line:
            self.say(line)
        if not self._ready:
            self._ready = True
            self.say(f"ready: {self.bundles_.current() or 'no champion yet'} is live")
        return True

    def _follow(self) -> str:
        """Make the champion live; a line for a person where that changed anything, else empty."""
        champion = self.registry.champion()
        if champion is None:
            return ""
        name = self.registry.name_of(champion.number)
        live = self.bundles_.current()
        bundle = self.bundles_.installed(name)
        if bundle is not None:
            _require_same(bundle, champion)
        if live == name and bundle is not None:
            for endpoint in self.endpoints:
                self._serve(endpoint, bundle, check=False)
            return ""
        if bundle is not None:
            self._judge(bundle.folder, champion)
            self._go_live(bundle)
        else:
            with self.bundles_.incoming() as incoming:
                downloaded = self.registry.download_bundle(champion, incoming)
                self._judge(downloaded, champion)
                named = bundles.copy_named(bundles.read(downloaded), incoming / name, name)
                _require_same(named, champion)
                self._go_live(named, place=True)
        self.promotions += 1
        self._prune()
        return f"{name} is live" + (f", {live} was" if live else "")

    def _judge(self, folder: Path, version: Version) -> None:
        answers = gates.check_folder(folder, self.settings, self.schema_hash)
        if gates.all_passed(answers) or (answers[0].passed and version.tags.get(gates.TAG, "").startswith(gates.FORCED)):
            return
        failed = "; ".join(f"{gate.name} {gate}" for gate in answers if not gate.passed)
        raise Refused(f"champion version {version.number} is refused by its gates: {failed}")

    def _go_live(self, bundle: Bundle, *, place: bool = False) -> None:
        for endpoint in self.endpoints:
            self._serve(endpoint, bundle, check=True)
        if place:
            bundle = self.bundles_.place(bundle)
        self.bundles_.make_current(bundle.info.name)

    def _serve(self, endpoint: Endpoint, bundle: Bundle, *, check: bool) -> None:
        name = bundle.info.name
        uploaded = name not in endpoint.models()
        if uploaded:
            endpoint.upload(bundle)
        if not uploaded and not check:
            return
        try:
            endpoint.check_golden(bundle)
        except ServingError as error:
            if not uploaded:
                raise ServingError(f"{error}; a model of this name was there already: if it is not ours, delete it there") from error
            # Uploaded but wrong: without this the next round would find it there and upload nothing.
            with contextlib.suppress(ServingError):
                endpoint.delete(name)
            raise

    def _prune(self) -> None:
        """Remove what is old, from disk and endpoint. What cannot be removed now costs space, and no round."""
        for name in self.bundles_.prune(self.keep):
            for endpoint in self.endpoints:
                try:
                    endpoint.delete(name)
                except ServingError as error:
                    self.say(f"{error}; {name} stays there, delete it by hand")


def _require_same(bundle: Bundle, version: Version) -> None:
    """The bundle comes from the run of this version: numbers begin anew where a registry was made anew, and names are never used twice."""
    run_id = bundle.info.provenance.get("run_id")
    if run_id != version.run_id:
        raise Refused(
            f"{bundle.folder.name} is the model of run {run_id}, but version {version.number} of the registry is of run {version.run_id}; "
            f"if the registry was made anew, remove {bundle.folder} and delete that model at the endpoint"
        )
