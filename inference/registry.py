"""MLflow's model registry, as much of it as promotion needs, with errors that a person can act on.

The registry is the truth about which version is the champion; everything else follows it. Every call may raise :class:`RegistryError`, and
none waits longer than a few seconds for a server that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CHAMPION: Final = "champion"
CHALLENGER: Final = "challenger"
BUNDLE: Final = "bundle"
_TIMEOUT_S: Final = 15


class RegistryError(Exception):
    """The registry is absent, refuses, or has not what was asked for; the text names the server and the way out."""


class RegistryAbsent(RegistryError):
    """The registry cannot be reached."""


@dataclass(frozen=True)
class Version:
    """A registered version of the model."""

    number: int
    run_id: str
    tags: Mapping[str, str] = field(default_factory=dict)


def quiet_mlflow() -> None:
    """Keep MLflow short: no telemetry, no progress bars, no minutes of retries; call before the first import of it."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_TIMEOUT_S))
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Whatever MLflow raises in the body becomes a :class:`RegistryError`."""
    import requests
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, requests.RequestException, OSError) as error:
        text = str(error)
        if isinstance(error, requests.ConnectionError) or "Max retries exceeded" in text or "failed with exception" in text:
            raise RegistryAbsent(f"MLflow at {uri} cannot be reached; start it, or set [mlflow] tracking_uri") from error
        raise RegistryError(f"MLflow at {uri}: {text.splitlines()[0] if text else type(error).__name__}") from error


class Registry:
    """The versions and aliases of one registered model. Cheap to make; talks to the server at each call."""

    def __init__(self, uri: str, model: str) -> None:
        self.uri = uri
        self.model = model
        quiet_mlflow()
        from mlflow import MlflowClient

        self._client: Any = MlflowClient(tracking_uri=uri, registry_uri=uri)

    def require_server(self) -> None:
        """Raise :class:`RegistryAbsent` where the server does not answer."""
        with translated(self.uri):
            self._client.search_registered_models(max_results=1)

    def name_of(self, number: int) -> str:
        """The name that a version is served under."""
        return f"{self.model}_v{number}"

    def newest(self) -> Version:
        """The version with the highest number."""
        with translated(self.uri):
            found = self._client.search_model_versions(f"name='{self.model}'", max_results=1, order_by=["version_number DESC"])
        if not found:
            raise RegistryError(f"MLflow at {self.uri} has no version of {self.model}; register one with `smartcache train`")
        return _version(found[0])

    def get(self, number: int) -> Version:
        """A version by its number."""
        with translated(self.uri):
            return _version(self._client.get_model_version(self.model, str(number)))

    def champion(self) -> Version | None:
        """The version that the alias ``champion`` names; None where there is none."""
        return self.alias(CHAMPION)

    def alias(self, alias: str) -> Version | None:
        """The version that ``alias`` names; None where it names none or the model does not exist."""
        from mlflow.exceptions import MlflowException

        with translated(self.uri):
            try:
                return _version(self._client.get_model_version_by_alias(self.model, alias))
            except MlflowException as error:
                absent = error.error_code == "RESOURCE_DOES_NOT_EXIST" or (
                    error.error_code == "INVALID_PARAMETER_VALUE" and f"alias {alias} not found" in str(error)
                )
                if absent:
                    return None
                raise

    def move(self, alias: str, number: int) -> None:
        """Have ``alias`` name version ``number``; one step at the server."""
        with translated(self.uri):
            self._client.set_registered_model_alias(self.model, alias, str(number))

    def tag(self, number: int, tags: Mapping[str, str]) -> None:
        """Set tags of version ``number``, one after the other."""
        with translated(self.uri):
            for key, value in tags.items():
                self._client.set_model_version_tag(self.model, str(number), key, value)

    def download_bundle(self, version: Version, folder: Path) -> Path:
        """Download the bundle of ``version`` into the existing ``folder``; returns where it is. Not checked."""
        with translated(self.uri):
            path = Path(self._client.download_artifacts(version.run_id, BUNDLE, str(folder)))
        if not path.is_dir():
            raise RegistryError(
                f"MLflow at {self.uri}: run {version.run_id} of {self.model} version {version.number} has no folder {BUNDLE}/; train again"
            )
        return path


def _version(found: Any) -> Version:
    return Version(int(found.version), str(found.run_id), dict(found.tags))
