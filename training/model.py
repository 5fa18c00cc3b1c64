"""The network: features in schema order to the distribution of the time to the next open.

    x [None, F] float32  ->  (x - mean) / scale  ->  dense relu … dense relu  ->  dense softmax  ->  p [None, B] float32

In training each hidden layer is followed by dropout: opens come in campaigns, so rows are far fewer in effect than in number, and without
it the network learns single datasets by heart. It is no part of what is exported.

Mean and scale are part of the graph, so that what is served takes features as the core computes them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .dataset import Floats
from .survival import FLOOR

INPUT: Final = "features"
OUTPUT: Final = "next_open"
#: The smallest spread that a feature is scaled by, in the feature's own unit.
LEAST_SCALE: Final = 0.1
#: A feature with a smaller spread than this stood still.
STILL: Final = 0.01
#: A feature that never moved is scaled by this: whatever it says later counts for nothing.
NEVER_MOVED: Final = 1e6
_CHUNK: Final = 65536


def quiet_tensorflow() -> None:
    """Keep TensorFlow's start-up notes off the terminal and pick the backend; call before the first import of it.

    Without oneDNN's kernels, which round otherwise from one processor to the next: networks this small gain nothing from them.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def deterministic(seed: int) -> None:
    """Seed Python, NumPy and TensorFlow, and have TensorFlow use deterministic kernels (for the rest of this process)."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()


def normalization(features: Floats) -> tuple[Floats, Floats]:
    """Mean and scale, [F] each, of the columns of [N, F]: (x - mean) / scale has mean 0 and standard deviation 1 at most.

    Features are logarithms, shares and points on a circle, all of order one. A column that hardly moved in the training set (the hour, in
    a window of minutes) says nothing there, and divided by its own tiny spread it would throw the network far off as soon as time goes on:
    the scale is :data:`LEAST_SCALE` at least, and 1 for a column that stood still. Of one that never moved at all (those of a side table
    that no open had) nothing is learnt, so the network's first, random weights for it must have no say once it does: :data:`NEVER_MOVED`.
    """
    mean = features.mean(axis=0, dtype=np.float64)
    spread = features.std(axis=0, dtype=np.float64)
    scale = np.where(spread < STILL, 1.0, np.maximum(spread, LEAST_SCALE))
    scale[(features == features[0]).all(axis=0)] = NEVER_MOVED
    return mean.astype(np.float32), scale.astype(np.float32)


def build(mean: Floats, scale: Floats, hidden: Sequence[int], outputs: int, *, learning_rate: float, dropout: float) -> Any:
    """A compiled ``keras.Model``; ``mean`` and ``scale`` as :func:`normalization` gives them, ``dropout`` the share of units left out."""
    import keras

    inputs = keras.Input((len(mean),), name=INPUT, dtype="float32")
    hidden_ = keras.layers.Normalization(mean=mean, variance=np.square(scale, dtype=np.float64).astype(np.float32), name="normalization")(
        inputs
    )
    for number, units in enumerate(hidden):
        hidden_ = keras.layers.Dense(units, activation="relu", name=f"hidden_{number}")(hidden_)
        hidden_ = keras.layers.Dropout(dropout, name=f"dropout_{number}")(hidden_)
    output = keras.layers.Dense(outputs, activation="softmax", name=OUTPUT)(hidden_)
    model = keras.Model(inputs, output, name="reuse")
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), loss=_loss)
    return model


def predict(model: Any, features: Floats) -> Floats:
    """[N, B] probabilities. Not by ``model.predict``: it compiles a graph anew for each model, and warns of that."""
    parts = [np.asarray(model(features[start : start + _CHUNK], training=False)) for start in range(0, len(features), _CHUNK)]
    return np.concatenate(parts).astype(np.float32)


def _loss(target: Any, probabilities: Any) -> Any:
    """:func:`.survival.row_losses` for Keras."""
    from keras import ops

    return -ops.log(ops.clip(ops.sum(target * probabilities, axis=-1), FLOOR, 1.0))
