"""A training made again from what its MLflow run says of it, and compared to the bit: ``smartcache reproduce``.

The run's bundle knows the revision of the code, the SHA-256 of the data, the configuration, the seed, what judged the epochs, what it began
with, and the versions. The same on the same machine gives the same weights; what differs is named, one by one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from smartcache.config import Config, Training
from smartcache.inference import bundle as bundles
from smartcache.inference import export
from smartcache.inference.bundle import Bundle
from smartcache.inference.registry import Registry

from . import judge, record, warm
from . import model as network
from .dataset import TrainingSet
from .train import How, Trained, software

#: What a run must know of itself.
_NEEDED: Final = ("git_revision", "dataset_sha256", "configuration", "judge", "software", "weights_sha256")


class NotReproducible(Exception):
    """A run that cannot be made again; the text says why and the way out."""


@dataclass(frozen=True)
class Original:
    """What a run left."""

    run_id: str
    bundle: Bundle
    #: Where the training set was then.
    dataset: str

    @property
    def provenance(self) -> dict[str, Any]:
        """See :func:`.record.provenance`."""
        return self.bundle.info.provenance

    def configuration(self, config: Config) -> Config:
        """``config`` with the run's own ``[training]``. Raises :class:`NotReproducible`."""
        try:
            settings = Training.model_validate(self.provenance["configuration"])
        except ValidationError as error:
            problem = error.errors()[0]
            field = ".".join(str(part) for part in problem["loc"])
            raise NotReproducible(
                f"run {self.run_id}: its [training] {field} is none of this release ({problem['msg']}); "
                f"check out revision {self.provenance['git_revision']}"
            ) from error
        return config.model_copy(update={"training": settings})


def original(registry: Registry, run_id: str, folder: Path) -> Original:
    """What run ``run_id`` left, its bundle downloaded into ``folder``. Raises :class:`NotReproducible`, RegistryError and BundleError."""
    found = Original(run_id, bundles.read(registry.download_bundle_of_run(run_id, folder)), registry.parameters(run_id).get("dataset", ""))
    missing = [name for name in _NEEDED if name not in found.provenance]
    if missing:
        raise NotReproducible(f"run {run_id}: its bundle does not know {', '.join(missing)}: it was made by an earlier release; train anew")
    return found


def how(made: Original, data: TrainingSet, config: Config, registry: Registry, replay: str | None, say: Callable[[str], None]) -> How:
    """What the training was given besides data and configuration; ``replay``: where its opens are now, where not as then."""
    by: judge.Judge = judge.ByLoss()
    then = made.provenance["judge"]
    if then["by"] == "replay":
        info = record.bundle_info(data, config, {}, {})
        by = judge.by_replay(data, config, info, replay or then["source"], then["cache_bytes"])
    begin, wanted = None, made.provenance.get("warm_start")
    if wanted is not None:
        if not wanted.get("run_id"):
            raise NotReproducible(f"run {made.run_id}: began with a bundle that is of no run, weights {wanted['weights_sha256'][:16]}…")
        with tempfile.TemporaryDirectory(prefix="smartcache-warm-") as scratch:
            found = warm.of_bundle(bundles.read(registry.download_bundle_of_run(wanted["run_id"], Path(scratch))), data, config)
        if isinstance(found, str):
            raise NotReproducible(f"run {made.run_id}: began with run {wanted['run_id']}, and {found}")
        begin = found
    return How(judge=by, warm=begin, say=say)


def differences(made: Original, data: TrainingSet, given: How) -> Iterator[str]:
    """What is not as it was, a line each."""
    then = made.provenance
    network.quiet_tensorflow()
    here: dict[str, Any] = {
        "git_revision": record.git_revision(),
        "dataset_sha256": data.sha256,
        "schema_hash": data.schema["hash"],
        **{f"software.{name}": value for name, value in software().items()},
        **{f"judge.{name}": value for name, value in given.judge.origin.items()},
        **{f"warm_start.{name}": value for name, value in (given.warm.origin if given.warm else {}).items()},
    }
    there = {"git_revision": then["git_revision"], "dataset_sha256": then["dataset_sha256"]}
    there["schema_hash"] = made.bundle.info.feature_schema.hash
    for part in ("software", "judge", "warm_start"):
        there |= {f"{part}.{name}": value for name, value in (then.get(part) or {}).items()}
    for name in sorted(here.keys() | there.keys()):
        if name != "judge.source" and here.get(name) != there.get(name):
            yield f"{name}: {there.get(name)} in the run, {here.get(name)} here"
    if str(then["git_revision"]).endswith("+"):
        yield "git_revision: the run was made of files that had been changed since that commit"


def settings_differ(made: Original, config: Config) -> Iterator[str]:
    """Where this configuration is not the run's, which is used."""
    here = config.training.model_dump()
    for name, value in made.provenance["configuration"].items():
        if here.get(name) != value:
            yield f"[training] {name}: {value} in the run, {here.get(name)} here; the run's is used"


def outcome(made: Original, trained: Trained) -> list[str]:
    """In what the new model is not the old one; none where it is the same to the bit."""
    digest = bundles.weights_digest(export.network_of(trained.model))
    then = bundles.weights_digest(bundles.read_network(made.bundle.folder))
    differ = [] if digest == then else [f"weights_sha256: {then} in the run, {digest} here"]
    figures = trained.metrics | trained.chosen
    differ += [
        f"{name}: {made.bundle.info.metrics.get(name)} in the run, {value} here"
        for name, value in figures.items()
        if made.bundle.info.metrics.get(name) != value
    ]
    return differ
