"""One training: a training set becomes a model, its figures and its bundle. MLflow is :mod:`.record`'s.

**The admit threshold.** A byte that is stored for nothing costs ``price`` (disk writes, and what it pushes out), one that has to be fetched
again costs 1. With P the probability that the file is opened again while it would still be there (the score),

    expected cost of not storing a byte = P · 1          expected cost of storing it = (1 - P) · price

so storing is right where P >= (1 - P) · price, that is P >= price / (1 + price).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import smartcache
from smartcache.config import Config, ConfigError

from . import epochs, evaluate, survival
from . import model as network
from .dataset import Floats, Split, TrainingSet
from .epochs import Progress
from .judge import ByLoss, Judge
from .state import State
from .warm import WarmStart

#: Fewer rows than this in train or validate, or fewer of them uncensored than a tenth of it, are not trained on.
MIN_ROWS: Final = 100
MIN_UNCENSORED: Final = 10
#: Rows of the test part that are shipped with the model as its golden rows.
GOLDEN_ROWS: Final = 32


class TrainingError(Exception):
    """A training that cannot start or has failed; the text names thing, rule, value and fix."""


@dataclass(frozen=True)
class Trained:
    """What a training gives."""

    model: Any
    base_rates: Floats
    golden_inputs: Floats
    #: Of the test part, see :func:`.evaluate.evaluate`.
    metrics: dict[str, float]
    #: How the epoch was chosen whose weights these are, and its figures there; ``validation_epoch`` 0: what a warm start began with.
    chosen: dict[str, float]
    #: What the weights depend on besides data, configuration and seed.
    origin: dict[str, Any]
    epochs: int
    seconds: float
    history: dict[str, list[float | None]] = field(repr=False)


@dataclass(frozen=True)
class How:
    """What a training may be given besides data and configuration."""

    judge: Judge = field(default_factory=ByLoss)
    warm: WarmStart | None = None
    #: Where the state of each epoch is kept; None: nowhere.
    state: Path | None = None
    progress: Progress | None = None
    #: Told what a person should know.
    say: Callable[[str], None] = lambda _: None
    stop: Callable[[], bool] = lambda: False


def admit_threshold(price: float) -> float:
    """``price / (1 + price)``, see the module's text."""
    return price / (1.0 + price)


def train(data: TrainingSet, config: Config, how: How | None = None) -> Trained:
    """Train on the train part, choose the epoch by the validate part, judge by the test part.

    Raises :class:`TrainingError`, :class:`~.state.StateError`, :class:`~.judge.JudgeError`; :class:`~.epochs.Stopped` where it was stopped.
    """
    how = how or How()
    require_thresholds(config)
    require_rows(data)
    settings = config.training
    network.quiet_tensorflow()
    network.deterministic(settings.seed)

    seen, validate = data.known_for_training()
    require_labels("train", seen)
    require_labels("validate", validate)
    mean, scale = network.normalization(seen.features)
    weight = survival.temper(seen.weight, seen.weight)
    base = survival.base_rates(seen, weight, settings.bucket_edges_s)
    model = network.build(
        mean, scale, settings.hidden, len(settings.bucket_edges_s) + 1, learning_rate=settings.learning_rate, dropout=settings.dropout
    )
    if how.warm is not None:
        how.warm.apply(model, mean, scale)
    origin = {"judge": how.judge.origin, "warm_start": how.warm.origin if how.warm else None, "software": software()}
    state = None if how.state is None else State(how.state, identity(data, config, origin))
    parts = (
        epochs.Part.of(seen, weight, settings),
        epochs.Part.of(validate, survival.temper(validate.weight, seen.weight), settings),
    )
    try:
        with state.held() if state is not None else nullcontext():
            reached = epochs.run(
                model,
                *parts,
                settings,
                how.judge,
                state=state,
                judge_first=how.warm is not None,
                progress=how.progress,
                say=how.say,
                stop=how.stop,
            )
    except epochs.Diverged as error:
        raise TrainingError(f"the loss became {error}; lower [training] learning_rate, which is {settings.learning_rate:g}") from error

    probabilities = network.predict(model, data.test.features)
    if not np.isfinite(probabilities).all():
        raise TrainingError(
            f"the model's outputs for the test part are not finite; lower [training] learning_rate, which is {settings.learning_rate:g}"
        )
    metrics = evaluate.evaluate(
        data.test, survival.temper(data.test.weight, seen.weight), probabilities, base, settings.bucket_edges_s, settings.horizon_s
    )
    chosen = {"validation_epoch": float(reached.best_epoch), "validation_loss": reached.best[-1]}
    chosen |= {name.replace("val_", "validation_", 1): value for name, value in reached.best_figures.items()}
    return Trained(
        model=model,
        base_rates=base,
        golden_inputs=golden_rows(data.test, settings.seed),
        metrics=metrics,
        chosen=chosen,
        origin=origin,
        epochs=reached.epoch,
        seconds=reached.seconds,
        history=reached.history,
    )


