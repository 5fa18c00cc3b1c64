"""Drift: how much the opens of a training set differ from those that the champion was trained on, and whether it still knows what comes.

Of each feature, and of the time to the next open, the population stability index between then (p) and now (q),

    PSI = sum over bins of (q - p) · ln(q / p)           shares under 0.0001 count as that

which is 0 for the same distribution and has no upper bound: 0.1 is a moderate, 0.25 a large change by common rule (Siddiqi, "Credit Risk
Scorecards", 2006). Calibration: what the champion expects of the new opens, bucket by bucket, against what came (base rates, which know
censoring), on those after what it was trained on where there are enough.

Both are whole training sets: each begins with an empty history, so their first opens are alike in that.

A warning is no error: the site changed, and that is what retraining is for. Nothing here keeps a model from being registered.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from smartcache.config import Config
from smartcache.inference import bundle as bundles
from smartcache.inference import replay
from smartcache.inference.bundle import Bundle
from smartcache.inference.registry import Registry

from . import profile, survival
from .dataset import Split, TrainingSet
from .profile import Profile

#: A share under this counts as this.
LEAST_SHARE: Final = 1e-4
#: Fewer opens after what the champion was trained on say nothing of calibration; then all of the training set do.
MIN_ROWS: Final = 500


@dataclass(frozen=True)
class Distribution:
    """One feature, or the labels, then and now. ``then`` and ``now`` are shares by bin; ``edges`` between them."""

    name: str
    psi: float
    edges: list[float]
    then: list[float]
    now: list[float]


@dataclass(frozen=True)
class Calibration:
    """What the champion expects and what came, by bucket; ``only_new``: on opens after what it was trained on."""

    edges: list[float]
    expected: list[float]
    came: list[float]
    rows: int
    only_new: bool

    @property
    def worst(self) -> float:
        """The largest difference of the two."""
        return max(abs(a - b) for a, b in zip(self.expected, self.came, strict=True))


@dataclass(frozen=True)
class Drift:
    """What there is to say of a training set beside a champion. Parts are None or empty where ``notes`` say why."""

    champion: str
    dataset_sha256: str
    features: list[Distribution]
    labels: Distribution | None
    calibration: Calibration | None
    notes: list[str]
    warnings: list[str]

    @property
    def metrics(self) -> dict[str, float]:
        """For MLflow."""
        found = {}
        if self.features:
            found["drift_feature_psi_most"] = max(each.psi for each in self.features)
        if self.labels is not None:
            found["drift_label_psi"] = self.labels.psi
        if self.calibration is not None:
            found["drift_calibration_worst"] = self.calibration.worst
        return found

    @property
    def verdict(self) -> str:
        """In a line."""
        return f"warning: {'; '.join(self.warnings)}" if self.warnings else "within the thresholds"


def of_champion(data: TrainingSet, config: Config, registry: Registry) -> Drift | None:
    """The drift since the champion's training; None where there is no champion. Raises RegistryError and BundleError."""
    version = registry.champion()
    if version is None:
        return None
    with tempfile.TemporaryDirectory(prefix="smartcache-drift-") as scratch:
        bundle = bundles.read(registry.download_bundle(version, Path(scratch)))
        text = registry.text_of_run(version.run_id, profile.FILE, Path(scratch))
        return compare(registry.name_of(version.number), bundle, text, data, config)


def compare(name: str, champion: Bundle, profile_text: str | None, data: TrainingSet, config: Config) -> Drift:
    """The drift of ``data`` beside ``champion``, whose ``profile.json`` is given; None: it has none."""
    notes: list[str] = []
    features: list[Distribution] = []
    labels: Distribution | None = None
    rows = data.whole()
    then = _profile(profile_text, notes)
    if then is not None and then.schema_hash != data.schema["hash"]:
        notes.append(f"features are not compared: the champion has schema {then.schema_hash}, the training set {data.schema['hash']}")
    elif then is not None:
        for index, each in enumerate(then.names):
            now = profile.shares(rows.features[:, index], then.edges[index])
            features.append(_distribution(each, then.edges[index], then.shares[index], now.tolist()))
        features.sort(key=lambda each: -each.psi)
    if then is not None:
        labels = _distribution("time to the next open", then.bucket_edges_s, then.labels, profile.labels(rows, then.bucket_edges_s))
    calibration = None
    if champion.info.feature_schema.hash == data.schema["hash"]:
        calibration = _calibration(champion, rows)
    else:
        notes.append("the champion's calibration is not known: it has other features")
    return Drift(
        champion=name,
        dataset_sha256=data.sha256,
        features=features,
        labels=labels,
        calibration=calibration,
        notes=notes,
        warnings=_warnings(features, labels, calibration, config),
    )


def psi(then: Sequence[float], now: Sequence[float]) -> float:
    """The population stability index of two lists of shares."""
    p, q = (np.maximum(np.asarray(shares, np.float64), LEAST_SHARE) for shares in (then, now))
    return float(np.sum((q - p) * np.log(q / p)))


def _distribution(name: str, edges: list[float], then: list[float], now: list[float]) -> Distribution:
    return Distribution(name, psi(then, now), edges, then, now)


def _profile(text: str | None, notes: list[str]) -> Profile | None:
    if text is None:
        notes.append(f"distributions are not compared: the champion's run has no {profile.FILE}, an earlier release made it")
        return None
    try:
        return profile.read(json.loads(text))
    except (ValueError, profile.ProfileError) as error:
        notes.append(f"distributions are not compared: the champion's {error}")
        return None


def _calibration(champion: Bundle, rows: Split) -> Calibration:
    until_us = replay.trained_until_us(champion)
    later = rows.t_us >= until_us if until_us is not None else np.zeros(len(rows), np.bool_)
    only_new = int(later.sum()) >= MIN_ROWS
    used = _take(rows, later) if only_new else rows
    weight = survival.temper(used.weight, used.weight)
    expected = np.average(champion.embedded.predict(used.features), axis=0, weights=weight)
    came = survival.base_rates(used, weight, champion.info.bucket_edges_s)
    return Calibration(
        edges=champion.info.bucket_edges_s,
        expected=[float(each) for each in expected],
        came=[float(each) for each in came],
        rows=len(used),
        only_new=only_new,
    )


def _warnings(features: list[Distribution], labels: Distribution | None, calibration: Calibration | None, config: Config) -> list[str]:
    most = config.drift
    found = [
        f"feature {each.name}: PSI {each.psi:.3g}, more than {most.feature_psi:g}" for each in features if not each.psi <= most.feature_psi
    ]
    if labels is not None and not labels.psi <= most.label_psi:
        found.append(f"{labels.name}: PSI {labels.psi:.3g}, more than {most.label_psi:g}")
    if calibration is not None and not calibration.worst <= most.calibration:
        found.append(f"calibration: {calibration.worst:.3g} off in a bucket, more than {most.calibration:g}")
    return found


def _take(rows: Split, chosen: Any) -> Split:
    return Split(**{name: getattr(rows, name)[chosen] for name in Split.__dataclass_fields__})
