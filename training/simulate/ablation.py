"""What each kind of feature is worth: ``learned-trees`` without it, and with it alone.

The kinds are the core's (``xcache-plugin/policies/reuse_features.hh``). A name says what is left out:
``learned-trees:without=fronts,dataset``, ``learned-trees:only=fronts``. With ``:alone`` behind it the cache that keeps what the model says
is judged, as if nothing else were followed; else the portfolio that follows it as far as it earns it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from .policies import LEARNED, UnknownPolicy
from .seeds import Mean, half_interval

WITHOUT, ONLY, ALONE = "without", "only", "alone"
#: What the title of the table and of the plot say.
TITLE: Final = "What each kind of feature closes of the gap"


@dataclass(frozen=True)
class Choice:
    """What a name stands for: the kinds that are left out, of which ``named`` were said, and how."""

    left_out: tuple[str, ...] = ()
    how: str = ""
    named: tuple[str, ...] = ()
    alone: bool = False


def kinds() -> list[str]:
    """All kinds of features, in the order of the features."""
    from smartcache import _core

    return list(dict.fromkeys(_core.reuse_feature_kinds()))


def parse(name: str) -> Choice:
    """The choice that this name says; :class:`~.policies.UnknownPolicy` where it says none."""
    options = name.split(":")[1:]
    alone = options[-1:] == [ALONE]
    options = options[:-1] if alone else options
    if not options:
        return Choice(alone=alone)
    how, equals, listed = options[0].partition("=")
    named = tuple(dict.fromkeys(listed.split(",")))
    known = kinds()
    if len(options) > 1 or how not in (WITHOUT, ONLY) or not equals:
        raise UnknownPolicy(
            f"unknown policy {name!r}: behind {LEARNED} may stand :{WITHOUT}=KINDS or :{ONLY}=KINDS, then :{ALONE}; "
            f"kinds of features, separated by commas, are {', '.join(known)}"
        )
    for kind in named:
        if kind not in known:
            near = difflib.get_close_matches(kind, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UnknownPolicy(f"unknown policy {name!r}: there is no kind of features {kind!r}; {hint}")
    left_out = named if how == WITHOUT else tuple(kind for kind in known if kind not in named)
    return Choice(left_out, how, named, alone)


def names() -> list[str]:
    """Of all that is needed to say what each kind is worth, all in all and by the model's cache alone."""
    asked = [LEARNED, *(f"{LEARNED}:{how}={kind}" for how in (WITHOUT, ONLY) for kind in kinds())]
    return [*asked, *(f"{name}:{ALONE}" for name in asked)]


@dataclass(frozen=True)
class Worth:
    """Of a kind: the share of the gap that is closed without it and with it alone, means over the same cells, beside that with all kinds.

    ``lost``: what is lost without it, with half of its 95 % interval over the cells. None where that was not simulated.
    """

    kind: str
    alone: bool
    cells: int
    all_kinds: float
    without: float | None
    only: float | None
    lost: float | None
    lost_half: float


def worths(means: Iterable[Mean]) -> list[Worth]:
    """What the runs among ``means`` say of each kind; none where none of them leaves a kind out."""
    gaps: dict[str, dict[tuple[str, int], float]] = {}
    for mean in means:
        line = mean.line
        if line.policy.partition(":")[0] == LEARNED and line.gap_closed is not None:
            gaps.setdefault(line.policy, {})[line.trace, line.capacity_bytes] = line.gap_closed
    found = []
    for alone in (False, True):
        end = f":{ALONE}" if alone else ""
        whole = gaps.get(LEARNED + end, {})
        for kind in kinds():
            without, only = (gaps.get(f"{LEARNED}:{how}={kind}{end}", {}) for how in (WITHOUT, ONLY))
            cells = [cell for cell in whole if (not without or cell in without) and (not only or cell in only)]
            if not cells or not (without or only):
                continue
            lost = [whole[cell] - without[cell] for cell in cells] if without else None
            found.append(
                Worth(
                    kind,
                    alone,
                    len(cells),
                    fmean(whole[cell] for cell in cells),
                    _mean(without, cells),
                    _mean(only, cells),
                    fmean(lost) if lost else None,
                    half_interval(lost) if lost else 0.0,
                )
            )
    return sorted(found, key=lambda worth: (worth.alone, -(worth.lost if worth.lost is not None else float("-inf"))))


def is_variant(name: str) -> bool:
    """Whether this is the learned policy other than as it is used."""
    return name.startswith(f"{LEARNED}:")


def _mean(gaps: dict[tuple[str, int], float], cells: Sequence[tuple[str, int]]) -> float | None:
    return fmean(gaps[cell] for cell in cells) if gaps else None
