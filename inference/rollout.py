"""The endpoints together: a version is verified at each before any cache uses it, and each that returns is brought to it.

The rule, where not all of them are there:

- One that answers, but refuses, answers wrong or has no room, holds the version up: nobody can say whether the version or the endpoint is
  at fault. After ``wait_s`` the version counts as one that could not be deployed, and the caller says so; it is tried again all the same.
- One that is away (cannot be reached, or answers with 5xx) is waited for ``wait_s`` from when it was first missed; then the version goes
  live without it. At least one endpoint must have the version, or nothing has verified it. One that answers, and only the version does not
  get there (an upload that times out, or is put off each time), is not away, however often it is put off.
- A version that is gone back to has served: whoever has it serves it again, and nobody holds that up, the only endpoint neither. Who is
  asked for it before it has it knows no such model, and a plugin evaluates its own copy.
- One that returns is not counted as serving until it has the version that is live, has answered its golden rows, and has it as the model
  of predictions that name none: asked for them without a name, it answers them again. Unless that model is another host's doing, which
  shares the endpoint and is ahead of this one.

Nothing here needs undoing: an endpoint holds several versions at once, callers name the one they mean, and what a killed process left half
done is found by asking, and finished.

Each endpoint has a thread of its own, in which the calls to it follow one another. So one that hangs holds up nobody else: who does not
want to wait for it any longer (:attr:`Fleet.waiting` raises, the time for a roll-back is over, or :data:`MOST_S`) leaves it to its thread
and goes on with the others; it counts as away meanwhile. Once the whole of :data:`MOST_S` was waited for a call nobody waits again before
that one has ended: a round waits for one that hangs once.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Final

from smartcache.config import Gates as Settings

from . import latency
from .bundle import Bundle
from .calls import Calls, wait_until
from .gates import Gate
from .latency import Latency
from .serving import GOLDEN_TOLERANCE, Endpoint, EndpointAway, EndpointFull, ServingError
from .uploads import Uploads

GATE: Final = "endpoint"
#: A roll-back waits for answers so long at most, then it goes on without the endpoints that have given none.
ROLL_BACK_S: Final = 3.0
#: Everybody else so long: an answer that trickles in keeps within the timeout of each piece.
MOST_S: Final = 120.0


def gate(value: str, passed: bool, tolerance: float = GOLDEN_TOLERANCE) -> Gate:
    """The gate's answer about a version: whether the endpoints have it, and their SavedModel answers as Keras did."""
    return Gate(GATE, value, f"each endpoint takes it and answers its golden rows to {tolerance:g}", passed)


