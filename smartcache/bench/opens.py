"""What a client sees: open, read 4 KiB, close of warm files through an XCache without the plugin, with it (embedded), with the endpoint.

Five real XCaches in front of one origin, a real endpoint, and one real client program that measures them in turn, round by round: the
ratios are taken within a round, so that what else the machine does meets all of them. Two of the caches have no plugin: how much the second
differs from the first is what the measurement itself is good for. One has a plugin that admits all: what it costs the server to ask any.
"""

from __future__ import annotations

import json
import math
import secrets
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from ..local import paths, xrootd
from ..local.ports import LOOPBACK, free_ports
from ..local.process import Process, interrupts_ignored, line_in, stop_all
from . import results

NAME = "opens"
PROGRAM = paths.BUILD / "plugin" / "open_bench"
_ADMIT_ALL = paths.BUILD / "plugin" / "libXrdPfcAdmitAll-5.so"
_PLUGINS = {
    "asked": _ADMIT_ALL.with_name("libXrdPfcAdmitAll.so"),  # as a configuration names it
    "embedded": paths.PLUGIN,
    "endpoint": paths.PLUGIN,
}
#: The servers, in the order of the table; the first is what the others are compared with.
SERVERS = ("none", "control", "asked", "embedded", "endpoint")
CONNECTIONS = (1, 16)
#: At least so much of the rate without the plugin; and at most so many microseconds more at the median.
RATE_BARS, ADDED_BARS_US = {"embedded": 0.97}, {"endpoint": 300.0}
FILES = 512
#: More than a block: a file that a read of 4 KiB completes may end XRootD 5.5 (https://github.com/xrootd/xrootd/issues/2533).
FILE_BYTES = 2 * xrootd.BLOCK_BYTES
_SIZE = xrootd.CacheSize(base=256 << 20, nominal=512 << 20, maximum=1 << 30)


@dataclass(frozen=True)
class Length:
    """How long to measure: ``rounds`` of ``seconds`` for each server and number of connections, spread over ``starts`` of the caches.

    Many short rounds tell more than few long ones: what else runs on a machine lasts for seconds, and meets a short round's servers alike.
    And one start of a server is not like the next: the same XCache may stay some percent faster for as long as it lives.
    """

    rounds: int = 60
    seconds: float = 0.4
    starts: int = 10

    def rounds_of_starts(self) -> list[int]:
        """How many rounds each start has, the same to within one; no start without a round."""
        starts = min(self.starts, self.rounds)
        return [len(range(start, self.rounds, starts)) for start in range(starts)]


def run(length: Length, command: str) -> Path:
    """Measure and keep the result. Raises ProcessError, MissingPart or CalledProcessError, each naming what failed."""
    program = paths.require(PROGRAM, "the client program of the benchmark", "make bench ARGS=opens")
    paths.require(_ADMIT_ALL, "the plugin of the benchmark that admits all", "make bench ARGS=opens")
    where = results.machine()
    measured: list[dict[str, Any]] = []
    answers: dict[str, dict[str, float]] = {}
    with _site() as site:
        for rounds in length.rounds_of_starts():
            caches = site.start_caches()
            servers = [f"{name}={LOOPBACK}:{cache.port}={cache.process.pid}" for name, cache in caches.items()]
            before = max((one["round"] for one in measured), default=-1) + 1
            for connections in CONNECTIONS:
                argv = [str(program), str(connections), str(length.seconds), str(rounds), str(site.folder / "lfns"), *servers]
                done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
                for line in done.stdout.splitlines():
                    one = json.loads(line)
                    measured.append({**one, "round": before + one["round"]})
            for name in site.plugged:
                for reason, count in _answers(site.folder / name / "plugin.prom").items():
                    answers.setdefault(name, {}).setdefault(reason, 0.0)
                    answers[name][reason] += count
            for cache in caches.values():
                cache.process.require_running()
                cache.process.stop()
    figures = {**asdict(length), "rows": table(measured), "answers": answers, "measured": measured}
    return results.save(NAME, command, where, figures)


