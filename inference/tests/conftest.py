"""Fixtures of the inference tests: bundles without TensorFlow, a real MLflow server, the real endpoint, a small training set."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference.install import BundleDir
from smartcache.inference.registry import quiet_mlflow
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import Watch
from smartcache.local import mlflow as local_mlflow
from smartcache.local import paths, ports
from smartcache.training.model import quiet_tensorflow

quiet_tensorflow()
quiet_mlflow()

#: Keras' TensorFlow variables do not know NumPy 2's copy keyword.
KERAS_COPY = "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"

HASH = "0123456789abcdef"
NAMES = ["a", "b", "c"]
Make = Callable[..., bundles.Bundle]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(KERAS_COPY))


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """``training/tests/synthetic.py``."""
    return _module("smartcache_training_synthetic", Path(__file__).parents[2] / "training" / "tests" / "synthetic.py")


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    """``fakes.py`` beside this file."""
    return _module("smartcache_inference_fakes", Path(__file__).with_name("fakes.py"))


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a valid bundle (with something in place of the SavedModel) to a folder; options change its ``bundle.json``."""

    def write(folder: Path | None = None, seed: int = 0, **changes: object) -> bundles.Bundle:
        folder = folder or tmp_path / "bundle"
        (folder / "variables").mkdir(parents=True)
        for name in bundles.SAVED_MODEL:
            (folder / name).write_bytes(b"in place of a SavedModel")
        rng = np.random.default_rng(seed)

        def floats(*shape: int) -> bundles.Floats:
            return rng.standard_normal(shape).astype(np.float32)

        layers = (bundles.Layer(floats(3, 4), floats(4), "relu"), bundles.Layer(floats(4, 3), floats(3), "softmax"))
        network = bundles.Network(floats(3), np.ones(3, dtype=np.float32), layers)
        info = {
            "schema": {"version": 1, "names": NAMES, "hash": HASH},
            "bucket_edges_s": [60.0, 3600.0],
            "horizon_s": 3600.0,
            "horizon_buckets": 2,
            "thresholds": {"admit": 0.2, "evict": 0.05},
            "metrics": METRICS,
            "provenance": {"run_id": "run-1"},
        }
        inputs = floats(5, 3)
        value = (inputs - network.mean) / network.scale
        value = np.maximum(value @ layers[0].kernel + layers[0].bias, 0) @ layers[1].kernel + layers[1].bias
        outputs = np.exp(value) / np.exp(value).sum(axis=1, keepdims=True)
        bundles.write_parts(folder, bundles.Info.model_validate(info | changes), network, inputs, outputs.astype(np.float32))
        return bundles.read(folder)

    return write


@pytest.fixture(scope="session")
def mlflow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where :func:`mlflow_uri` keeps everything; what a test deletes there is of a model of its own."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(scope="session")
def mlflow_uri(mlflow_folder: Path) -> Iterator[str]:
    """A real MLflow server: one for all tests, its start takes long. It takes webhooks to this machine."""
    (port,) = ports.free_ports(1)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_WEBHOOK_ALLOWED_SCHEMES", "http,https")
        environment.setenv("MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS", "true")
        environment.setenv("MLFLOW_WEBHOOK_CACHE_TTL", "1")
        server = local_mlflow.launch(mlflow_folder, port)
    with server:
        local_mlflow.wait_ready(server, port)
        yield local_mlflow.uri(port)


@pytest.fixture(scope="session")
def dataset(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small training set."""
    folder: Path = synthetic.write(tmp_path_factory.mktemp("set"), rows=1000)
    return folder


@pytest.fixture(scope="session")
def endpoint_binary() -> Path:
    """The real endpoint; built by set-up, or named by $SMARTCACHE_ENDPOINT."""
    path = Path(os.environ.get("SMARTCACHE_ENDPOINT", paths.ENDPOINT))
    assert shutil.which(paths.require(path, "the endpoint"))
    return path


@pytest.fixture
def registry(fakes):
    """MLflow's registry, as far as the watcher asks it."""
    return fakes.FakeRegistry()


@pytest.fixture
def server(fakes):
    """An endpoint that keeps what it is given."""
    with fakes.serve() as (fake, url), Endpoint(url, timeout_s=5) as endpoint:
        fake.endpoint = endpoint
        yield fake


@pytest.fixture
def said():
    """What the watcher has told people."""
    return []


@pytest.fixture
def watch(registry, server, said, tmp_path):
    """A watcher of that registry and that endpoint, that has no pauses."""
    folder = BundleDir(tmp_path / "bundles", "reuse")
    watch = Watch(registry, folder, Fleet([server.endpoint], wait_s=0), site_config(), HASH, said.append)
    with folder.writer():
        yield watch


@pytest.fixture
def publish(registry, make, tmp_path):
    """Registers a new version and makes it champion; returns its number."""

    def publish(tags=None, **changes):
        number = len(registry.known) + 1
        bundle = make(tmp_path / "registry" / str(number), seed=number, provenance={"run_id": f"run-{number}"}, **changes)
        registry.add(bundle, tags)
        registry.aliases["champion"] = number
        return number

    return publish
