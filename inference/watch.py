"""``smartcache watch``: the registry's champion becomes what serves, on this host and at the endpoints.

Each round compares the alias with what is live. Where they differ: download, gates, installed, verified and timed at the endpoints, placed
on disk, link moved. Only the last step makes the version live, for the plugin reads the link; whatever fails before it leaves what serves
as it was, and the next round starts again. A model that somebody made champion past `smartcache promote` meets all the gates here, the
replay too where no tag says that it has passed it against what is live here, in the last ``[gates] replay_days``, or that it has served.
Rolling back to one that has served asks none, whether it is still on this disk or not, and waits for no endpoint. Where the alias is moved
while a version is being replayed, or while an endpoint is waited for, that is the next one's turn at once.

What an endpoint refuses, or what cannot be fetched, is tried again after pauses that grow to ``[watch] retry_most_s``; what was downloaded
and has passed the gates of its bundle is kept meanwhile, one bundle at most, and its content compared before it is used again.

A round is cheap where nothing changed: one question to the registry, two to each endpoint (one that was restarted empty gets its model
again). Where the registry is away, the endpoints are still kept at what is live.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from smartcache.config import Config

from . import bundle as bundles
from . import gate_report, gates, latency, lineage, replay, rollout
from .bundle import Bundle, BundleError
from .challenger import Challengers, NotTried
from .fetched import Fetched, Key, Overtaken, Refused, Stopped, key_failed, key_of, require_same
from .gates import Gate, GateError
from .install import BundleDir, InstallError, digest
from .known import Known
from .lookout import Lookout
from .pause import Pause, Pauses
from .registry import BundleGone, GivenUp, Registry, RegistryAbsent, RegistryError, Version
from .rollout import Fleet
from .serving import EndpointAway, ServingError
from .uploads import Uploads

#: Bundles kept on disk and at the endpoints, the live one among them: rolling back to one of them needs no download.
KEEP: Final = 3
#: So often MLflow may answer, and not take what the gates said: then that is said, and not tried again.
NOTE_TRIES: Final = 10


@dataclass
class _Note:
    """What the gates said of a version that has become live, or was refused; and why it is live all the same."""

    version: Version
    answers: list[Gate]
    forced: str | None
    against: str = replay.NOBODY
    tried: int = 0

    def may_follow(self, now: Version) -> bool:
        """Whether nobody has forced the version since, or set it back: its tags are those of ``now``."""
        number, run_id, _ = key_of(self.version)
        passed = [] if gates.forced(self.version.tags) is not None else [(number, run_id, gates.PASSED)]
        return key_of(now) in (key_of(self.version), key_failed(self.version), *passed)


@dataclass
class Watch:
    """The loop and what it counts. One thread."""

    registry: Registry
    bundles_: BundleDir
    fleet: Fleet
    config: Config
    schema_hash: str
    say: Callable[[str], None]
    keep: int = KEEP
    promotions: int = 0
    failures: int = 0
    _said: list[str] = field(default_factory=list)
    _ready: bool = False
    #: What its gates refuse, as its tags may be, and what is said of it.
    _refused: tuple[Version, tuple[Key, ...], str] | None = None
    _fetched: Fetched | None = None
    #: What is not noted in MLflow yet.
    _unnoted: list[_Note] = field(default_factory=list)
    #: What is noted in MLflow as not deployed, and as damaged.
    _undeployed: Key | None = None
    _damaged: Key | None = None
    #: The number of the champion whose way back is noted.
    _seen: int | None = None
    #: When.
    _seen_s: float = 0.0
    #: The alias was moved in the course of this round.
    _overtaken: bool = False
    _known: Known = field(default_factory=Known)

    def __post_init__(self) -> None:
        self.challengers = Challengers(self.registry, self.bundles_, self.fleet, self.config, self.schema_hash)
        pauses = (self.config.watch.poll_s, self.config.watch.retry_most_s)
        self._pause = Pause(*pauses)
        #: Where an endpoint that answers does not serve what is live.
        self._pauses_kept = Pauses(*pauses)
        self.fleet.remember(Uploads(self.bundles_))
        self._lookout = Lookout(self.registry, self.config.watch.poll_s)
        self.fleet.waiting = self._lookout.waiting

    def run(self, stop: threading.Event, poll_s: float, wake: threading.Event | None = None) -> None:
        """Rounds until ``stop`` is set: each ``poll_s``, and at once when ``wake`` is (who sets ``stop`` sets it too)."""
        wake = wake or stop
        self._lookout.asked(stop, wake)
        with self.bundles_.writer(), self.challengers.writer():
            self._known.remember(self.bundles_, self.fleet.members)
            try:
                while not stop.is_set():
                    if wake is not stop:
                        wake.clear()
                    self.round()
                    if not (stop.is_set() or self._overtaken or self._lookout.woken):
                        wake.wait(poll_s)
            finally:
                self._drop_fetched()

    def round(self) -> bool:
        """Compare and follow once; False where something was in the way. Says each new trouble once, and the end of all.

        Where the alias is moved while an endpoint is waited for, the round ends there, and the next one begins at once. Where the watcher
        is asked to end, it ends there without a word: nothing has failed.
        """
        line = ""
        troubles: list[str] = []
        self._overtaken = False
        try:
            if here := self._begin(troubles):
                line = self._follow_alias(troubles)
            self._keep(troubles, here=here)
            if here:
                line = "; ".join(each for each in (line, self._try_challenger(troubles)) if each)
            self._tidy(troubles)
        except Overtaken:
            self._overtaken = True
            _add(troubles, self._said)  # whether that is over, is not known
        except Stopped:
            if line:
                self.say(line)
            self._known.note(self.bundles_, self.bundles_.current(), self._said, self.fleet.members, self.config.challenger)
            self._report()
            return False
        except (Refused, OSError) as error:
            _add(troubles, [str(error)])
        live = self.bundles_.current()
        self._tell(line, troubles, live)
        if not self._ready and (not troubles or any(member.serves for member in self.fleet.members)):
            self._ready = True
            self.say(f"ready: {live or 'no champion yet'} is live")
        self._known.note(self.bundles_, live, troubles, self.fleet.members, self.config.challenger)
        self._report()
        return not troubles and not self._overtaken

    def _keep(self, troubles: list[str], *, here: bool) -> None:
        """Have the endpoints serve what is live. One that refuses it is not sent it again each round. ``here``: the registry is."""
        live = self.bundles_.current()
        bundle = self.bundles_.installed(live) if live else None
        if bundle is None:
            return
        name = bundle.info.name
        standing = self._pauses_kept.standing(name)
        failed = self.fleet.keep(bundle, but=standing, spared=self._spared(name) if here else lambda _: True)
        self._pauses_kept.tried(
            name, {url: str(error) for url, error in failed.items() if not isinstance(error, EndpointAway)}, but=standing
        )
        _add(troubles, [*standing.values(), *map(str, failed.values())])

    def _spared(self, live: str) -> Callable[[str], bool]:
        """Which default an endpoint keeps though ``live`` is live here: hosts that share it, and are not all as far, must not move it
        to and fro. The champion is moved by nobody; of two versions that are not, the newer one stays. Whether what is live is still the
        champion is asked again where a default is to be moved to it: another host may have seen the alias move since.
        """
        champion = self._lookout.champion
        name = self.registry.name_of(champion.number) if champion is not None else ""
        if champion is not None and name == live:
            return lambda _: not self._lookout.is_still(champion)
        number = self.bundles_.number_of(live) or 0
        return lambda default: default == name or (self.bundles_.number_of(default) or 0) > number

    def _tidy(self, troubles: list[str]) -> None:
        """Have the endpoints hold what is tried beside it, and nothing that is not needed."""
        live = self.bundles_.current()
        if live is not None and self.bundles_.installed(live) is not None:
            _add(troubles, self.challengers.keep())
            _add(troubles, self.fleet.prune(self.registry.model, self.bundles_.names(), self.challengers.at_endpoints))
        _add(troubles, self.fleet.discard(self._wanted_there()))

    def _wanted_there(self) -> set[str]:
        """What endpoints may be asked for, now or soon."""
        coming = self._fetched.bundle.info.name if self._fetched is not None else None
        return {*self.bundles_.names(), *filter(None, (self.challengers.at_endpoints, coming))}

    def _try_challenger(self, troubles: list[str]) -> str:
        """The champion comes first, and none of its troubles is the challenger's; nor the other way round."""
        try:
            return self.challengers.follow(self._lookout.champion)
        except (RegistryError, BundleError, NotTried, OSError) as error:
            troubles.append(str(error))
            return ""

    def _tell(self, line: str, troubles: list[str], live: str | None) -> None:
        if self._said and not troubles:
            self.say("well again")
        if line:
            self.say(line)
        for text in troubles:
            if text not in self._said:
                self.say(f"{text}; {live or 'no model'} stays live, trying again")
        self.failures += bool(troubles)
        self._said = troubles

    def _begin(self, troubles: list[str]) -> bool:
        """Look at the alias; False where the registry is not there."""
        try:
            self._lookout.begin()
        except (RegistryError, OSError) as error:
            troubles.append(str(error))
            return False
        return True

    def _follow_alias(self, troubles: list[str]) -> str:
        """Follow the champion, and what overtakes it; as :meth:`_follow`, but for its errors, which are among ``troubles``."""
        while True:
            self._note_move(self._lookout.champion)
            try:
                line = self._follow(self._lookout.champion)
            except Overtaken as moved:
                self._lookout.champion = moved.champion
                continue
            except (RegistryError, ServingError, BundleError, InstallError, Refused, GateError, OSError) as error:
                troubles.append(str(error))
                return ""
            if self._lookout.champion is not None:
                with contextlib.suppress(RegistryError):
                    lineage.note_served(self.registry, self._lookout.champion)
            return line

    def _note_move(self, champion: Version | None) -> None:
        """Where the alias has moved, remember the way back, before anything else: whoever moved it may not have."""
        was = self._seen if self._seen is not None else self.bundles_.current_number()
        if champion is None:
            return
        try:
            if was is not None and was != champion.number:
                lineage.note_move(self.registry, was, champion, self._seen_s if self._seen is not None else None)
        except RegistryAbsent:
            return  # the next round does it
        except RegistryError:
            pass  # what was before is not in the registry any more
        self._seen, self._seen_s = champion.number, time.time()

    def _is_back(self, champion: Version) -> bool:
        """Whether it is rolled back to: it has served, and what is live here is newer."""
        live = self.bundles_.current_number()
        return lineage.SERVED in champion.tags and live is not None and champion.number < live

    def _follow(self, champion: Version | None) -> str:
        """Make the champion live; a line for a person where that changed anything, else empty."""
        if self._fetched is not None and (champion is None or self._fetched.key != key_of(champion)):
            self._drop_fetched()
        if champion is None:
            return ""
        name = self.registry.name_of(champion.number)
        live = self.bundles_.current()
        bundle = self.bundles_.installed(name)
        back = bundle is not None or self._is_back(champion)
        if bundle is not None:
            require_same(bundle, champion)
            if live == name:
                return ""
            self.fleet.bring_back(bundle)
            self.bundles_.make_current(name)
        else:
            if not back:
                self._require_not_refused(champion)
            if said := self._pause.standing(key_of(champion)):
                raise Refused(said)
            try:
                brought = self._bring(champion, name, back=back)
            except GivenUp as error:  # nobody is to wait so long in each round
                self._pause.failed(self._key_now(champion), str(error))
                raise
            except (EndpointAway, RegistryAbsent):
                raise  # they are waited for, and asked little meanwhile
            except (RegistryError, ServingError, BundleError, InstallError, Refused, GateError, OSError) as error:
                self._pause.failed(self._fetched.key if self._fetched is not None else self._key_now(champion), str(error))
                raise
            self._pause.over()
            self._damaged = None
            self.bundles_.make_current(name)
            if not back:
                forced = None if gates.all_passed(brought.answers) else gates.forced(champion.tags)
                self._is_to_be_noted(champion, brought.answers, forced, brought.against)
            elif amended := gates.amended(champion.tags, brought.answers):
                with contextlib.suppress(RegistryError):
                    self.registry.tag(champion.number, amended)
        self.promotions += 1
        self.bundles_.prune(self.keep)
        lacking = ", ".join(self.fleet.lacking(name)) if back else ""
        return f"{name} is live" + (f", {live} was" if live else "") + (f"; {lacking} gets it when it is back" if lacking else "")

    def _bring(self, champion: Version, name: str, *, back: bool) -> Fetched:
        """From the registry to the endpoints and into its place on disk; with what all its gates said. ``back``: it asks the one that there
        must be something to serve.
        """
        fetched = self._fetched
        if fetched is None or not fetched.intact():
            self._drop_fetched()
            fetched = self._fetched = self._fetch(champion, name, back=back)
        answers = list(fetched.answers)
        if back:
            self.fleet.bring_back(fetched.bundle)
        else:
            answers += self._deploy(champion, fetched)
            try:
                self._require_passed(answers, champion)
            except Refused:
                self._drop_fetched()
                raise
        self.bundles_.place(fetched.bundle)
        self._drop_fetched()
        return replace(fetched, answers=answers)

    def _deploy(self, champion: Version, fetched: Fetched) -> list[Gate]:
        """To the endpoints; what the gates say that ask them."""
        settings = self.config.gates
        try:
            timed = self.fleet.prepare(fetched.bundle, settings)
        except EndpointAway:
            raise
        except ServingError as error:
            if error.untaken_s < self.fleet.wait_s:
                raise
            raise self._not_deployed(champion, fetched, error) from error
        answers = self.fleet.answered(fetched.bundle.info.name, settings.max_output_difference)
        return [*answers, latency.gate(timed, settings)] if timed else answers

    def _not_deployed(self, champion: Version, fetched: Fetched, error: ServingError) -> Refused:
        """An endpoint has not taken it for as long as is waited: noted with the version, once, and told each time. It is tried again."""
        if self._undeployed != fetched.key:
            answers = [*fetched.answers, rollout.gate(str(error), False)]
            if self._is_noted(_Note(champion, answers, gates.forced(champion.tags), fetched.against)):
                # As the version's tags are from now on: it is no other one for that.
                key = key_failed(champion)
                self._undeployed, self._fetched = key, replace(fetched, key=key)
        return Refused(f"champion version {champion.number} is not deployed: {error}")

    def _fetch(self, champion: Version, name: str, *, back: bool) -> Fetched:
        incoming = self.bundles_.new_incoming()
        try:
            try:
                downloaded = self.registry.download_bundle(champion, incoming, lambda: self._lookout.judging(champion))
            except BundleGone as error:
                raise self._failed([gates.no_bundle(str(error))], champion) from error
            answers, against = self._judge(downloaded, champion, back=back)
            named = bundles.copy_named(bundles.read(downloaded), incoming / name, name)
            require_same(named, champion)
            shutil.rmtree(downloaded)
            return Fetched(key_of(champion), named, digest(named.folder), answers, against)
        except BaseException:
            shutil.rmtree(incoming, ignore_errors=True)
            raise

    def _drop_fetched(self) -> None:
        if self._fetched is not None:
            shutil.rmtree(self._fetched.bundle.folder.parent, ignore_errors=True)
            self._fetched = None

    def _judge(self, folder: Path, version: Version, *, back: bool) -> tuple[list[Gate], str]:
        """What the gates say that ask no endpoint, and what the version was compared with."""
        answers = gates.check_folder(folder, self.config.gates, self.schema_hash)[: 1 if back else None]
        self._require_passed(answers, version)
        if back or gates.forced(version.tags) is not None:
            return answers, replay.NOBODY
        live = self.bundles_.current()
        champion = self.bundles_.installed(live) if live else None
        known = self._known_as(champion) if champion is not None else None
        if not replay.passed_before(version.tags, self.config.gates.replay_days, known):
            without = f"{live} is live, but what is on this disk of it is damaged" if live else ""
            answers += replay.check(self.config, bundles.read(folder), champion or without, lambda *_: self._lookout.judging(version))
            self._require_passed(answers, version)
        return answers, known or replay.NOBODY

    def _known_as(self, installed: Bundle) -> str:
        return replay.known_as(self.bundles_.number_of(installed.info.name) or 0, str(installed.info.provenance.get("run_id")))

    def _require_passed(self, answers: list[Gate], version: Version) -> None:
        if not gates.all_passed(answers) and (not answers[0].passed or gates.forced(version.tags) is None):
            raise self._failed(answers, version)

    def _failed(self, answers: list[Gate], version: Version) -> Refused:
        """It is taken away again, and noted, where that can be done now."""
        failed = "; ".join(f"{gate.name} {gate}" for gate in answers if not gate.passed)
        text = f"champion version {version.number} is refused by its gates: {failed}"
        self.fleet.withdraw(self.registry.name_of(version.number))
        if answers[0].passed:
            self._refused = version, (key_of(version), key_failed(version)), text
            self._is_to_be_noted(version, answers, None)
            self._report()
        # It may be a torn download: said with the version, once, but fetched again all the same.
        elif self._damaged != key_of(version) and self._is_noted(_Note(version, answers, gates.forced(version.tags))):
            self._damaged = key_failed(version)
        return Refused(text)

    def _key_now(self, version: Version) -> Key:
        """As the tags are that this process has given it."""
        return self._damaged if self._damaged is not None and self._damaged[:2] == key_of(version)[:2] else key_of(version)

    def _is_to_be_noted(self, version: Version, answers: list[Gate], forced: str | None, against: str = replay.NOBODY) -> None:
        """In place of what was to be noted of the version before."""
        self._unnoted = [note for note in self._unnoted if note.version.number != version.number]
        self._unnoted.append(_Note(version, answers, forced, against))

    def _is_noted(self, note: _Note) -> bool:
        """Note now what the gates said; False where the registry does not take it, or somebody has said otherwise since."""
        with contextlib.suppress(RegistryError):
            return self._note(note)
        return False

    def _note(self, note: _Note) -> bool:
        """As :meth:`_is_noted`, but for the registry's errors."""
        now = self.registry.get(note.version.number)
        note.tried += 1
        if not note.may_follow(now):
            return False
        gate_report.keep(self.registry, note.version, gate_report.WATCH, note.answers, note.forced, note.against)
        return True

    def _report(self) -> None:
        """Note with the version what its gates said, once the registry is there. Where it takes no notes, that is said."""
        while self._unnoted:
            note = self._unnoted[0]
            version = note.version
            try:
                self._note(note)
            except RegistryError as error:
                # Where its disk is full, say, MLflow's client says that it is absent.
                if isinstance(error, RegistryAbsent) and note.tried < NOTE_TRIES:
                    return
                self.say(f"what the gates said of version {version.number} is not noted with it: {error}")
            else:
                if self._refused is not None and self._refused[0] is version:
                    # Whoever makes its tags what they were wants it to be asked again.
                    self._refused = version, (key_failed(version),), self._refused[2]
            self._unnoted.pop(0)

    def _require_not_refused(self, version: Version) -> None:
        """What was refused is not downloaded again each round, until somebody forces it or registers another."""
        if self._refused is not None and key_of(version) in self._refused[1]:
            raise Refused(self._refused[2])


def _add(troubles: list[str], more: Iterable[str]) -> None:
    """What is said already, alone or in what came of it, is not said again."""
    for text in more:
        if not any(text in said for said in troubles):
            troubles.append(text)
