"""A training leaves its record: the bundle on disk, and in MLflow the run, the model and the registered version.

What a version carries, so that it can be judged and made again: the revision of the code, the window and SHA-256 of the data, the hash of
the feature schema, the seed and the command.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import smartcache
from smartcache.config import Config
from smartcache.inference import bundle as bundles
from smartcache.inference import card, export
from smartcache.inference.registry import CHALLENGER, Registry, RegistryError, quiet_mlflow, translated

from . import drift_page, profile
from . import model as network
from .dataset import MANIFEST, TrainingSet
from .drift import Drift
from .train import Trained, admit_threshold

#: The prefix of all tags that smartcache writes.
TAG: Final = "smartcache."
BUNDLE: Final = "bundle"
#: The folder of the drift report among the artifacts.
DRIFT: Final = "drift"
#: What MLflow keeps of a tag, at least.
_TAG_LENGTH: Final = 1000


@dataclass(frozen=True)
class Recorded:
    """Where the record of a training is: ``version`` is None where none was registered, ``folder`` where none was asked for."""

    run_id: str | None
    version: int | None
    folder: Path | None


def provenance(data: TrainingSet, config: Config, trained: Trained, run_id: str | None = None) -> dict[str, Any]:
    """What it takes to make this model again, and to see that it is the same."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "smartcache": smartcache.__version__,
        "git_revision": git_revision(),
        "dataset_sha256": data.sha256,
        "window": data.manifest.get("window"),
        "split_at_us": data.manifest.get("split_at_us"),
        "rows": data.manifest["rows"],
        "opens": {"trained": len(data.train), "stopped": len(data.validate), "judged": len(data.test)},
        "seed": config.training.seed,
        "configuration": config.training.model_dump(),
        **trained.origin,
        "weights_sha256": bundles.weights_digest(export.network_of(trained.model)),
        "command": shlex.join(sys.argv),
        "run_id": run_id,
    }


def bundle_info(data: TrainingSet, config: Config, metrics: dict[str, float], origin: dict[str, Any]) -> bundles.Info:
    """``bundle.json`` of a training, without a name yet."""
    settings = config.training
    return bundles.Info.model_validate(
        {
            "schema": data.schema,
            "bucket_edges_s": settings.bucket_edges_s,
            "horizon_s": settings.horizon_s,
            "horizon_buckets": settings.bucket_edges_s.index(settings.horizon_s) + 1,
            "thresholds": {"admit": admit_threshold(settings.price_of_useless_byte), "evict": settings.evict_below},
            "metrics": metrics,
            "provenance": origin,
        }
    )


def record(
    data: TrainingSet, config: Config, trained: Trained, *, register: bool, output: Path | None, drift: Drift | None = None
) -> Recorded:
    """Write the bundle to ``output`` (if given) and the run, model and version to MLflow (if ``register``), there with ``drift`` too.

    Raises :class:`~smartcache.inference.registry.RegistryError` and :class:`~smartcache.inference.export.ExportError`.
    """
    tolerance = config.gates.max_output_difference
    if not register:
        if output is not None:
            info = bundle_info(data, config, trained.metrics | trained.chosen, provenance(data, config, trained))
            export.export(trained.model, output, info, trained.golden_inputs, tolerance)
        return Recorded(None, None, output)
    with tempfile.TemporaryDirectory(prefix="smartcache-train-") as scratch, _run(config) as run_id:
        folder = output if output is not None else Path(scratch) / BUNDLE
        info = bundle_info(data, config, trained.metrics | trained.chosen, provenance(data, config, trained, run_id))
        bundle = export.export(trained.model, folder, info, trained.golden_inputs, tolerance)
        version = _log(data, config, trained, bundle, run_id, drift)
    return Recorded(run_id, version, output)


def git_revision() -> str:
    """The commit that the code is at, with ``+`` where it was changed since; empty outside a checkout."""
    git = ["git", "-C", str(Path(smartcache.__file__).resolve().parent)]
    try:
        revision = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True, timeout=10).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("SMARTCACHE_REVISION", "")
    return revision + ("+" if changed else "")


