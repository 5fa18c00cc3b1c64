"""One process at a time."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import psutil
import pytest

from smartcache import lock


@contextmanager
def held(path):
    taken = lock.take(path)
    yield
    os.close(taken)


HOLD = """
import sys
from pathlib import Path
from smartcache import lock
lock.take(Path(sys.argv[1]))
print("has it", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_and_told_whose_it_is_until_it_is_killed(tmp_path):
    file = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "has it\n"
        with pytest.raises(lock.Held) as refused:
            lock.take(file)
        assert refused.value.owner == str(other.pid)
        assert lock.is_held(file)
        other.send_signal(signal.SIGKILL)
        other.wait()
        with held(file):
            assert file.read_text() == f"{os.getpid()}\n"
    assert not lock.is_held(file)
    assert not lock.is_held(tmp_path / "none")


def test_a_refused_try_leaves_nothing_open(tmp_path):
    before = psutil.Process().num_fds()
    with held(tmp_path / "lock"):
        for _ in range(3):
            with pytest.raises(lock.Held):
                lock.take(tmp_path / "lock")
        assert psutil.Process().num_fds() == before + 1


def test_programs_that_are_started_do_not_hold_it(tmp_path):
    with held(tmp_path / "lock"):
        done = subprocess.Popen(["sleep", "60"])
    try:
        with held(tmp_path / "lock"):
            pass
    finally:
        done.kill()
        done.wait()


def test_a_file_that_cannot_be_made_is_the_systems_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        lock.take(tmp_path / "file" / "lock")
