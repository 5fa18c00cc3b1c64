"""What a version must pass before it may be live. A gate answers with its value and its rule, not with a bare yes or no.

Here is what is judged from the bundle alone, without TensorFlow; :mod:`.replay` and :mod:`.latency` have the gates that need the access
table and an endpoint. What the SavedModel says is not to be had from the bundle: the endpoints are asked for the golden rows
(``endpoint``), and where none can be, TensorFlow is (``saved_model``).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from smartcache.config import Config
from smartcache.config import Gates as Settings

from . import bundle as bundles
from .bundle import Bundle, BundleError

TAG: Final = "smartcache.gates"
TAG_GATE: Final = "smartcache.gate."
PASSED: Final = "passed"
FAILED: Final = "failed"
FORCED: Final = "forced: "
_WHOLE: Final = "complete and consistent"


class GateError(Exception):
    """The gates cannot be asked; the text says why and the way out."""


@dataclass(frozen=True)
class Gate:
    """One gate's answer."""

    name: str
    value: str
    rule: str
    passed: bool

    def __str__(self) -> str:
        return f"{PASSED if self.passed else FAILED}: {self.value} ({self.rule})"


def no_bundle(why: str) -> Gate:
    """The gate ``bundle`` of a version of which nothing can be read."""
    return Gate("bundle", why, _WHOLE, False)


def check_folder(folder: Path, settings: Settings, schema_hash: str) -> list[Gate]:
    """All gates over the bundle in ``folder``. One that cannot be read fails the gate ``bundle``, and is asked no more."""
    try:
        bundle = bundles.read(folder)
    except BundleError as error:
        return [no_bundle(str(error))]
    return [Gate("bundle", f"format {bundle.info.format}", _WHOLE, True), *check(bundle, settings, schema_hash)]


def check(bundle: Bundle, settings: Settings, schema_hash: str) -> Iterator[Gate]:
    """The gates over a bundle that could be read."""
    info = bundle.info
    yield Gate(
        "schema", info.feature_schema.hash, f"the features of this configuration, {schema_hash}", info.feature_schema.hash == schema_hash
    )
    yield _rows("test_rows", info.metrics.get("rows_uncensored", 0.0), settings, "were opened again")
    # Without them the score, which is what opens are decided by, would be judged by nothing.
    yield _rows(
        "horizon_rows", info.metrics.get("horizon_rows", 0.0), settings, f"were watched for the whole horizon, {info.horizon_s:g} s"
    )
    yield _skill("skill", info.metrics.get("skill", float("nan")), settings, "loss")
    brier, base = (info.metrics.get(name, float("nan")) for name in ("brier", "base_brier"))
    yield _skill("score_skill", 1 - brier / base if base > 0 else float("nan"), settings, "squared error of the score")
    yield _distribution(bundle, settings.max_output_difference)
    measured = max(bundle.golden_difference(), info.metrics.get("max_output_difference", float("inf")))
    limit = settings.max_output_difference
    rule = f"weights.json, evaluated here, and what the export has measured differ from Keras by at most {limit:g}"
    yield Gate("parity", f"{measured:.3g}", rule, measured <= limit)


def saved_model(bundle: Bundle, limit: float) -> Gate:
    """The gate about the SavedModel of ``bundle``, evaluated here: needs TensorFlow, and takes seconds."""
    from smartcache.training.model import quiet_tensorflow

    from . import export

    quiet_tensorflow()
    rule = f"the SavedModel, evaluated here, answers the golden rows to {limit:g}"
    try:
        answers = export.saved_model_outputs(bundle.folder, bundle.golden_inputs)
    except Exception as error:  # whatever TensorFlow makes of a damaged one
        return Gate("saved_model", f"cannot be evaluated: {error or type(error).__name__}", rule, False)
    difference = bundles.max_difference(answers, bundle.golden_outputs)
    return Gate("saved_model", f"{difference:.3g}", rule, difference <= limit)


def _rows(name: str, rows: float, settings: Settings, which: str) -> Gate:
    return Gate(name, f"{rows:.0f}", f"at least {settings.min_test_rows} test rows that {which}", rows >= settings.min_test_rows)


def _skill(name: str, skill: float, settings: Settings, of_what: str) -> Gate:
    rule = f"{of_what} at least {settings.min_skill:g} of itself below that of the base rates"
    return Gate(name, f"{skill:.4f}", rule, skill >= settings.min_skill)


def all_passed(gates: Sequence[Gate]) -> bool:
    """Whether none failed, and there was one."""
    return bool(gates) and all(gate.passed for gate in gates)


def tags(gates: Sequence[Gate], forced: str | None = None) -> dict[str, str]:
    """The answers as tags of the version. ``forced`` is the reason for letting it pass in spite of them."""
    summary = PASSED if all_passed(gates) else FORCED + forced if forced else FAILED
    return {TAG_GATE + gate.name: str(gate)[:1000] for gate in gates} | {TAG: summary}


def amended(tags: Mapping[str, str], passed: Sequence[Gate]) -> dict[str, str]:
    """What is to be written over the tags of a version that is gone back to, where they say that a gate has failed that it has ``passed``
    now: a torn download was noted, say, and the next one was whole. Other gates were not asked; what they have said stays.
    """
    told = {TAG_GATE + gate.name: str(gate)[:1000] for gate in passed if tags.get(TAG_GATE + gate.name, "").startswith(FAILED)}
    if (
        told
        and tags.get(TAG) == FAILED
        and not any(text.startswith(FAILED) for key, text in {**tags, **told}.items() if key.startswith(TAG_GATE))
    ):
        told[TAG] = PASSED
    return told


def forced(tags: Mapping[str, str]) -> str | None:
    """The reason for which a version was let pass, by its tags; None where it was not."""
    summary = tags.get(TAG, "")
    return summary.removeprefix(FORCED) if summary.startswith(FORCED) else None


def expected_schema_hash(config: Config) -> str:
    """The hash of the features that the core computes under ``config``. Raises :class:`GateError` where there is no core here."""
    try:
        core = importlib.import_module("smartcache._core")
        overlay = importlib.import_module("smartcache.preprocessing.core")
    except ImportError as error:
        raise GateError(
            f"the C++ core is not installed here ({error}); install smartcache's wheel, or give the schema's hash with --schema-hash"
        ) from error
    return str(core.schema(overlay.core_toml(config))["hash"])


def _distribution(bundle: Bundle, tolerance: float) -> Gate:
    """Outputs are a distribution, also far from the data: no feature in the normal range of float32 makes a NaN."""
    rng = np.random.default_rng(0)
    wild = rng.standard_normal((64, bundle.info.inputs)).astype(np.float32) * np.float32(1e3) * bundle.embedded.scale + bundle.embedded.mean
    rule = f"finite, sums to 1 within {tolerance:g}, on the golden rows and 1000 standard deviations out"
    worst = 0.0
    for outputs in (bundle.golden_outputs, bundle.embedded.predict(bundle.golden_inputs), bundle.embedded.predict(wild)):
        if not np.isfinite(outputs).all() or (outputs < 0).any():
            return Gate("outputs", "not finite or negative", rule, False)
        worst = max(worst, float(np.abs(outputs.sum(axis=1, dtype=np.float64) - 1.0).max()))
    return Gate("outputs", f"off by {worst:.3g}", rule, worst <= tolerance)
