"""The plots of a comparison, as SVG images that stand inside the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from smartcache.page import Picture, panels, svg

from .ablation import Worth
from .figures import Window
from .policies import BOUND, FLOOR, LEARNED, PORTFOLIO
from .seeds import Mean, half_interval

#: Policies that are drawn over time beside LRU and Belady: more lines could not be told apart.
_DRAWN = 3
#: Those that a reader looks for first; all others are thinner.
_STYLES: dict[str, dict[str, Any]] = {
    FLOOR: {"color": "#1d2733", "linewidth": 2.4},
    BOUND: {"color": "#868e96", "linewidth": 1.6, "linestyle": "--"},
    LEARNED: {"color": "#e03131", "linewidth": 2.4, "marker": "o", "zorder": 4},
    PORTFOLIO: {"color": "#1c7ed6", "linewidth": 2.4, "marker": "s", "zorder": 3},
}
_RATE = "from the origin"
_GAP = "gap_closed"
#: What far worse policies close is cut off, or the others could not be told apart.
_LEAST_GAP = -20.0
_UNITS = {"origin_bytes_per_s": "B/s", "bytes_written": "B"}
#: Of the twenty colours those that look like a colour of :data:`_STYLES`: blue, red, grey.
_TAKEN = (0, 6, 14)
_MARKERS = "osD^v<>Pp*Xhd"


def against_size(means: Sequence[Mean]) -> list[Picture]:
    """Miss, and what else a site pays, of each policy by cache size; none where there is one size only."""
    sizes = sorted({mean.line.cache_fraction for mean in means})
    if len(sizes) < 2:
        return []
    return [
        _against_size(
            means,
            sizes,
            "Miss against cache size",
            ("byte_miss", "byte miss"),
            (_GAP, f"gap closed, %, from {FLOOR} to {BOUND}"),
            ("object_miss", "object miss"),
            ("bytes_written", "written"),
        ),
        _against_size(
            means,
            sizes,
            "Cost against cache size",
            ("throughput", "throughput"),
            ("cost", "cost"),
            ("origin_bytes_per_s", _RATE),
            ("cpu_efficiency", "CPU efficiency"),
        ),
    ]


def _against_size(means: Sequence[Mean], sizes: Sequence[float], title: str, *columns: tuple[str, str]) -> Picture:
    from matplotlib.ticker import EngFormatter

    figure, every = panels(len(columns), shared=False)
    for axes, (column, name) in zip(every, columns, strict=True):
        for policy, style in _styles(means).items():
            own = sorted((mean for mean in means if mean.line.policy == policy), key=lambda mean: mean.line.cache_fraction)
            shares = [100 * mean.line.cache_fraction for mean in own]
            scale = 100 if column == _GAP else 1
            values = [scale * _number(getattr(mean.line, column)) for mean in own]
            if column == _GAP and policy == BOUND:  # 100 everywhere
                continue
            _line(axes, shares, values, [scale * mean.half.get(column, 0.0) for mean in own], markersize=4, label=policy, **style)
        if column in _UNITS:
            axes.yaxis.set_major_formatter(EngFormatter(_UNITS[column]))
        if column == _GAP and axes.get_ylim()[0] < _LEAST_GAP:
            axes.set_ylim(bottom=_LEAST_GAP)
        axes.set_title(name, loc="left")
        axes.set_xscale("log")
        axes.set_xticks([100 * size for size in sizes], [f"{100 * size:.3g}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("cache size, % of the unique bytes")
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return Picture(title, f"{title}, on the judged requests.{_bands(means)}", svg(figure))


def over_time(means: Sequence[Mean], windows: Sequence[Window], bound: float) -> list[Picture]:
    """Byte miss and bytes/s from the origin by window at each cache size, of LRU, Belady and the best others; none for one window."""
    if len({line.window for line in windows}) < 2:
        return []
    which = f"{FLOOR}, {BOUND} and at each size the {_DRAWN} others that miss the fewest bytes"
    shaded = " What is shaded warmed the caches and is not judged." if any(not line.judged for line in windows) else ""
    missed = _over_time(means, windows, "byte miss", lambda line, _: _number(1 - line.hit_bytes / line.bytes if line.bytes else None))
    fetched = _over_time(means, windows, _RATE, lambda line, lasts: line.fetched_bytes / lasts if lasts > 0 else float("nan"), bound)
    return [
        Picture(
            "Byte miss over time",
            f"Byte miss over time, in windows of equally many requests: {which}.{shaded}{_bands(means)}",
            svg(missed),
        ),
        Picture(
            "Fetched over time",
            f"Bytes a second from the origin, by window: {which}.{shaded}"
            + (" Dotted, where it is near: what the link carries." if bound else ""),
            svg(fetched),
        ),
    ]


def _over_time(
    means: Sequence[Mean], windows: Sequence[Window], name: str, value: Callable[[Window, float], float], bound: float = 0.0
) -> Any:
    from matplotlib.ticker import EngFormatter

    sizes = sorted({mean.line.cache_fraction for mean in means})
    styles = _styles(means)
    begins = {line.window: line.from_s for line in windows}
    ends = {line.window: line.to_s for line in windows}
    lasts = {number: begins.get(number + 1, ends[number]) - begin for number, begin in begins.items()}
    of_cell: defaultdict[tuple[float, str], defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in windows:
        of_cell[line.cache_fraction, line.policy][line.window].append(value(line, lasts[line.window]))
    figure, every = panels(len(sizes), width=4.2, columns=3)
    drawn: dict[str, Any] = {}
    unjudged = [line.window for line in windows if not line.judged]
    for axes, size in zip(every, sizes, strict=True):
        ranked = sorted((mean.line for mean in means if mean.line.cache_fraction == size), key=lambda line: line.wan_bytes)
        names = [line.policy for line in ranked if line.policy not in (FLOOR, BOUND)][:_DRAWN]
        # The two that the others are held against lie below them.
        for policy in [*(line.policy for line in ranked if line.policy in (FLOOR, BOUND)), *names]:
            own = of_cell[size, policy]
            style = {key: given for key, given in styles[policy].items() if key != "marker"}
            drawn[policy] = _line(axes, list(own), [fmean(own[at]) for at in own], [half_interval(own[at]) for at in own], **style)
        if unjudged:
            axes.axvspan(min(unjudged) - 0.5, max(unjudged) + 0.5, color="#e9ecef", zorder=0)
        top = max((of_seed for (cell, _), own in of_cell.items() if cell == size for each in own.values() for of_seed in each), default=0)
        if name == _RATE:
            axes.yaxis.set_major_formatter(EngFormatter("B/s"))
        if bound and top > bound / 2:
            axes.axhline(bound, color="#868e96", linewidth=1, linestyle=":")
        axes.set_title(f"cache of {100 * size:.3g} %", loc="left")
        axes.set_xlabel("window")
        axes.set_ylabel(name)
    figure.legend(drawn.values(), drawn.keys(), loc="outside right center", frameon=False, fontsize=9)
    return figure


def ablation(worths: Sequence[Worth]) -> Picture:
    """Of each kind of feature what is closed without it and with it alone, beside all kinds: for the portfolio, and the model's cache."""
    sides = [alone for alone in (False, True) if any(worth.alone == alone for worth in worths)]
    kinds = list(dict.fromkeys(worth.kind for worth in worths))
    figure, every = panels(len(sides), shared=False)
    drawn: dict[str, Any] = {}
    for axes, alone in zip(every, sides, strict=True):
        own = {worth.kind: worth for worth in worths if worth.alone == alone}
        # The kind without which most is lost on top.
        rows = [kind for kind in reversed(kinds) if kind in own]
        places = range(len(rows))
        for name, colour, offset in (("without it", "#4c6ef5", 0.2), ("only it", "#fab005", -0.2)):
            values = [own[kind].without if name == "without it" else own[kind].only for kind in rows]
            percent = [100 * _number(value) for value in values]
            drawn[name] = axes.barh([place + offset for place in places], percent, height=0.38, color=colour)
        drawn["all kinds"] = axes.axvline(100 * fmean(worth.all_kinds for worth in own.values()), color="#1d2733", linewidth=2)
        axes.axvline(0, color="#868e96", linewidth=1)
        axes.set_yticks(list(places), rows)
        axes.set_title("the model's own cache" if alone else "the portfolio that follows the model", loc="left")
        axes.set_xlabel(f"of the gap from {FLOOR} to {BOUND} closed, %")
    figure.legend(drawn.values(), drawn.keys(), loc="outside right center", frameon=False, fontsize=9)
    return Picture(
        "Gap closed by kinds of features", "Gap closed without each kind of feature, and with it alone; means over all cells.", svg(figure)
    )


