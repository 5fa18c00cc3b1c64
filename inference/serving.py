"""The endpoint, seen from the host that promotes: upload a bundle, ask it for predictions, delete it. Any server that speaks TFaaS's HTTP
API.

Nothing that is answered is trusted: status, length and finiteness are checked, whatever the server claims.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import numpy as np

from .bundle import Bundle, Floats, max_difference

TIMEOUT_S: Final = 30.0
#: Served answers are this close to the golden rows, or the model is not live.
GOLDEN_TOLERANCE: Final = 1e-5


class ServingError(Exception):
    """The endpoint is absent, refuses, or answers wrong; the text names the URL and what it said."""


class Endpoint:
    """One endpoint. Not thread-safe."""

    def __init__(self, url: str, token: str = "", *, ca_file: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        verify: Any = True
        if ca_file:
            import ssl

            verify = ssl.create_default_context(cafile=ca_file)
        # No proxy from the environment: the endpoint is reached as the plugin reaches it.
        self._client = httpx.Client(headers=headers, timeout=timeout_s, trust_env=False, verify=verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._client.close()

    def models(self) -> set[str]:
        """The names of the models that it serves."""
        answer = self._ask("GET", "/models").text
        try:
            listed = httpx.Response(200, text=answer).json()
        except ValueError as error:
            raise ServingError(f"{self.url}/models: not JSON: {answer[:200]!r}") from error
        return {str(each["name"]) for each in listed or [] if isinstance(each, dict) and "name" in each}

    def upload(self, bundle: Bundle) -> None:
        """Upload ``bundle`` under its name."""
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-tar"}
        self._ask("POST", "/upload", content=archive(bundle.folder, bundle.info.name), headers=headers)

    def delete(self, name: str) -> None:
        """Delete a model; one that is not there is no error."""
        self._ask("DELETE", f"/delete/{name}", accept=lambda status: status in (200, 204, 404))

    def predict(self, name: str, keys: list[str], values: Floats, outputs: int) -> Floats:
        """The outputs, [B], for one row of features."""
        body = {"keys": keys, "values": [float(value) for value in values], "model": name}
        response = self._ask("POST", "/json", json=body)
        try:
            answer = np.asarray(response.json(), dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise ServingError(f"{self.url}/json: not a list of numbers: {response.text[:200]!r}") from error
        if answer.shape != (outputs,) or not np.isfinite(answer).all():
            raise ServingError(f"{self.url}/json: must answer {outputs} finite numbers for {name}, not {response.text[:200]!r}")
        return answer

    def check_golden(self, bundle: Bundle, tolerance: float = GOLDEN_TOLERANCE) -> None:
        """Raise :class:`ServingError` where a golden row is answered otherwise than the bundle has it."""
        info = bundle.info
        for number, (row, expected) in enumerate(zip(bundle.golden_inputs, bundle.golden_outputs, strict=True)):
            difference = max_difference(self.predict(info.name, info.feature_schema.names, row, info.outputs), expected)
            if not difference <= tolerance:
                raise ServingError(
                    f"{self.url}: golden row {number} of {info.name} must be answered to {tolerance:g}, but differs by {difference:g}"
                )

    def _ask(self, method: str, path: str, accept: Callable[[int], bool] = lambda status: status == 200, **options: Any) -> httpx.Response:
        try:
            response = self._client.request(method, self.url + path, **options)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise ServingError(f"endpoint {self.url} cannot be reached ({reason}); start it, or set [model] endpoint_url") from error
        if not accept(response.status_code):
            hint = "; it must know the token in [endpoint] admin_token_file" if response.status_code in (401, 403) else ""
            raise ServingError(f"{self.url}{path}: status {response.status_code}: {response.text[:200].strip()}{hint}")
        return response


def archive(folder: Path, name: str) -> bytes:
    """A gzipped tar of ``folder`` with all paths under ``name``; owners, times and order do not vary."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, arcname=name, filter=plain)
    return buffer.getvalue()


def read_token(path: str) -> str:
    """The bearer token in the file ``path``; empty where ``path`` is. Raises :class:`ServingError`."""
    if not path:
        return ""
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise ServingError(f"[endpoint] admin_token_file {path}: cannot be read ({error.strerror})") from error
    if not token:
        raise ServingError(f"[endpoint] admin_token_file {path}: must hold a token, is empty")
    return token
