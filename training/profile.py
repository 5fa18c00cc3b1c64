"""A training set in a few numbers: the distribution of each feature and of the labels. An artifact of the run that it was for.

Of a feature: edges at the deciles of all rows (fewer where values repeat) and at their ends, and the share of the rows between them.
The first and the last bin are what none of them has, below and above. Of the labels: the base rates, which know what censoring is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from smartcache.config import Training

from . import survival
from .dataset import Doubles, Floats, Split, TrainingSet

FILE: Final = "profile.json"
_DECILES: Final = np.arange(0.1, 1.0, 0.1)


class ProfileError(Exception):
    """A profile that cannot be used; the text says why."""


class Profile(BaseModel):
    """``profile.json``. ``shares`` has one number more than ``edges``; a value that is an edge is in the bin below it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal[1] = 1
    schema_hash: str
    rows: int = Field(gt=0)
    names: list[str]
    edges: list[list[float]]
    shares: list[list[float]]
    bucket_edges_s: list[float]
    labels: list[float]

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        if not len(self.names) == len(self.edges) == len(self.shares):
            raise ValueError("names, edges and shares must be of one length")
        if any(len(edges) + 1 != len(shares) for edges, shares in zip(self.edges, self.shares, strict=True)):
            raise ValueError("each of shares must have one number more than its edges")
        if any(a >= b for edges in self.edges for a, b in pairwise(edges)):
            raise ValueError("edges must rise strictly")
        if len(self.labels) != len(self.bucket_edges_s) + 1:
            raise ValueError("labels must have one number more than bucket_edges_s")
        return self


def of(data: TrainingSet, settings: Training) -> Profile:
    """The profile of all rows."""
    rows = data.whole()
    edges = [edges_of(column) for column in rows.features.T]
    return Profile(
        schema_hash=str(data.schema["hash"]),
        rows=len(rows),
        names=data.names,
        edges=[each.tolist() for each in edges],
        shares=[shares(column, each).tolist() for column, each in zip(rows.features.T, edges, strict=True)],
        bucket_edges_s=settings.bucket_edges_s,
        labels=labels(rows, settings.bucket_edges_s),
    )


def read(content: Any) -> Profile:
    """A profile from what JSON holds. Raises :class:`ProfileError`."""
    try:
        return Profile.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        raise ProfileError(f"{FILE}: {'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}") from error


def edges_of(column: Floats) -> Doubles:
    """The inner edges of the bins of a feature, rising."""
    values = column.astype(np.float64)
    below = float(np.nextafter(column.min(), np.float32(-np.inf)))
    return np.unique([below, *np.quantile(values, _DECILES, method="lower"), values.max()])


def shares(column: Floats, edges: Sequence[float] | Doubles) -> Doubles:
    """The share of the values in each bin, [len(edges) + 1]."""
    bins = np.searchsorted(np.asarray(edges, np.float64), column.astype(np.float64), side="left")
    return np.bincount(bins, minlength=len(edges) + 1) / len(column)


def labels(rows: Split, edges_s: Sequence[float]) -> list[float]:
    """The share of the next opens in each bucket, rows weighed as in training."""
    return [float(share) for share in survival.base_rates(rows, survival.temper(rows.weight, rows.weight), edges_s)]
