"""A warm start: a training begins with the weights of an earlier model, of the same features, buckets and layers.

Mean and scale are the new training set's. So that the network is the same function at its beginning, the first layer takes them in:
with x the features, (x - m_old) / s_old = (x - m_new) / s_new · a + b, where a = s_new / s_old and b = (m_new - m_old) / s_old, so

    kernel_new = diag(a) · kernel_old        bias_new = bias_old + b · kernel_old
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smartcache.config import Config
from smartcache.inference import bundle as bundles
from smartcache.inference.bundle import Bundle, Layer, Network
from smartcache.inference.registry import CHAMPION, Registry

from .dataset import Floats, TrainingSet


@dataclass(frozen=True)
class WarmStart:
    """What is begun with: where it is from, and the network."""

    origin: dict[str, Any]
    network: Network

    def apply(self, model: Any, mean: Floats, scale: Floats) -> None:
        """Give ``model``, whose features are normalised by ``mean`` and ``scale``, the function of this network."""
        first, *others = self.network.layers
        old = self.network.scale.astype(np.float64)
        kernel = first.kernel.astype(np.float64)
        shift = (mean.astype(np.float64) - self.network.mean) / old
        moved = Layer((kernel * (scale / old)[:, None]).astype(np.float32), (first.bias + shift @ kernel).astype(np.float32), "")
        dense = [layer for layer in model.layers if type(layer).__name__ == "Dense"]
        for layer, begin in zip(dense, [moved, *others], strict=True):
            layer.set_weights([begin.kernel, begin.bias])


def find(name: str, data: TrainingSet, config: Config, say: Callable[[str], None]) -> WarmStart | None:
    """The warm start from :data:`CHAMPION` or from a bundle's folder; None, with the reason said, where there can be none.

    Raises :class:`~smartcache.inference.registry.RegistryError` and :class:`~smartcache.inference.bundle.BundleError`.
    """
    with tempfile.TemporaryDirectory(prefix="smartcache-warm-") as scratch:
        folder, what = Path(name), f"the bundle {name}"
        if name == CHAMPION:
            registry = Registry(config.mlflow.tracking_uri, config.mlflow.model)
            version = registry.champion()
            if version is None:
                say(f"no warm start: {registry.model} has no champion yet")
                return None
            folder, what = registry.download_bundle(version, Path(scratch)), f"the champion {registry.name_of(version.number)}"
        found = of_bundle(bundles.read(folder), data, config)
    if isinstance(found, str):
        say(f"no warm start from {what}: {found}")
        return None
    say(f"warm start from {what}")
    return found


def of_bundle(bundle: Bundle, data: TrainingSet, config: Config) -> WarmStart | str:
    """The warm start that ``bundle`` makes possible, or why it does not."""
    info, settings = bundle.info, config.training
    network = bundles.read_network(bundle.folder)
    widths = [layer.kernel.shape[1] for layer in network.layers]
    for what, theirs, ours in (
        ("features, by the hash of their schema,", info.feature_schema.hash, data.schema["hash"]),
        ("bucket_edges_s", info.bucket_edges_s, settings.bucket_edges_s),
        ("layers", widths, [*settings.hidden, len(settings.bucket_edges_s) + 1]),
    ):
        if theirs != ours:
            return f"its {what} are {theirs}, here they are {ours}"
    return WarmStart({"run_id": info.provenance.get("run_id"), "weights_sha256": bundles.weights_digest(network)}, network)
