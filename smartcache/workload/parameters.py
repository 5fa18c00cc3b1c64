"""Parameters of workloads: each with its meaning, its bounds and where its value is from.

A kind's parameters are a frozen dataclass whose fields are made by :func:`parameter`. What no publication states is said to be assumed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, Self

INFN: Final = "D. Ciangottini et al., Integration of the Italian cache federation within the CMS computing model, ISGC 2019 (PoS ISGC2019)"
LMU: Final = "N. Hartmann et al., XCache for grid computing and analysis, IDT-UM collaboration meeting 2022, LMU Munich"
ATLAS: Final = "R. W. Gardner et al., Caching Servers for ATLAS, J. Phys. Conf. Ser. 898 (2017) 062017"
FREIBURG: Final = "Disk caching at Freiburg's HEP and HPC clusters, Comput. Softw. Big Sci. 2023, doi 10.1007/s41781-023-00100-1"
EOS: Final = "counts of reads a file at CERN EOS, data of devashishp/cheops-cern-trace-data (CC0)"
MWT2: Final = "accesses at ATLAS MWT2, 3.35 million opens in 30 days"
ASSUMED: Final = "assumed"


class WrongParameter(ValueError):
    """A parameter that is not there, or a value that it cannot have; the text says which, and the rule."""


def parameter(default: float, meaning: str, source: str, low: float, high: float) -> Any:
    """A field of a kind's parameters: an integer where the default is one. ``low`` and ``high`` may both be had."""
    return field(default=default, metadata={"meaning": meaning, "source": source, "low": low, "high": high})


@dataclass(frozen=True)
class Row:
    """A parameter as a table has it."""

    name: str
    default: float
    meaning: str
    source: str
    low: float
    high: float


@dataclass(frozen=True)
class Parameters:
    """What all kinds have. Raises :class:`WrongParameter` where a value is out of its bounds."""

    #: The name of the kind, and what it is in a sentence.
    kind: ClassVar[str] = ""
    about: ClassVar[str] = ""

    days: float = parameter(30.0, "length of the trace, days", f"{INFN}, section 2: accesses are looked at over a month", 0.01, 3660.0)
    opens_per_day: float = parameter(
        5000.0, "mean opens a day, all together", f"{MWT2}, scaled by 1/22 to what is simulated in seconds", 1.0, 1e8
    )

    def __post_init__(self) -> None:
        for row in rows(type(self)):
            value = getattr(self, row.name)
            if not row.low <= value <= row.high:
                raise WrongParameter(f"{self.kind}: {row.name} must be {row.low:g} to {row.high:g}, not {value:g} ({row.meaning})")

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """With texts for some of them."""
        known = {row.name: row for row in rows(cls)}
        values: dict[str, float] = {}
        for name, text in given.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=2)
                hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
                raise WrongParameter(f"{cls.kind} has no parameter {name!r}; {hint}")
            kind = type(known[name].default)
            try:
                values[name] = kind(text)
            except ValueError:
                raise WrongParameter(
                    f"{cls.kind}: {name} must be {'an integer' if kind is int else 'a number'}, not {text[:40]!r} ({known[name].meaning})"
                ) from None
        return cls(**values)


def rows(kind: type[Parameters]) -> list[Row]:
    """The parameters of a kind, in order."""
    found = []
    for each in fields(kind):
        assert each.default is not MISSING
        about = each.metadata
        found.append(Row(each.name, each.default, about["meaning"], about["source"], about["low"], about["high"]))
    return found
