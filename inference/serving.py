"""The endpoint, seen from the host that promotes: upload a bundle, ask it for predictions, delete it. Any server that speaks TFaaS's HTTP
API.

Nothing that is answered is trusted: status, length and finiteness are checked, whatever the server claims.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import ssl
import tarfile
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx
import numpy as np

from .bundle import Bundle, Floats, max_difference

#: An upload, which the endpoint loads and tries before it answers.
TIMEOUT_S: Final = 30.0
#: All other calls: an endpoint that hangs must not hold up the others for long.
ANSWER_TIMEOUT_S: Final = 5.0
#: Predictions are timed for so long at most: what is slow says so early.
TIMED_S: Final = 10.0
#: Calls that write to the endpoint's disk.
_CHANGES: Final = ("/upload", "/params", "/delete/")
#: Served answers are this close to the golden rows, or the model is not live.
GOLDEN_TOLERANCE: Final = 1e-5


class ServingError(Exception):
    """The endpoint is absent, refuses, or answers wrong; the text names the URL and what it said. ``status``: of the answer, or 0.

    ``untaken_s``: for how long it has been in the way of a version, where that is known.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.untaken_s = 0.0


class EndpointAway(ServingError):
    """The endpoint cannot be reached, or cannot answer now (5xx): that says nothing about the model, and is tried again."""


class EndpointFull(ServingError):
    """The endpoint is up, but cannot change what it holds: its disk is full, say. It says nothing about the model, and will not pass by
    itself.
    """


