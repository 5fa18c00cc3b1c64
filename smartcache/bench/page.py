"""The tables of ``docs/benchmarks.md``, from what the last runs left: the text around them is written by people, the figures are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..local import paths
from . import collector, core, endpoint, opens, results, spark

PAGE = paths.ROOT / "docs" / "benchmarks.md"


class PageError(Exception):
    """The page has no place for a result; the text says which."""


def write() -> list[str]:
    """Put every result that there is between its marks, ``<!-- NAME -->`` and ``<!-- end NAME -->``; returns their names."""
    text = PAGE.read_text()
    written = []
    for name, rows in _TABLES.items():
        result = results.load(name)
        if result is None:
            continue
        text = _replace(text, name, f"{_origin(result)}\n\n{rows(result)}")
        written.append(name)
    PAGE.write_text(text)
    return written


def _replace(text: str, name: str, content: str) -> str:
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not marks.search(text):
        raise PageError(
            f"{PAGE}: has no place for {name}: write a line <!-- {name} --> and a line <!-- end {name} --> where its table goes"
        )
    return marks.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text)


def _origin(result: dict[str, Any]) -> str:
    where = result["machine"]
    return (
        f"`{result['command']}`, {result['time']}, revision `{result['revision']}`; {where['cores']} cores of {where['cpu']}, "
        f"load {where['load_at_start']} before it began."
    )


def _core(result: dict[str, Any]) -> str:
    """In the order of their names: in which they end is left to chance."""
    head = "| step | a second | time, ns | p50, ns | p99, ns | p999, ns | |\n|---|---:|---:|---:|---:|---:|---|"
    shown = {"name", "time_ns", "p50_ns", "p99_ns", "p999_ns"}
    lines = []
    for row in sorted(result["rows"], key=lambda row: str(row["name"])):
        figures = " | ".join(f"{row[key]:,.0f}" if key in row else "" for key in ("time_ns", "p50_ns", "p99_ns", "p999_ns"))
        others = ", ".join(f"{key} {value:,.4g}" for key, value in row.items() if key not in shown)
        lines.append(f"| `{row['name'].removeprefix('BM_')}` | {1e9 / row['time_ns']:,.0f} | {figures} | {others} |")
    return "\n".join([head, *lines, "", *(f"- {each}" for each in core.verdicts(result["rows"]))]).rstrip()


def _opens(result: dict[str, Any]) -> str:
    rows = opens.table(result["measured"])  # not as it was kept: it may be from before a figure was added
    head = (
        "| connections | plugin | opens/s | rate against none (95 % interval) | p50, µs | added to p50, µs (95 % interval) | p99, µs | "
        "processor an open, µs | added to it, µs |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    lines = [
        f"| {row['connections']} | {row['server']} | {row['opens_per_s']:,.0f} | {row['rate_ratio']:.3f} "
        f"({row['rate_ratio_low']:.3f} to {row['rate_ratio_high']:.3f}) | {row['p50_us']:,.0f} | {row['p50_added_us']:+,.0f} "
        f"({row['p50_added_low_us']:+,.0f} to {row['p50_added_high_us']:+,.0f}) | "
        f"{row['p99_us']:,.0f} | {row['cpu_us']:,.0f} | {row['cpu_added_us']:+,.0f} |"
        for row in rows
    ]
    answers = "; ".join(
        f"{name}: " + ", ".join(f"{reason} {count:,.0f}" for reason, count in sorted(counted.items()))
        for name, counted in result["answers"].items()
    )
    asked = (
        f"Medians of {result['rounds']} rounds of {result['seconds']:g} s, over {result['starts']} starts of the caches. "
        f"Answers that the plugins counted: {answers}."
    )
    return "\n".join([head, *lines, "", asked, "", *(f"- {each}" for each in opens.verdicts(rows))])


def _endpoint(result: dict[str, Any]) -> str:
    rows = result["rows"]
    stock = any(row["server"] == endpoint.TFAAS for row in rows)
    bases = [base for base in endpoint.BASES if stock or base != endpoint.TFAAS]
    heads = ["connections", "server", "requests/s", *(f"rate against {base}" for base in bases), "processor a request, µs"]
    heads += [*(f"processor against {base}" for base in bases), "p50, µs", "p99, µs", "rows a run"]
    lines = [f"| {' | '.join(heads)} |", "|---:|---|" + "---:|" * (len(heads) - 2)]
    for row in rows:
        shown = [f"{row['connections']}", row["server"], _figure(row["requests_per_s"], ",.0f")]
        shown += [_figure(row[f"requests_per_s_against_{base}"], ".2f") for base in bases]
        shown += [_figure(row["cpu_us"], ",.1f"), *(_figure(row[f"cpu_us_against_{base}"], ".2f") for base in bases)]
        shown += [_figure(row["p50_us"], ",.0f"), _figure(row["p99_us"], ",.0f"), _figure(row["rows_a_run"], ".1f")]
        lines.append(f"| {' | '.join(shown)} |")
    asked = f"Medians of {result['rounds']} rounds of {result['seconds']} s. Load generator: {result['load_generator']}, one thread."
    return "\n".join([*lines, "", asked if stock else f"{asked} No stock TFaaS was named."])


def _collector(result: dict[str, Any]) -> str:
    head = (
        "| | records/s without loss | processor a record, µs | all at Kafka after, s | too many records/s | packets lost there | "
        "records of the others missing there |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    lines = []
    for row in result["rows"]:
        broker = row["mode"] == "broker writing"
        shown = [
            f"{row['records_per_s']:,.0f}",
            _figure(row["cpu_us_per_record"], ",.1f"),
            _figure(row["late_s"] if broker else None, ".2f"),
            _figure(row["lost_at_per_s"], ",.0f"),
            _figure(row["lost_packets"], ",.0f"),
            _figure(row["missing_records"], ",.0f"),
        ]
        lines.append(f"| {row['mode']} | {' | '.join(shown)} |")
    asked = (
        f"Each rate for {result['seconds']:g} s; the highest that held was held {result['rounds']} times more, without loss. "
        f"Receive buffer: {result['receive_buffer_bytes']:,} bytes."
    )
    return "\n".join([head, *lines, "", asked, "", *(f"- {each}" for each in collector.verdicts(result))])


def _spark(result: dict[str, Any]) -> str:
    head = (
        "| command | master | opens | seconds | start | records/s | memory, MB | growth of time | growth of memory |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    lines = []
    for row in spark.growth(result["rows"]):
        shown = [
            *(row["job"], row["master"], f"{row['opens']:,}", f"{row['seconds']:,.1f}", f"{row['start_seconds']:,.1f}"),
            *(_figure(row["per_s"], ",.0f"), f"{row['peak_bytes'] / 1e6:,.0f}"),
            *(_figure(row["time_growth"], ".2f"), _figure(row["memory_growth"], ".2f")),
        ]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join([head, *lines])


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    core.NAME: _core,
    opens.NAME: _opens,
    endpoint.NAME: _endpoint,
    collector.NAME: _collector,
    spark.NAME: _spark,
}
