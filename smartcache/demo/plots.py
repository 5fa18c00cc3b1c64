"""The plots of a run, as PNG files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .plan import CACHES

_COLOUR = {"plain": "#8a94a3", "smart": "#0b7285"}


@dataclass(frozen=True)
class Picture:
    """A plot that was written."""

    path: Path
    title: str
    caption: str


def draw(measured: dict[str, Any], folder: Path) -> list[Picture]:
    """Write all plots into ``folder``."""
    return [
        _picture(
            folder, "bytes", "Bytes in each phase", "From the origins' link counters and the kernel's account of writes.", _bytes, measured
        ),
        _picture(folder, "origin", "Fetched from the origin", "Running totals, from the origins' summary reports.", _origin, measured),
        _picture(
            folder,
            "stored",
            "On the caches' disks",
            "Allocated blocks of the data files, by walks every two seconds. The dashed line is where pfc's purge stops removing; files "
            "opened since the last purge are not removed.",
            _stored,
            measured,
        ),
        _picture(
            folder,
            "latency",
            "Open latency, decide",
            "Share of opens answered within a time, at the clients' clocks.",
            _latency,
            measured,
        ),
        _picture(
            folder, "answers", "Answers of the plugin, decide", "From the decision log, through the access table.", _answers, measured
        ),
    ]


def _picture(folder: Path, name: str, title: str, caption: str, plot: Any, measured: dict[str, Any]) -> Picture:
    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    plot(axes, measured)
    path = folder / f"{name}.png"
    figure.savefig(path, metadata={"Software": None})
    return Picture(path, title, caption)


def _bytes(axes: Axes, measured: dict[str, Any]) -> None:
    kinds = {"origin_bytes": "fetched from origin", "written_bytes": "written to disk", "delivered_bytes": "delivered"}
    groups = [(phase, key) for phase in measured["phases"] for key in kinds]
    for number, cache in enumerate(CACHES):
        values = [measured["phases"][phase]["caches"][cache][key] / 1e6 for phase, key in groups]
        bars = axes.bar([index + 0.4 * number for index in range(len(groups))], values, width=0.38, color=_COLOUR[cache], label=cache)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks([index + 0.2 for index in range(len(groups))], [f"{phase}:\n{kinds[key]}" for phase, key in groups], fontsize=8)
    axes.set_ylabel("MB")
    axes.legend(frameon=False)


def _origin(axes: Axes, measured: dict[str, Any]) -> None:
    _over_time(axes, measured, "origin_bytes")
    axes.set_ylabel("MB fetched so far")


def _stored(axes: Axes, measured: dict[str, Any]) -> None:
    _over_time(axes, measured, "stored_bytes")
    axes.axhline(measured["cache"]["nominal_bytes"] / 1e6, color="#c92a2a", linestyle="--", linewidth=1)
    axes.set_ylabel("MB stored")


def _over_time(axes: Axes, measured: dict[str, Any], key: str) -> None:
    start = measured["began"]
    for cache in CACHES:
        points = [sample for sample in measured["samples"] if sample["cache"] == cache]
        axes.plot([p["time_s"] - start for p in points], [p[key] / 1e6 for p in points], color=_COLOUR[cache], label=cache)
    for name, phase in measured["phases"].items():
        axes.axvspan(phase["began"] - start, phase["ended"] - start, color="#e9ecef", zorder=0)
        axes.text(phase["began"] - start, 1.0, f" {name}", transform=axes.get_xaxis_transform(), va="top", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the start")
    axes.legend(frameon=False, loc="center left")


def _latency(axes: Axes, measured: dict[str, Any]) -> None:
    for cache in CACHES:
        values = sorted(measured["phases"]["decide"]["open_ms"][cache])
        axes.plot(values, [(index + 1) / len(values) for index in range(len(values))], color=_COLOUR[cache], label=cache)
    axes.set_xscale("log")
    axes.set_xlabel("ms")
    axes.set_ylabel("share of opens")
    axes.legend(frameon=False)


def _answers(axes: Axes, measured: dict[str, Any]) -> None:
    answers = measured["phases"]["decide"]["answers"]
    names = [f"{answer['answer']}: {answer['reason']}" for answer in answers]
    bars = axes.barh(names, [answer["opens"] for answer in answers], color=_COLOUR["smart"])
    axes.bar_label(bars, fontsize=9, padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("opens")