class Endpoint:
    """One endpoint. Not thread-safe. ``token``: the bearer token, or what reads it, and is asked again where the endpoint refuses it."""

    def __init__(self, url: str, token: str | Callable[[], str] = "", *, ca_file: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self._read_token: Callable[[], str] = token if callable(token) else partial(str, token)
        self._token = self._read_token()
        # Without TLS a context of no authorities: to read the system's takes longer than most calls.
        secure = urlsplit(self.url).scheme == "https"
        self._tls = ssl.create_default_context(cafile=ca_file or None) if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # No proxy from the environment: the endpoint is reached as the plugin reaches it.
        self._upload_timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, ANSWER_TIMEOUT_S))
        self._client = httpx.Client(timeout=min(timeout_s, ANSWER_TIMEOUT_S), trust_env=False, verify=self._tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._client.close()

    def models(self) -> set[str]:
        """The names of the models that it serves."""
        listed = self._json("/models", self._ask("GET", "/models"))
        if not isinstance(listed, list):
            raise ServingError(f"{self.url}/models: must answer a list, not {str(listed)[:200]!r}")
        return {str(each["name"]) for each in listed if isinstance(each, dict) and "name" in each}

    def upload(self, bundle: Bundle) -> None:
        """Upload ``bundle`` under its name."""
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-tar"}
        self._ask("POST", "/upload", content=archive(bundle.folder, bundle.info.name), headers=headers, timeout=self._upload_timeout)

    def default(self) -> str | None:
        """The model that answers predictions which name none, empty where there is none; None from a server that does not tell."""
        answer = self._ask("GET", "/status", accept=lambda status: status in (200, 404))
        told = self._json("/status", answer) if answer.status_code == 200 else None
        aliases = told.get("aliases") if isinstance(told, dict) else None
        return str(aliases.get("", "")) if isinstance(aliases, dict) else None

    def set_default(self, name: str) -> None:
        """Have the served model ``name`` answer predictions that name none. A server that has no such thing is left as it is."""
        self._ask("POST", "/params", accept=lambda status: status in (200, 404, 405), json={"name": name})

    def delete(self, name: str) -> None:
        """Delete a model; one that is not there is no error."""
        self._ask("DELETE", f"/delete/{name}", accept=lambda status: status in (200, 204, 404))

    def predict(self, name: str | None, keys: list[str], values: Floats, outputs: int) -> Floats:
        """The outputs, [B], for one row of features. ``name`` None: the default model's."""
        body: dict[str, Any] = {"keys": keys, "values": [float(value) for value in values]}
        if name is not None:
            body["model"] = name
        response = self._ask("POST", "/json", json=body)
        try:
            answer = np.asarray(response.json(), dtype=np.float32)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ServingError(f"{self.url}/json: not a list of numbers: {response.text[:200]!r}") from error
        if answer.shape != (outputs,) or not np.isfinite(answer).all():
            raise ServingError(
                f"{self.url}/json: must answer {outputs} finite numbers for {name or 'the default model'}, not {response.text[:200]!r}"
            )
        return answer

    def check_golden(self, bundle: Bundle, tolerance: float = GOLDEN_TOLERANCE, *, by_default: bool = False) -> float:
        """The largest difference of its answers to the golden rows; raises :class:`ServingError` where it is over ``tolerance``.

        ``by_default``: what is asked names no model.
        """
        info, worst = bundle.info, 0.0
        name, asked = (None, " by the default model") if by_default else (info.name, "")
        for number, (row, expected) in enumerate(zip(bundle.golden_inputs, bundle.golden_outputs, strict=True)):
            difference = max_difference(self.predict(name, info.feature_schema.names, row, info.outputs), expected)
            if not difference <= tolerance:
                raise ServingError(
                    f"{self.url}: golden row {number} of {info.name} must be answered{asked} to {tolerance:g}, "
                    f"but differs by {difference:g}"
                )
            worst = max(worst, difference)
        return worst

    def timed(self, bundle: Bundle, requests: int) -> list[float]:
        """Seconds that each of ``requests`` predictions took, on one connection that is kept; fewer where they take long in all.

        The connection is made, and used once, before. Not by the client of the other calls: its own time would be most of it.
        """
        address = urlsplit(self.url)
        port = address.port or (443 if address.scheme == "https" else 80)
        timeout, host = ANSWER_TIMEOUT_S, address.hostname or ""
        if address.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        info = bundle.info
        bodies = [
            json.dumps({"keys": info.feature_schema.names, "values": row.tolist(), "model": info.name}).encode()
            for row in bundle.golden_inputs
        ]
        seconds: list[float] = []
        until = time.perf_counter() + TIMED_S
        try:
            for number in range(requests + 1):
                status, text, took = self._timed_one(connection, f"{address.path}/json", bodies[number % len(bodies)])
                if status == HTTPStatus.UNAUTHORIZED and self._renewed():
                    status, text, took = self._timed_one(connection, f"{address.path}/json", bodies[number % len(bodies)])
                if status != HTTPStatus.OK:
                    kind = EndpointAway if status > 500 else ServingError
                    raise kind(f"{self.url}/json: status {status}: {text[:200].decode(errors='replace').strip()}", status)
                if number:
                    seconds.append(took)
                if seconds and time.perf_counter() > until:
                    break
        except (OSError, http.client.HTTPException) as error:
            raise EndpointAway(f"endpoint {self.url} cannot be reached ({error or type(error).__name__}); start it") from error
        finally:
            connection.close()
        return seconds

    def _timed_one(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes, float]:
        headers = {"Content-Type": "application/json"} | self._credentials()
        began = time.perf_counter()
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, text, time.perf_counter() - began

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _renewed(self) -> bool:
        """Whether there is another token than that which was refused. It is sent from then on."""
        try:
            token = self._read_token()
        except ServingError:  # what was refused is said
            return False
        refused, self._token = self._token, token
        return token != refused

    def _json(self, path: str, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise ServingError(f"{self.url}{path}: not JSON: {answer.text[:200]!r}") from error

    def _ask(self, method: str, path: str, accept: Callable[[int], bool] = lambda status: status == 200, **options: Any) -> httpx.Response:
        more = options.pop("headers", {})
        try:
            response = self._client.request(method, self.url + path, headers=more | self._credentials(), **options)
            if response.status_code == HTTPStatus.UNAUTHORIZED and self._renewed():
                response = self._client.request(method, self.url + path, headers=more | self._credentials(), **options)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise EndpointAway(f"endpoint {self.url} cannot be reached ({reason}); start it, or mend [promote] endpoints") from error
        if not accept(response.status_code):
            # A prediction is let through with a token of its own, too.
            which = "[endpoint] admin_token_file" + (" or [model] token_file" if path == "/json" else "")
            hint = f"; it must know the token in {which}" if response.status_code in (401, 403) else ""
            text = f"{self.url}{path}: status {response.status_code}: {response.text[:200].strip()}{hint}"
            raise _failure(path, response.status_code)(text, response.status_code)
        return response


def _failure(path: str, status: int) -> type[ServingError]:
    """What an answer other than success says. A prediction that fails with 500 speaks of the model, the rest from 500 on of the server."""
    if status < 500 or (path == "/json" and status == 500):
        return ServingError
    # Of these three the server, or what is before it, says itself that they pass.
    return EndpointFull if path.startswith(_CHANGES) and status not in (502, 503, 504) else EndpointAway


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
        token = Path(path).read_text(errors="replace").strip()
    except OSError as error:
        raise ServingError(f"[endpoint] admin_token_file {path}: cannot be read ({error.strerror})") from error
    if not token:
        raise ServingError(f"[endpoint] admin_token_file {path}: must hold a token, is empty")
    if not all(" " < character <= "~" for character in token):
        raise ServingError(f"[endpoint] admin_token_file {path}: must hold one line of printable ASCII without spaces")
    return token


def token_to_ask(admin: str, other: str) -> str:
    """The token in the file ``admin``, else that in ``other``, else none: for who changes nothing, and may not be let read the first."""
    for path in filter(None, (admin, other)):
        with contextlib.suppress(ServingError):
            return read_token(path)
    return ""
