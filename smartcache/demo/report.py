"""What a run measured, for people: a table on the terminal, plots as PNG, one self-contained HTML page. All figures come from the run."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import model_table, plots
from .plan import CACHES


@dataclass(frozen=True)
class Figure:
    """One row of the table: what is compared, and how it was measured."""

    name: str
    unit: str
    how: str
    #: 1 where more is better, -1 where less is, 0 where neither.
    better: int = 0


FIGURES = {
    "opens": Figure("opens", "", "counted by the clients"),
    "failed": Figure("opens that failed", "", "counted by the clients, wrong bytes included", -1),
    "delivered_bytes": Figure("delivered to clients", "MB", "the cache's own link counter (xrd.report, out)"),
    "origin_bytes": Figure("fetched from the origin", "MB", "the link counter of the cache's own origin (xrd.report, out)", -1),
    "byte_hit_rate": Figure("byte hit rate", "%", "1 - fetched / delivered", 1),
    "written_bytes": Figure("written to the cache disk", "MB", "write_bytes of the cache's process, kept by the kernel (/proc/PID/io)", -1),
    "open_ms_p50": Figure("open latency p50", "ms", "at the clients' clocks, from sending the open to its answer", -1),
    "open_ms_p99": Figure("open latency p99", "ms", "the same", -1),
    "total_ms_p50": Figure("open + read + close p50", "ms", "at the clients' clocks", -1),
}
ANSWERS = (
    "the plugin's answers, from its decision log through the access table (scored: a model's score came with it; "
    "cached: not worth storing, but on disk already)"
)
ANSWER_COLUMNS = ("answer", "reason", "opens", "scored")
#: Why the endpoint was not heard; where such an answer has a score, the plugin's own copy of the model gave it.
_NOT_HEARD = ("deadline", "breaker_open", "unreachable", "invalid_reply")
_SCALE = {"MB": 1e-6, "%": 100.0}


def write(measured: dict[str, Any], folder: Path) -> Path:
    """Write ``measurements.json``, the plots and ``index.html`` into ``folder``; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "measurements.json").write_text(json.dumps(measured, indent=1))
    pictures = plots.draw(measured, folder)
    page = folder / "index.html"
    page.write_text(_page(measured, pictures))
    return page


def show(measured: dict[str, Any], console: Console) -> None:
    """Print the table and the verdict."""
    for phase, figures in measured["phases"].items():
        table = Table(title=_title(phase, figures), title_justify="left")
        table.add_column("")
        for cache in CACHES:
            table.add_column(cache, justify="right")
        table.add_column("smart / plain", justify="right")
        for row in rows(figures["caches"]):
            table.add_row(*map(escape, row[:4]))  # a unit in brackets is no markup
        console.print(table)
        answers = Table(title=f"{phase}: {ANSWERS}", title_justify="left")
        for column in ANSWER_COLUMNS:
            answers.add_column(column, justify="left" if column in ("answer", "reason") else "right")
        for line in figures["answers"]:
            answers.add_row(*(str(line[column]) for column in ANSWER_COLUMNS))
        console.print(answers)
    console.print("How it was measured:")
    for figure in FIGURES.values():
        console.print(f"  {figure.name}: {figure.how}", highlight=False, markup=False, soft_wrap=True)
    for line in [*remarks(measured), *(f"note: {note}" for note in measured["notes"])]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def rows(caches: dict[str, dict[str, float]]) -> list[tuple[str, str, str, str, str]]:
    """Name, plain, smart, ratio and how it was measured, for each figure, as text."""
    lines = []
    for key, figure in FIGURES.items():
        plain, smart = (caches[cache][key] for cache in CACHES)
        ratio = f"{smart / plain:.2f}" if plain and key != "byte_hit_rate" else ""
        if key == "byte_hit_rate":
            ratio = f"{100 * (smart - plain):+.1f} points"
        name = f"{figure.name} [{figure.unit}]" if figure.unit else figure.name
        lines.append((name, _text(plain, figure), _text(smart, figure), ratio, figure.how))
    return lines


def remarks(measured: dict[str, Any]) -> list[str]:
    """The outcome in sentences: who did better at what, in the phase where the model answered."""
    caches = measured["phases"]["decide"]["caches"]
    said = [_verdict(caches, "origin_bytes", "fetched", "from the origin"), _verdict(caches, "written_bytes", "wrote", "to its disk")]
    said.append(_latency(caches))
    said.append(_answered(measured["phases"]["decide"]["answers"], int(caches["smart"]["opens"])))
    removed = measured["removed_files"]
    said.append(
        f"Files that left the disk in the whole run, seen by walks over the caches' folders: plain {removed['plain']} "
        f"(nothing but pfc's purge removes any there); smart {removed['smart']}, "
        f"of which the plugin counts {measured['evicted_files']} as evicted by it."
    )
    opens, table = measured["client_opens"], measured["access_rows"]
    same = "as many as the clients made" if opens == table else "NOT as many as the clients made"
    counts = ", ".join(f"{table.get(cache, 0)} of {opens.get(cache, 0)} at the {cache} cache" for cache in CACHES)
    said.append(f"The access table has a row for {counts}: {same} successful opens.")
    model = measured["model"]
    if model.get("promoted"):
        said.append(f"Model {model['name']}: admits where P(opened again) >= {model['thresholds']['admit']:.3f} (its bundle's threshold).")
    else:
        said.append("No model was promoted: the smart cache admitted everything.")
    return said


