"""The drift report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from smartcache import page
from smartcache.config import Config

from .drift import Drift

#: Distributions that are drawn: those that moved most.
_DRAWN = 6


def render(drift: Drift, config: Config, origin: dict[str, str]) -> str:
    """The page; ``origin``: what its foot says of where it is from."""
    return page.document(f"Drift since {drift.champion}", _parts(drift, config), [f"{name}: {text}" for name, text in origin.items()])


def _parts(drift: Drift, config: Config) -> Iterator[str]:
    most = config.drift
    yield page.paragraphs(drift.warnings or ["Nothing is beyond the thresholds."])
    if drift.notes:
        yield page.paragraphs(drift.notes, small=True)
    if drift.labels is not None:
        yield page.heading("Time to the next open")
        names = _buckets(drift.labels.edges)
        rows = [[name, page.share(a), page.share(b)] for name, a, b in zip(names, drift.labels.then, drift.labels.now, strict=True)]
        yield page.table(f"Shares of the opens; PSI {drift.labels.psi:.3g}, threshold {most.label_psi:g}", ["bucket", "then", "now"], rows)
    if drift.calibration is not None:
        yield page.heading("Calibration of the champion")
        which = "after what it was trained on" if drift.calibration.only_new else "of the training set, also of what it was trained on"
        names = _buckets(drift.calibration.edges)
        rows = [
            [name, page.share(a), page.share(b), page.share(a - b)]
            for name, a, b in zip(names, drift.calibration.expected, drift.calibration.came, strict=True)
        ]
        yield page.table(
            f"{drift.calibration.rows} opens {which}; threshold {page.share(most.calibration)}",
            ["bucket", "it expects", "came", "difference"],
            rows,
        )
    if drift.features:
        yield page.heading("Features")
        if find_spec("matplotlib"):
            yield page.image(_picture(drift))
        rows = [[each.name, f"{each.psi:.3g}", page.share(each.now[0]), page.share(each.now[-1])] for each in drift.features]
        head = ["feature", f"PSI, threshold {most.feature_psi:g}", "below all then", "above all then"]
        yield page.table("All features, the one that moved most first", head, rows)


def _buckets(edges_s: Sequence[float]) -> list[str]:
    return [f"within {edge:g} s" for edge in edges_s] + ["later or never"]


def _picture(drift: Drift) -> page.Picture:
    drawn = drift.features[:_DRAWN]
    figure, every = page.panels(len(drawn), shared=False)
    for axes, each in zip(every, drawn, strict=True):
        places = range(len(each.then))
        axes.bar([place - 0.2 for place in places], each.then, 0.4, label="then", color="#8aa4c8")
        axes.bar([place + 0.2 for place in places], each.now, 0.4, label="now", color="#c8643c")
        axes.set_title(f"{each.name}, PSI {each.psi:.3g}")
        axes.set_xticks(range(len(each.edges)), [f"{edge:.3g}" for edge in each.edges], rotation=60, fontsize=7)
        axes.legend()
    return page.Picture(
        "Features that moved most", "Share of the opens between the edges that the champion's training set was cut at.", page.svg(figure)
    )
