"""The model bundle (contract 5): a folder with everything that serving a model needs, and the rules it keeps.

``read`` is the one way in: what it returns is complete and consistent, so nobody else checks. The folder is never changed in place;
:func:`copy_named` makes the copy that is served under the name of its version.

The network in ``weights.json`` is evaluated as

    x_0 = (x - mean) / scale        x_{i+1} = activation_i(x_i · kernel_i + bias_i)

with ``kernel`` as [inputs][outputs]. The decision core reads and evaluates it (``smartcache._core.EmbeddedModel``), here as in the plugin:
what passes here is what a cache takes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from . import card

if TYPE_CHECKING:
    from smartcache._core import EmbeddedModel

Floats = npt.NDArray[np.float32]

INFO: Final = "bundle.json"
WEIGHTS: Final = "weights.json"
GOLDEN: Final = "golden.json"
PARAMS: Final = "params.json"
LABELS: Final = "labels.txt"
#: What a SavedModel is made of; ``assets/`` may be empty, and is then lost by stores that know files only.
SAVED_MODEL: Final = ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001")
#: The node names that the stock TFaaS server has compiled in.
INPUT_NODE: Final = "serving_default_inputs_input"
OUTPUT_NODE: Final = "StatefulPartitionedCall:0"
FORMAT: Final = 1


class BundleError(Exception):
    """A bundle that cannot be used; the text names file, rule, value and fix."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Schema(BaseModel):
    """The feature schema (contract 3)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: int
    names: Annotated[list[str], Field(min_length=1)]
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    text: str = ""


class Thresholds(_Part):
    """Admit where the score is at least ``admit``; evict where it is under ``evict``."""

    admit: Annotated[float, Field(ge=0, le=1)]
    evict: Annotated[float, Field(ge=0, le=1)]

    @model_validator(mode="after")
    def _ordered(self) -> Thresholds:
        if self.evict > self.admit:
            raise ValueError("evict must be at most admit: what was just worth storing is not evicted")
        return self


class Info(_Part):
    """``bundle.json``."""

    format: Literal[1] = FORMAT
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]*$")] = ""
    feature_schema: Annotated[Schema, Field(alias="schema")]
    bucket_edges_s: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    horizon_s: float
    horizon_buckets: int
    thresholds: Thresholds
    metrics: dict[str, float]
    provenance: dict[str, Any]

    @model_validator(mode="after")
    def _consistent(self) -> Info:
        if any(a >= b for a, b in zip(self.bucket_edges_s, self.bucket_edges_s[1:], strict=False)):
            raise ValueError("bucket_edges_s must rise strictly")
        if self.horizon_s not in self.bucket_edges_s:
            raise ValueError(f"horizon_s must be one of bucket_edges_s {self.bucket_edges_s}, not {self.horizon_s}")
        buckets = self.bucket_edges_s.index(self.horizon_s) + 1
        if self.horizon_buckets != buckets:
            raise ValueError(f"horizon_buckets must be {buckets}, the buckets up to horizon_s, not {self.horizon_buckets}")
        return self

    @property
    def inputs(self) -> int:
        """F."""
        return len(self.feature_schema.names)

    @property
    def outputs(self) -> int:
        """B."""
        return len(self.bucket_edges_s) + 1

    @property
    def labels(self) -> list[str]:
        """A name for each output, as TFaaS shows them."""
        return [f"within_{edge:g}s" for edge in self.bucket_edges_s] + ["later_or_never"]


@dataclass(frozen=True)
class Layer:
    """One dense layer: ``kernel`` [inputs, outputs], ``bias`` [outputs], ``activation`` relu or softmax."""

    kernel: Floats
    bias: Floats
    activation: str


@dataclass(frozen=True)
class Network:
    """``weights.json``, to be written."""

    mean: Floats
    scale: Floats
    layers: tuple[Layer, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that ``weights.json`` holds."""
        layers = [{"kernel": each.kernel.tolist(), "bias": each.bias.tolist(), "activation": each.activation} for each in self.layers]
        return {"layers": layers, "normalization": {"mean": self.mean.tolist(), "scale": self.scale.tolist()}}


@dataclass(frozen=True)
class Bundle:
    """A bundle in memory; its SavedModel stays on disk in ``folder``."""

    folder: Path
    info: Info
    embedded: EmbeddedModel
    golden_inputs: Floats
    golden_outputs: Floats

    def golden_difference(self) -> float:
        """The largest difference between the golden outputs and those of ``weights.json``."""
        return max_difference(self.embedded.predict(self.golden_inputs), self.golden_outputs)


