"""A network of the reference's size, as initialised, as a bundle: for benchmarks, where its answers are not judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import config
from ..inference import bundle as bundles
from ..inference import export
from ..preprocessing.core import core_schema, core_toml
from ..training import model as network


def exported(folder: Path) -> bundles.Bundle:
    """The bundle, without a name, in ``folder``."""
    settings = config.load()
    schema = core_schema(core_toml(settings))
    training = settings.training
    network.quiet_tensorflow()
    network.deterministic(training.seed)
    width = len(schema["names"])
    built = network.build(
        np.zeros(width, np.float32),
        np.ones(width, np.float32),
        training.hidden,
        len(training.bucket_edges_s) + 1,
        learning_rate=training.learning_rate,
        dropout=training.dropout,
    )
    info = bundles.Info.model_validate(
        {
            "schema": schema,
            "bucket_edges_s": training.bucket_edges_s,
            "horizon_s": training.horizon_s,
            "horizon_buckets": training.bucket_edges_s.index(training.horizon_s) + 1,
            "thresholds": {"admit": 0.0, "evict": 0.0},
            "metrics": {},
            "provenance": {},
        }
    )
    rows = np.random.default_rng(training.seed).standard_normal((32, width)).astype(np.float32)
    return export.export(built, folder, info, rows, settings.gates.max_output_difference)
