"""All kinds of workload by name: what they are, their parameters as a table, their accesses."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from . import campaigns, chaotic, production, site, sparse
from .datasets import Access, Events, from_the_start
from .parameters import Parameters, WrongParameter, rows

_Make = Callable[[Any, int], tuple[list[Events], float]]
_KINDS: Final[dict[str, tuple[type[Parameters], _Make]]] = {
    kind.kind: (kind, make)
    for kind, make in (
        (campaigns.Campaigns, campaigns.events),
        (chaotic.Chaotic, chaotic.events),
        (production.Production, production.events),
        (sparse.Sparse, sparse.events),
        (site.Site, site.events),
    )
}


def names() -> list[str]:
    """Of all kinds."""
    return list(_KINDS)


def of(name: str) -> type[Parameters]:
    """The parameters of a kind; :class:`~.parameters.WrongParameter` where there is none of this name."""
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KINDS)}"
        raise WrongParameter(f"there is no kind of workload {name!r}; {hint}")
    return _KINDS[name][0]


def parameters(name: str, given: Mapping[str, str]) -> Parameters:
    """A kind's parameters, those in ``given`` from texts. Raises :class:`~.parameters.WrongParameter`."""
    return of(name).of(given)


def accesses(parameters: Parameters, seed: int) -> Iterator[Access]:
    """The accesses of a workload in the order of time, drawn as they are asked for; the same seed gives the same ones."""
    _, make = _KINDS[parameters.kind]
    streams, lead_s = make(parameters, seed)
    return from_the_start(streams, lead_s, parameters.days)


def markdown() -> str:
    """All kinds and their parameters, for the documentation."""
    parts = []
    for kind, _ in _KINDS.values():
        lines = [
            f"## {kind.kind}",
            kind.about[0].upper() + kind.about[1:] + ".",
            "",
            "| parameter | default | is | from |",
            "|---|---|---|---|",
        ]
        lines += [f"| `{row.name}` | {row.default:g} | {row.meaning} | {row.source} |" for row in rows(kind)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
