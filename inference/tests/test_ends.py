"""The commands' own processes, where MLflow never ends an answer: asked to end, they do."""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from smartcache.local.process import START_LIMIT_S

pytestmark = pytest.mark.slow

#: What takes a few seconds, most of them MLflow's import, on a machine that has much to do.
SOON_S = START_LIMIT_S
VERSION = {"name": "reuse", "version": "1", "run_id": "r", "creation_timestamp": 1, "tags": []}
ANSWERS = {
    "/api/2.0/mlflow/registered-models/alias": {"model_version": VERSION},
    "/api/2.0/mlflow/model-versions/get": {"model_version": VERSION},
    "/api/2.0/mlflow/runs/get": {
        "run": {"info": {"run_id": "r", "run_uuid": "r", "status": "FINISHED", "artifact_uri": "mlflow-artifacts:/r"}, "data": {}}
    },
    "/api/2.0/mlflow-artifacts/artifacts": {"files": [{"path": "weights.json", "is_dir": False, "file_size": 1 << 20}]},
}


class Trickling(BaseHTTPRequestHandler):
    """MLflow's server with one version, the files of which come byte by byte, as long as anybody reads."""

    def do_GET(self):
        path = urlsplit(self.path).path
        answer = ANSWERS.get(path)
        text = json.dumps(answer).encode() if answer is not None else b""
        is_file = path.endswith("/weights.json")
        self.send_response(200 if answer is not None or is_file else 404)
        self.send_header("Content-Length", str(1 << 20 if is_file else len(text)))
        self.end_headers()
        self.wfile.write(text)
        while is_file and not self.server.over.wait(0.1):
            self.server.reached.set()
            self.wfile.write(b" ")

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Trickling) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None
        server.reached, server.over = threading.Event(), threading.Event()
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()


@pytest.mark.parametrize(
    ("command", "sign", "status"), [(["watch"], signal.SIGTERM, 0), (["promote", "1"], signal.SIGINT, 130)], ids=["watch", "promote"]
)
def test_a_download_that_was_given_up_holds_up_no_end(server, tmp_path, command, sign, status):
    config = tmp_path / "smartcache.toml"
    config.write_text(
        f'[mlflow]\ntracking_uri = "http://127.0.0.1:{server.server_port}"\nmodel = "reuse"\n'
        f'[model]\nbundle_dir = "{tmp_path / "bundles"}"\nendpoint_url = ""\n'
    )
    argv = [sys.executable, "-m", "smartcache.inference.cli", *command, "--schema-hash", "0123456789abcdef", "--config", str(config)]
    env = {**os.environ, "MLFLOW_HTTP_REQUEST_TIMEOUT": "120"}  # however late this process answers
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert server.reached.wait(SOON_S), "nobody has asked for the file"
            process.send_signal(sign)
            output, _ = process.communicate(timeout=SOON_S)
        finally:
            process.kill()
    assert (process.returncode, output) == (status, "")