def _line(axes: Any, at: Sequence[float], values: Sequence[float], half: Sequence[float], **style: Any) -> Any:
    """A line, and around it a band where the values have intervals."""
    if any(half):
        low, high = ([value + sign * each for value, each in zip(values, half, strict=True)] for sign in (-1, 1))
        axes.fill_between(at, low, high, color=style["color"], alpha=0.2, linewidth=0)
    return axes.plot(at, values, **style)[0]


def _bands(means: Sequence[Mean]) -> str:
    return " Bands: the 95 % interval of the mean over the seeds." if any(mean.seeds > 1 for mean in means) else ""


def _styles(means: Sequence[Mean]) -> dict[str, dict[str, Any]]:
    """A colour and a marker for each policy, the same in all plots of a page."""
    from matplotlib import colormaps

    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    names = list(dict.fromkeys(mean.line.policy for mean in means))
    ordered = [name for name in names if name not in _STYLES]
    # The strong ten of the twenty first.
    palette = [colours[number] for number in (*range(0, 20, 2), *range(1, 20, 2)) if number not in _TAKEN]
    styles = {
        name: {"color": palette[number % len(palette)], "marker": _MARKERS[number % len(_MARKERS)], "linewidth": 1.0}
        for number, name in enumerate(ordered)
    }
    return {name: styles.get(name) or _STYLES[name] for name in names}


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
