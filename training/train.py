"""One training: a training set becomes a model, its figures and its bundle. MLflow is :mod:`.record`'s.

**The admit threshold.** A byte that is stored for nothing costs ``price`` (disk writes, and what it pushes out), one that has to be fetched
again costs 1. With P the probability that the file is opened again while it would still be there (the score),

    expected cost of not storing a byte = P · 1          expected cost of storing it = (1 - P) · price

so storing is right where P >= (1 - P) · price, that is P >= price / (1 + price).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from smartcache.config import Config, ConfigError

from . import evaluate, survival
from . import model as network
from .dataset import Doubles, Floats, Split, TrainingSet

#: Epochs without a better validation loss after which training stops, back at the best one.
PATIENCE: Final = 5
#: Fewer rows than this in train or validate, or fewer of them uncensored than a tenth of it, are not trained on.
MIN_ROWS: Final = 100
MIN_UNCENSORED: Final = 10
#: Rows of the test part that are shipped with the model as its golden rows.
GOLDEN_ROWS: Final = 32

#: Called after each epoch: epoch (from 1), of how many, train loss, validation loss.
Progress = Callable[[int, int, float, float], None]


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
    epochs: int
    seconds: float
    history: dict[str, list[float]] = field(repr=False)


def admit_threshold(price: float) -> float:
    """``price / (1 + price)``, see the module's text."""
    return price / (1.0 + price)


def train(data: TrainingSet, config: Config, progress: Progress | None = None) -> Trained:
    """Train on the train part, stop by the validate part, judge by the test part. Raises :class:`TrainingError`."""
    started = time.monotonic()
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
    model = network.build(mean, scale, settings.hidden, len(settings.bucket_edges_s) + 1, settings.learning_rate)
    history = _fit(model, seen, weight, validate, survival.temper(validate.weight, seen.weight), config, progress)

    probabilities = network.predict(model, data.test.features)
    if not np.isfinite(probabilities).all():
        raise TrainingError(
            f"the model's outputs for the test part are not finite; lower [training] learning_rate, which is {settings.learning_rate:g}"
        )
    metrics = evaluate.evaluate(
        data.test, survival.temper(data.test.weight, seen.weight), probabilities, base, settings.bucket_edges_s, settings.horizon_s
    )
    return Trained(model, base, golden_rows(data.test, settings.seed), metrics, len(history["loss"]), time.monotonic() - started, history)


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


def _fit(
    model: Any, train: Split, train_weight: Doubles, validate: Split, validate_weight: Doubles, config: Config, progress: Progress | None
) -> dict[str, list[float]]:
    import keras

    settings = config.training
    callbacks: list[Any] = [
        keras.callbacks.EarlyStopping("val_loss", patience=PATIENCE, restore_best_weights=True),
        keras.callbacks.TerminateOnNaN(),
    ]
    if progress is not None:
        report = progress

        def epoch_end(epoch: int, logs: dict[str, float]) -> None:
            report(epoch + 1, settings.epochs, logs["loss"], logs["val_loss"])

        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=epoch_end))
    fitted = model.fit(
        train.features,
        survival.targets(train, settings.bucket_edges_s),
        sample_weight=(train_weight / train_weight.mean()).astype(np.float32),
        validation_data=(
            validate.features,
            survival.targets(validate, settings.bucket_edges_s),
            (validate_weight / validate_weight.mean()).astype(np.float32),
        ),
        epochs=settings.epochs,
        batch_size=settings.batch,
        shuffle=True,
        verbose=0,
        callbacks=callbacks,
    )
    history = {name: [float(value) for value in values] for name, values in fitted.history.items()}
    if not all(math.isfinite(value) for value in history["loss"]):
        raise TrainingError(f"the loss became {history['loss'][-1]}; lower [training] learning_rate, which is {settings.learning_rate:g}")
    return history
