"""MLflow's model registry, as much of it as promotion needs, with errors that a person can act on.

The registry is the truth about which version is the champion; everything else follows it. Every call may raise :class:`RegistryError`, and
none waits longer for a server that is not there than MLflow's own timeout, 15 s, twice; nor than three times as long for one whose answer
trickles in, or ten minutes for the files of a bundle.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from .calls import Calls, wait_until

CHAMPION: Final = "champion"
CHALLENGER: Final = "challenger"
BUNDLE: Final = "bundle"
_TIMEOUT_S: Final = 15
#: MLflow's timeout is for each piece of an answer; for the whole of it so many of them are waited, and for a bundle's files this long.
_TIMEOUTS: Final = 3
DOWNLOAD_S: Final = 600.0
#: So many calls that were given up may go on: each has a thread, and a connection.
_GIVEN_UP: Final = 64

Answer = TypeVar("Answer")

#: Those of all registries of this process.
_go_on: set[Future[Any]] = set()


def calls_go_on() -> bool:
    """Whether calls that were given up go on. MLflow reads files in pools of threads, and Python waits for those at its end."""
    return bool(_go_on)


def _nothing() -> None:
    """Where there is nothing to do meanwhile, or afterwards."""


class RegistryError(Exception):
    """The registry is absent, refuses, or has not what was asked for; the text names the server and the way out."""


class RegistryAbsent(RegistryError):
    """The registry cannot be reached."""


class GivenUp(RegistryAbsent):
    """The registry can be reached, maybe, but has not answered in the time that anybody waits."""


class BundleGone(RegistryError):
    """The registry says that a run, or its bundle, is not there: that is no trouble of the moment."""


@dataclass(frozen=True)
class Version:
    """A registered version of the model."""

    number: int
    run_id: str
    tags: Mapping[str, str] = field(default_factory=dict)
    created_us: int = 0


def quiet_mlflow() -> None:
    """Keep MLflow short: no telemetry, no progress bars, no minutes of retries; call before the first import of it."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_TIMEOUT_S))
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


