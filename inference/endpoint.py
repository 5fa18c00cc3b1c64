"""``smartcache endpoint``: becomes the serving binary (``inference/server``, Go), with the values of ``[endpoint]`` as its flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NoReturn

from smartcache.config import Endpoint as Settings
from smartcache.local import paths

ENVIRONMENT_VARIABLE: Final = "SMARTCACHE_ENDPOINT"


def binary() -> Path:
    """The file that $SMARTCACHE_ENDPOINT names, else what set-up has built. Raises :class:`~smartcache.local.paths.MissingPart`."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return paths.require(Path(named) if named else paths.ENDPOINT, "the endpoint's binary")


def arguments(settings: Settings) -> list[str]:
    """The flags of the binary; times as Go writes a duration."""
    flags = {
        "bind": settings.bind,
        "port": settings.port,
        "model-dir": settings.model_dir,
        "admin-token-file": settings.admin_token_file,
        "predict-token-file": settings.predict_token_file,
        "tls-cert-file": settings.tls_cert_file,
        "tls-key-file": settings.tls_key_file,
        "client-ca-file": settings.client_ca_file,
        "max-body-bytes": settings.max_body_bytes,
        "max-upload-bytes": settings.max_upload_bytes,
        "batch-rows": settings.batch_rows,
        "batch-wait": _duration(settings.batch_wait_s),
        "request-timeout": _duration(settings.request_timeout_s),
        "shutdown-grace": _duration(settings.shutdown_grace_s),
    }
    return [f"-{name}={value}" for name, value in flags.items()]


def become(settings: Settings) -> NoReturn:
    """Replace this process by the endpoint: signals and the exit status are then its own."""
    path = binary()
    os.execv(path, [str(path), *arguments(settings)])  # noqa: S606 - the path is our own


def _duration(seconds: float) -> str:
    return f"{seconds:f}".rstrip("0").rstrip(".") + "s"
