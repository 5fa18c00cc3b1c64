"""A version on its way to where it serves: by what it is known, what was fetched of it, and why it does not go on."""

from __future__ import annotations

from dataclasses import dataclass

from . import gates, replay
from .bundle import Bundle
from .gates import Gate
from .install import digest
from .registry import Version


class Refused(Exception):
    """The champion must not be live: its gates say no, or its name is taken by another model."""


class Stopped(Exception):
    """The watcher is asked to end while it does what takes long. No trouble, and nothing to be tried again."""


class Overtaken(Exception):
    """The alias was moved while the version that it named was judged; ``champion`` is what it names now."""

    def __init__(self, champion: Version | None) -> None:
        super().__init__("the alias champion was moved meanwhile")
        self.champion = champion


#: Of a version: number, run, and what its gates have said.
Key = tuple[int, str, str]


def key_of(version: Version) -> Key:
    """Of a version as its tags are."""
    return version.number, version.run_id, version.tags.get(gates.TAG, "")


def wanted(version: Version) -> tuple[int, str, str | None]:
    """Which version somebody wants to be live, and the reason for which its gates are overruled."""
    return version.number, version.run_id, gates.forced(version.tags)


def key_failed(version: Version) -> Key:
    """Of a version once it is noted that its gates have failed; what was forced stays forced."""
    return version.number, version.run_id, version.tags[gates.TAG] if gates.forced(version.tags) is not None else gates.FAILED


@dataclass(frozen=True)
class Fetched:
    """The champion's bundle under its name, judged; in a folder of its own, beside the bundles."""

    key: Key
    bundle: Bundle
    digest: str
    answers: list[Gate]
    #: What it was compared with in the replay, where there was one.
    against: str = replay.NOBODY

    def intact(self) -> bool:
        """Whether it is still what was judged; what cannot be read is not."""
        try:
            return digest(self.bundle.folder) == self.digest
        except OSError:
            return False


def require_same(bundle: Bundle, version: Version) -> None:
    """The bundle comes from the run of this version: numbers begin anew where a registry was made anew, and names are never used twice.

    Raises :class:`Refused`.
    """
    run_id = bundle.info.provenance.get("run_id")
    if run_id != version.run_id:
        raise Refused(
            f"{bundle.folder.name} is the model of run {run_id}, but version {version.number} of the registry is of run {version.run_id}; "
            f"if the registry was made anew, remove {bundle.folder} and delete that model at the endpoint"
        )