def table(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a number of connections and server: medians over the rounds; the rate against the first server's of the same round."""
    rows = []
    for connections in sorted({one["connections"] for one in measured}):
        by_round = {
            name: {one["round"]: one for one in measured if one["server"] == name and one["connections"] == connections} for name in SERVERS
        }
        base = by_round[SERVERS[0]]
        for name, rounds in by_round.items():
            ratios = sorted(_rate(one) / _rate(base[number]) for number, one in rounds.items())
            added = sorted(one["p50_us"] - base[number]["p50_us"] for number, one in rounds.items())
            low, high = median_interval(len(ratios))
            rows.append(
                {
                    "connections": connections,
                    "server": name,
                    "opens_per_s": statistics.median(map(_rate, rounds.values())),
                    "rate_ratio": statistics.median(ratios),
                    "rate_ratio_low": ratios[low],
                    "rate_ratio_high": ratios[high],
                    "p50_us": statistics.median(one["p50_us"] for one in rounds.values()),
                    "p50_added_us": statistics.median(added),
                    "p50_added_low_us": added[low],
                    "p50_added_high_us": added[high],
                    "p99_us": statistics.median(one["p99_us"] for one in rounds.values()),
                    "cpu_us": statistics.median(one["cpu_us"] for one in rounds.values()),
                    "cpu_added_us": statistics.median(one["cpu_us"] - base[number]["cpu_us"] for number, one in rounds.items()),
                }
            )
    return rows


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """For each bar and number of connections whether the figure meets it. One whose interval holds the bar says neither."""
    said = []
    for row in rows:
        bar, most_us = RATE_BARS.get(row["server"]), ADDED_BARS_US.get(row["server"])
        where = f"{row['server']}, {row['connections']} connection{'s' if row['connections'] > 1 else ''}"
        if bar is not None:
            open_ = row["rate_ratio_low"] < bar <= row["rate_ratio_high"]
            met = "not told apart from its bar" if open_ else "meets its bar" if row["rate_ratio"] >= bar else "misses its bar"
            said.append(f"{where}: {row['rate_ratio']:.3f} {met} of {bar:g}")
        if most_us is not None:
            open_ = row["p50_added_low_us"] <= most_us < row["p50_added_high_us"]
            met = "not told apart from its bar" if open_ else "meets its bar" if row["p50_added_us"] <= most_us else "misses its bar"
            said.append(f"{where}: {row['p50_added_us']:+,.0f} µs {met} of {most_us:g} µs")
    return said


def median_interval(count: int) -> tuple[int, int]:
    """Which of ``count`` sorted values bound their median with 95 % confidence, whatever they are distributed like.

    The number of values below the true median is binomial (count, 1/2); its normal approximation is within one of the exact ranks.
    """
    low = max(0, math.floor(count / 2 - 1.96 * math.sqrt(count) / 2))
    return low, count - 1 - low


def _rate(one: dict[str, Any]) -> float:
    return float(one["opens"]) / float(one["seconds"])


def _answers(textfile: Path) -> dict[str, float]:
    """What the plugin counted, by reason: that the model was really asked is part of the result."""
    counted: dict[str, float] = {}
    for line in textfile.read_text().splitlines():
        if line.startswith("smartcache_answers_total{"):
            labels, value = line.rsplit(" ", 1)
            if float(value):
                reason = labels.split('reason="', 1)[1].split('"', 1)[0]
                counted[reason] = counted.get(reason, 0.0) + float(value)
    return counted


@dataclass
class _Site:
    """Origin and endpoint, which run, and the caches, which are started again and again."""

    folder: Path
    origin_port: int
    plugged: list[str]
    parts: list[Process]

    def start_caches(self) -> dict[str, xrootd.Xrootd]:
        """By name; with what earlier ones left on disk."""
        caches = {}
        for name, port in zip(SERVERS, free_ports(len(SERVERS)), strict=True):
            plugged = name in self.plugged
            counters = self.folder / name / "plugin.prom"
            counters.unlink(missing_ok=True)  # of the start before
            caches[name] = xrootd.start_cache(
                self.folder / name,
                port,
                origin_port=self.origin_port,
                size=_SIZE,
                plugin=_PLUGINS.get(name),
                plugin_config=self.folder / f"{name}.toml" if plugged else None,
                name=name,
                register=self.parts.append,
            )
            if plugged:
                in_use = line_in(counters, 'smartcache_model_info{model="bench_v1"} 1')
                caches[name].process.wait_ready(in_use, "using the model", 30)
        return caches


@contextmanager
def _site() -> Iterator[_Site]:
    """Stopped at the end, also on Ctrl-C."""
    parts: list[Process] = []
    with xrootd.temporary_folder() as folder, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as log:
        log.bind((LOOPBACK, 0))  # takes the decision logs, as far as its buffer goes: sending them is part of an open's cost
        try:
            yield _start(folder, parts, log.getsockname()[1])
        finally:
            with interrupts_ignored():
                stop_all(parts, [])


def _start(folder: Path, parts: list[Process], log_port: int) -> _Site:
    origin_port, endpoint_port = free_ports(2)
    store = folder / "files" / "store" / "mc" / "bench" / "v1" / "NANOAODSIM"
    store.mkdir(parents=True)
    content = secrets.token_bytes(FILE_BYTES)
    for number in range(FILES):
        (store / f"{number}.root").write_bytes(content)
    (folder / "lfns").write_text("".join(f"/store/mc/bench/v1/NANOAODSIM/{number}.root\n" for number in range(FILES)))
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_urlsafe(16))
    models = folder / "bundles"
    endpoint = {"port": endpoint_port, "model_dir": str(folder / "served"), "admin_token_file": str(token)}
    url = f"http://{LOOPBACK}:{endpoint_port}"
    common = {"decision_log": {"port": log_port}, "endpoint": endpoint, "policy": {"explore": 0.0}}
    settings: dict[str, dict[str, Any]] = {
        "embedded": {**common, "model": {"use": "embedded", "bundle_dir": str(models), "endpoint_url": ""}},
        "endpoint": {**common, "model": {"use": "endpoint", "bundle_dir": str(models), "endpoint_url": url}},
    }
    (folder / "served").mkdir()
    for name, each in settings.items():
        (folder / name).mkdir()
        each["plugin_metrics"] = {"textfile": str(folder / name / "plugin.prom"), "interval_s": 0.2}
        (folder / f"{name}.toml").write_text(tomli_w.dumps(each))

    server = Process(
        "endpoint",
        [sys.executable, "-m", "smartcache", "endpoint", "--config", str(folder / "endpoint.toml")],
        folder / "endpoint.log",
    )
    parts.append(server)
    server.start().wait_ready(line_in(server.log, "ready:"), "ready", 60)
    _install(folder, models, url, token.read_text())
    xrootd.start_origin(folder / "origin", origin_port, data=folder / "files", register=parts.append)
    return _Site(folder, origin_port, list(settings), parts)


def _install(folder: Path, models: Path, url: str, token: str) -> None:
    """The network, for plugin and endpoint."""
    from ..inference import bundle as bundles
    from ..inference.install import BundleDir
    from ..inference.serving import Endpoint
    from . import network

    exported = network.exported(folder / "exported")
    place = BundleDir(models, "bench")
    with place.writer(), place.incoming() as incoming:
        named = bundles.copy_named(exported, incoming / "bench_v1", "bench_v1")
        with Endpoint(url, token) as endpoint:
            endpoint.upload(named)
            endpoint.check_golden(named)
        place.place(named)
        place.make_current("bench_v1")
