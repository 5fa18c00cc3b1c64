"""The plugin's own counters, from the text file that it writes for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class PluginMetrics:
    """What the demo wants of them."""

    #: The version that answers, "" for none.
    model: str = ""
    evicted: int = 0
    #: "answer reason" → answers.
    answers: dict[str, int] = field(default_factory=dict)


def read(path: Path) -> PluginMetrics:
    """The counters as they were last written; all zero where the plugin has written none yet."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return PluginMetrics()
    model, evicted, answers = "", 0, {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "smartcache_model_info" and sample.value:
                model = sample.labels.get("model", "")
            elif sample.name == "smartcache_evictions_total" and sample.labels.get("result") == "done":
                evicted = int(sample.value)
            elif sample.name == "smartcache_answers_total" and sample.value:
                answers[f"{sample.labels['answer']} {sample.labels['reason']}"] = int(sample.value)
    return PluginMetrics(model, evicted, answers)
