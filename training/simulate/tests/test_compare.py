"""Comparisons with the real core: known outcomes, going on after a stop, and workers that die."""

import json
import os
import signal
import threading

import pytest

from smartcache.training.simulate import policies
from smartcache.training.simulate.compare import Plan, Stopped, compare
from smartcache.training.simulate.pool import Pool, SimulationError, Task


def plan(**changes):
    usual = {"policies": ["lru", "belady"], "fractions": [], "capacities": [20], "windows": 4, "warm": 0.0, "workers": 1, "sort": False}
    return Plan(**{**usual, **changes})


@pytest.fixture
def run():
    said = []

    def compared(*paths, output=None, stop=None, **changes):
        done = compare(paths, plan(**changes), output, "the command", stop or threading.Event(), said.append)
        compared.said = said
        return done

    return compared


def misses(comparison):
    return {(line.policy, line.capacity_bytes): (line.object_miss, line.byte_miss) for line in comparison.figures}


def test_a_sequence_whose_outcome_is_known(write, run):
    # Two files fit. LRU hits the fourth and the sixth; Belady also keeps a for the third.
    done = run(write(["a", "b", "c", "b", "a", "b", "c", "a"]))
    lru, belady = done.figures
    assert (lru.requests, lru.object_miss) == (8, 6 / 8)
    assert lru.bytes_written == 60
    assert lru.bytes_deleted == 40
    assert belady.wan_bytes < lru.wan_bytes
    assert belady.gap_closed == 1
    assert sum(window.requests for window in done.windows if window.policy == "lru") == 8


def test_one_file_only(write, run):
    done = run(write(["a"] * 10), capacities=[10], fractions=[1.0])
    assert misses(done) == {("lru", 10): (0.1, 0.1), ("belady", 10): (0.1, 0.1)}


def test_one_request_only(write, run):
    done = run(write(["a"]), fractions=[0.01, 1.0], capacities=[], warm=0.6, windows=50)
    assert [(line.requests, line.object_miss, line.windows) for line in done.figures] == [(1, 1.0, 1)] * 4


def test_nothing_is_used_again(write, run):
    done = run(write([str(number) for number in range(50)]), fractions=[0.1, 1.0])
    assert {line.object_miss for line in done.figures} == {1.0}
    assert {line.gap_closed for line in done.figures} == {None}


def test_a_cache_larger_than_everything(write, run):
    done = run(write(list("abcabcabc")), capacities=[10**15])
    assert misses(done) == {("lru", 10**15): (1 / 3, 1 / 3), ("belady", 10**15): (1 / 3, 1 / 3)}
    assert {line.bytes_deleted for line in done.figures} == {0}


def test_a_cache_smaller_than_every_file(write, run):
    done = run(write(list("aaaa")), capacities=[9])
    for line in done.figures:
        assert (line.object_miss, line.byte_miss, line.bytes_written, line.bytes_deleted) == (1.0, 1.0, 0, 0)


def test_every_policy_of_the_core_counts_each_request(zipf, run):
    path = zipf(3000)
    done = run(path, policies=policies.defaults(), capacities=[], fractions=[0.1], windows=7, workers=2)
    by_policy = {line.policy: line for line in done.figures}
    assert list(by_policy) == policies.defaults()
    for line in done.figures:
        assert line.requests == 3000
        assert 0 < line.byte_miss < 1
        assert line.bytes_deleted <= line.bytes_written <= line.wan_bytes
    assert min(done.figures, key=lambda line: line.object_miss).policy == "belady"


def test_more_than_one_trace_at_once(write, zipf, run):
    done = run(write(list("abab"), name="one.parquet"), zipf(500, name="two.parquet"), workers=2, capacities=[], fractions=[0.2, 0.5])
    assert [(line.trace, line.policy, line.cache_fraction) for line in done.figures] == [
        (trace, policy, fraction) for trace in ("one", "two") for fraction in (0.2, 0.5) for policy in ("lru", "belady")
    ]
    assert [facts.requests for facts in done.traces] == [4, 500]


