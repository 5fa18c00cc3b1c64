"""The folder of retraining, and where its window begins; whole rounds are in inference/tests/test_real_retrain.py."""

import os
import time
from datetime import UTC, datetime
from threading import Event

import pytest

from smartcache import config as configs
from smartcache.inference.tests import tables
from smartcache.training import retrain


@pytest.fixture
def work(tmp_path):
    return retrain.Work(tmp_path / "work")


def make(work, name, *, whole=True, state=False):
    folder = work.folder / name
    folder.mkdir(parents=True)
    (folder / "part-00000.parquet").write_bytes(b"")
    if whole:
        (folder / "manifest.json").write_text("{}")
    if state:
        (work.folder / f".{name}.training").mkdir()
        (work.folder / f".{name}.training" / "state.npz").write_bytes(b"")
    return folder


def test_one_at_a_time(work):
    with (
        work.held(),
        pytest.raises(retrain.RetrainError, match=r"another `smartcache retrain` \(process \d+\) is at work here"),
        work.held(),
    ):
        pass
    with work.held():
        pass


def test_a_command_that_outlives_a_killed_one_holds_the_lock(work):
    with work.held() as lock:
        kept = os.dup(lock)
    with pytest.raises(retrain.RetrainError, match="another"), work.held():
        pass
    os.close(kept)
    with work.held():
        pass


def test_only_the_newest_training_is_gone_on_with_and_only_while_it_is_new(work):
    make(work, "set-20260101T000000", state=True)
    assert work.begun(60.0) == work.folder / "set-20260101T000000"
    newest = make(work, "set-20260102T000000")
    make(work, "set-20260103T000000", whole=False, state=True)
    assert work.begun(60.0) is None
    (work.folder / ".set-20260102T000000.training").mkdir()
    (work.folder / ".set-20260102T000000.training" / "state.npz").write_bytes(b"")
    assert work.begun(60.0) == newest
    os.utime(newest / "manifest.json", (time.time() - 61,) * 2)
    assert work.begun(60.0) is None


def test_the_newest_whole_sets_are_kept(work):
    for day in (1, 2, 3):
        make(work, f"set-2026010{day}T000000", state=day == 1)
    make(work, "set-20260104T000000", whole=False)
    work.prune(2)
    assert sorted(path.name for path in work.folder.iterdir()) == ["set-20260102T000000", "set-20260103T000000"]


def test_the_window_ends_with_the_tables_last_day(tmp_path):
    opens = [tables.Open(tables.T0_US + day * tables.DAY_US, f"/f{day}") for day in range(3)]
    table = tables.write(tmp_path / "access", opens)
    config = configs.parse({"streaming": {"table": str(table)}, "retraining": {"window_days": 1.5}}, "test")
    # The last open is on 16 November 2023.
    assert retrain.first_day(config) == datetime(2023, 11, 15, 12, tzinfo=UTC)
    none = configs.parse({"streaming": {"table": str(tmp_path / "none")}}, "test")
    with pytest.raises(retrain.RetrainError, match="train where the table is"):
        retrain.first_day(none)


def test_a_command_that_fails_is_named(work):
    with work.held() as lock:
        with pytest.raises(retrain.RetrainError, match="`smartcache train` has failed, status 2; its words are above"):
            retrain._run(["train", "--nonsense"], lock, Event())
        stop = Event()
        stop.set()
        with pytest.raises(retrain.Stopped):
            retrain._run(["train"], lock, stop)
