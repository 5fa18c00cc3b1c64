"""The model card of a bundle: what a person reads first about a version. Made of ``bundle.json`` alone, so the two cannot differ.

``model-card.md``, Markdown. In MLflow it is the version's description.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .bundle import Info

FILE: Final = "model-card.md"
MAX_BYTES: Final = 65536
#: MLflow keeps so many characters of a description.
_DESCRIPTION_LENGTH: Final = 5000
#: What is not repeated among the other origins: it is said above them.
_SAID: Final = ("window", "seed", "git_revision", "opens")


class CardError(Exception):
    """A card that is missing, or is not that of its bundle; the text names rule and value."""


def render(info: Info) -> str:
    """The card of a bundle."""
    origin = info.provenance
    opens = origin.get("opens")
    counts = f", {', '.join(f'{part} on {count} opens' for part, count in opens.items())}" if isinstance(opens, dict) else ""
    figures = "\n".join(f"| {name} | {value:.6g} |" for name, value in sorted(info.metrics.items()))
    rest = "\n".join(f"- {name}: {_code(value)}" for name, value in origin.items() if name not in _SAID)
    return f"""# {info.name or "Not registered yet"}: the time to the next open of a file at an XCache

- **Feature schema**: {_schema(info)}
- **Seed**: {_code(origin.get("seed"))}
- **Revision**: {_code(origin.get("git_revision"))}
- **Data window**: {_window(origin.get("window"))}{counts}

**Output**: P(next open) over {info.outputs} buckets: {", ".join(info.labels)}. **Score**: P(opened again within {info.horizon_s:g} s),
the first {info.horizon_buckets} outputs. Admit where it is at least {info.thresholds.admit:g}, evict where it is under
{info.thresholds.evict:g}.

**Not for** caches whose configuration gives another schema hash, nor for opens that differ much from those of the data window.

Skill is 1 - loss / loss of the base rates, on the test part, which is later than what was trained on. Figures that begin with `validation_`
are of the part before it, which chose the epoch; those with `trees_` are of LightGBM on the same rows, to compare with.

| figure | value |
|---|---|
{figures}

{rest}
"""


def check(folder: Path, info: Info) -> None:
    """Raise :class:`CardError` where the card in ``folder`` is missing, or not that of ``info``.

    Its words may be another release's; name, schema, seed, revision and the figures must be those of the bundle.
    """
    try:
        with (folder / FILE).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        card = text.decode()
    except OSError as error:
        raise CardError(f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise CardError("must be UTF-8") from error
    if len(text) > MAX_BYTES:
        raise CardError(f"must have at most {MAX_BYTES} bytes")
    lines = set(card.splitlines())
    needed = [f"- **Feature schema**: {_schema(info)}"]
    needed += [f"- **{title}**: {_code(info.provenance.get(key))}" for title, key in (("Seed", "seed"), ("Revision", "git_revision"))]
    needed += [f"| {name} | {value:.6g} |" for name, value in info.metrics.items()]
    if not card.startswith(f"# {info.name or 'Not registered yet'}: "):
        raise CardError(f"must begin with the bundle's name {info.name!r}, but begins {card[:60]!r}")
    for line in needed:
        if line not in lines:
            raise CardError(f"must say {line!r}, as bundle.json does: it is another bundle's card")


def description(info: Info) -> str:
    """The card as MLflow's description of the version: cut where it is longer than MLflow keeps."""
    card = render(info)
    more = f"\n\n(the whole card: artifact `bundle/{FILE}`)\n"
    return card if len(card) <= _DESCRIPTION_LENGTH else card[: _DESCRIPTION_LENGTH - len(more)] + more


def _schema(info: Info) -> str:
    return f"version {info.feature_schema.version}, {info.inputs} features, hash `{info.feature_schema.hash}`"


def _window(window: Any) -> str:
    """The window of the data in UTC (of the opens that are in it, where that is known); what has no times in it as it is."""
    known = window if isinstance(window, dict) else {}
    ends = [known.get("first_us", known.get("from_us")), known.get("last_us", known.get("to_us"))]
    times = [
        datetime.fromtimestamp(end / 1e6, UTC).isoformat(timespec="seconds") for end in ends if isinstance(end, int) and 0 <= end < 1 << 53
    ]
    return " to ".join(times) if len(times) == len(ends) else _code(window)


def _code(value: Any) -> str:
    """A value on one line, that means nothing to Markdown."""
    if value is None or value == "":
        return "not known"
    text = value if isinstance(value, str) else json.dumps(value)
    return "`" + " ".join(text.replace("`", "'").split()) + "`"
