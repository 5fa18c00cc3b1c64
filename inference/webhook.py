"""MLflow's registry webhook wakes the watcher: a moved alias is followed at once, not at the next poll.

Only a wake-up: what the message says is not used, the registry is asked as ever, and a message that never comes costs ``[watch] poll_s``. A
message counts only with a good signature: HMAC-SHA256 with the shared secret over ``ID.TIMESTAMP.BODY`` (header ``X-MLflow-Signature:
v1,BASE64``), not older than five minutes. A message that is repeated within that time causes a look at the registry, nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from smartcache.config import Watch as Settings

from .registry import Registry, RegistryError

EVENTS: Final = ("model_version_alias.created", "model_version_alias.deleted")
MAX_BODY_BYTES: Final = 65536
_LENGTH_DIGITS: Final = 12
#: As the Standard Webhooks specification has it.
MAX_AGE_S: Final = 300
_READ_TIMEOUT_S: Final = 5.0


class WebhookError(Exception):
    """The listener cannot be; the text names the key, the reason and the way out."""


def read_secret(path: str) -> str:
    """The secret in the file ``path``. Raises :class:`WebhookError`."""
    if not path:
        raise WebhookError(
            "[watch] webhook_secret_file is empty: name a file with the secret that MLflow signs with, or set webhook_port 0"
        )
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WebhookError(f"[watch] webhook_secret_file {path}: cannot be read ({error})") from error
    if len(secret) < 16:
        raise WebhookError(f"[watch] webhook_secret_file {path}: must hold at least 16 characters, has {len(secret)}")
    return secret


def signed(secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Whether the message is MLflow's and fresh."""
    headers = {name.lower(): value for name, value in headers.items()}
    sent = headers.get("x-mlflow-timestamp", "")
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 12) or abs(now_s - int(sent)) > MAX_AGE_S:
        return False
    content = f"{headers.get('x-mlflow-delivery-id', '')}.{sent}.".encode(errors="surrogateescape") + body
    expected = b"v1," + base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha256).digest())
    return hmac.compare_digest(expected, headers.get("x-mlflow-signature", "").encode(errors="surrogateescape"))


@contextmanager
def listen(settings: Settings, secret: str, wake: threading.Event) -> Iterator[int]:
    """Set ``wake`` at each good message while in the body; yields the port. Raises :class:`WebhookError`."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _READ_TIMEOUT_S

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS) or int(length) > MAX_BODY_BYTES:
                self._answer(413)
                return
            body = self.rfile.read(int(length))
            if len(body) < int(length) or not signed(secret, dict(self.headers.items()), body, time.time()):
                self._answer(401)
                return
            wake.set()
            self._answer(204)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hangs up is no news."""

    try:
        server = Server((settings.webhook_bind, settings.webhook_port), Handler)
    except OSError as error:
        where = f"{settings.webhook_bind}:{settings.webhook_port}"
        raise WebhookError(f"[watch] webhook_bind, webhook_port {where}: cannot be listened at ({error.strerror})") from error
    thread = threading.Thread(target=server.serve_forever, name="webhook", daemon=True)
    thread.start()
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def register(registry: Registry, url: str, secret: str) -> str:
    """Have MLflow call ``url``; returns what a person should know where it will not, else empty. The poll goes on in any case."""
    try:
        registry.register_webhook(f"smartcache-watch-{hashlib.sha256(url.encode()).hexdigest()[:16]}", url, EVENTS, secret)
    except RegistryError as error:
        return f"no webhook, the alias is followed by polling alone: {error}"
    return ""
