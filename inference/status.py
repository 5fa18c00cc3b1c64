"""What serves where, since when, with what figures, and what is pending: for `smartcache status`.

Asked of the places themselves, not of a record: each bundle folder by its links, each endpoint by its models, its default and, where the
champion's bundle is on this disk, its answers to the golden rows. What the watcher left in the bundle folder adds since when, why not, and
how the challenger is tried. Changes nothing anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from . import challenger as challengers
from . import gates
from .bundle import Bundle
from .compare import CompareError, Comparison
from .install import BundleDir
from .registry import CHALLENGER, CHAMPION, Registry, RegistryError, Version
from .serving import Endpoint, ServingError

#: The newest versions are looked at for what is pending.
LOOK_BACK: Final = 20
_FIGURE: Final = "smartcache.test_"
_THREADS: Final = 16

#: Compares the champion with the challenger of this name; raises :class:`~.compare.CompareError`.
Compare = Callable[[str], Comparison]


@dataclass(frozen=True)
class Place:
    """A bundle folder or an endpoint, and what it serves. Times are Unix time, None where it is not known."""

    kind: str
    where: str
    serves: str
    since_us: int | None
    away_since_us: int | None
    right: bool
    note: str


@dataclass(frozen=True)
class Tried:
    """The challenger at one bundle folder, as its watcher has it: ``version`` is empty where none is tried, whatever the alias says."""

    where: str
    version: str
    since_us: int | None
    canary_share: float
    shadow: bool
    #: It is what the alias names; where the alias names nothing, none is tried.
    right: bool
    note: str

    @property
    def wanted(self) -> bool:
        """Whether one is to be tried there at all."""
        return self.canary_share > 0 or self.shadow


@dataclass(frozen=True)
class Judged:
    """A registered version: its role, its figures, what the gates said of it."""

    number: int
    name: str
    role: str
    created_us: int
    gates: str
    figures: dict[str, float]
    answers: dict[str, str]

    @property
    def failed(self) -> dict[str, str]:
        """The gates that said no."""
        return {name: text.removeprefix(f"{gates.FAILED}: ") for name, text in self.answers.items() if text.startswith(gates.FAILED)}


@dataclass(frozen=True)
class Status:
    """Everything `smartcache status` shows."""

    model: str
    registry: str
    registry_error: str
    champion: int | None
    versions: list[Judged]
    places: list[Place]
    pending: list[str]
    troubles: list[str] = field(default_factory=list)
    challenger: int | None = None
    tried: list[Tried] = field(default_factory=list)
    #: Champion and challenger by what came of their answers; None where there is nothing to compare, and ``comparison_note`` why.
    comparison: Comparison | None = None
    comparison_note: str = ""

    @property
    def all_serve_champion(self) -> bool:
        """Whether there is a champion, and each place serves it."""
        return self.champion is not None and bool(self.places) and all(place.right for place in self.places)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {"all_serve_champion": self.all_serve_champion, **asdict(self)}


def gather(registry: Registry, folders: Sequence[BundleDir], endpoints: Sequence[Endpoint], compare: Compare | None = None) -> Status:
    """Ask all; what does not answer is in what is returned, nothing is raised for it. ``compare`` is asked where a challenger is tried."""
    error, champion, challenger, versions = "", None, None, []
    try:
        champion, challenger = registry.champion(), registry.alias(CHALLENGER)
        versions = _versions(registry, champion, challenger)
    except RegistryError as caught:
        error = str(caught)
    name = registry.name_of(champion.number) if champion is not None else ""
    states = [folder.read_state() for folder in folders]
    told = {str(each.get("url")): each for state in states for each in _list(state, "endpoints") if isinstance(each, dict)}
    bundle = next((found for folder in folders if name and (found := folder.installed(name)) is not None), None)
    places = [_folder(folder, name) for folder in folders]
    if endpoints:
        with ThreadPoolExecutor(min(len(endpoints), _THREADS), "endpoint") as pool:
            places += pool.map(lambda endpoint: _endpoint(endpoint, name, bundle, told.get(endpoint.url, {})), endpoints)
    # Who is the champion already has nobody to be compared with.
    other = challenger if challenger is not None and (champion is None or challenger.number != champion.number) else None
    other_name = registry.name_of(other.number) if other is not None else ""
    tried = [_tried(folder, state, other_name) for folder, state in zip(folders, states, strict=True)]
    # Which version has the alias is not known while the registry is away.
    tried = [each for each in tried if each.version or (other_name and not error)]
    comparison, note = _compared(compare, tried, name)
    return Status(
        model=registry.model,
        registry=registry.uri,
        registry_error=error,
        champion=champion.number if champion is not None else None,
        versions=versions,
        places=places,
        pending=[*_pending(versions, places, champion.number if champion is not None else None), *_untried(tried, other_name)],
        troubles=sorted({str(text) for state in states for text in _list(state, "troubles")}),
        challenger=challenger.number if challenger is not None else None,
        tried=tried,
        comparison=comparison,
        comparison_note=note,
    )


def _tried(folder: BundleDir, state: dict[str, Any], name: str) -> Tried:
    beside = BundleDir(folder.folder / challengers.FOLDER, folder.model)
    version = beside.current() or ""
    told = state.get("challenger")
    told = told if isinstance(told, dict) else {}
    share, shadow = told.get("canary_share"), told.get("shadow")
    note = "" if not version or beside.installed(version) is not None else "the bundle is damaged"
    return Tried(
        where=str(folder.folder),
        version=version,
        since_us=beside.current_since_us() if version else None,
        canary_share=share if isinstance(share, float) else 0.0,
        shadow=shadow is True,
        right=version == name and not note,
        note=note,
    )


def _compared(compare: Compare | None, tried: Sequence[Tried], champion: str) -> tuple[Comparison | None, str]:
    """Of the versions that are tried, and of the champion."""
    names = sorted({each.version for each in tried if each.version}, key=_number)
    if compare is None or not names:
        return None, ""
    try:
        found = compare(names[-1])
    except CompareError as error:
        return None, str(error)
    shown = {champion, *names}
    return replace(
        found,
        rows=[row for row in found.rows if row.version in shown],
        agreements=[each for each in found.agreements if each.version in shown and each.shadow in shown],
    ), ""


def _number(name: str) -> int:
    """Of a version, by the name that it is served under; what is named otherwise comes before all versions."""
    digits = name.rpartition("_v")[2]
    return int(digits) if digits.isdecimal() else -1


def _untried(tried: Iterable[Tried], name: str) -> Iterator[str]:
    """What is in the way of a challenger, a line each."""
    for each in tried:
        if not each.right and (each.wanted or each.version):
            has = each.note or ("tries " + each.version if each.version else "tries none")
            yield f"{each.where}: {has}" + (f", the challenger is {name}" if name else ", there is no challenger")


def _folder(folder: BundleDir, name: str) -> Place:
    serves = folder.current() or ""
    notes = []
    whole = bool(serves) and folder.installed(serves) is not None
    if serves and not whole:
        notes.append("the bundle is damaged")
    if not folder.has_writer():
        notes.append("no `smartcache watch` runs here")
    since_us = folder.current_since_us() if serves else None
    return Place("bundles", str(folder.folder), serves, since_us, None, whole and serves == name, "; ".join(notes))


def _endpoint(endpoint: Endpoint, name: str, bundle: Bundle | None, told: dict[str, Any]) -> Place:
    serves, note, away = "", "", None
    try:
        models, default = endpoint.models(), endpoint.default()
        # A server without a default is asked by name alone.
        serves = default if default is not None else name if name in models else ""
        if name and name not in models:
            note = f"{name} is not there"
        elif serves == name and bundle is not None:
            endpoint.check_golden(bundle)
    except ServingError as error:
        note, away = str(error), told.get("away_since_us")
    since = told.get("since_us") if serves and told.get("serves") == serves else None
    since, away = (value if isinstance(value, int) else None for value in (since, away))
    return Place("endpoint", endpoint.url, serves, since, away, bool(name) and serves == name and not note, note)


def _versions(registry: Registry, champion: Version | None, challenger: Version | None) -> list[Judged]:
    """The champion, the challenger and what is newer than the champion, newest first."""
    roles: dict[int, list[str]] = {}
    for role, version in ((CHAMPION, champion), (CHALLENGER, challenger)):
        if version is not None:
            roles.setdefault(version.number, []).append(role)
    known = {version.number: version for version in (*registry.versions(LOOK_BACK), challenger, champion) if version is not None}
    oldest = champion.number if champion is not None else 0
    shown = (version for version in known.values() if version.number >= oldest or version.number in roles)
    return [
        _judged(version, registry.name_of(version.number), ", ".join(roles.get(version.number, [])))
        for version in sorted(shown, key=lambda version: version.number, reverse=True)
    ]


def _judged(version: Version, name: str, role: str) -> Judged:
    answers = {key.removeprefix(gates.TAG_GATE): text for key, text in sorted(version.tags.items()) if key.startswith(gates.TAG_GATE)}
    return Judged(version.number, name, role, version.created_us, version.tags.get(gates.TAG, ""), _figures(version), answers)


def _figures(version: Version) -> dict[str, float]:
    found = {}
    for key, text in sorted(version.tags.items()):
        if key.startswith(_FIGURE):
            try:
                found[key.removeprefix(_FIGURE)] = float(text)
            except ValueError:  # somebody's own tag
                continue
    return found


def _pending(versions: Iterable[Judged], places: Iterable[Place], champion: int | None) -> Iterable[str]:
    """What is under way or waits for somebody, a line each."""
    if champion is None:
        yield "there is no champion: `smartcache promote` makes one"
    else:
        for place in places:
            if not place.right:
                yield f"{place.where}: {place.note or 'serves ' + (place.serves or 'nothing')}"
    for version in versions:
        if version.failed and not version.gates.startswith(gates.FORCED):
            yield f"version {version.number} failed its gates: " + "; ".join(f"{name} {text}" for name, text in version.failed.items())
        elif version.number != champion and not version.gates:
            yield f"version {version.number} has met no gates yet: `smartcache promote {version.number}`"
        elif version.number != champion and version.role:
            yield f"version {version.number} ({version.role}) has passed its gates: `smartcache promote {version.number}`"


def _list(state: dict[str, Any], key: str) -> list[Any]:
    value = state.get(key)
    return value if isinstance(value, list) else []