@dataclass
class Member:
    """One endpoint, as it was found last."""

    endpoint: Endpoint
    #: What this host has uploaded there, and elsewhere.
    uploads: Uploads
    #: The version that it was seen to serve, verified; empty while it is away or answers wrong.
    serves: str = ""
    #: Since when it does (Unix time); None where it does not.
    since_us: int | None = None
    #: Since when it is away (Unix time); None where it is not.
    away_since_us: int | None = None
    trouble: str = ""
    #: What an earlier process knew: the version that it served, and since when.
    before: tuple[str, int | None] = ("", None)
    #: What it was verified for while it was reachable without a break: the largest difference of its answers to the golden rows.
    _verified: dict[str, float] = field(default_factory=dict)
    #: What it took for the versions that were timed there.
    timed: dict[str, Latency] = field(default_factory=dict)
    #: Whether it answered at all when something was last to be installed there.
    answers: bool = False
    _pruned: bool = False
    _missed_s: float | None = None
    #: It is talked to by one call at a time.
    calls: Calls[ServingError | None] = field(default_factory=Calls)
    #: What was waited for as long as anybody waits, in vain.
    _given_up: Future[ServingError | None] | None = None
    #: Which version it has not taken, since when, and whether it answered when that was last tried.
    _untaken: tuple[str, float, bool] = ("", 0.0, False)

    def here(self) -> None:
        """It has answered."""
        self.away_since_us = self._missed_s = None
        self.trouble = ""

    def fails(self, error: ServingError) -> None:
        """It is away, or answers wrong for what is live."""
        self.serves, self.since_us, self.trouble = "", None, str(error)
        self._verified.clear()
        self.timed.clear()
        self._pruned = False
        if not isinstance(error, EndpointAway):
            self.away_since_us = self._missed_s = None
        elif self._missed_s is None:
            self._missed_s, self.away_since_us = time.monotonic(), time.time_ns() // 1000

    def give_up(self) -> None:
        """Whoever has waited for it has done so long enough."""
        self._given_up = self.calls.begun

    def hangs(self) -> bool:
        """Whether a call that was given up goes on: it answers nothing else until then."""
        return self._given_up is not None and not self._given_up.done()

    def away_s(self) -> float:
        """For how long it has been away."""
        return 0.0 if self._missed_s is None else time.monotonic() - self._missed_s

    def note_taken(self, name: str, taken: bool) -> None:
        """The version ``name`` was to be installed there, and was or was not. Who has just come back has all its time before it."""
        known, since_s, answered = self._untaken
        if known != name or (self.answers and not answered):
            since_s = time.monotonic()
        self._untaken = ("", 0.0, False) if taken else (name, since_s, self.answers)

    def untaken_s(self, name: str) -> float:
        """For how long it has not taken the version ``name``."""
        return time.monotonic() - self._untaken[1] if self._untaken[0] == name else 0.0

    def missing_s(self, name: str) -> float:
        """For how long the version ``name`` has been waiting for it."""
        return self.untaken_s(name) if self.answers else self.away_s()

    def has(self, name: str) -> bool:
        """Whether it holds the version ``name``, verified."""
        return name in self._verified

    def difference(self, name: str) -> float:
        """By how much it differs from the golden rows of the version ``name``, which it has."""
        return self._verified[name]

    def install(self, bundle: Bundle) -> None:
        """Have it hold ``bundle``, verified by the golden rows. Raises :class:`ServingError`."""
        name = bundle.info.name
        self.answers = False
        there = self.endpoint.models()
        self.answers = True
        uploaded = name not in there
        if uploaded:
            self._verified.pop(name, None)
            self._upload(bundle)
        elif name in self._verified:
            return
        try:
            self._verified[name] = self.endpoint.check_golden(bundle)
        except EndpointAway:
            raise
        except ServingError as error:
            if name not in self.uploads.at(self.endpoint.url):
                raise ServingError(f"{error}; a model of this name was there already: if it is not ours, delete it there") from error
            # Uploaded but wrong: without this the next round would find it there and upload nothing.
            with contextlib.suppress(ServingError):
                self.withdraw(name)
            raise

    def _upload(self, bundle: Bundle) -> None:
        name = bundle.info.name
        self.uploads.add(self.endpoint.url, name)
        try:
            self.endpoint.upload(bundle)
        except ServingError as error:
            if error.status != 409:
                if 400 <= error.status < 500:  # else it may be there all the same
                    self.uploads.drop(self.endpoint.url, name)
                raise
            if name in self.endpoint.models():
                self.uploads.drop(self.endpoint.url, name)
                return  # somebody else has uploaded it meanwhile
            # It serves no model of this name, so what is in the way is a folder that it could not load.
            self.endpoint.delete(name)
            self.endpoint.upload(bundle)

    def time(self, bundle: Bundle, settings: Settings) -> None:
        """Time the installed ``bundle``, once as long as it is reachable. Raises :class:`ServingError`."""
        if settings.latency_requests and bundle.info.name not in self.timed:
            self.timed[bundle.info.name] = latency.measure(self.endpoint, bundle, settings)

    def withdraw(self, name: str) -> None:
        """Delete a version that this host has uploaded and that is not to serve, unless it does. Raises :class:`ServingError`."""
        self.timed.pop(name, None)
        if name in self.uploads.at(self.endpoint.url) and self.serves != name and self.endpoint.default() != name:
            self._verified.pop(name, None)
            self.endpoint.delete(name)
            self.uploads.drop(self.endpoint.url, name)

    def switch(self, bundle: Bundle, spared: Callable[[str], bool]) -> None:
        """Have predictions that name no model be answered by ``bundle``, which is installed; its golden rows say whether they are.

        ``spared``: which other default stays as it is, where that is served. Who names ``bundle`` is answered by it all the same.
        """
        name = bundle.info.name
        default = self.endpoint.default()
        others = default is not None and default not in ("", name) and spared(default) and default in self.endpoint.models()
        moved = default != name and not others
        if moved:
            self.endpoint.set_default(name)
        if default is not None and not others and (moved or self.serves != name):
            self.endpoint.check_golden(bundle, by_default=True)
        if self.serves != name:
            known, since_us = self.before
            self.serves, self.since_us = name, since_us if known == name and not moved else time.time_ns() // 1000
            self._pruned = False

    def prune(self, number: re.Pattern[str], kept: set[str], newest: int) -> None:
        """Delete the versions that are not kept and older than the newest that is: newer ones may be another host's, which is ahead."""
        if self._pruned or not self.serves:
            return
        for name in sorted(self.endpoint.models() - kept):
            if (found := number.fullmatch(name)) and int(found[1]) < newest:
                self.endpoint.delete(name)
                self._verified.pop(name, None)
                self.uploads.drop(self.endpoint.url, name)
        self._pruned = True


