"""The configuration: ``smartcache.toml``, with a site's own file laid over it.

The reference file beside this module holds every default; the classes here hold the types and the rules, never a value. ``load`` is the
one way to a :class:`Config`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

REFERENCE = Path(__file__).with_name("smartcache.toml")
ENVIRONMENT_VARIABLE = "SMARTCACHE_CONFIG"

Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class ConfigError(Exception):
    """A configuration that cannot be used; the text names field, rule, value and the way out."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetRule(_Section):
    prefix: str
    levels: PositiveInt


class Dataset(_Section):
    levels: PositiveInt
    rules: list[DatasetRule]


class History(_Section):
    memory_bytes: PositiveInt


class Features(_Section):
    half_lives_s: Annotated[list[Positive], Field(min_length=1, max_length=8)]
    token_buckets: Annotated[int, Field(ge=0, le=64)]


class Model(_Section):
    bundle_dir: str
    endpoint_url: str
    deadline_ms: Annotated[float, Field(gt=0, le=1000)]
    poll_s: Positive
    breaker_failures: PositiveInt
    breaker_open_s: Positive
    connections: PositiveInt
    token_file: str
    ca_file: str


class Policy(_Section):
    fallback: Literal["admit", "bypass"]
    always_admit: list[str]
    never_admit: list[str]
    explore: Share
    evict: bool


class DecisionLog(_Section):
    host: str
    port: Port
    features: bool


class PluginMetrics(_Section):
    textfile: str
    interval_s: Positive


class Collector(_Section):
    bind: str
    gstream_port: Port
    fstream_port: Port
    decision_port: Port
    metrics_port: Port
    metrics_bind: str
    receive_buffer_bytes: PositiveInt
    pseudonym_key_file: str


class Kafka(_Section):
    bootstrap: str
    pfc_topic: str
    fstream_topic: str
    decision_topic: str
    dlq_suffix: str
    partitions: PositiveInt
    replication: PositiveInt


class Spark(_Section):
    master: str
    shuffle_partitions: PositiveInt
    jars_dir: str


class Streaming(_Section):
    table: str
    quarantine: str
    checkpoint: str
    trigger_s: Positive
    join_grace_s: Positive
    watermark_s: Positive


class TrainingSet(_Section):
    train: Share
    validate_: Annotated[Share, Field(alias="validate")]

    @model_validator(mode="after")
    def _leaves_room_for_test(self) -> TrainingSet:
        if self.train + self.validate_ >= 1:
            raise ValueError("train + validate must leave a share for test: they must sum to less than 1")
        return self


class Training(_Section):
    bucket_edges_s: Annotated[list[Positive], Field(min_length=1, max_length=32)]
    horizon_s: Positive
    price_of_useless_byte: Positive
    evict_below: Share
    hidden: list[PositiveInt]
    epochs: PositiveInt
    batch: PositiveInt
    learning_rate: Positive
    seed: int

    @model_validator(mode="after")
    def _edges(self) -> Training:
        if any(a >= b for a, b in zip(self.bucket_edges_s, self.bucket_edges_s[1:], strict=False)):
            raise ValueError("bucket_edges_s must rise strictly")
        if self.horizon_s not in self.bucket_edges_s:
            raise ValueError(f"horizon_s must be one of bucket_edges_s {self.bucket_edges_s}, not {self.horizon_s}")
        return self


class Mlflow(_Section):
    tracking_uri: str
    experiment: str
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]


class Gates(_Section):
    min_skill: float
    max_output_difference: Positive
    min_test_rows: PositiveInt


class Watch(_Section):
    poll_s: Positive


class Endpoint(_Section):
    bind: str
    port: Port
    model_dir: str
    admin_token_file: str
    max_body_bytes: PositiveInt
    max_upload_bytes: PositiveInt
    request_timeout_s: Positive
    shutdown_grace_s: Positive


class Config(_Section):
    """The whole configuration, one attribute per section of ``smartcache.toml``. Immutable."""

    dataset: Dataset
    history: History
    features: Features
    model: Model
    policy: Policy
    decision_log: DecisionLog
    plugin_metrics: PluginMetrics
    collector: Collector
    kafka: Kafka
    spark: Spark
    streaming: Streaming
    training_set: TrainingSet
    training: Training
    mlflow: Mlflow
    gates: Gates
    watch: Watch
    endpoint: Endpoint


def reference() -> dict[str, Any]:
    """The defaults, as ``smartcache.toml`` states them."""
    with REFERENCE.open("rb") as file:
        return tomllib.load(file)


def parse(overlay: dict[str, Any], source: str) -> Config:
    """Lay ``overlay`` (tables of tables) over the defaults and check the result; ``source`` names it in messages."""
    merged = reference()
    for section, values in overlay.items():
        if section not in merged:
            raise ConfigError(_unknown(source, section, merged))
        if not isinstance(values, dict):
            raise ConfigError(f"{source}: [{section}] must be a table, not {values!r}")
        for key in values:
            if key not in merged[section]:
                raise ConfigError(_unknown(f"{source} [{section}]", key, merged[section]))
        merged[section] = {**merged[section], **values}
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        lines = [
            f"{source}: {'.'.join(str(part) for part in problem['loc'])}: {problem['msg']} (is {problem['input']!r})"
            for problem in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from error


def load(path: Path | str | None = None) -> Config:
    """The configuration in ``path``, else in the file that $SMARTCACHE_CONFIG names, else the defaults alone."""
    chosen = path or os.environ.get(ENVIRONMENT_VARIABLE)
    if not chosen:
        return parse({}, "defaults")
    try:
        with open(chosen, "rb") as file:
            return parse(tomllib.load(file), str(chosen))
    except OSError as error:
        raise ConfigError(f"{chosen}: cannot be read ({error.strerror}); name another file with --config") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{chosen}: not TOML: {error}") from error


def _unknown(where: str, key: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
    return f"{where}: unknown key {key!r}{hint}"