@contextmanager
def _run(config: Config) -> Iterator[str]:
    """An MLflow run, ended as FAILED where the body raises; yields its id."""
    quiet_mlflow()
    # The server's absence is found before anything is written.
    Registry(config.mlflow.tracking_uri, config.mlflow.model).require_server()
    import mlflow

    with translated(config.mlflow.tracking_uri):
        mlflow.set_tracking_uri(config.mlflow.tracking_uri)
        mlflow.set_experiment(config.mlflow.experiment)
        run = mlflow.start_run()
    status = "FAILED"
    try:
        yield str(run.info.run_id)
        status = "FINISHED"
    finally:
        mlflow.end_run(status)


def _log(data: TrainingSet, config: Config, trained: Trained, bundle: bundles.Bundle, run_id: str, drift: Drift | None) -> int:
    import mlflow

    uri, info = config.mlflow.tracking_uri, bundle.info
    tags = {f"{TAG}{name}": json.dumps(value) if isinstance(value, dict | list) else str(value) for name, value in info.provenance.items()}
    tags[f"{TAG}schema_hash"] = info.feature_schema.hash
    registry = Registry(uri, config.mlflow.model)
    with translated(uri):
        settings = config.training.model_dump()
        mlflow.log_params(settings | {"dataset": str(data.folder), "features": info.inputs, "epochs_run": trained.epochs})
        figures = {name if name in trained.chosen else f"test_{name}": value for name, value in info.metrics.items()}
        mlflow.log_metrics(figures | {"train_seconds": trained.seconds})
        for epoch in range(trained.epochs):
            measured = {name: column[epoch] for name, column in trained.history.items() if epoch < len(column)}
            mlflow.log_metrics({name: value for name, value in measured.items() if value is not None}, step=epoch + 1)
        mlflow.set_tags(tags)
        mlflow.log_artifact(str(data.folder / MANIFEST))
        mlflow.log_text(profile.of(data, config.training).model_dump_json(), profile.FILE)
        if drift is not None:
            tags |= _log_drift(drift, config, run_id)
        mlflow.log_artifacts(str(bundle.folder), artifact_path=BUNDLE)
        number = _log_model(trained, config.mlflow.model)
    registry.tag(number, tags | {f"{TAG}test_{name}": f"{info.metrics[name]:.6g}" for name in ("loss", "skill", "rows_uncensored")})
    registry.describe(number, card.description(info))
    registry.move(CHALLENGER, number)
    return number


def _log_drift(drift: Drift, config: Config, run_id: str) -> dict[str, str]:
    """The report and its figures; the tags that it gives the version too."""
    import mlflow

    origin = {"champion": drift.champion, "training set, SHA-256": drift.dataset_sha256, "MLflow run": run_id}
    mlflow.log_text(drift_page.render(drift, config, origin), f"{DRIFT}/index.html")
    mlflow.log_text(json.dumps(asdict(drift), indent=1), f"{DRIFT}/drift.json")
    mlflow.log_metrics(drift.metrics)
    tags = {f"{TAG}drift": drift.verdict[:_TAG_LENGTH], f"{TAG}drift_since": drift.champion}
    mlflow.set_tags(tags)
    return tags


def _log_model(trained: Trained, name: str) -> int:
    """Log the Keras model with signature and input example, register it, return the version's number."""
    import keras
    import mlflow
    import mlflow.tensorflow
    from mlflow.models import infer_signature

    # Uncompiled: the loss is not part of what is used later, and would have to be importable wherever the model is loaded.
    bare = keras.Model(trained.model.input, trained.model.output, name="reuse")
    example = trained.golden_inputs[:5]
    signature = infer_signature(example, network.predict(bare, example))
    with warnings.catch_warnings(), quiet_logger("mlflow"):
        warnings.simplefilter("ignore")
        logged = mlflow.tensorflow.log_model(
            bare,
            name="model",
            signature=signature,
            input_example=example,
            registered_model_name=name,
            pip_requirements=[f"{package}=={_installed(package)}" for package in ("keras", "tensorflow-cpu", "numpy")],
        )
    if logged.registered_model_version is None:
        raise RegistryError(f"MLflow registered no version of {name}; look at the run in its user interface")
    return int(logged.registered_model_version)


@contextmanager
def quiet_logger(name: str) -> Iterator[None]:
    """Let only errors of a logger through for a while: MLflow's notes on pip and progress say nothing to our user."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _installed(package: str) -> str:
    from importlib.metadata import version

    return version(package)
