"""What the report says of the model: each figure of its version with how it was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

#: By the figure's name, as :mod:`smartcache.training.evaluate` and the export give it.
_HOW = {
    "loss": "mean of -ln of the probability that the model gave to what came, on the test part: the opens that came last, not trained on; "
    "larger files weigh more; where the time to the next open is known in part only, of all that it may have been",
    "base_loss": "the same for an answer that knows nothing of the file: each bucket's share of the train part",
    "skill": "1 - loss / base_loss",
    "rows": "opens in the test part, counted",
    "rows_uncensored": "those of them whose next open was seen, counted",
    "horizon_rows": "those of them that were watched for the whole horizon, opened again or not, counted",
    "brier": "weighted mean of (score - 1 if opened again within the horizon, else 0) squared, on the horizon_rows",
    "base_brier": "the same for the train part's share of files that were opened again within the horizon",
    "auc": "share of all pairs of horizon_rows, one opened again within the horizon and one not, where the first has the higher score",
    "max_output_difference": "largest difference of any output between Keras, SavedModel and weights.json, on the golden rows",
    "validation_epoch": "number of the epoch that was kept: the lowest loss of the validate part",
    "validation_loss": "as loss, on the validate part, which lies between what was trained on and the test part, in that epoch",
}
_CALIBRATION = re.compile(r"calibration_(\d+)_(predicted|observed)")


def rows(model: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and how it was measured of each figure; none where no model was promoted."""
    figures = {name: value for name, value in (model.get("metrics") or {}).items() if isinstance(value, int | float)}
    return [(name, f"{value:.4g}", how(name, model.get("bucket_edges_s", []))) for name, value in figures.items()]


def how(name: str, edges_s: Sequence[float]) -> str:
    """How figure ``name`` was measured; ``edges_s`` are where the model's buckets of the time to the next open end."""
    if name in _HOW:
        return _HOW[name]
    if match := _CALIBRATION.fullmatch(name):
        bucket = _bucket(int(match[1]), edges_s)
        if match[2] == "predicted":
            return f"mean probability that the model gave to a next open {bucket}, on the test part, larger files weighing more"
        return f"share of the test part's opens whose next open came {bucket}, larger files weighing more"
    return "as `smartcache train` wrote it into the version's bundle.json"


def _bucket(number: int, edges_s: Sequence[float]) -> str:
    if number >= len(edges_s):
        return f"after {edges_s[-1]:g} s or never" if edges_s else f"in bucket {number}"
    return f"after {edges_s[number - 1] if number else 0:g} to {edges_s[number]:g} s"
