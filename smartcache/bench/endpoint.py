"""What serving costs: our endpoint under wrk, against a Go handler that does nothing, and against a stock TFaaS where there is one.

The servers are asked in turn in each round, by the same load generator with the same prediction, and the ratios are taken within a round.
Our endpoint is there twice: as it comes, and with each prediction in a run of its own. ``SMARTCACHE_TFAAS_URL`` and
``SMARTCACHE_TFAAS_MODELS`` name a running stock TFaaS of this machine and its model folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import tomli_w

from ..local import paths
from ..local.ports import LOOPBACK, free_ports
from ..local.process import Process, ProcessError, direct_loopback, interrupts_ignored, line_in, stop_all
from . import results

NAME = "endpoint"
ROUNDS = 20
SECONDS = 1.0
CONNECTIONS = (1, 16, 64)
#: What the others are compared with; a stock TFaaS is there only where a site has one.
NOTHING, TFAAS = "nothing", "tfaas"
#: The endpoint as it comes, and with each prediction in a run of its own: what the first has more than the second is what sharing gains.
ENDPOINT, ALONE = "endpoint", "alone"
TFAAS_URL, TFAAS_MODELS = "SMARTCACHE_TFAAS_URL", "SMARTCACHE_TFAAS_MODELS"
BASES = (NOTHING, ALONE, TFAAS)
_SCRIPT = Path(__file__).with_name("predict.lua")
_MODEL = "bench_v1"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """One that is asked. ``pid``: whose processor time counts, None where it is not known."""

    name: str
    url: str
    body: Path
    pid: int | None
    metrics: bool

    def cpu_s(self) -> float | None:
        """Processor time so far, user's and kernel's."""
        if self.pid is None:
            return None
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def runs(self) -> tuple[float, float] | None:
        """Rows and runs of the model so far."""
        if not self.metrics:
            return None
        with build_opener(ProxyHandler({})).open(f"{self.url}/metrics", timeout=10) as answer:
            return batch_rows(answer.read().decode())


def batch_rows(text: str) -> tuple[float, float]:
    """Sum and count of the endpoint's histogram of rows, from its metrics."""
    rows, runs = (
        float(value)
        for name in ("sum", "count")
        for value in re.findall(rf"^smartcache_endpoint_batch_rows_{name} (\S+)$", text, re.MULTILINE)
    )
    return rows, runs


def run(rounds: int, seconds: float, command: str, tell: Callable[[str], None]) -> Path:
    """Measure and keep the result. Raises ProcessError, MissingPart or CalledProcessError, each naming what failed."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise paths.MissingPart("wrk, the load generator, is missing; run `make setup`")
    where = results.machine()
    measured: list[dict[str, Any]] = []
    with _site() as servers:
        tell(f"servers: {', '.join(server.name for server in servers)}")
        for connections in CONNECTIONS:
            for server in servers:  # the first requests meet cold caches
                _ask(wrk, server, connections, 1)
            for number in range(rounds):
                for server in servers:
                    measured.append({"round": number, **_ask(wrk, server, connections, whole_seconds(seconds))})
            tell("; ".join(_text(row) for row in table(measured) if row["connections"] == connections))
    figures = {
        "rounds": rounds,
        "seconds": whole_seconds(seconds),
        "load_generator": _version(wrk),
        "rows": table(measured),
        "measured": measured,
    }
    return results.save(NAME, command, where, figures)


def whole_seconds(seconds: float) -> int:
    """What wrk can take: it measures whole seconds."""
    return max(1, round(seconds))


def table(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a number of connections and server: medians over the rounds; rates and processor time against others of the same round."""
    rows = []
    for connections in sorted({one["connections"] for one in measured}):
        by_server: dict[str, dict[int, dict[str, Any]]] = {}
        for one in measured:
            if one["connections"] == connections:
                by_server.setdefault(one["server"], {})[one["round"]] = one
        for name, rounds in by_server.items():
            row: dict[str, Any] = {"connections": connections, "server": name}
            for figure in ("requests_per_s", "cpu_us", "p50_us", "p99_us", "rows_a_run"):
                row[figure] = _median(one[figure] for one in rounds.values())
            for base in BASES:
                others = by_server.get(base, {})
                for figure in ("requests_per_s", "cpu_us"):
                    pairs = ((one[figure], others[number][figure]) for number, one in rounds.items() if number in others)
                    row[f"{figure}_against_{base}"] = _median(mine / other if mine is not None and other else None for mine, other in pairs)
            rows.append(row)
    return rows


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _text(row: dict[str, Any]) -> str:
    gain = f" ({row['requests_per_s_against_alone']:.2f} times those without shared runs)" if row["server"] == ENDPOINT else ""
    return f"{row['server']}, {row['connections']} connections: {row['requests_per_s']:,.0f} requests/s{gain}"


