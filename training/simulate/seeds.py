"""Runs of one policy with several seeds, as their mean and its 95 % interval.

The interval of a figure is mean +- t s / sqrt(n), with s the standard deviation over the n seeds and t Student's 97.5 % quantile of n - 1
degrees of freedom: where the policy's own chance is all that differs. It says nothing of other traces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from statistics import fmean, stdev
from typing import Any, Final

from .figures import Figures

#: Student's 97.5 % quantiles of 1 to 30 degrees of freedom, rounded up; of more than these, that of 30.
_QUANTILES: Final = (
    *(12.707, 4.303, 3.183, 2.777, 2.571, 2.447, 2.365, 2.307, 2.263, 2.229, 2.201, 2.179, 2.161, 2.145, 2.132),
    *(2.120, 2.110, 2.101, 2.094, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.049, 2.046, 2.043),
)


@dataclass(frozen=True)
class Mean:
    """A policy at one size of one trace: ``line`` has the means (of counts, rounded), ``half`` half the interval of each that has one."""

    line: Figures
    seeds: int
    half: dict[str, float]


def half_interval(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean; 0 for one value, and where one is no number."""
    if len(values) < 2 or not all(map(isfinite, values)):
        return 0.0
    quantile = _QUANTILES[min(len(values) - 1, len(_QUANTILES)) - 1]
    return float(quantile * stdev(values) / len(values) ** 0.5)


def means(lines: Sequence[Figures]) -> list[Mean]:
    """One for each trace, size and policy, in the order of their first runs."""
    cells: defaultdict[tuple[str, float | None, int, str], list[Figures]] = defaultdict(list)
    for line in lines:
        cells[line.trace, line.cache_fraction, line.capacity_bytes, line.policy].append(line)
    return [_mean(cell) for cell in cells.values()]


def _mean(lines: Sequence[Figures]) -> Mean:
    if len(lines) == 1:
        return Mean(lines[0], 1, {})
    changes: dict[str, Any] = {}
    half: dict[str, float] = {}
    for field in fields(Figures):
        values: list[Any] = [getattr(line, field.name) for line in lines]
        if field.name == "seed" or any(not isinstance(value, int | float) for value in values):
            continue
        if all(value == values[0] for value in values):  # their mean may differ from them in the last bit
            half[field.name] = 0.0
            continue
        mean = fmean(values)
        half[field.name] = half_interval(values)
        changes[field.name] = round(mean) if isinstance(values[0], int) else mean
    return Mean(replace(lines[0], **changes), len(lines), half)
