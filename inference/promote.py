"""Promotion: the alias ``champion`` moves to a version that passed its gates; roll-back moves it back.

The gates, in their order: what the bundle alone says; the replay of the latest opens; at the endpoints that can be reached from here, the
golden rows and how long they take for it, for which the version is installed there and serves nobody; where none can be reached, TensorFlow
evaluates the SavedModel here. ``smartcache watch`` asks the first and the last again, wherever it makes a version live.

Moving the alias is the whole deed: ``smartcache watch`` makes the champion live. What was champion before is remembered as a tag of the
version that followed it, written first, so that there is always a way back.
"""

from __future__ import annotations

import importlib.util
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from smartcache.config import Config

from . import bundle as bundles
from . import gate_report, gates, latency, lineage, replay, rollout
from .bundle import Bundle, BundleError
from .gates import Gate
from .registry import CHAMPION, BundleGone, Registry, RegistryAbsent, RegistryError, Version
from .rollout import Fleet
from .serving import EndpointAway

#: So often the champion may be moved by others while a version is judged.
_TIMES = 5


@dataclass(frozen=True)
class Promotion:
    """What a promotion found and did. ``moved`` is False where a gate failed, on a dry run, and where the version was the champion
    already. ``notes``: what was not measured, and why.
    """

    version: Version
    gates: list[Gate]
    previous: int | None
    moved: bool
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all gates passed."""
        return gates.all_passed(self.gates)


@dataclass
class _Judged:
    """What the gates say; what was not measured; and what the version was compared with in the replay."""

    answers: list[Gate]
    notes: list[str] = field(default_factory=list)
    against: str = replay.NOBODY


def promote(
    registry: Registry,
    config: Config,
    schema_hash: str,
    number: int | None = None,
    *,
    fleet: Fleet | None = None,
    dry_run: bool = False,
    force: str | None = None,
    progress: replay.Progress = lambda *_: None,
) -> Promotion:
    """Ask the gates about version ``number`` (None: the newest) and move the alias if all pass, or if ``force`` gives a reason.

    On a dry run nothing is written, at no endpoint either. A bundle that cannot be read is not promoted even by force: there is nothing to
    serve. Raises :class:`~.registry.RegistryError` and :class:`~.gates.GateError`.
    """
    version = registry.newest() if number is None else registry.get(number)
    champion = registry.champion()
    for _ in range(_TIMES):
        previous = champion if champion is not None and champion.number != version.number else None
        was = previous.number if previous is not None else None
        judged = _judge(registry, config, schema_hash, version, previous, None if dry_run else fleet, force, progress)
        answers, notes = judged.answers, judged.notes
        if dry_run:
            return Promotion(version, answers, was, moved=False)
        passed = gates.all_passed(answers)
        forced = force if not passed and answers[0].passed else None
        try:
            gate_report.keep(registry, version, gate_report.PROMOTE, answers, forced, judged.against)
        except RegistryAbsent:
            raise
        except RegistryError as error:
            if passed or forced:
                raise
            notes.append(f"what the gates said is not noted with it: {error}")  # its run is gone, say
        compared, champion = champion, registry.champion()
        if _number(champion) == _number(compared):
            break
        progress(0, 0, f"version {_number(champion)} has become the champion meanwhile: judged against that one")
    else:
        raise RegistryError(
            f"MLflow at {registry.uri}: the champion of {registry.model} was moved {_TIMES} times while version {version.number} was "
            "judged; find out who else promotes, and try again"
        )
    if (not passed and not forced) or (champion is not None and previous is None):
        return Promotion(version, answers, was, moved=False, notes=notes)
    if was is not None:
        registry.tag(version.number, lineage.way_back(was))
    registry.move(CHAMPION, version.number)
    return Promotion(version, answers, was, moved=True, notes=notes)


def _judge(
    registry: Registry,
    config: Config,
    schema_hash: str,
    version: Version,
    previous: Version | None,
    fleet: Fleet | None,
    force: str | None,
    progress: replay.Progress,
) -> _Judged:
    """What the gates say of ``version``, compared with ``previous``. ``fleet`` None: no endpoint is asked."""
    with tempfile.TemporaryDirectory(prefix="smartcache-promote-", ignore_cleanup_errors=True) as scratch:
        try:
            folder = registry.download_bundle(version, _made(Path(scratch) / "candidate"))
        except BundleGone as error:
            return _Judged([gates.no_bundle(str(error))])
        judged = _Judged(answers := gates.check_folder(folder, config.gates, schema_hash))
        readable = answers[0].passed
        if readable and (gates.all_passed(answers) or force):
            candidate = bundles.read(folder)
            champion = _champion(registry, previous, Path(scratch), force) if config.gates.replay_days else ""
            if previous is not None and isinstance(champion, Bundle):
                judged.against = replay.known_as(previous.number, previous.run_id)
            answers += replay.check(config, candidate, champion, progress)
        if readable and (gates.all_passed(answers) or force) and fleet is not None:
            named = bundles.copy_named(candidate, Path(scratch) / registry.name_of(version.number), registry.name_of(version.number))
            tried, note = _try_out(fleet, named, config)
            answers += tried
            judged.notes += note
    return judged


def _number(version: Version | None) -> int | None:
    return version.number if version is not None else None


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _champion(registry: Registry, champion: Version | None, scratch: Path, force: str | None) -> Bundle | str:
    """The champion's bundle, or why there is none to compare with; empty where there is no champion, or it is the candidate itself.

    Raises :class:`~.registry.RegistryAbsent`, unless ``force``: it may be compared with once the registry is back.
    """
    if champion is None:
        return ""
    try:
        return bundles.read(registry.download_bundle(champion, _made(scratch / "champion")))
    except RegistryAbsent as error:
        text = f"version {champion.number} is the champion, and is to be compared with, but {error}"
        if not force:
            raise RegistryAbsent(f"{text}; or go on without by `--force REASON`") from error
        return text
    except (RegistryError, BundleError) as error:
        return f"version {champion.number} is the champion, but {error}"


def _try_out(fleet: Fleet, named: Bundle, config: Config) -> tuple[list[Gate], list[str]]:
    """Install it at each endpoint that can be asked from here, and time it. Where it fails it is deleted there again."""
    name, limit = named.info.name, config.gates.max_output_difference
    found, errors = fleet.try_out(named, config.gates)
    refused = {url: error for url, error in errors.items() if not isinstance(error, EndpointAway) and error.status not in (401, 403)}
    notes = [
        f"latency: not measured at {url}, `smartcache watch` measures it there before it serves: {error}"
        for url, error in errors.items()
        if url not in refused
    ]
    said = "; ".join(str(error) for error in refused.values())
    answers = [rollout.gate(said, False, limit)] if refused else fleet.answered(name, limit)
    if not answers:
        answers, note = _evaluated_here(named, limit, "no endpoint can be asked from here" if fleet.members else "there is no endpoint")
        notes += note
    if found:
        answers.append(latency.gate(found, config.gates))
    if not gates.all_passed(answers):
        fleet.withdraw(name)
    return answers, notes


def _evaluated_here(named: Bundle, limit: float, why: str) -> tuple[list[Gate], list[str]]:
    """No endpoint has answered for the SavedModel: TensorFlow does, where it is installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return [], [
            f"saved_model: not evaluated, as {why} and TensorFlow is not installed (smartcache[train]); "
            "`smartcache watch` compares it before an endpoint serves it"
        ]
    return [gates.saved_model(named, limit)], []


def rollback(registry: Registry) -> tuple[Version, Version]:
    """Move the alias back to what served before; returns what was and what now is. Asks no gate and no endpoint.

    Raises :class:`~.registry.RegistryError`.
    """
    champion = registry.champion()
    if champion is None:
        raise RegistryError(f"MLflow at {registry.uri}: {registry.model} has no champion to roll back from; `smartcache promote` makes one")
    previous = lineage.served_before(registry, champion)
    if previous is None:
        raise RegistryError(
            f"MLflow at {registry.uri}: {registry.model} version {champion.number} is the first champion, there is none to roll back to; "
            "name a version with `smartcache promote VERSION`"
        )
    registry.move(CHAMPION, previous.number)
    return champion, previous
