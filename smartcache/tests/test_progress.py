"""The demo's progress, on a real terminal (a pty) and without one."""

import os
import pty
import re
import select
import subprocess
import sys
import time

from smartcache.demo import progress

#: Two steps; the second one ends when it hears so, as it must be seen while it goes on.
STEPS = """
import sys
from rich.console import Console
from smartcache.demo.progress import Steps
steps = Steps(Console(), 8)
with steps:
    with steps.step("write the origin's files", 2) as say:
        pass
    with steps.step("start the servers", 6) as say:
        say("Kafka, Spark")
        sys.stdin.readline()
"""
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def start(stdout):
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    return subprocess.Popen([sys.executable, "-c", STEPS], stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.STDOUT, env=environment)


def read_until(fd, enough, timeout_s=60):
    """What comes from ``fd`` until ``enough`` of it is there; all where it ends before."""
    came, deadline = b"", time.monotonic() + timeout_s
    while not enough(came.decode(errors="ignore")):
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, came
        try:
            part = os.read(fd, 65536)
        except OSError:  # how a pty says that nobody writes to it any more
            break
        if not part:
            break
        came += part
    return came.decode()


def test_on_a_terminal_a_bar_moves_with_the_clock():
    terminal, ours = pty.openpty()
    with start(ours) as process:
        os.close(ours)
        # Two of eight seconds are done at once; the third passes while the second step goes on.
        seen = read_until(
            terminal, lambda text: re.search(r"start the servers: Kafka, Spark.*(?:3[89]|[4-9]\d|100)%", _SEQUENCE.sub("", text))
        )
        process.stdin.write(b"\n")
        process.stdin.close()
        seen += read_until(terminal, lambda _: False)
        assert process.wait(60) == 0
    os.close(terminal)
    plain = _SEQUENCE.sub("", seen)
    shares = [int(share) for share in re.findall(r"━+ +(\d+)%", plain)]
    assert shares == sorted(shares)
    assert {0, 25} < set(shares)
    assert re.search(r"start the servers: Kafka, Spark +━+ +\d+% 0:00:0\d left [-0]:", plain)
    # The bar goes in the end, the lines of what is done stay.
    kept = seen[seen.rindex("%") :]
    assert "start the servers: done in" in _SEQUENCE.sub("", seen)
    assert "\x1b[2K" in kept
    assert not re.search(r"━", kept.rpartition("\x1b[2K")[2])


def test_without_a_terminal_a_line_for_each_step_is_all():
    with start(subprocess.PIPE) as process:
        said = process.communicate(b"\n", timeout=60)[0].decode()
    lines = said.splitlines()
    steps = [re.sub(r"^ *\d+ s  |\d+ s$", "", line) for line in lines if line.strip()]
    assert steps == ["write the origin's files: done in ", "start the servers: done in "]
    assert "\x1b" not in said


def test_a_step_that_fails_is_not_called_done(capsys):
    steps = progress.Steps(progress.Console(), 5)
    try:
        with steps, steps.step("learn", 5):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert "done" not in capsys.readouterr().out