def test_what_is_there_is_not_done_again(zipf, run, tmp_path):
    path, output = zipf(2000), tmp_path / "out"
    first = run(path, output=output, fractions=[0.1])
    assert first.kept == 0
    more = run(path, output=output, fractions=[0.1, 0.3], warm=0.5)
    assert (more.kept, len(more.figures)) == (4, 6)
    assert "4 of 6 simulations" in run.said[-1]
    again = run(path, output=output, fractions=[0.1])
    assert (again.kept, again.figures) == (4, first.figures)


def test_another_trace_other_windows_and_another_version_are_other_results(zipf, run, tmp_path, monkeypatch):
    output = tmp_path / "out"
    run(zipf(2000), output=output)
    assert run(zipf(2000, seed=2), output=output).kept == 0
    assert run(zipf(2000), output=output).kept == 2
    assert run(zipf(2000), output=output, windows=5).kept == 0
    monkeypatch.setattr(policies, "version", lambda: "another")
    assert run(zipf(2000), output=output).kept == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"[]", b'{"run": 3}'])
def test_a_damaged_result_is_made_again_and_counted(zipf, run, tmp_path, damage):
    path, output = zipf(500), tmp_path / "out"
    first = run(path, output=output)
    kept = sorted((output / "runs").iterdir())
    kept[0].write_bytes(damage)
    again = run(path, output=output)
    assert (again.kept, again.damaged) == (1, 1)
    assert misses(again) == misses(first)
    assert run(path, output=output).damaged == 0


@pytest.mark.parametrize("change", [{"hits": [1]}, {"hits": [-1, 0, 0, 0]}, {"hits": ["1", 0, 0, 0]}, {"hits": None}])
def test_counts_that_cannot_be_are_no_result(zipf, run, tmp_path, change):
    path, output = zipf(500), tmp_path / "out"
    run(path, output=output)
    kept = sorted((output / "runs").iterdir())[0]
    content = json.loads(kept.read_text())
    content["counts"] |= change
    kept.write_text(json.dumps(content))
    assert run(path, output=output).damaged == 1


def test_a_stop_keeps_what_is_done(zipf, run, tmp_path):
    path, output = zipf(2000), tmp_path / "out"
    run(path, output=output)
    with pytest.raises(Stopped, match="2 of 4"):
        run(path, output=output, capacities=[20, 200], stop=_AfterReading())


class _AfterReading(threading.Event):
    """Set from the second look on: while traces are read it is not."""

    def __init__(self):
        super().__init__()
        self.looks = 0

    def is_set(self):
        self.looks += 1
        return self.looks > 1


def test_a_stop_while_traces_are_read(zipf, run):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped, match="0 of 2"):
        run(zipf(100), stop=stop)


def test_an_unknown_policy_is_named_with_what_is_near(write, run):
    with pytest.raises(policies.UnknownPolicy, match="unknown policy 'beladi'; did you mean belady"):
        run(write(["a"]), policies=["lru", "beladi"])
    with pytest.raises(policies.UnknownPolicy, match=r"known are lru, .*uses2\+NAME"):
        run(write(["a"]), policies=["zzzzzz"])


def test_a_worker_that_dies_is_missed(tmp_path, zipf, monkeypatch):
    tasks = [Task(f"number {number}", tmp_path / "none", "lru", 10, 1) for number in range(2)]
    with Pool(1) as workers:
        os.kill(workers._workers[0][0].pid, signal.SIGKILL)
        with pytest.raises(SimulationError, match="number 0: the process that simulated it ended with -9"):
            list(workers.run(tasks, threading.Event()))


def test_what_fails_in_a_worker_is_said_here(tmp_path):
    with Pool(1) as workers, pytest.raises(SimulationError, match=r"^mine: FileNotFoundError: .*objects\.npy"):
        list(workers.run([Task("mine", tmp_path, "lru", 10, 1)], threading.Event()))


def test_no_process_is_left(tmp_path):
    with Pool(2) as workers:
        pids = [process.pid for process, _ in workers._workers]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
