"""What a training has reached, on disk after each epoch, so that one that was killed goes on when the same command is given again.

One file, ``state.npz``, replaced by a rename: weights, optimizer and dropout's generator as they are, the best weights so far, and what was
measured. The order of the rows of an epoch follows from seed and epoch alone (:mod:`.epochs`), so what is resumed ends with the same
weights, to the bit, as what was not disturbed, on the same machine and with the same versions.

It counts only for the same training: data, seed, configuration, what judges, what it began with, and versions must be those of the state.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from smartcache import lock

from .dataset import Floats

FILE: Final = "state.npz"
_LOCK: Final = ".lock"
_META: Final = "meta"


class StateError(Exception):
    """The state of a training cannot be kept; the text names the folder, the reason and the way out."""


@dataclass
class Progressed:
    """How far a training is. ``best_*`` of the epoch whose weights are kept; 0: those it began with."""

    epoch: int = 0
    seconds: float = 0.0
    #: Judged epochs in a row that were no better.
    stale: int = 0
    best_epoch: int = 0
    #: The figure that is minimised, and the loss of the validate part.
    best: list[float] = field(default_factory=list)
    best_figures: dict[str, float] = field(default_factory=dict)
    #: By name a value for each epoch; None where it was not measured.
    history: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What is in a state: how far, ``variables`` of model and optimizer, the best weights."""

    progressed: Progressed
    variables: list[Floats]
    best_weights: list[Floats]


class State:
    """The state of one training in ``folder``. One process at a time, held by a lock file."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self._identity = {name: json.loads(json.dumps(value)) for name, value in identity.items()}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one training there. Raises :class:`StateError` where another is, or the folder cannot be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            taken = lock.take(self.folder / _LOCK)
        except OSError as error:
            raise StateError(f"{self.folder}: cannot be written ({error.strerror}); name another --output, or move the data set") from error
        except lock.Held as error:
            raise StateError(
                f"{self.folder}: another training (process {error.owner}) is at work on the same; wait for it, or name another --output"
            ) from error
        try:
            yield
        finally:
            os.close(taken)

    def load(self) -> tuple[Kept | None, str]:
        """What is there for this training, and a line for a person; None where it begins anew."""
        path = self.folder / FILE
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as content:
                meta = json.loads(bytes(content[_META]).decode())
                arrays = [content[f"a{number}"] for number in range(len(content.files) - 1)]
            differences = [
                f"{name} was {_short(meta['identity'].get(name))}, is {_short(value)}"
                for name, value in self._identity.items()
                if meta["identity"].get(name) != value
            ]
            if differences:
                return None, f"what an earlier training has left is of another one ({'; '.join(differences)}): beginning anew"
            kept = Kept(Progressed(**meta["progressed"]), arrays[: meta["variables"]], arrays[meta["variables"] :])
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            return None, f"{path}: cannot be read ({str(error) or type(error).__name__}): beginning anew"
        return kept, f"going on after epoch {kept.progressed.epoch}, as {path} has it"

    def save(self, kept: Kept) -> None:
        """Replace what is there. Raises :class:`StateError`."""
        meta = {"identity": self._identity, "progressed": asdict(kept.progressed), "variables": len(kept.variables)}
        arrays = {f"a{number}": array for number, array in enumerate([*kept.variables, *kept.best_weights])}
        content = io.BytesIO()
        np.savez(content, **{_META: np.frombuffer(json.dumps(meta).encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
        draft = self.folder / f"{FILE}.tmp"
        try:
            with draft.open("wb") as file:
                file.write(content.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.folder / FILE)
        except OSError as error:
            raise StateError(f"{draft}: cannot be written ({error.strerror}); make room, the same command goes on") from error

    def drop(self) -> None:
        """The training is done and recorded."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}…"
