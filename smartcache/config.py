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

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

REFERENCE = Path(__file__).with_name("smartcache.toml")
ENVIRONMENT_VARIABLE = "SMARTCACHE_CONFIG"

Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class ConfigError(Exception):
    """A configuration that cannot be used; the text names field, rule, value and the way out."""


def _one_folder(path: str) -> str:
    """A path that Spark takes as it is: a space is nothing special to it, these characters make a pattern or the part of a URL."""
    found = "".join(each for each in "[]{}*?\\#" if each in path)
    if found:
        raise ValueError(
            f"must not have {' '.join(found)} in it: Spark would take it for several folders; use another folder, or a link to it"
        )
    return path


#: A folder that Spark reads or writes, on any Hadoop file system.
Folder = Annotated[str, Field(min_length=1), AfterValidator(_one_folder)]


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
    file: str
    save_s: Positive
    scan: bool


class Features(_Section):
    half_lives_s: Annotated[list[Positive], Field(min_length=1, max_length=8)]
    token_buckets: Annotated[int, Field(ge=0, le=64)]


class Model(_Section):
    bundle_dir: str
    use: Literal["endpoint+embedded", "endpoint", "embedded"]
    endpoint_url: str
    deadline_ms: Annotated[float, Field(gt=0, le=1000)]
    poll_s: Positive
    breaker_failures: PositiveInt
    breaker_open_s: Positive
    connections: PositiveInt
    token_file: str
    ca_file: str


class Challenger(_Section):
    canary_share: Share
    shadow: bool
    compare_days: Positive

    @property
    def wanted(self) -> bool:
        """Whether a challenger is to be tried at all."""
        return self.canary_share > 0 or self.shadow


class Policy(_Section):
    off_file: str
    fallback: Literal["admit", "bypass"]
    always_admit: list[str]
    never_admit: list[str]
    pressure: list[tuple[Share, Positive]]
    explore: Share

    @model_validator(mode="after")
    def _rises(self) -> Policy:
        if any(a[0] >= b[0] for a, b in zip(self.pressure, self.pressure[1:], strict=False)):
            raise ValueError("pressure must be pairs of fill and factor whose fill rises strictly")
        return self


class Budget(_Section):
    write_bytes_per_s: Annotated[int, Field(ge=0)]
    burst_s: Positive
    objects: Annotated[int, Field(ge=0)]
    unknown_size_bytes: PositiveInt


class Portfolio(_Section):
    enabled: bool
    memory_bytes: Annotated[int, Field(ge=1 << 20)]
    file: str


class Evictor(_Section):
    enabled: bool
    dry_run: bool
    through: Literal["auto", "process", "client"]
    high: Share
    low: Share
    benefit: Literal["open", "byte"]
    capacity_bytes: Annotated[int, Field(ge=0)]
    scan_s: Positive
    files_per_minute: PositiveInt
    answers_per_minute: PositiveInt

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Evictor:
        if self.low >= self.high:
            raise ValueError(f"low must be less than high {self.high}, not {self.low}")
        return self


class DecisionLog(_Section):
    host: str
    port: Port
    features: bool


class PluginMetrics(_Section):
    textfile: str
    interval_s: Positive
    bind: str
    port: Port


class Trace(_Section):
    level: Annotated[str, Field(pattern=r"^(off|all|(decisions|model|evictor)( (decisions|model|evictor))*)$")]


class Collector(_Section):
    bind: str
    gstream_port: Port
    fstream_port: Port
    decision_port: Port
    shoveler_port: Port
    metrics_port: Port
    metrics_bind: str
    receive_buffer_bytes: PositiveInt
    pseudonym_key_file: str
    shutdown_s: Positive


