"""The demo where something goes wrong: a port in use, a part that does not come up, Ctrl-C, a dead endpoint, a second demo.

Ctrl-C in the phases from training on: ``test_demo_interrupts.py``.
"""

import os
import shutil
import signal
import socket
from collections import Counter

import pytest

from smartcache.demo.clients import read_results
from smartcache.preprocessing.access import read_access_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

STARTED = "start the servers: done"
LEARNT = "learn: clients read: done"
PROMOTED = "train and promote: done"
#: More than the demo has with any of its parts; where it ends before, that is seen at once.
PATIENCE_S = 900


def interrupt(demo, sign=signal.SIGINT):
    """Ctrl-C: the status is that of an interrupt, and no process is left."""
    demo.look()
    demo.process.send_signal(sign)
    assert demo.wait(90) == 130, demo.output()
    assert "interrupted" in demo.output()
    assert demo.left_over() == []


def test_a_port_in_use(start_demo):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        demo = start_demo("--port", f"mlflow={port}")
        assert demo.wait(60) == 1
    said = " ".join(demo.output().split())
    assert f"TCP port {port}, which the demo's mlflow needs, is in use" in said
    assert "--port mlflow=N" in said
    assert demo.left_over() == []


def test_a_part_that_does_not_come_up_is_shown_with_its_last_words(start_demo, monkeypatch, tmp_path):
    real = shutil.which("java")
    broken = f'#!/bin/sh\ncase "$*" in *" kafka.Kafka "*) echo no memory for this machine; exit 1;; *) exec {real} "$@";; esac\n'
    (tmp_path / "java").write_text(broken)
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    demo = start_demo()
    assert demo.wait(120) == 1
    assert "kafka ended with status 1 before it was answering" in demo.output()
    assert "no memory for this machine" in demo.output()
    assert demo.left_over() == []


def test_ctrl_c_while_the_origins_files_are_written(start_demo):
    demo = start_demo("--learn-s", "900")
    demo.until(lambda: any((demo.run / "files").rglob("*.root")), "a file was written", PATIENCE_S)
    interrupt(demo)
    assert "write the origin's files: done" not in demo.output()


def test_ctrl_c_at_a_terminal_where_make_starts_the_servers(start_demo):
    """The terminal sends it to the whole group, make and the demo, but not to the servers, which have sessions of their own."""
    demo = start_demo(by_make=True)
    demo.until(lambda: (demo.run / "kafka" / "kafka.log").exists(), "Kafka was started", PATIENCE_S)
    demo.look()
    assert len(demo.seen) > 1
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.wait(90) != 0
    assert "interrupted; every server that it had started is stopped" in " ".join(demo.output().split())
    assert "Traceback" not in demo.output()
    assert demo.left_over() == []


def test_ctrl_c_while_clients_read_and_a_second_demo_at_once(start_demo):
    demo = start_demo()
    demo.until(demo.says(STARTED), "the servers were started", PATIENCE_S)
    results = demo.run / "learn.results.jsonl"
    demo.until(lambda: len(read_results(results)) > 20, "clients read", PATIENCE_S)
    second = start_demo(run=demo.run)
    assert second.wait(200) == 1
    assert f"another demo (process {demo.process.pid}) is running" in " ".join(second.output().split())
    assert len(read_results(results)) > 20
    interrupt(demo)


def test_sigterm_while_training(start_demo):
    demo = start_demo("--learn-s", "20")
    demo.until(lambda: (demo.run / "logs" / "build-dataset.log").exists(), "a training set was being built", PATIENCE_S)
    interrupt(demo, signal.SIGTERM)


def test_a_part_that_ends_while_clients_read_ends_the_demo_with_its_last_words(start_demo):
    """Not the endpoint, which the caches can do without."""
    demo = start_demo()
    demo.until(demo.says(STARTED), "the servers were started", PATIENCE_S)
    results = demo.run / "learn.results.jsonl"
    demo.until(lambda: len(read_results(results)) > 20, "clients read", PATIENCE_S)
    demo.look()
    demo.find("collect").kill()
    assert demo.wait(120) == 1
    said = " ".join(demo.output().split())
    assert "collect ended" in said
    assert "ready: gstream" in said
    assert demo.left_over() == []


def test_no_open_fails_where_the_endpoint_is_killed(start_demo):
    """The model answers, then its endpoint is killed, and the clients notice nothing; the demo ends well, and says so."""
    demo = start_demo("--decide-s", "45")
    demo.until(demo.says(PROMOTED), "a model was promoted", PATIENCE_S)
    results = demo.run / "decide.results.jsonl"
    demo.until(lambda: len(read_results(results)) > 200, "clients read", PATIENCE_S)
    demo.find("smartcache-endpoint").kill()
    assert demo.wait(500) == 0, demo.output()
    assert [result for result in read_results(results) if not result.ok] == []
    reasons = Counter(read_access_table(demo.run / "access", columns=["reason"])["reason"].to_pylist())
    assert reasons["model"] > 50
    assert reasons["breaker_open"] > 50
    assert "endpoint ended by itself" in " ".join(demo.output().split())
    assert demo.left_over() == []
