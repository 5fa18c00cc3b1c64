"""Fixtures of the training tests; warnings of TensorFlow, Keras and MLflow that are not ours are let through one by one."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from smartcache.training.model import quiet_tensorflow

quiet_tensorflow()

#: Keras' TensorFlow variables do not know NumPy 2's copy keyword.
KERAS_COPY = "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(KERAS_COPY))


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The module ``synthetic.py`` beside this file (tests are no package)."""
    path = Path(__file__).with_name("synthetic.py")
    spec = importlib.util.spec_from_file_location("smartcache_training_synthetic", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