def with_trees(trained: Trained, data: TrainingSet, config: Config) -> Trained:
    """With the figures of LightGBM on the same rows among the metrics. Raises :class:`ImportError` where it is not installed."""
    from . import trees

    settings = config.training
    seen, validate = data.known_for_training()
    found = trees.compare(seen, validate, data.test, trained.base_rates, settings.bucket_edges_s, settings.horizon_s, settings.seed)
    return replace(trained, metrics=trained.metrics | found)


def identity(data: TrainingSet, config: Config, origin: dict[str, Any]) -> dict[str, Any]:
    """All that the weights depend on, by name."""
    settings = {f"[training] {name}": value for name, value in config.training.model_dump().items()}
    return {"the data's SHA-256": data.sha256, "feature schema": data.schema["hash"], **settings, **origin}


def software() -> dict[str, str]:
    """Versions and machine, as far as rounding depends on them."""
    import keras
    import tensorflow

    versions = {"keras": keras.__version__, "tensorflow": tensorflow.__version__, "numpy": np.__version__}
    return {"smartcache": smartcache.__version__, "python": platform.python_version(), **versions, "processor": processor()}


def processor() -> str:
    """What computes here: its name, and how many cores of it there are."""
    name = platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores"


def require_thresholds(config: Config) -> None:
    """Raise ConfigError where the thresholds that the bundle will carry contradict each other."""
    admit, settings = admit_threshold(config.training.price_of_useless_byte), config.training
    if settings.evict_below > admit:
        raise ConfigError(
            f"[training] evict_below must be at most price_of_useless_byte / (1 + price_of_useless_byte) = {admit:g}, "
            f"the admit threshold, not {settings.evict_below:g}: lower it, or raise the price"
        )


def require_rows(data: TrainingSet) -> None:
    """Raise :class:`TrainingError` where a part has too few rows."""
    for name, part, least in (("train", data.train, MIN_ROWS), ("validate", data.validate, MIN_ROWS), ("test", data.test, 1)):
        if len(part) < least:
            raise TrainingError(
                f"{data.folder}: the {name} part must have at least {least} rows, it has {len(part)} (of {data.manifest['rows']} in all); "
                "collect for longer, or change the shares in [training_set]"
            )


def require_labels(name: str, part: Split) -> None:
    """Raise :class:`TrainingError` where too few rows of a part were opened again."""
    if part.uncensored < MIN_UNCENSORED:
        raise TrainingError(
            f"the {name} part must have at least {MIN_UNCENSORED} opens that were followed by another of the same file within the part, "
            f"it has {part.uncensored}; collect for longer"
        )


def golden_rows(split: Split, seed: int) -> Floats:
    """Rows that every implementation of the model is compared on: up to GOLDEN_ROWS of ``split``, and one of zeros."""
    generator = np.random.default_rng(seed)
    chosen = generator.choice(len(split), size=min(GOLDEN_ROWS, len(split)), replace=False)
    zeros = np.zeros((1, split.features.shape[1]), dtype=np.float32)
    return np.concatenate([split.features[np.sort(chosen)], zeros])