def max_difference(a: Floats, b: Floats) -> float:
    """The largest absolute difference of two arrays; infinite where the shapes differ or a number is not finite."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.max(np.abs(a.astype(np.float64) - b), initial=0.0))


def read(folder: Path) -> Bundle:
    """Read and check the bundle in ``folder``. Raises :class:`BundleError`."""
    for name in SAVED_MODEL:
        if not (folder / name).is_file():
            raise BundleError(
                f"{folder / name}: is missing; a bundle is complete or useless, get it again from the registry or export it again"
            )
    info = read_info(folder)
    embedded = _embedded(folder, info)
    golden = _json(folder / GOLDEN)
    bundle = Bundle(
        folder,
        info,
        embedded,
        _array(folder / GOLDEN, "inputs", golden.get("inputs"), (None, info.inputs)),
        _array(folder / GOLDEN, "outputs", golden.get("outputs"), (None, info.outputs)),
    )
    rows = len(bundle.golden_inputs)
    if not rows or rows != len(bundle.golden_outputs):
        raise BundleError(
            f"{folder / GOLDEN}: must have as many outputs as inputs, at least one, not {len(bundle.golden_outputs)} and {rows}"
        )
    try:
        card.check(folder, info)
    except card.CardError as error:
        raise BundleError(f"{folder / card.FILE}: {error}; get the bundle again from the registry or export it again") from error
    params = _json(folder / PARAMS)
    for key, expected in params_json(info).items():
        if key != "timestamp" and params.get(key) != expected:
            raise BundleError(f"{folder / PARAMS}: {key} must be {expected!r}, as {INFO} has it, not {params.get(key)!r}; export it again")
    return bundle


def read_info(folder: Path) -> Info:
    """Read and check ``bundle.json`` alone. Raises :class:`BundleError`."""
    try:
        return Info.model_validate(_json(folder / INFO))
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise BundleError(f"{folder / INFO}: {field}: {problem['msg']} (is {problem['input']!r}); export it again") from error


def write_parts(folder: Path, info: Info, network: Network, inputs: Floats, outputs: Floats) -> None:
    """Write the JSON files of a bundle beside its SavedModel."""
    write_info(folder, info)
    _write_json(folder / WEIGHTS, network.to_json())
    _write_json(folder / GOLDEN, {"inputs": inputs.tolist(), "outputs": outputs.tolist()})


def read_network(folder: Path) -> Network:
    """The network in ``weights.json`` of a bundle that :func:`read` has taken."""
    content = _json(folder / WEIGHTS)
    layers = tuple(
        Layer(np.asarray(each["kernel"], np.float32), np.asarray(each["bias"], np.float32), str(each["activation"]))
        for each in content["layers"]
    )
    scaling = content["normalization"]
    return Network(np.asarray(scaling["mean"], np.float32), np.asarray(scaling["scale"], np.float32), layers)


def weights_digest(network: Network) -> str:
    """SHA-256 of a network: two have the same where each number is the same to the bit."""
    digest = hashlib.sha256()
    arrays = [network.mean, network.scale, *(array for layer in network.layers for array in (layer.kernel, layer.bias))]
    digest.update(json.dumps([[layer.activation for layer in network.layers], [list(array.shape) for array in arrays]]).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()


def write_info(folder: Path, info: Info) -> None:
    """Write ``bundle.json``, and what follows from it: ``params.json``, the labels and the model card."""
    _write_json(folder / INFO, info.model_dump(by_alias=True), indent=2)
    _write_json(folder / PARAMS, params_json(info), indent=2)
    (folder / LABELS).write_text("".join(f"{label}\n" for label in info.labels))
    (folder / card.FILE).write_text(card.render(info))


def params_json(info: Info) -> dict[str, Any]:
    """``params.json`` as TFaaS reads it."""
    return {
        "name": info.name,
        "model": "saved_model.pb",
        "labels": LABELS,
        "options": [],
        "input_node": INPUT_NODE,
        "output_node": OUTPUT_NODE,
        "description": f"smartcache, time to the next open, feature schema {info.feature_schema.hash}",
        "timestamp": str(info.provenance.get("created", "")),
    }


def copy_named(bundle: Bundle, folder: Path, name: str) -> Bundle:
    """Copy ``bundle`` to ``folder`` (which must not exist) under ``name``; returns the copy, checked."""
    shutil.copytree(bundle.folder, folder)
    (folder / "assets").mkdir(exist_ok=True)
    write_info(folder, bundle.info.model_copy(update={"name": name}))
    return read(folder)


def _embedded(folder: Path, info: Info) -> EmbeddedModel:
    try:
        from smartcache._core import EmbeddedModel
    except ImportError as error:
        raise BundleError(f"{folder / WEIGHTS}: the C++ core is not installed here ({error}); install smartcache's wheel") from error
    try:
        embedded = EmbeddedModel(str(folder))
    except ValueError as error:
        raise BundleError(f"{error}; export it again") from error
    if (embedded.inputs, embedded.outputs) != (info.inputs, info.outputs):
        raise BundleError(
            f"{folder / WEIGHTS}: must take {info.inputs} features and give {info.outputs} outputs, as {INFO} has it, "
            f"not {embedded.inputs} and {embedded.outputs}; export it again"
        )
    return embedded


def _array(path: Path, field: str, value: Any, shape: tuple[int | None, ...]) -> Floats:
    expected = "[" + ", ".join("N" if size is None else str(size) for size in shape) + "]"
    try:
        array = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{path}: {field} must be numbers of shape {expected} ({error}); export it again") from error
    if array.ndim != len(shape) or any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True)):
        raise BundleError(f"{path}: {field} must have shape {expected}, not {list(array.shape)}; export it again")
    if not np.isfinite(array).all():
        raise BundleError(f"{path}: {field} must be finite; train again, then export")
    return array


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be read ({error.strerror}); get the bundle again from the registry or export it again"
        ) from error
    except ValueError as error:
        raise BundleError(f"{path}: not JSON ({error}); get the bundle again from the registry or export it again") from error
    if not isinstance(content, dict):
        raise BundleError(f"{path}: must be a JSON object, not {type(content).__name__}; export it again")
    return content


def _write_json(path: Path, content: dict[str, Any], indent: int | None = None) -> None:
    path.write_text(json.dumps(content, indent=indent, allow_nan=False) + "\n")
