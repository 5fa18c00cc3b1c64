"""One thing that the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["present", "missing", "too old", "other version"]
SET_UP = "run `make setup`"


@dataclass(frozen=True)
class Finding:
    """What it is, how it is, and what to do where it is not as it must be."""

    what: str
    state: State
    #: Its version, or what was looked for.
    detail: str
    #: What needs it.
    used_by: str
    mend: str = SET_UP