def _not_away(member: Member) -> bool:
    """Whether it is not known to be away. Who is, is asked again by :meth:`Fleet.keep` alone."""
    return member.away_since_us is None


class Fleet:
    """All endpoints. To be used by one thread; the calls go to all endpoints at once."""

    def __init__(self, endpoints: Iterable[Endpoint], wait_s: float) -> None:
        uploads = Uploads()
        self.members = [Member(endpoint, uploads) for endpoint in endpoints]
        self.wait_s = wait_s
        #: Called now and then while endpoints are waited for; what it raises ends the waiting.
        self.waiting: Callable[[], None] = lambda: None

    def remember(self, uploads: Uploads) -> None:
        """Keep there what is uploaded."""
        for member in self.members:
            member.uploads = uploads

    def prepare(self, bundle: Bundle, timing: Settings) -> list[Latency]:
        """Install ``bundle`` at each endpoint and time it there; returns when it may go live, or raises :class:`ServingError`, by the rule
        above. What was measured is returned, for each endpoint that is not away.
        """
        errors = self._install(bundle, timing)
        if errors:
            self._require_ready(bundle.info.name, errors)
        return self._timed(bundle)

    def bring_back(self, bundle: Bundle) -> None:
        """Install ``bundle``, which has served before, wherever that can be done in :data:`ROLL_BACK_S`. Raises :class:`ServingError` where
        nobody has it and one answers it wrong: it would go on doing so.
        """
        errors = self._install(bundle, None, ROLL_BACK_S)
        wrong = [error for error in errors.values() if not error.status and not isinstance(error, EndpointAway)]
        if wrong and len(errors) == len(self.members):
            raise wrong[0]

    def try_out(self, bundle: Bundle, timing: Settings) -> tuple[list[Latency], dict[str, ServingError]]:
        """Install ``bundle`` at each endpoint that can be asked, and time it there: what was measured, and by URL what was in the way."""
        errors = self._install(bundle, timing)
        return self._timed(bundle), {self.members[number].endpoint.url: error for number, error in errors.items()}

    def answered(self, name: str, tolerance: float) -> list[Gate]:
        """The gate about those that have the version ``name``, by what their SavedModel answers; none where nobody has it."""
        differences = [member.difference(name) for member in self.members if member.has(name)]
        if not differences:
            return []
        worst = max(differences)
        text = f"{len(differences)} of {len(self.members)} answer its golden rows to {worst:.2g}"
        return [gate(text, worst <= tolerance, tolerance)]

    def lacking(self, name: str) -> list[str]:
        """The URLs of those that are not known to have the version ``name``."""
        return [member.endpoint.url for member in self.members if not member.has(name)]

    def _timed(self, bundle: Bundle) -> list[Latency]:
        return [member.timed[bundle.info.name] for member in self.members if bundle.info.name in member.timed]

    def _install(self, bundle: Bundle, timing: Settings | None, most_s: float | None = None) -> dict[int, ServingError]:
        name = bundle.info.name
        errors = self._each(lambda member: member.install(bundle), EndpointAway, most_s=most_s)
        if timing is not None:
            errors |= self._time(bundle, timing, [member for number, member in enumerate(self.members) if number not in errors])
        for number, member in enumerate(self.members):
            member.note_taken(name, number not in errors)
        return errors

    def _time(self, bundle: Bundle, timing: Settings, members: Iterable[Member]) -> dict[int, ServingError]:
        """One after the other: what many at once would take is this process' own processor time."""
        errors: dict[int, ServingError] = {}
        for member in members:
            errors |= self._each(partial(Member.time, bundle=bundle, settings=timing), EndpointAway, partial(is_, member), latency.MOST_S)
        return errors

    def _require_ready(self, name: str, errors: dict[int, ServingError]) -> None:
        """Raise what is in the way of ``name``; those whose time is over are not."""
        refused = {number: error for number, error in errors.items() if not isinstance(error, EndpointAway)}
        for number, error in errors.items():
            if number not in refused and self.members[number].answers and self.members[number].untaken_s(name) >= self.wait_s:
                text = f"{error}; else it answers, but has not taken {name} in [promote] wait_s {self.wait_s:g} s"
                refused[number] = EndpointFull(text, error.status)
        if refused:
            longest = max(refused, key=lambda number: self.members[number].untaken_s(name))
            refused[longest].untaken_s = self.members[longest].untaken_s(name)
            raise refused[longest]
        if len(errors) == len(self.members):
            raise next(iter(errors.values()))
        for number, error in errors.items():
            if self.members[number].missing_s(name) < self.wait_s:
                raise EndpointAway(f"{error}; the new version waits for it for [promote] wait_s {self.wait_s:g} s")

    def withdraw(self, name: str) -> None:
        """Delete a version where this host has uploaded it and it does not serve; what cannot be deleted now is left to :meth:`discard`."""
        self._each(lambda member: member.withdraw(name), EndpointAway)

    def discard(self, kept: set[str]) -> list[str]:
        """Delete what this host has uploaded and does not keep, where the endpoint is not known to be away; returns what is in the way."""

        def discard(member: Member) -> None:
            for name in sorted(member.uploads.at(member.endpoint.url) - kept):
                member.withdraw(name)

        return [str(error) for error in self._each(discard, noted=None, who=_not_away).values()]

    def keep(self, bundle: Bundle, but: Collection[str] = (), spared: Callable[[str], bool] = lambda _: False) -> dict[str, ServingError]:
        """Have each endpoint serve ``bundle``, which is live; returns what is wrong, by URL. ``but``: URLs that are left alone.

        ``spared``: names that stay an endpoint's default, where it has them; they are another host's, which is ahead of this one.
        """

        def serve(member: Member) -> None:
            member.install(bundle)
            member.switch(bundle, spared)
            member.here()

        errors = self._each(serve, who=lambda member: member.endpoint.url not in but)
        return {self.members[number].endpoint.url: error for number, error in errors.items()}

    def hold(self, bundle: Bundle, but: Collection[str] = ()) -> dict[str, ServingError]:
        """Have each endpoint that is not known to be away hold ``bundle`` beside what it serves, verified.

        Returns what is in the way, by URL. For a version that is only tried: what an endpoint serves, and since when, stays as it was
        noted. ``but``: URLs that are left alone.
        """

        errors = self._each(
            lambda member: member.install(bundle),
            noted=None,
            who=lambda member: _not_away(member) and member.endpoint.url not in but,
        )
        return {self.members[number].endpoint.url: error for number, error in errors.items()}

    def prune(self, model: str, kept: set[str], tried: str | None = None) -> list[str]:
        """Delete old versions of ``model`` at each endpoint that serves another one since, or is back, and is not known to be away; returns
        what is in the way.

        ``tried``: a version that stays besides, and is not what others are old beside.
        """
        number = re.compile(re.escape(model) + r"_v([0-9]+)")
        newest = max((int(found[1]) for name in kept if (found := number.fullmatch(name))), default=0)
        stay = kept | ({tried} if tried else set())
        return [str(error) for error in self._each(lambda member: member.prune(number, stay, newest), EndpointAway, _not_away).values()]

    def _each(
        self,
        what: Callable[[Member], None],
        noted: type[ServingError] | None = ServingError,
        who: Callable[[Member], bool] = lambda _: True,
        most_s: float | None = None,
    ) -> dict[int, ServingError]:
        """Do it at each endpoint ``who`` is for, at once; returns the errors by the member's number. Those of type ``noted`` are its state
        from then.

        ``most_s`` (None: :data:`MOST_S`): who has not done it by then is left to its thread, as one that is away. Raises what
        :attr:`waiting` does.
        """
        within_s = MOST_S if most_s is None else most_s

        def one(member: Member) -> ServingError | None:
            try:
                what(member)
            except ServingError as error:
                if noted is not None and isinstance(error, noted):
                    member.fails(error)
                return error
            return None

        chosen = {number: member for number, member in enumerate(self.members) if who(member)}
        asked = {number: member.calls.submit(one, member) for number, member in chosen.items() if not member.hangs()}
        # Nobody who asks a slow registry, say, is to make a roll-back longer.
        wait_until(asked.values(), time.monotonic() + within_s, self.waiting if within_s > ROLL_BACK_S else lambda: None)
        errors: dict[int, ServingError] = {}
        for number, member in chosen.items():
            future = asked.get(number)
            if future is not None and future.done() and not future.cancelled():
                error = future.result()
            else:
                error = EndpointAway(f"endpoint {member.endpoint.url} has not answered in {within_s:g} s, and is not waited for")
                if future is None or future.cancelled():  # it has not ended the call before, so it answers nothing
                    member.answers = False
                if most_s != ROLL_BACK_S:  # who needs longer than that may be well
                    member.give_up()
                if noted is not None and isinstance(error, noted):
                    member.fails(error)
            if error is not None:
                errors[number] = error
        return errors
