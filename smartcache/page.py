"""What the reports of this project share: one HTML file that needs no network, with plots inside it as SVG images.

All text that is given is escaped here. Pure but for matplotlib, which is imported when the first plot is made (extras `simulate`, `stats`).
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 88rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid #d8dee6; padding-top: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .45rem; border-bottom: 1px solid #d8dee6; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.bound td { color: #5b6775; font-style: italic; }
tr.floor td { background: #eef1f5; }
caption { text-align: left; font-weight: 600; padding: .8rem 0 .3rem; } summary { cursor: pointer; font-weight: 600; margin-top: 1rem; }
img { width: 100%; height: auto; } .small, footer { color: #5b6775; font-size: .85rem; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Picture:
    """A plot: its image as a data URI."""

    title: str
    caption: str
    data: str


def document(title: str, parts: Iterable[str], footer: Iterable[str]) -> str:
    """The whole page of ``parts``, which are HTML; ``title`` and the lines of the footer are text."""
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", *parts])
    foot = "".join(f"<p>{html.escape(line)}</p>" for line in footer)
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    top = f"{meta}<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{top}</head>\n<body>\n{body}\n<footer>{foot}</footer>\n</body></html>\n'


def heading(text: str) -> str:
    """A heading of the second level; :func:`contents` leads to it by its text."""
    return f'<h2 id="{_anchor(text)}">{html.escape(text)}</h2>'


def contents(headings: Iterable[str]) -> str:
    """A line of links to these headings of the page."""
    links = " · ".join(f'<a href="#{_anchor(text)}">{html.escape(text)}</a>' for text in headings)
    return f"<p>{links}</p>"


def _anchor(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()


def paragraphs(lines: Iterable[str], *, small: bool = False) -> str:
    """Each line as a paragraph."""
    mark = ' class="small"' if small else ""
    return "".join(f"<p{mark}>{html.escape(line)}</p>" for line in lines)


def image(picture: Picture) -> str:
    """A plot with its caption."""
    return f'<img alt="{html.escape(picture.title)}" src="{picture.data}">{paragraphs([picture.caption], small=True)}'


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], classes: Mapping[str, str] | None = None) -> str:
    """A table; ``classes``: of the rows whose first cell is this text (`floor`, `bound`)."""
    marks = {name: f' class="{value}"' for name, value in (classes or {}).items()}
    body = "".join(f"<tr{marks.get(row[0], '')}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    titles = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    content = f"<caption>{html.escape(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table>{content}</table></div>'


def panels(count: int, width: float = 5.2, columns: int = 2, *, shared: bool = True) -> tuple[Any, Any]:
    """A matplotlib figure and its ``count`` axes, in lines of ``columns``; ``shared``: several lines have one scale."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    lines = -(-count // columns)
    figure = Figure(figsize=(width * columns + 1.8, 3.6 * lines), layout="constrained")
    every = figure.subplots(lines, columns, sharey=shared and lines > 1, squeeze=False).flat
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e9ecef", linewidth=0.8)
        axes.set_axisbelow(True)
    for axes in every[count:]:
        axes.remove()
    return figure, every[:count]


def svg(figure: Any) -> str:
    """A matplotlib figure as a data URI; the same figure gives the same text."""
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "smartcache"}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(content.getvalue()).decode()


def amount(count: float) -> str:
    """Bytes for a person, in powers of 1000, three digits or more."""
    power = 0
    while abs(count) >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.3g} {_UNITS[power]}"


def share(value: float) -> str:
    """A share of one, in percent."""
    return f"{100 * value:.4g} %"
