"""Makes the model bundles that the endpoint's tests serve, with what Keras itself answers for them.

Run: python make_model.py OUT. Writes OUT/NAME/ (a bundle as the contract between the folders describes it) for each NAME below and
OUT/expected.json: {NAME: {"inputs": [[F]...], "outputs": [[B]...]}}, rows that are not the golden ones. The same seed gives the same rows.

reuse_v1, reuse_v2   softmax networks of the same shape with different weights: which of them answered can be told; the first has labels
fragile_v1           finite for its golden rows, NaN where its first feature is negative: valid input, non-finite output. Its graph does
                     not say how many outputs it has
picky_v1             an error where the first feature is not positive
blind_v1             picky, and its graph does not say how many outputs it has

And folders as stock TFaaS has them, of models that are one file, saved_model.pb, for want of variables; they answer the first feature, as
often as they have outputs:

Many                 40000 outputs
Wide, Tall           as many features, or outputs, as no machine has memory for
Failing              an error for each row
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

NAMES = [f"f{i}" for i in range(12)]
EDGES = [3600.0, 86400.0]


LABELS = ["within_3600s", "within_86400s", "later_or_never"]


def network(seed: int, fragile: bool) -> keras.Model:
    """A 12-32-16-3 network; a fragile one takes the logarithm of its first feature."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((len(NAMES),), name="inputs_input")
    x = keras.layers.Dense(32, activation="relu", bias_initializer="random_normal")(inputs)
    x = keras.layers.Dense(16, activation="relu", bias_initializer="random_normal")(x)
    x = keras.layers.Dense(len(EDGES) + 1, activation="softmax")(x)
    if fragile:
        x = x + 0.0 * keras.ops.log(inputs[:, :1])
    return keras.Model(inputs, x)


def rows(seed: int, count: int, fragile: bool) -> np.ndarray:
    """Feature rows; a fragile model's first feature is positive."""
    values = np.random.default_rng(seed).normal(size=(count, len(NAMES))).astype(np.float32)
    if fragile:
        values[:, 0] = np.abs(values[:, 0]) + 0.1
    return values


def write(out: Path, name: str, seed: int, fragile: bool) -> dict[str, list[list[float]]]:
    """One bundle, and rows with Keras's answers for the tests to compare with."""
    model = network(seed, fragile)
    labelled, picky, blind = name == "reuse_v1", name in ("picky_v1", "blind_v1"), name in ("fragile_v1", "blind_v1")

    def serve(inputs_input: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_positive(inputs_input[:, 0])] if picky else []):
            outputs = model(tf.identity(inputs_input), training=False)
        return tf.raw_ops.PlaceholderWithDefault(input=outputs, shape=[None, None]) if blind else outputs

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serving_default",
        serve,
        input_signature=[tf.TensorSpec([None, len(NAMES)], tf.float32, name="inputs_input")],
    )
    folder = out / name
    archive.write_out(str(folder), verbose=False)

    def answers(values: np.ndarray) -> dict[str, list[list[float]]]:
        return {"inputs": values.tolist(), "outputs": model(values, training=False).numpy().tolist()}

    def put(file: str, content: object) -> None:
        (folder / file).write_text(json.dumps(content))

    put(
        "params.json",
        {
            "name": name,
            "model": "saved_model.pb",
            "labels": "labels.txt" if labelled else "",
            "options": [],
            "description": "test model",
            "timestamp": "",
            "input_node": "serving_default_inputs_input",
            "output_node": "StatefulPartitionedCall:0",
        },
    )
    put(
        "bundle.json",
        {
            "format": 1,
            "name": name,
            "schema": {"version": 1, "names": NAMES, "hash": "0" * 16},
            "bucket_edges_s": EDGES,
            "horizon_s": EDGES[0],
            "horizon_buckets": 1,
            "thresholds": {"admit": 0.2, "evict": 0.05},
            "metrics": {},
            "provenance": {"seed": seed},
        },
    )
    if labelled:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    put("golden.json", answers(rows(seed, 8, fragile)))
    return answers(rows(seed + 1000, 256, fragile))


def write_plain(out: Path, name: str, features: int, outputs: int, failing: bool = False) -> None:
    """A folder of stock TFaaS."""

    def serve(inputs_input: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_positive(-1 - tf.abs(inputs_input))] if failing else []):
            return tf.tile(inputs_input[:, :1], tf.constant([1, outputs], tf.int64))

    module = tf.Module()
    signature = tf.function(serve).get_concrete_function(tf.TensorSpec([None, features], tf.float32, name="inputs_input"))
    tf.saved_model.save(module, str(out / name), signatures=signature)
    # Nothing is in them.
    for folder in ("variables", "assets"):
        shutil.rmtree(out / name / folder)
    (out / name / "fingerprint.pb").unlink()
    params = {"name": name, "model": "saved_model.pb", "labels": "", "input_node": "serving_default_inputs_input"}
    params["output_node"] = "StatefulPartitionedCall:0" if failing else "PartitionedCall:0"
    (out / name / "params.json").write_text(json.dumps(params))


def main() -> None:
    """All bundles into the folder named on the command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    expected = {
        name: write(out, name, seed, fragile)
        for name, seed, fragile in [
            ("reuse_v1", 1, False),
            ("reuse_v2", 2, False),
            ("fragile_v1", 3, True),
            ("picky_v1", 4, True),
            ("blind_v1", 5, True),
        ]
    }
    for name, features, outputs in [("Many", 12, 40000), ("Wide", 10**12, 3), ("Tall", 12, 10**12)]:
        write_plain(out, name, features, outputs)
    write_plain(out, "Failing", 12, 3, failing=True)
    (out / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
