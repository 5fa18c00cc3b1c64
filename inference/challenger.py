"""The challenger's bundle on this host and at the endpoints, for a plugin that tries it beside the champion.

For the canary (``[challenger] canary_share``) the plugin asks the endpoint by the challenger's name, as it asks for the champion, so each
endpoint holds both; the shadow is evaluated in the plugin's own process, and needs none. The bundle lies in a folder of its own,
``bundle_dir/challenger/``, with a link ``current`` of its own: it has met the gates of its bundle alone, and must not pass for one that has
met them all when its version becomes the champion.

An endpoint that answers, and refuses the challenger, has no room for it or answers it wrongly, keeps it from being tried. One that is away
does not: the plugin evaluates its copy until the endpoint is back and holds it again.

What is not tried, or not any more, is nowhere: it comes into the folder only once no endpoint refuses it, and those that had taken it are
rid of it in the same round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from smartcache.config import Config

from . import bundle as bundles
from . import gates
from .bundle import Bundle, BundleError
from .fetched import Overtaken
from .install import BundleDir
from .pause import Pause, Pauses
from .registry import CHALLENGER, GivenUp, Registry, RegistryAbsent, RegistryError, Version
from .rollout import Fleet
from .serving import EndpointAway

FOLDER: Final = "challenger"
#: The gates that a model must pass to be evaluated at all; how good it is, is what trying it is for.
NEEDED: Final = ("bundle", "schema", "outputs", "parity")


class NotTried(Exception):
    """The challenger cannot be tried; the text says why."""


class Challengers:
    """Keeps ``bundle_dir/challenger/current`` at the version that MLflow's alias names. One thread, the writer of ``bundle_dir``."""

    def __init__(self, registry: Registry, beside: BundleDir, fleet: Fleet, config: Config, schema_hash: str) -> None:
        self.folder = BundleDir(beside.folder / FOLDER, registry.model)
        self._beside = beside
        self._fleet = fleet
        self._registry = registry
        self._config = config
        self._schema_hash = schema_hash
        self._refused: tuple[tuple[int, str], str] | None = None
        pauses = (config.watch.poll_s, config.watch.retry_most_s)
        self._pause = Pause(*pauses)
        #: Of the one that is tried, where an endpoint does not take it any more.
        self._pauses_kept = Pauses(*pauses)
        #: When the alias is looked at again while a download is waited for.
        self._next_s = 0.0

    def writer(self) -> AbstractContextManager[None]:
        """Be the one writer there, where there is to be anything; what a killed process left half done is removed."""
        return self.folder.writer() if self._config.challenger.wanted or self.folder.folder.is_dir() else nullcontext()

    def follow(self, champion: Version | None) -> str:
        """Have what the alias names be tried, or nothing; a line for a person where that changed anything, else empty.

        On disk is what is tried, and nothing else. Raises :class:`NotTried` and what registry and disk raise; what is tried then stays. So
        it does where the alias, or the champion's, is moved while its bundle is downloaded: :class:`~.fetched.Overtaken`.
        """
        wanted = self._registry.alias(CHALLENGER) if self._config.challenger.wanted else None
        before = self.folder.current()
        if wanted is None or (champion is not None and champion.number == wanted.number):
            if before is not None:
                self.folder.drop_current()
            self.folder.prune(keep=1)
            return f"challenger {before} is not tried any more" if before is not None else ""
        self.folder.prune(keep=1)
        name = self._registry.name_of(wanted.number)
        bundle = self.folder.installed(name) if before == name else None
        if bundle is not None and bundle.info.provenance.get("run_id") == wanted.run_id:
            return ""
        key = (wanted.number, wanted.run_id)
        if self._refused is not None and self._refused[0] == key:
            raise NotTried(self._refused[1])
        if said := self._pause.standing(key):
            raise NotTried(said)
        try:
            self._bring(wanted, name, partial(self._waiting, wanted, champion))
        except GivenUp as error:  # nobody is to wait so long in each round
            self._pause.failed(key, str(error))
            raise
        except RegistryAbsent:
            raise
        except (RegistryError, NotTried, OSError) as error:
            self._pause.failed(key, str(error))
            raise
        self._pause.over()
        self.folder.make_current(name)
        self.folder.prune(keep=1)
        return f"challenger {name} is tried: {self.how}"

    def keep(self) -> list[str]:
        """Have the endpoints hold what is tried, also one that has just come back; what is in the way. The registry is not asked."""
        name = self.at_endpoints
        bundle = self.folder.installed(name) if name else None
        if bundle is None:
            return []
        standing = self._pauses_kept.standing(name)
        failed = {url: f"challenger {name}: {error}" for url, error in self._fleet.hold(bundle, but=standing).items()}
        self._pauses_kept.tried(name, failed, but=standing)
        return [*standing.values(), *failed.values()]

    @property
    def at_endpoints(self) -> str | None:
        """The name of the one that plugins ask endpoints for, None where they ask for none."""
        return self.folder.current() if self._asked_there else None

    @property
    def _asked_there(self) -> bool:
        return self._config.challenger.canary_share > 0 and self._config.model.use != "embedded"

    def _bring_to_endpoints(self, bundle: Bundle) -> None:
        """What has taken it beside one that refuses it, is rid of it with the other things that are not kept (:meth:`Fleet.discard`)."""
        for error in self._fleet.hold(bundle).values():
            if not isinstance(error, EndpointAway):
                raise NotTried(f"challenger {bundle.info.name} cannot be tried: {error}")

    @property
    def how(self) -> str:
        """In which ways it is tried."""
        settings = self._config.challenger
        ways = [f"canary, {settings.canary_share:.4g} of the files"] if settings.canary_share > 0 else []
        return ", ".join([*ways, *(["shadow"] if settings.shadow else [])])

    def _waiting(self, wanted: Version, champion: Version | None) -> None:
        """Called while ``wanted`` is downloaded: nobody waits for one that is the challenger no more."""
        self._fleet.waiting()
        if time.monotonic() < self._next_s:
            return
        try:
            now = self._registry.alias(CHALLENGER)
        except (RegistryError, OSError):
            now = wanted
        self._next_s = time.monotonic() + self._config.watch.poll_s
        if now is None or (now.number, now.run_id) != (wanted.number, wanted.run_id):
            raise Overtaken(champion)

    def _bring(self, version: Version, name: str, waiting: Callable[[], None]) -> None:
        """From the registry to the endpoints, which have to take it, and then into its place on disk."""
        self.folder.folder.mkdir(parents=True, exist_ok=True)
        self._next_s = time.monotonic() + self._config.watch.poll_s
        with self.folder.incoming() as incoming:
            downloaded = self._registry.download_bundle(version, incoming, waiting)
            answers = gates.check_folder(downloaded, self._config.gates, self._schema_hash)
            failed = [gate for gate in answers if gate.name in NEEDED and not gate.passed]
            if failed:
                text = f"challenger version {version.number} cannot be tried: " + "; ".join(f"{gate.name} {gate}" for gate in failed)
                if failed[0].name != "bundle":  # that may be a torn download, which is fetched again
                    self._refused = ((version.number, version.run_id), text)
                raise NotTried(text)
            try:
                named = bundles.copy_named(bundles.read(downloaded), incoming / name, name)
            except BundleError as error:
                raise NotTried(f"challenger version {version.number} cannot be tried: {error}") from error
            if self.folder.current() == name and name not in self._beside.names():
                # Another model of that name, of a registry that was made anew, or its bundle is damaged.
                self.folder.drop_current()
                self._fleet.withdraw(name)
            if self._asked_there:
                self._bring_to_endpoints(named)
            self.folder.place(named)
