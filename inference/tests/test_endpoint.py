"""``smartcache endpoint``: the flags that it passes are those that the binary asks for."""

import subprocess
from pathlib import Path

from smartcache import config
from smartcache.inference.endpoint import arguments


def test_the_endpoint_starts_with_the_defaults(endpoint_binary: Path, tmp_path: Path):
    """But for folder and port; without a token file, above all."""
    settings = config.load().endpoint.model_copy(update={"port": 0, "model_dir": str(tmp_path)})
    process = subprocess.Popen([endpoint_binary, *arguments(settings)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: http://127.0.0.1:")
    finally:
        process.terminate()
        said = process.communicate(timeout=30)
    assert process.returncode == 0, said