class Spool(_Section):
    dir: Annotated[str, Field(min_length=1)]
    max_bytes: PositiveInt
    segment_bytes: PositiveInt
    fsync: Literal["never", "segment", "always"]

    @model_validator(mode="after")
    def _several_segments(self) -> Spool:
        if self.max_bytes < 2 * self.segment_bytes:
            raise ValueError(f"max_bytes must be twice segment_bytes {self.segment_bytes} or more, not {self.max_bytes}")
        return self


class Kafka(_Section):
    bootstrap: str
    pfc_topic: str
    fstream_topic: str
    decision_topic: str
    cinfo_topic: str
    job_topic: str
    dlq_suffix: str
    partitions: PositiveInt
    replication: PositiveInt
    retention_s: Positive


class Scan(_Section):
    state_dir: str


class Spark(_Section):
    master: str
    shuffle_partitions: PositiveInt
    quick_start: bool
    options: dict[Annotated[str, Field(pattern=r"^spark\.")], str]
    jars_dir: str


class Streaming(_Section):
    table: Folder
    jobs: Folder
    quarantine: Folder
    checkpoint: Folder
    trigger_s: Positive
    max_records_per_batch: PositiveInt
    join_grace_s: Positive
    watermark_s: Positive
    longest_open_s: Positive


class Compaction(_Section):
    after_days: Annotated[int, Field(ge=0, le=3660)]
    target_bytes: PositiveInt
    keep_replaced_s: Annotated[float, Field(ge=0)]
    stream_every_s: Annotated[float, Field(ge=0)]


class Privacy(_Section):
    user_paths: list[Annotated[str, Field(pattern=r"^[^*]*[^*/][^*]*\*[^\x00-\x1f]*$", max_length=1024)]]


class SideTable(_Section):
    file: Annotated[str, Field(pattern=r"^(/.*)?$")]
    refresh_s: Positive
    poll_s: Positive
    keep: Annotated[int, Field(ge=1, le=100_000)]
    windows_s: Annotated[list[Positive], Field(min_length=1, max_length=8)]
    datasets: Annotated[int, Field(ge=1, le=1_000_000)]

    @model_validator(mode="after")
    def _rise(self) -> SideTable:
        if any(a >= b for a, b in zip(self.windows_s, self.windows_s[1:], strict=False)):
            raise ValueError(f"windows_s must rise strictly, not {self.windows_s}")
        return self


class Stats(_Section):
    window_days: Annotated[int, Field(ge=1, le=3660)]
    days: Annotated[int, Field(ge=1, le=3660)]
    waste: Annotated[float, Field(ge=1)]
    tiers: Annotated[int, Field(ge=1, le=100)]


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
    dropout: Annotated[float, Field(ge=0, lt=1)]
    epochs: PositiveInt
    batch: PositiveInt
    learning_rate: Positive
    seed: int
    patience: PositiveInt
    replay_every: PositiveInt
    replay_write_price: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _edges(self) -> Training:
        if any(a >= b for a, b in zip(self.bucket_edges_s, self.bucket_edges_s[1:], strict=False)):
            raise ValueError("bucket_edges_s must rise strictly")
        if self.horizon_s not in self.bucket_edges_s:
            raise ValueError(f"horizon_s must be one of bucket_edges_s {self.bucket_edges_s}, not {self.horizon_s}")
        return self


class Drift(_Section):
    feature_psi: Positive
    label_psi: Positive
    calibration: Positive


class Retraining(_Section):
    dir: Annotated[str, Field(min_length=1)]
    window_days: Positive
    every_s: Positive
    warm_start: bool
    keep: PositiveInt


