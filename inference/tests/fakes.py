# ruff: noqa: D102, S202
"""What stands in for the registry and the endpoint where a test needs them to fail in a certain way at a certain moment."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from smartcache import config as configs
from smartcache.config import Config
from smartcache.inference import bundle as bundles
from smartcache.inference.registry import BundleGone, RegistryAbsent, RegistryError, Version

#: What a version's test part must have said, that every gate passes.
METRICS = {
    "skill": 0.3,
    "rows_uncensored": 500.0,
    "horizon_rows": 400.0,
    "brier": 0.1,
    "base_brier": 0.2,
    "max_output_difference": 1e-7,
}


def site_config(**gates: object) -> Config:
    """A site's configuration: no access table, endpoints that need not be fast, no pauses between attempts; options are of ``[gates]``."""
    return configs.parse({"gates": {"replay_days": 0, "latency_requests": 0, **gates}, "watch": {"retry_most_s": 0}}, "test")


class FakeRegistry:
    """A registry of bundles on disk. ``absent`` and ``torn`` make it fail."""

    uri = "http://127.0.0.1:1"
    model = "reuse"

    def __init__(self) -> None:
        self.folders: dict[int, Path] = {}
        self.known: dict[int, Version] = {}
        self.aliases: dict[str, int] = {}
        self.absent = False
        self.torn = False
        self.downloads = 0
        self.artifacts: dict[str, str] = {}

    def add(self, bundle: bundles.Bundle, tags: dict[str, str] | None = None) -> int:
        number = len(self.known) + 1
        self.folders[number] = bundle.folder
        self.known[number] = Version(number, str(bundle.info.provenance["run_id"]), tags or {})
        return number

    def name_of(self, number: int) -> str:
        return f"{self.model}_v{number}"

    def _here(self) -> None:
        if self.absent:
            raise RegistryAbsent(f"MLflow at {self.uri} cannot be reached")

    def newest(self) -> Version:
        self._here()
        return self.known[max(self.known)]

    def versions(self, count: int) -> list[Version]:
        self._here()
        return sorted(self.known.values(), key=lambda version: version.number, reverse=True)[:count]

    def alias(self, alias: str) -> Version | None:
        self._here()
        number = self.aliases.get(alias)
        return None if number is None else self.known[number]

    def get(self, number: int) -> Version:
        self._here()
        if number not in self.known:
            raise RegistryError(f"no version {number}")
        return self.known[number]

    def champion(self) -> Version | None:
        return self.alias("champion")

    def move(self, alias: str, number: int) -> None:
        self._here()
        self.aliases[alias] = number

    def tag(self, number: int, tags: dict[str, str]) -> None:
        self._here()
        old = self.known[number]
        self.known[number] = Version(number, old.run_id, {**old.tags, **tags})

    def log_text(self, version: Version, text: str, path: str) -> None:
        self._here()
        self.artifacts[f"{version.run_id}/{path}"] = text

    def report(self, run: str, kind: str = "md") -> str:
        """What the one watcher that has judged the version of this run has left there."""
        (path,) = (path for path in self.artifacts if path.startswith(f"{run}/gates/watch-") and path.endswith(f".{kind}"))
        return self.artifacts[path]

    def download_bundle(self, version: Version, folder: Path, waiting: Callable[[], None] = lambda: None) -> Path:
        self._here()
        waiting()
        self.downloads += 1
        target = folder / "bundle"
        if not self.folders[version.number].is_dir():
            raise BundleGone(f"run {version.run_id} has no folder bundle/")
        shutil.copytree(self.folders[version.number], target)
        if self.torn:
            (target / "weights.json").unlink()
        return target


class FakeServer:
    """An endpoint that evaluates ``weights.json``. ``refuse``: path prefix to status; ``before``: called with each request's path."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="smartcache-fake-endpoint-"))
        self.refuse: dict[str, int] = {}
        self.answer: Callable[[list[float]], object] = lambda outputs: outputs
        self.before: Callable[[str], None] = lambda path: None
        self.requests: list[str] = []
        #: What changes need, and predictions where that is :attr:`guarded`.
        self.token = ""
        self.guarded = False
        self.default = ""
        #: What answers who names no model, where that is not :attr:`default`, as it should be.
        self.answering = ""

    @property
    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    def handle(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        self.before(request.path)
        self.requests.append(f"{request.command} {request.path}")
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        for prefix, status in self.refuse.items():
            if request.path.startswith(prefix):
                return status, b"refused"
        if request.path == "/models":
            return 200, json.dumps([{"name": name} for name in sorted(self.names)]).encode()
        if request.path == "/status":
            return 200, json.dumps({"aliases": {"": self.default} if self.default else {}}).encode()
        good = not self.token or request.headers.get("Authorization") == f"Bearer {self.token}"
        if request.path == "/json":
            if self.guarded and not good:
                return 401, b"token"
            asked = json.loads(body)
            asked.setdefault("model", self.answering or self.default)
            if asked["model"] not in self.names:
                return 404, b"no such model"
            bundle = bundles.read(self.folder / asked["model"])
            outputs = bundle.embedded.predict(np.asarray([asked["values"]], dtype=np.float32))[0]
            return 200, json.dumps(self.answer(outputs.tolist())).encode()
        if not good:
            return 401, b"token"
        if request.path == "/params":
            self.default = json.loads(body)["name"]
            return 200, b"{}"
        if request.path == "/upload":
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(body))) as tar:
                tar.extractall(self.folder)
            return 200, b""
        if request.path.startswith("/delete/"):
            name = request.path.removeprefix("/delete/")
            if name not in self.names:
                return 404, b"no such model"
            shutil.rmtree(self.folder / name)
            return 200, b""
        return 404, b""


@contextmanager
def serve() -> Iterator[tuple[FakeServer, str]]:
    """A :class:`FakeServer` at a free port, and its URL."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            status, body = fake.handle(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # whoever still writes into the folder is waited for
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        shutil.rmtree(fake.folder)
