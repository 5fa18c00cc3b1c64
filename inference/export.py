"""A Keras model becomes a bundle (contract 5), or is refused.

The SavedModel has exactly the node names that an unmodified TFaaS server has compiled in; what Keras says, what the written SavedModel says
once loaded again, and what the decision core makes of ``weights.json`` must agree, or nothing is left on disk.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from . import bundle as bundles
from .bundle import Bundle, Floats, Info, Layer, Network, max_difference

_ARGUMENT: Final = "inputs_input"


class ExportError(Exception):
    """A model that must not be served; the text names rule, value and fix."""


def export(model: Any, folder: Path, info: Info, inputs: Floats, tolerance: float) -> Bundle:
    """Write ``model`` (a ``keras.Model`` of Normalization, Dense and Dropout layers) as a bundle to ``folder``, which must not exist.

    ``inputs`` [N, F] become the golden rows. Raises :class:`ExportError` where the outputs differ by more than ``tolerance`` anywhere; then
    there is no folder.
    """
    if folder.exists():
        raise ExportError(f"{folder}: exists already; bundles are never written over, name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        outputs = np.asarray(model(inputs, training=False), dtype=np.float32)
        write_saved_model(model, work)
        bundles.write_parts(work, info, network_of(model), inputs, outputs)
        difference = check_parity(work, outputs, tolerance)
        bundles.write_info(work, info.model_copy(update={"metrics": info.metrics | {"max_output_difference": difference}}))
        work.chmod(0o755)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return bundles.read(folder)


def check_parity(folder: Path, outputs: Floats, tolerance: float) -> float:
    """The largest difference between any two of Keras' ``outputs`` for the golden rows, the SavedModel on disk, and ``weights.json``.

    Raises :class:`ExportError` where it is over ``tolerance``.
    """
    bundle = bundles.read(folder)
    saved_model = saved_model_outputs(folder, bundle.golden_inputs)
    embedded = bundle.embedded.predict(bundle.golden_inputs)
    worst = 0.0
    for what, ours, other, theirs in (
        ("golden.json", bundle.golden_outputs, "Keras", outputs),
        ("the SavedModel", saved_model, "Keras", outputs),
        ("weights.json", embedded, "Keras", outputs),
        ("weights.json", embedded, "the SavedModel", saved_model),
    ):
        difference = max_difference(ours, theirs)
        if not difference <= tolerance:
            raise ExportError(
                f"{what} must give what {other} gives to [gates] max_output_difference {tolerance:g}, but differs by {difference:g}; "
                "train again: features may be so large that float32 ends there"
            )
        worst = max(worst, difference)
    return worst


def write_saved_model(model: Any, folder: Path) -> None:
    """Write the SavedModel to the existing ``folder``; raises :class:`ExportError` where TFaaS would not find its nodes."""
    import keras
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    archive.track(model)

    def serve(inputs_input: Any) -> Any:
        return model(inputs_input, training=False)

    signature = tf.TensorSpec([None, int(model.input_shape[-1])], tf.float32, name=_ARGUMENT)
    archive.add_endpoint(name="serving_default", fn=serve, input_signature=[signature])
    archive.write_out(str(folder), verbose=False)
    (folder / "assets").mkdir(exist_ok=True)
    nodes = _nodes(folder)
    if nodes != (f"{bundles.INPUT_NODE}:0", bundles.OUTPUT_NODE):
        raise ExportError(f"the SavedModel's nodes must be {bundles.INPUT_NODE}:0 and {bundles.OUTPUT_NODE}, as TFaaS expects, not {nodes}")


def saved_model_outputs(folder: Path, inputs: Floats) -> Floats:
    """What the SavedModel on disk answers through its serving signature, [N, B]."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    answer = loaded.signatures["serving_default"](**{_ARGUMENT: tf.constant(inputs)})
    (output,) = answer.values()
    return np.asarray(output.numpy(), dtype=np.float32)


def network_of(model: Any) -> Network:
    """The weights of a Keras model of one Normalization and then Dense layers, with or without Dropout between them."""
    import keras

    layers: list[Layer] = []
    mean = scale = None
    for layer in model.layers:
        if isinstance(layer, keras.layers.InputLayer | keras.layers.Dropout):
            continue  # neither computes anything when a model answers
        if isinstance(layer, keras.layers.Normalization) and not layers and mean is None:
            mean = np.asarray(layer.mean, dtype=np.float32).reshape(-1)
            scale = np.sqrt(np.asarray(layer.variance, dtype=np.float32)).reshape(-1)
        elif isinstance(layer, keras.layers.Dense):
            kernel, bias = (np.asarray(each, dtype=np.float32) for each in layer.get_weights())
            layers.append(Layer(kernel, bias, str(layer.activation.__name__)))
        else:
            raise ExportError(
                f"layer {layer.name} must be Dense or Dropout, or Normalization in the first place, not {type(layer).__name__}"
            )
    if mean is None or scale is None:
        raise ExportError("the first layer must be Normalization, so that what is served takes features as the core computes them")
    return Network(mean, scale, tuple(layers))


def _nodes(folder: Path) -> tuple[str, str]:
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((folder / "saved_model.pb").read_bytes())
    signature = message.meta_graphs[0].signature_def["serving_default"]
    return signature.inputs[_ARGUMENT].name, next(iter(signature.outputs.values())).name