#: As MLflow says what happened on the way, of one call and of the files of a folder.
_ABSENT = ("Max retries exceeded", "failed with exception", "Connection broken", "Connection aborted", "Read timed out")


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Whatever MLflow raises in the body becomes a :class:`RegistryError`."""
    import requests
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, requests.RequestException, OSError) as error:
        text = str(error)
        if isinstance(error, requests.ConnectionError) or any(sign in text for sign in _ABSENT):
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
        self._given_up: set[Future[Any]] = set()

    def require_server(self) -> None:
        """Raise :class:`RegistryAbsent` where the server does not answer."""
        with translated(self.uri):
            self._ask(self._client.search_registered_models, max_results=1)

    def name_of(self, number: int) -> str:
        """The name that a version is served under."""
        return f"{self.model}_v{number}"

    def newest(self) -> Version:
        """The version with the highest number."""
        found = self.versions(1)
        if not found:
            raise RegistryError(f"MLflow at {self.uri} has no version of {self.model}; register one with `smartcache train`")
        return found[0]

    def versions(self, count: int) -> list[Version]:
        """The ``count`` versions with the highest numbers, newest first; none where the model does not exist."""
        with translated(self.uri):
            found = self._ask(
                self._client.search_model_versions, f"name='{self.model}'", max_results=count, order_by=["version_number DESC"]
            )
        return [_version(each) for each in found]

    def get(self, number: int) -> Version:
        """A version by its number."""
        with translated(self.uri):
            return _version(self._ask(self._client.get_model_version, self.model, str(number)))

    def champion(self) -> Version | None:
        """The version that the alias ``champion`` names; None where there is none."""
        return self.alias(CHAMPION)

    def alias(self, alias: str) -> Version | None:
        """The version that ``alias`` names; None where it names none or the model does not exist."""
        from mlflow.exceptions import MlflowException

        with translated(self.uri):
            try:
                return _version(self._ask(self._client.get_model_version_by_alias, self.model, alias))
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
            self._ask(self._client.set_registered_model_alias, self.model, alias, str(number))

    def tag(self, number: int, tags: Mapping[str, str]) -> None:
        """Set tags of version ``number``, one after the other."""
        with translated(self.uri):
            for key, value in tags.items():
                self._ask(self._client.set_model_version_tag, self.model, str(number), key, value)

    def log_text(self, version: Version, text: str, path: str) -> None:
        """Keep ``text`` as an artifact of the run that ``version`` comes from; one that is there is replaced."""
        with translated(self.uri):
            self._ask(self._client.log_text, version.run_id, text, path)

    def describe(self, number: int, text: str) -> None:
        """Set the description of version ``number``, Markdown."""
        with translated(self.uri):
            self._ask(self._client.update_model_version, self.model, str(number), text)

    def register_webhook(self, name: str, url: str, events: Sequence[str], secret: str) -> None:
        """Have the server call ``url`` at ``events``; what it calls under ``name`` already is brought up to date."""
        with translated(self.uri):
            token = None
            while True:
                page = self._ask(self._client.list_webhooks, page_token=token)
                for webhook in page:
                    if webhook.name == name:
                        known = webhook.webhook_id
                        self._ask(self._client.update_webhook, known, url=url, events=list(events), secret=secret, status="ACTIVE")
                        return
                token = page.token
                if not token:
                    break
            self._ask(self._client.create_webhook, name, url, list(events), secret=secret)

    def download_bundle(self, version: Version, folder: Path, waiting: Callable[[], None] = _nothing) -> Path:
        """Download the bundle of ``version`` into the existing ``folder``; returns where it is. Not checked. Raises :class:`BundleGone`
        where there is none.

        ``waiting`` is called meanwhile, and may raise: then the download is left to itself, and what it still writes is removed at its end.
        """
        return self.download_bundle_of_run(version.run_id, folder, f" of {self.model} version {version.number}", waiting)

    def download_bundle_of_run(self, run_id: str, folder: Path, whose: str = "", waiting: Callable[[], None] = _nothing) -> Path:
        """The same of a run; ``whose``: for the error's text."""
        try:
            with translated(self.uri):
                removed = partial(shutil.rmtree, folder, ignore_errors=True)
                download = partial(self._client.download_artifacts, run_id, BUNDLE, str(folder))
                path = Path(self._ask(download, within_s=DOWNLOAD_S, waiting=waiting, afterwards=removed))
        except RegistryAbsent:
            raise
        except RegistryError as error:
            if self._has_bundle(run_id):
                raise
            raise self._gone(run_id, whose) from error
        if not path.is_dir():
            raise self._gone(run_id, whose)
        return path

    def _has_bundle(self, run_id: str) -> bool:
        """Whether a run is there and lists a bundle, whole or not."""
        from mlflow.exceptions import MlflowException

        with translated(self.uri):
            try:
                return BUNDLE in {each.path for each in self._ask(self._client.list_artifacts, run_id)}
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return False
                raise

    def _gone(self, run_id: str, whose: str) -> BundleGone:
        return BundleGone(f"MLflow at {self.uri}: run {run_id}{whose} has no folder {BUNDLE}/; train again")

    def text_of_run(self, run_id: str, path: str, folder: Path) -> str | None:
        """A text among the artifacts of a run, by way of the existing ``folder``; None where the run has none of this name."""
        with translated(self.uri):
            if path not in {each.path for each in self._ask(self._client.list_artifacts, run_id)}:
                return None
            return Path(self._ask(self._client.download_artifacts, run_id, path, str(folder), within_s=DOWNLOAD_S)).read_text()

    def parameters(self, run_id: str) -> dict[str, str]:
        """The parameters that a run has logged."""
        with translated(self.uri):
            return dict(self._ask(self._client.get_run, run_id).data.params)

    def _ask(
        self,
        what: Callable[..., Answer],
        *arguments: Any,
        within_s: float | None = None,
        waiting: Callable[[], None] = _nothing,
        afterwards: Callable[[], None] = _nothing,
        **options: Any,
    ) -> Answer:
        """What the server answers to one call of MLflow's client, which has a thread of its own: one that is given up goes on there, and
        ``afterwards`` is called at its end.
        """
        most_s = within_s or _TIMEOUTS * float(os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"])
        if len(self._given_up) >= _GIVEN_UP:
            raise RegistryAbsent(f"MLflow at {self.uri} cannot be reached: {_GIVEN_UP} calls were given up and have not ended")
        try:
            call = Calls[Answer]().submit(partial(what, *arguments, **options))
        except RuntimeError as error:
            raise RegistryAbsent(f"MLflow at {self.uri} cannot be asked: {error}") from error
        given_up = True
        try:
            wait_until([call], time.monotonic() + most_s, waiting)
            given_up = not call.done() or call.cancelled()
        finally:
            if given_up:
                for calls in (self._given_up, _go_on):
                    calls.add(call)
                    call.add_done_callback(calls.discard)
                call.add_done_callback(lambda _: afterwards())
        if given_up:
            raise GivenUp(f"MLflow at {self.uri} cannot be reached: it has not answered in full within {most_s:g} s")
        return call.result()


def _version(found: Any) -> Version:
    return Version(int(found.version), str(found.run_id), dict(found.tags), int(found.creation_timestamp or 0) * 1000)
