"""The epochs of a training: one after the other, judged, and kept on disk so that they can go on.

The rows of an epoch come in an order that follows from seed and epoch alone, and Keras is called for one epoch at a time: what it keeps
between two of them is in its variables (weights, Adam's moments, dropout's generator), which :mod:`.state` saves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smartcache.config import Training

from . import model as network
from . import survival
from .dataset import Doubles, Floats, Split
from .judge import Judge
from .state import Kept, Progressed, State

#: Called after each epoch: epoch (from 1), of how many, train loss, validation loss, what the judge has measured.
Progress = Callable[[int, int, float, float, dict[str, float]], None]


class Stopped(Exception):
    """A training was asked to end before it was done; the text says how far it came."""


class Diverged(Exception):
    """The loss is not a number any more."""


@dataclass(frozen=True)
class Part:
    """A part of the window as Keras takes it: features, targets, what each row counts (1 on average)."""

    features: Floats
    target: Floats
    weight: Doubles

    @classmethod
    def of(cls, split: Split, weight: Doubles, settings: Training) -> Part:
        """``weight`` as :func:`.survival.temper` gives it."""
        return cls(split.features, survival.targets(split, settings.bucket_edges_s), weight / weight.mean())

    def loss(self, model: Any) -> float:
        """The mean loss of a model."""
        return survival.mean_loss(self.target, network.predict(model, self.features), self.weight)


def run(
    model: Any,
    train: Part,
    validate: Part,
    settings: Training,
    judge: Judge,
    *,
    state: State | None = None,
    judge_first: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Progressed:
    """Train ``model`` and leave it with the weights of its best epoch.

    ``state``: goes on from what is there, and keeps each epoch. ``judge_first``: the weights that it begins with are a candidate too.
    ``stop`` is asked after each batch. Raises :class:`Stopped`, :class:`Diverged`, and what judge and state raise.
    """
    variables = _variables(model)
    kept, said = state.load() if state is not None else (None, "")
    if said:
        say(said)
    if kept is not None and _fits(kept, variables, model):
        for variable, value in zip(variables, kept.variables, strict=True):
            variable.assign(value)
        at, best_weights = kept.progressed, kept.best_weights
    else:
        at, best_weights = Progressed(), model.get_weights()
        if judge_first:
            _judge(at, judge, model, 0, validate.loss(model))
    while at.epoch < settings.epochs and at.stale < settings.patience:
        began = time.monotonic()
        epoch = at.epoch + 1
        loss = _epoch(model, train, settings, epoch, stop)
        if not math.isfinite(loss):
            raise Diverged(loss)
        validation = validate.loss(model)
        figures: dict[str, float] = {}
        better = False
        if judge.due(epoch, epoch == settings.epochs):
            figures, better = _judge(at, judge, model, epoch, validation)
        if better:
            best_weights = model.get_weights()
        for name, measured in {"loss": loss, "val_loss": validation, **figures}.items():
            column = at.history.setdefault(name, [])
            column.extend([None] * (epoch - 1 - len(column)))
            column.append(measured)
        at.epoch = epoch
        at.seconds += time.monotonic() - began
        if state is not None:
            state.save(Kept(at, [np.asarray(variable) for variable in variables], best_weights))
        if progress is not None:
            progress(epoch, settings.epochs, loss, validation, figures)
    model.set_weights(best_weights)
    return at


def _judge(at: Progressed, judge: Judge, model: Any, epoch: int, validation: float) -> tuple[dict[str, float], bool]:
    """What the judge says of the model as it is, and whether it is the best so far."""
    figures = judge.figures(model)
    key = [*list(figures.values())[:1], validation]
    better = not at.best or key < at.best
    if better:
        at.best, at.best_epoch, at.best_figures, at.stale = key, epoch, figures, 0
    else:
        at.stale += 1
    return figures, better


def _epoch(model: Any, train: Part, settings: Training, epoch: int, stop: Callable[[], bool]) -> float:
    """Train for one epoch; its mean loss."""
    import keras

    def batch_end(batch: int, logs: object = None) -> None:
        if stop():
            raise Stopped(f"in epoch {epoch} of {settings.epochs}")

    order = np.random.default_rng([settings.seed, epoch]).permutation(len(train.features))
    fitted = model.fit(
        train.features[order],
        train.target[order],
        sample_weight=train.weight[order].astype(np.float32),
        epochs=1,
        batch_size=settings.batch,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=batch_end)],
    )
    return float(fitted.history["loss"][0])


def _variables(model: Any) -> list[Any]:
    """All that an epoch changes: weights, the generators of dropout, the optimizer."""
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def _fits(kept: Kept, variables: list[Any], model: Any) -> bool:
    shapes = [tuple(variable.shape) for variable in variables]
    weights = [weight.shape for weight in model.get_weights()]
    return [each.shape for each in kept.variables] == shapes and [each.shape for each in kept.best_weights] == weights