def _answered(answers: list[dict[str, Any]], opens: int) -> str:
    by_model = [line for line in answers if line["reason"] in ("model", *_NOT_HEARD)]
    times = {answer: sum(line["scored"] for line in by_model if line["answer"] == answer) for answer in ("admit", "bypass", "evict")}
    copy = sum(line["scored"] for line in by_model if line["reason"] in _NOT_HEARD)
    answered = sum(line["opens"] for line in answers)
    return (
        f"Decide: {opens} opens, {opens - answered} of them without an answer (pfc asks nobody about a file that another client has open); "
        f"of {answered} answers {sum(times.values())} were the model's: admit {times['admit']}, bypass {times['bypass']}, evict "
        f"{times['evict']}; {copy} of them by the plugin's own copy of it, where the endpoint was not heard in time."
    )


def _verdict(caches: dict[str, dict[str, float]], key: str, verb: str, where: str) -> str:
    plain, smart = (caches[cache][key] for cache in CACHES)
    if smart and not plain:
        return f"Decide: the smart cache {verb} {_text(smart, FIGURES[key])} MB {where}, the plain one NOTHING."
    change = 100 * (smart / plain - 1) if plain else 0.0
    if abs(change) < 1:
        return f"Decide: the smart cache {verb} as much {where} as the plain one ({change:+.1f} %)."
    return f"Decide: the smart cache {verb} {abs(change):.1f} % {'less' if change < 0 else 'MORE'} {where} than the plain one."


def _latency(caches: dict[str, dict[str, float]]) -> str:
    parts = []
    for key, what in (("open_ms_p50", "the median"), ("open_ms_p99", "p99")):
        plain, smart = (caches[cache][key] for cache in CACHES)
        change = 100 * (smart / plain - 1) if plain else 0.0
        longer = "as long" if abs(change) < 1 else f"{abs(change):.0f} % {'less' if change < 0 else 'LONGER'}"
        parts.append(f"{longer} at {what} ({smart:.2f} ms, plain {plain:.2f} ms)")
    return f"Decide: an open took {' and '.join(parts)} at the smart cache."


def _text(value: float, figure: Figure) -> str:
    scaled = value * _SCALE.get(figure.unit, 1.0)
    return f"{scaled:.0f}" if figure.unit == "" else f"{scaled:.1f}" if figure.unit in ("MB", "%") else f"{scaled:.2f}"


def _title(name: str, phase: dict[str, Any]) -> str:
    return f"{name}: {phase['ended'] - phase['began']:.0f} s by this machine's clock"


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .6rem; border-bottom: 1px solid #d8dee6; text-align: right; }
th:first-child, td:first-child, th.how, td.how { text-align: left; } td.how { color: #5b6775; font-size: .85rem; }
img { width: 100%; height: auto; } .note { background: #fff4d6; padding: .5rem .8rem; white-space: pre-wrap; }
footer { color: #5b6775; font-size: .85rem; margin-top: 2rem; }
"""


def _page(measured: dict[str, Any], pictures: list[plots.Picture]) -> str:
    """The page, with the plots inside it: it can be mailed or archived as one file."""
    parts = [f"<h1>smartcache demo: {html.escape(measured['plan'])}</h1>"]
    parts += [f"<p>{html.escape(line)}</p>" for line in remarks(measured)]
    parts += [f'<p class="note">{html.escape(note)}</p>' for note in measured["notes"]]
    for phase, figures in measured["phases"].items():
        parts.append(f"<h2>{html.escape(_title(phase.capitalize(), figures))}</h2>")
        parts.append(_table(("", *CACHES, "smart / plain", "measured"), rows(figures["caches"])))
        parts.append(f"<p>{html.escape(phase.capitalize())}: {ANSWERS}:</p>")
        parts.append(_table(ANSWER_COLUMNS, [tuple(str(answer[column]) for column in ANSWER_COLUMNS) for answer in figures["answers"]]))
    for picture in pictures:
        data = base64.b64encode(picture.path.read_bytes()).decode()
        parts.append(f'<h2>{html.escape(picture.title)}</h2><img alt="{html.escape(picture.title)}" src="data:image/png;base64,{data}">')
        parts.append(f"<p>{html.escape(picture.caption)}</p>")
    if lines := model_table.rows(measured["model"]):
        parts.append("<h2>The model: the figures of its version</h2>")
        parts.append(_table(("figure", "value", "measured"), lines))
    footer = f"seed {measured['seed']} · revision {measured['revision'] or 'unknown'}"
    footer += f" · {measured['seconds']:.0f} s in all by this machine's clock"
    sizes = {name: f"{size / 1e6:.0f} MB" for name, size in measured["cache"].items()}
    footer += f" · pfc's purge is configured to start at {sizes['maximum_bytes']} of files and to stop at {sizes['nominal_bytes']}"
    parts.append(f"<footer>{html.escape(footer)}</footer>")
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>smartcache demo</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _table(head: tuple[str, ...], lines: list[Any]) -> str:
    """``head`` names the columns; what is under "measured" is set as words, not as numbers."""
    body = "".join(_row("td", head, line) for line in lines)
    return f"<table><thead>{_row('th', head, head)}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, head: tuple[str, ...], cells: Iterable[object]) -> str:
    parts = [
        f"<{tag}{' class=how' if column == 'measured' else ''}>{html.escape(str(cell))}</{tag}>"
        for column, cell in zip(head, cells, strict=True)
    ]
    return f"<tr>{''.join(parts)}</tr>"
