"""The client of MLflow's registry where the server takes longer than anybody waits: its parts in place of the server's, which cannot be."""

import threading
import time
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST

from smartcache.inference.fetched import Overtaken
from smartcache.inference.registry import BundleGone, Registry, RegistryAbsent, RegistryError, Version


class Hanging:
    """MLflow's client, as it is while answers trickle in; ``go`` lets them be complete."""

    def __init__(self):
        self.go = threading.Event()

    def get_model_version(self, *_):
        self.go.wait(60)
        return SimpleNamespace(version="1", run_id="run", tags={}, creation_timestamp=0)

    def download_artifacts(self, _run, _path, folder):
        self.go.wait(60)
        late = folder + "/late"
        with open(late, "w") as out:
            out.write("what came after all")
        return folder


@pytest.fixture
def registry():
    made = Registry("http://127.0.0.1:1", "reuse")
    made._client = Hanging()
    yield made
    made._client.go.set()


def test_an_answer_that_is_never_whole_is_none(registry, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "0.1")
    with pytest.raises(RegistryAbsent, match=r"cannot be reached: it has not answered in full within 0\.3 s"):
        registry.get(1)


def test_calls_that_were_given_up_are_bounded(registry, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "0.01")
    monkeypatch.setattr("smartcache.inference.registry._GIVEN_UP", 3)
    while len(registry._given_up) < 3:  # one whose thread is late is cancelled
        with pytest.raises(RegistryAbsent, match="in full within"):
            registry.get(1)
    with pytest.raises(RegistryAbsent, match="3 calls were given up and have not ended"):
        registry.get(1)
    registry._client.go.set()
    deadline = time.monotonic() + 60
    while registry._given_up:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    assert registry.get(1).number == 1


def test_a_download_that_is_given_up_leaves_nothing(registry, tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()

    def moved():
        raise Overtaken(None)

    with pytest.raises(Overtaken):
        registry.download_bundle(Version(1, "run"), folder, moved)
    registry._client.go.set()
    deadline = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("listed", "kind"), [([], BundleGone), (["bundle"], RegistryError), (None, BundleGone)])
def test_a_bundle_that_is_gone_is_told_from_one_that_cannot_be_read_now(registry, tmp_path, listed, kind):
    """``listed`` None: nor is the run there."""

    def fails(*_):
        raise MlflowException("500")

    def list_artifacts(_run):
        if listed is None:
            raise MlflowException("no run", error_code=RESOURCE_DOES_NOT_EXIST)
        return [SimpleNamespace(path=path) for path in listed]

    registry._client = SimpleNamespace(download_artifacts=fails, list_artifacts=list_artifacts, go=threading.Event())
    with pytest.raises(RegistryError) as failed:
        registry.download_bundle(Version(1, "run"), tmp_path)
    assert type(failed.value) is kind