class Simulate(_Section):
    policies: list[str]
    fractions: Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
    windows: Annotated[int, Field(gt=0, le=10_000)]
    warm: Annotated[float, Field(ge=0, lt=1)]
    workers: Annotated[int, Field(ge=0, le=1024)]
    block_bytes: Annotated[int, Field(gt=0, le=1 << 30)]
    purge_low: Annotated[float, Field(gt=0, lt=1)]
    purge_high: Annotated[float, Field(gt=0, le=1)]
    purge_interval_s: Annotated[float, Field(ge=1e-3, le=1e6)]
    origin_bytes_per_s: Annotated[float, Field(ge=0, le=1e15)]
    cpu_efficiency_hit: Annotated[float, Field(gt=0, le=1)]
    cpu_efficiency_miss: Annotated[float, Field(gt=0, le=1)]
    cpu_efficiency_bypass: Annotated[float, Field(gt=0, le=1)]

    @model_validator(mode="after")
    def _purge_marks(self) -> Simulate:
        if self.purge_low >= self.purge_high:
            raise ValueError(f"purge_low must be below purge_high, {self.purge_high}, not {self.purge_low}")
        return self


class Mlflow(_Section):
    tracking_uri: str
    experiment: str
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]


class Gates(_Section):
    min_skill: float
    max_output_difference: Annotated[float, Field(gt=0, le=1e-5)]
    min_test_rows: PositiveInt
    replay_days: Annotated[float, Field(ge=0)]
    replay_history_days: Annotated[float, Field(ge=0)]
    replay_warm: Annotated[float, Field(ge=0, lt=1)]
    replay_capacity_bytes: Annotated[int, Field(ge=0)]
    replay_fraction: Annotated[float, Field(gt=0, le=1)]
    replay_miss_over_lru: Annotated[float, Field(ge=0)]
    replay_written_over_lru: Annotated[float, Field(ge=0)]
    replay_miss_over_champion: Annotated[float, Field(ge=0)]
    replay_written_over_champion: Annotated[float, Field(ge=0)]
    latency_requests: Annotated[int, Field(ge=0, le=100_000)]
    latency_p50_ms: Positive
    latency_p99_ms: Positive


class Promote(_Section):
    endpoints: list[Annotated[str, Field(pattern=r"^https?://[^/]")]]
    wait_s: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _each_once(self) -> Promote:
        if len({url.rstrip("/") for url in self.endpoints}) < len(self.endpoints):
            raise ValueError("endpoints must each be named once")
        return self


class Watch(_Section):
    poll_s: Positive
    retry_most_s: Annotated[float, Field(ge=0)]
    webhook_bind: str
    webhook_port: Port
    webhook_url: Annotated[str, Field(pattern=r"^(https?://[^/].*)?$")]
    webhook_secret_file: str

    @model_validator(mode="after")
    def _somebody_listens(self) -> Watch:
        if self.webhook_url and not self.webhook_port:
            raise ValueError("webhook_url needs a webhook_port that is not 0")
        return self


class Endpoint(_Section):
    bind: str
    port: Port
    model_dir: str
    admin_token_file: str
    predict_token_file: str
    tls_cert_file: str
    tls_key_file: str
    client_ca_file: str
    max_body_bytes: PositiveInt
    max_upload_bytes: PositiveInt
    batch_rows: Annotated[int, Field(ge=1, le=4096)]
    batch_wait_s: Annotated[float, Field(ge=0, le=0.01)]
    request_timeout_s: Positive
    shutdown_grace_s: Positive


class Config(_Section):
    """The whole configuration, one attribute per section of ``smartcache.toml``. Immutable."""

    dataset: Dataset
    history: History
    features: Features
    model: Model
    challenger: Challenger
    policy: Policy
    budget: Budget
    portfolio: Portfolio
    evictor: Evictor
    decision_log: DecisionLog
    plugin_metrics: PluginMetrics
    trace: Trace
    collector: Collector
    spool: Spool
    kafka: Kafka
    scan: Scan
    spark: Spark
    streaming: Streaming
    compaction: Compaction
    privacy: Privacy
    side_table: SideTable
    stats: Stats
    training_set: TrainingSet
    training: Training
    drift: Drift
    retraining: Retraining
    simulate: Simulate
    mlflow: Mlflow
    gates: Gates
    promote: Promote
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
