"""A site of the tests with real servers: its configuration, its folders, its processes."""

import json
import ssl
import sys
import time
from pathlib import Path

import httpx
import numpy as np
from typer.testing import CliRunner

import smartcache
from smartcache.inference import bundle as bundles
from smartcache.inference.registry import Registry
from smartcache.inference.tests.fakes import METRICS
from smartcache.inference.tests.warm import WarmProcess
from smartcache.local.process import START_LIMIT_S, Process, http_ok

ROOT = Path(smartcache.__file__).resolve().parents[1]
TOKEN = "a-token-for-this-test"
#: No access table here; and an endpoint that shares a busy machine with its test is not to be fast, only to be timed.
GATES = {"replay_days": 0, "latency_requests": 50, "latency_p50_ms": 4000.0, "latency_p99_ms": 8000.0}
#: One for all: to make one takes longer than what it is asked.
CLIENT = httpx.Client(timeout=60, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
TRAINING = {"hidden": "[8]", "epochs": 6, "batch": 64, "learning_rate": 0.01}


def wait_for(check, what, timeout_s=START_LIMIT_S):
    """Until ``check`` is true; fails loudly where it never is."""
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


class Site:
    """A configuration, its folders and processes."""

    def __init__(self, folder, mlflow_uri, model, endpoint_port=0, seed=1, more="", gates=None):
        folder.mkdir(exist_ok=True)
        self.folder, self.model, self.uri = folder, model, mlflow_uri
        self.bundle_dir = folder / "bundles"
        self.url = f"http://127.0.0.1:{endpoint_port}" if endpoint_port else ""
        token = folder / "token"
        token.write_text(TOKEN)
        (folder / "models").mkdir()
        training = "".join(f"{key} = {value}\n" for key, value in (TRAINING | {"seed": seed}).items())
        judged = "".join(f"{key} = {value}\n" for key, value in (GATES | (gates or {})).items())
        self.config = folder / "smartcache.toml"
        self.config.write_text(
            f'[mlflow]\ntracking_uri = "{mlflow_uri}"\nmodel = "{model}"\n[training]\n{training}[gates]\n{judged}'
            f'[model]\nbundle_dir = "{self.bundle_dir}"\nendpoint_url = "{self.url}"\n[watch]\npoll_s = 0.1\nretry_most_s = 0.4\n'
            f'[endpoint]\nport = {endpoint_port}\nmodel_dir = "{folder / "models"}"\nadmin_token_file = "{token}"\n{more}'
        )

    def process(self, name, *argv, env=None, cold=False):
        """A command of this folder; ``cold``: by an interpreter of its own."""
        argv = [*argv, "--config", str(self.config)]
        kind, argv = (Process, [sys.executable, "-m", "smartcache.inference.cli", *argv]) if cold else (WarmProcess, argv)
        return kind(name, argv, self.folder / f"{name}.log", env={"PYTHONPATH": str(ROOT), **(env or {})}, cwd=self.folder)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    @property
    def live(self):
        link = self.bundle_dir / "current"
        return str(link.readlink()) if link.is_symlink() else None


def run(register, *argv):
    """A subcommand in this process: exit status and output."""
    import typer

    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    done = CliRunner().invoke(app, list(argv))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def train(site, dataset, *more):
    from smartcache.training.cli import register

    return run(register, "train", "--dataset", str(dataset), "--config", str(site.config), *more)


def register_untrained(uri, model, synthetic, folder, seed):
    """The next version of ``model``: a network as it was before it learnt anything, exported as `smartcache train` exports."""
    from smartcache.inference import export
    from smartcache.training import model as network

    network.deterministic(seed)
    inputs = np.stack(synthetic.columns(20, seed)["features"])
    keras_model = network.build(*network.normalization(inputs), [8], 3, learning_rate=0.01, dropout=0.2)
    registry = Registry(uri, model)
    client = registry._client
    if registry.versions(1) == []:
        client.create_registered_model(model)
    run_id = client.create_run(client.get_experiment_by_name("Default").experiment_id).info.run_id
    info = bundles.Info.model_validate(
        {
            "schema": synthetic.SCHEMA,
            "bucket_edges_s": [3600.0, 86400.0],
            "horizon_s": 3600.0,
            "horizon_buckets": 1,
            "thresholds": {"admit": 0.5, "evict": 0.1},
            "metrics": METRICS,
            "provenance": {"run_id": run_id, "seed": seed},
        }
    )
    bundle = export.export(keras_model, folder / run_id, info, inputs, 1e-5)
    client.log_artifacts(run_id, str(bundle.folder), "bundle")
    tags = {"smartcache.test_skill": str(METRICS["skill"])}
    client.create_model_version(model, f"runs:/{run_id}/bundle", run_id, tags=tags)


def promote(site, synthetic, *argv, command="promote"):
    from smartcache.inference.cli import register

    known = ["--schema-hash", synthetic.SCHEMA["hash"]] if command == "promote" else []
    return run(register, command, *argv, *known, "--config", str(site.config))


def status(site):
    """`smartcache status --json` in this process: exit status and what it says."""
    from smartcache.inference.cli import register

    code, output = run(register, "status", "--json", "--config", str(site.config))
    return code, json.loads(output)


def start_endpoint(site, binary):
    return endpoint_ready(site, launch_endpoint(site, binary))


def launch_endpoint(site, binary):
    """Starts without waiting: several start at once."""
    return site.process("endpoint", "endpoint", env={"SMARTCACHE_ENDPOINT": str(binary)}).start()


def endpoint_ready(site, endpoint):
    return endpoint.wait_ready(http_ok(f"{site.url}/readyz"), "serving", START_LIMIT_S)


def start_watch(site, synthetic, name="watch", cold=False):
    return site.process(name, "watch", "--schema-hash", synthetic.SCHEMA["hash"], cold=cold).start()


def served(site):
    return {each["name"] for each in CLIENT.get(f"{site.url}/models").json()}


def bundles_at(site):
    """Those that it serves, from its folder. One that is being taken away is passed over."""
    there = []
    for name in sorted(served(site)):

        def is_read(name=name):
            try:
                there.append(bundles.read(site.folder / "models" / name))
            except bundles.BundleError:
                return name not in served(site)
            return True

        wait_for(is_read, f"{name} whole, or gone", 30)
    return there


def which(site):
    """The version that answers predictions without a name, told by its answers to golden rows; None for an endpoint that is away.

    One request with rows of all versions that are there: between two requests another version may have become live.
    """
    try:
        there = bundles_at(site)
        if not there:
            return None
        assert len({tuple(bundle.info.feature_schema.names) for bundle in there}) == 1
        rows = np.concatenate([bundle.golden_inputs for bundle in there])
        answer = CLIENT.post(f"{site.url}/json", json={"keys": there[0].info.feature_schema.names, "rows": rows.tolist()})
    except httpx.HTTPError:
        return None
    if answer.status_code != 200:
        return None
    parts = np.split(np.asarray(answer.json(), dtype=np.float32), np.cumsum([len(bundle.golden_inputs) for bundle in there])[:-1])
    matching = [
        bundle.info.name
        for bundle, outputs in zip(there, parts, strict=True)
        if bundles.max_difference(outputs, bundle.golden_outputs) < 1e-5
    ]
    assert len(matching) <= 1, matching
    return matching[0] if matching else None