def _ask(wrk: str, server: Server, connections: int, seconds: int) -> dict[str, Any]:
    """One measurement. ProcessError where an answer was not a success: what was measured then is something else."""
    argv = [wrk, "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s", "--script", str(_SCRIPT)]
    argv += [f"{server.url}/json", "--", str(server.body)]
    cpu, runs = server.cpu_s(), server.runs()
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=direct_loopback(os.environ))
    told = json.loads(done.stdout.splitlines()[-1])
    cpu_after, runs_after = server.cpu_s(), server.runs()
    if told["status_errors"] or told["socket_errors"] or not told["requests"]:
        raise ProcessError(
            f"{server.name} at {server.url}: must answer each prediction with 200, but of {told['requests']} there were "
            f"{told['status_errors']} with another status and {told['socket_errors']} without an answer; a stock TFaaS needs a high `rate` "
            "in its configuration"
        )
    return {
        "server": server.name,
        "connections": connections,
        "requests_per_s": told["requests"] / told["seconds"],
        "cpu_us": None if cpu is None or cpu_after is None else (cpu_after - cpu) * 1e6 / told["requests"],
        "p50_us": told["p50_us"],
        "p99_us": told["p99_us"],
        "rows_a_run": None if runs is None or runs_after is None else (runs_after[0] - runs[0]) / max(1.0, runs_after[1] - runs[1]),
    }


def _version(wrk: str) -> str:
    """wrk shows its version with its usage, and ends with a failure."""
    done = subprocess.run([wrk, "--version"], capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines()[0].split("[")[0].strip()


@contextmanager
def _site() -> Iterator[list[Server]]:
    """The servers, with the model, each asked for its golden rows; ours are stopped at the end, also on Ctrl-C."""
    parts: list[Process] = []
    installed: list[Path] = []
    with tempfile.TemporaryDirectory() as name:
        try:
            yield _start(Path(name), parts, installed)
        finally:
            with interrupts_ignored():
                stop_all(parts, [])
                for folder in installed:
                    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, parts: list[Process], installed: list[Path]) -> list[Server]:
    from ..inference import bundle as bundles
    from ..inference.serving import Endpoint
    from . import network

    exported = network.exported(folder / "exported")
    served = folder / "served"
    bundle = bundles.copy_named(exported, served / _MODEL, _MODEL)
    body = _body(folder / "body.json", bundle)

    nothing = Process(NOTHING, [str(_build_nothing())], folder / "nothing.log")
    parts.append(nothing)
    nothing.start().wait_ready(line_in(nothing.log, "ready:"), "ready", 60)
    url = nothing.log.read_text().split("ready: ", 1)[1].split()[0]
    servers = [Server(NOTHING, url, body, nothing.pid, metrics=False)]

    # Without a token they do not change the folder, so both may serve it.
    for number, (name, settings) in enumerate({ENDPOINT: {}, ALONE: {"batch_rows": 1}}.items()):
        (port,) = free_ports(1)
        config = folder / f"endpoint{number}.toml"
        config.write_text(tomli_w.dumps({"endpoint": {"port": port, "model_dir": str(served), **settings}}))
        argv = [sys.executable, "-m", "smartcache", "endpoint", "--config", str(config)]
        process = Process(name, argv, folder / f"endpoint{number}.log")
        parts.append(process)
        process.start().wait_ready(line_in(process.log, "ready:"), "ready", 60)
        servers.append(Server(name, f"http://{LOOPBACK}:{port}", body, process.pid, metrics=True))
        with Endpoint(servers[-1].url) as asked:
            asked.check_golden(bundle)

    stock, models = os.environ.get(TFAAS_URL, "").rstrip("/"), os.environ.get(TFAAS_MODELS, "")
    if stock and models:
        # A name of its own: a stock server keeps what it has loaded under one.
        name = f"bench_{os.getpid()}"
        installed.append(Path(models) / name)
        named = bundles.copy_named(exported, installed[-1], name)
        with Endpoint(stock) as asked:
            asked.check_golden(named)
        servers.append(Server(TFAAS, stock, _body(folder / "body_tfaas.json", named), listener(urlsplit(stock).port or 80), metrics=False))
    return servers


def _body(path: Path, bundle: Any) -> Path:
    """A prediction as the plugin sends it."""
    info = bundle.info
    values = [float(value) for value in bundle.golden_inputs[0]]
    path.write_text(json.dumps({"keys": info.feature_schema.names, "values": values, "model": info.name}))
    return path


def _build_nothing() -> Path:
    """The program to compare with. Go is there where the endpoint was built."""
    go = shutil.which("go", path=paths.search_path())
    if go is None:
        raise paths.MissingPart("go, which builds the server to compare with, is missing; run `make setup`")
    program = paths.BUILD / "bin" / "smartcache-bench-nothing"
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    subprocess.run([go, "build", "-o", str(program), "./nothing"], cwd=paths.ROOT / "inference" / "server", env=env, check=True)
    return program


def listener(port: int) -> int | None:
    """The process of this machine that listens at a TCP port; None where it is another's, or not to be seen."""
    inodes = set()
    for table_of in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table_of}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another's, or it has ended
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(handle.readlink()) in inodes:
                        return int(process.name)
    return None
