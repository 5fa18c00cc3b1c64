"""The binding: what contract 3 promises, and that replaying gives the bits that observing gave."""

import hashlib
import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest

from smartcache import _core

HOUR = 3_600_000_000
T0 = 1_760_000_000_000_000
LFN = "/store/mc/Run3Summer22/TTto2L2Nu/NANOAODSIM/v1-v2/2520000/0a1b.root"


def names() -> list[str]:
    return _core.schema()["names"]


def row(core: _core.Core, t_us: int = T0, lfn: str = LFN, on_disk: bool = False, size: int = -1, fill: float = -1.0) -> dict[str, float]:
    return dict(zip(names(), core.observe(t_us, lfn, on_disk, size, fill).tolist(), strict=True))


def opens(n: int, seed: int = 7) -> tuple:
    rng = np.random.default_rng(seed)
    lfns = [f"/store/data/Run{i % 5}/P{i % 11}/AOD/v1/{i}.root" for i in rng.integers(0, max(2, n // 3), n)]
    return (
        T0 + np.cumsum(rng.integers(0, HOUR, n)),
        lfns,
        rng.random(n) < 0.5,
        np.where(rng.random(n) < 0.5, rng.integers(0, 10**10, n), -1),
        rng.random(n).astype(np.float32),
        np.where(rng.random(n) < 0.5, rng.random(n), -1).astype(np.float32),
    )


def test_schema_names_every_feature_once_and_hashes_its_own_text() -> None:
    schema = _core.schema()
    assert len(set(schema["names"])) == len(schema["names"])
    value = 0xCBF29CE484222325
    for byte in schema["text"].encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    assert schema["hash"] == f"{value:016x}"
    assert all(name in schema["text"] for name in schema["names"])


@pytest.mark.parametrize(
    "toml",
    [
        "[dataset]\nlevels = 4",
        '[dataset]\nrules = [{ prefix = "/store/user/", levels = 4 }]',
        "[features]\nhalf_lives_s = [3600.0]",
        "[features]\ntoken_buckets = 9",
    ],
)
def test_the_hash_covers_what_features_depend_on(toml: str) -> None:
    assert _core.schema(toml)["hash"] != _core.schema()["hash"]


def test_the_hash_ignores_what_features_do_not_depend_on() -> None:
    assert _core.schema("[policy]\nexplore = 0.5\n[kafka]\npartitions = 8")["hash"] == _core.schema()["hash"]


def test_replay_equals_observe_to_the_last_bit() -> None:
    columns = opens(3000)
    lfn = columns[1]
    one, other = _core.Core(), _core.Core()
    replayed = one.replay(*columns)
    assert replayed.dtype == np.float32
    assert replayed.shape == (3000, len(names()))
    each = [other.observe(int(t), f, bool(d), int(s), float(p), float(r)) for t, f, d, s, p, r in zip(*columns, strict=True)]
    assert replayed.tobytes() == np.stack(each).tobytes()
    assert (one.files, one.datasets) == (other.files, other.datasets) == (len(set(lfn)), len({one.dataset_of(f) for f in lfn}))


def test_a_first_open_knows_only_its_dataset() -> None:
    core = _core.Core()
    first = row(core)
    assert first["file_seen"] == 0
    assert first["file_gap"] == first["file_previous_gap"] == first["file_age"] == first["dataset_gap"] == -1
    sibling = row(core, T0 + HOUR, LFN.replace("0a1b", "ffff"))
    assert sibling["file_seen"] == 0
    assert sibling["dataset_opens"] == pytest.approx(math.log(2))
    assert sibling["dataset_gap"] == pytest.approx(math.log1p(3600))
    assert sibling["dataset_reopen_share"] == pytest.approx(1 / 5)


def test_a_second_and_third_open_know_their_gaps() -> None:
    core = _core.Core()
    row(core)
    second = row(core, T0 + HOUR, on_disk=True, size=10**9, fill=0.25)
    assert (second["file_seen"], second["on_disk"], second["fill"]) == (1, 1, 0.25)
    assert second["file_gap"] == second["file_age"] == pytest.approx(math.log1p(3600))
    assert second["file_size"] == pytest.approx(math.log1p(10**9))
    assert second["file_opens_decayed_3600s"] == pytest.approx(math.log1p(0.5))
    third = row(core, T0 + 3 * HOUR)
    assert third["file_gap"] == pytest.approx(math.log1p(7200))
    assert third["file_previous_gap"] == pytest.approx(math.log1p(3600))
    assert third["file_age"] == pytest.approx(math.log1p(3 * 3600))
    assert third["file_opens_decayed_3600s"] == pytest.approx(math.log1p((0.5 + 1) / 4))
    assert third["dataset_reopen_share"] == pytest.approx(2 / 6)
    assert third["dataset_reopen_gap"] == pytest.approx(math.log1p(3600))


@pytest.mark.parametrize("toml", ["", "[history]\nmemory_bytes = 100000"])
def test_a_restored_core_goes_on_to_the_last_bit(toml: str) -> None:
    columns = opens(6000)
    whole = _core.Core(toml).replay(*columns)
    first, second = _core.Core(toml), _core.Core(toml)
    first.replay(*(column[:4000] for column in columns))
    second.observe(T0, LFN, False, -1, -1.0)  # what was there before is not there any more
    second.restore(first.save())
    assert (second.files, second.datasets) == (first.files, first.datasets)
    assert second.replay(*(column[4000:] for column in columns)).tobytes() == whole[4000:].tobytes()


def test_bytes_that_are_no_history_are_refused_and_leave_it_empty() -> None:
    core = _core.Core()
    row(core)
    saved = core.save()
    for damaged, why in ((b"", "is not a saved history"), (saved[:-1], "is truncated"), (saved[:90] + b"?" + saved[91:], "is damaged")):
        row(core)
        with pytest.raises(ValueError, match=why):
            core.restore(damaged)
        assert core.files == 0
    with pytest.raises(ValueError, match=r"another \[dataset\]"):
        _core.Core("[dataset]\nlevels = 2").restore(saved)


def test_what_was_read_last_time_is_unknown_where_nobody_told() -> None:
    t_us, lfn, on_disk, size, fill, _ = opens(200)
    untold = _core.Core().replay(t_us, lfn, on_disk, size, fill)
    told = _core.Core().replay(t_us, lfn, on_disk, size, fill, np.full(200, -1, np.float32))
    assert untold.tobytes() == told.tobytes()
    assert set(untold[:, names().index("file_read_share")]) == {-1}


def test_a_feature_never_knows_its_own_open_or_later_ones() -> None:
    columns = opens(500)
    whole = _core.Core().replay(*columns)
    part = _core.Core().replay(*(column[:200] for column in columns))
    assert whole[:200].tobytes() == part.tobytes()


def test_hour_and_weekday_turn_with_utc() -> None:
    monday_midnight = 1_735_516_800_000_000  # 30 December 2024
    at_six = row(_core.Core(), monday_midnight + 6 * HOUR)
    assert (at_six["day_sin"], at_six["day_cos"]) == pytest.approx((1, 0), abs=1e-6)
    assert (at_six["week_sin"], at_six["week_cos"]) == pytest.approx((math.sin(math.tau / 28), math.cos(math.tau / 28)), abs=1e-6)


def test_digits_do_not_tell_tokens_apart() -> None:
    core = _core.Core("[features]\ntoken_buckets = 8")
    a, b = row(core, lfn="/store/Run2017B/x.root"), row(core, lfn="/store/Run18B/y.root")
    tokens = [name for name in names() if name.startswith("token_")]
    assert [a[t] for t in tokens] == [b[t] for t in tokens]
    assert sum(abs(a[t]) for t in tokens) in (0, 2)


@pytest.mark.parametrize(
    ("lfn", "dataset"),
    [
        (LFN, "/store/mc/Run3Summer22/TTto2L2Nu/NANOAODSIM"),
        ("//store//mc/x.root", "/store/mc"),
        ("/x.root", "/"),
        ("", "/"),
        ("/store/user/alice/ntuples/v1/a/b.root", "/store/user/alice/ntuples"),
    ],
)
def test_dataset_of(lfn: str, dataset: str) -> None:
    core = _core.Core('[dataset]\nrules = [{ prefix = "/store/user/", levels = 4 }]')
    assert core.dataset_of(lfn) == dataset


def test_memory_stays_within_its_bound_and_the_oldest_go() -> None:
    bound = 1 << 20
    core = _core.Core(f"[history]\nmemory_bytes = {bound}")
    n = 50_000
    lfns = [f"/store/a/b/c/d/{i}.root" for i in range(n)]
    core.replay(T0 + np.arange(n), lfns, np.zeros(n, bool), np.full(n, -1), np.full(n, -1, np.float32))
    assert core.memory_bytes <= bound
    assert 1000 < core.files < n
    assert row(core, T0 + n, lfns[-1])["file_seen"] == 1
    assert row(core, T0 + n, lfns[0])["file_seen"] == 0


@pytest.mark.parametrize("t_us", [T0 - 400 * HOUR, 0, -1, -(2**63), 2**63 - 1])
def test_any_clock_gives_finite_features(t_us: int) -> None:
    core = _core.Core()
    row(core)
    values = [row(core, t_us, size=2**63 - 1, fill=math.nan), row(core), row(core, size=-5, fill=math.inf)]
    assert all(math.isfinite(value) for each in values for value in each.values())
    assert values[0]["fill"] == -1
    assert values[2]["fill"] == 1


@pytest.mark.parametrize(
    ("toml", "parts"),
    [
        ("[polcy]\nexplore = 1", ["unknown section [polcy]", "policy"]),
        ("[policy]\nexplor = 1", ["[policy]", "explor", "did you mean", "explore"]),
        ("[policy]\nexplore = 1.5", ["[policy] explore", "at most 1", "1.5"]),
        ("[policy]\nfallback = 'maybe'", ["[policy] fallback", "bypass", "maybe"]),
        ("[kafka]\npartitions = 'four'", ["[kafka] partitions", "an integer", "four"]),
        ("[features]\nhalf_lives_s = [5.0, 1.0]", ["[features] half_lives_s", "rise"]),
        ("[dataset]\nrules = [{ prefix = 'store' }]", ["[dataset] rules", "prefix", "levels"]),
        ("[dataset", ["not TOML", "line 1"]),
    ],
)
def test_a_bad_configuration_says_what_is_wrong_and_what_would_be_right(toml: str, parts: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        _core.Core(toml)
    for part in parts:
        assert part in str(error.value)


def test_the_reference_configuration_itself_is_accepted() -> None:
    reference = Path(__file__).parents[3] / "smartcache.toml"
    assert _core.schema(reference.read_text())["hash"] == _core.schema()["hash"]


def test_columns_of_different_lengths_are_refused() -> None:
    t_us, lfn, on_disk, size, fill, read_share = opens(10)
    with pytest.raises(ValueError, match="on_disk has 9 entries, t_us has 10"):
        _core.Core().replay(t_us, lfn, on_disk[:9], size, fill)
    with pytest.raises(ValueError, match="read_share has 9 entries, t_us has 10"):
        _core.Core().replay(t_us, lfn, on_disk, size, fill, read_share[:9])


def test_a_core_that_another_thread_uses_is_refused() -> None:
    columns = opens(200_000)
    core = _core.Core()
    refused = 0

    def replay() -> None:
        while True:
            try:
                core.replay(*columns)
            except RuntimeError:  # the others were first
                continue
            return

    thread = threading.Thread(target=replay)
    thread.start()
    while thread.is_alive():
        for call in (lambda: row(core), lambda: core.replay(*opens(2))):
            try:
                call()
            except RuntimeError as error:
                assert "in use by another thread" in str(error)  # noqa: PT017
                refused += 1
    thread.join()
    assert refused > 0
    row(core)


def test_replay_releases_the_gil() -> None:
    columns = opens(200_000)
    core = _core.Core()
    done = threading.Event()
    ticks = 0

    def replay() -> None:
        core.replay(*columns)
        done.set()

    thread = threading.Thread(target=replay)
    thread.start()
    while not done.is_set():
        ticks += 1
    thread.join()
    assert ticks > 1000


def side_table(**changed: object) -> bytes:
    """A side table of one dataset, that of LFN."""
    head = {"format": 1, "kind": "smartcache-datasets", "version": 7, "until_us": T0, "windows_s": [60.0, 3600.0], "left_out": 0}
    dataset = {"dataset": _core.Core().dataset_of(LFN), "opens": [1, 8], "read_bytes": [5, 6], "files": 3, "caches": 2, "reopened": 0.5}
    rows = [head, {**dataset, "part_read": None, "last_open_us": T0 - HOUR, **changed}]
    text = b"".join(json.dumps(each).encode() + b"\n" for each in rows)
    return text + json.dumps({"rows": 1, "sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"


def test_what_a_side_table_says_is_in_the_features_and_nowhere_else() -> None:
    table = _core.SideTable(side_table())
    assert (table.version, table.until_us, table.datasets) == (7, T0, 1)
    with_table, without = _core.Core(), _core.Core()
    columns = opens(100)
    columns[1][:50] = [LFN] * 50
    one, other = with_table.replay(*columns, table), without.replay(*columns)
    federation = [number for number, name in enumerate(names()) if name.startswith("federation_")]
    assert (other[:, federation] == -1).all()
    assert (np.delete(one, federation, 1) == np.delete(other, federation, 1)).all()
    assert with_table.save() == without.save()
    row = dict(zip(names(), one[0].tolist(), strict=True))
    assert (row["federation_known"], row["federation_part_read"]) == (1, -1)
    assert row["federation_opens"] == pytest.approx(math.log1p(8))
    assert row["federation_reopen_share"] == pytest.approx(5 / 12)
    assert row["federation_gap"] == pytest.approx(math.log1p((columns[0][0] - T0 + HOUR) / 1e6), rel=1e-6)
    assert one[99, names().index("federation_known")] == 0
    told = [each if isinstance(each, str) else each.item() for each in (column[0] for column in columns)]
    assert one[0].tobytes() == _core.Core().observe(*told, table).tobytes()


def test_a_side_table_that_is_none_says_why() -> None:
    with pytest.raises(ValueError, match="line 2: reopened must be from 0 to 1, but is 2"):
        _core.SideTable(side_table(reopened=2))
    with pytest.raises(ValueError, match="cut short"):
        _core.SideTable(b"")
