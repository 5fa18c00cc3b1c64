"""Processes on this machine: started, waited for, stopped with their children, whatever interrupts."""

import http.server
import os
import pwd
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from smartcache.local import paths, ports, xrootd
from smartcache.local.process import (
    Process,
    ProcessError,
    direct_loopback,
    http_ok,
    interrupts_deferred,
    interrupts_ignored,
    line_in,
    port_open,
    stop_all,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"


def python(code, log, **options):
    return Process("child", [sys.executable, "-u", "-c", code], log, **options)


def test_a_process_is_ready_when_its_log_says_so(tmp_path):
    log = tmp_path / "log"
    with python("print('ready: here'); import time; time.sleep(60)", log).start() as process:
        process.wait_ready(line_in(log, "ready:"), "ready", 20)
        assert process.running
    assert process.returncode == -signal.SIGTERM


def test_last_words_of_a_process_that_did_not_come_up(tmp_path):
    process = python("print('no such disk'); raise SystemExit(3)", tmp_path / "log").start()
    with pytest.raises(ProcessError, match=r"status 3(.|\n)*no such disk"):
        process.wait_ready(port_open(ports.free_ports(1)[0]), "listening", 20)


def test_a_process_that_hangs_is_stopped(tmp_path):
    process = python("import time; time.sleep(60)", tmp_path / "log").start()
    with pytest.raises(ProcessError, match="not listening after"):
        process.wait_ready(lambda: False, "listening", 0.2)
    assert not process.running


def test_a_program_that_does_not_exist(tmp_path):
    with pytest.raises(ProcessError, match="cannot start /no/such/program"):
        Process("ghost", ["/no/such/program"], tmp_path / "log").start()


def test_stop_ends_the_children_too(tmp_path):
    log = tmp_path / "log"
    sleeper = "import time; time.sleep(60)"
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {sleeper!r}]).pid); {sleeper}"
    process = python(code, log).start()
    process.wait_ready(line_in(log, "\n"), "started", 60)
    child = psutil.Process(int(log.read_text()))
    process.stop()
    assert child.wait(60) is None or not child.is_running()


def deaf(log):
    """A process that SIGTERM does not end."""
    return python(DEAF, log).start().wait_ready(line_in(log, "up"), "up", 60)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    process = deaf(tmp_path / "log")
    process.stop(grace_s=0.2)
    assert process.returncode == -signal.SIGKILL


def interrupted_by_stopping(process, monkeypatch):
    """An interrupt comes as soon as the process has been signalled for the first time."""
    ask = process._signal

    def interrupted(sign):
        monkeypatch.undo()
        ask(sign)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(process, "_signal", interrupted)


def test_an_interrupt_while_stopping_counts_when_that_is_done(tmp_path, monkeypatch):
    process = deaf(tmp_path / "log")
    try:
        interrupted_by_stopping(process, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            process.stop(grace_s=0.2)
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()


def test_an_interrupt_while_starting_loses_no_process(tmp_path, monkeypatch):
    start = subprocess.Popen

    def interrupted(*args, **options):
        child = start(*args, **options)
        signal.raise_signal(signal.SIGINT)  # the kernel has the child, its starter not yet
        return child

    process = python("import time; time.sleep(60)", tmp_path / "log")
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.start()
    assert process.running
    process.stop()


def test_a_process_that_was_started_can_be_interrupted(tmp_path):
    """What the starter defers, its child does not."""
    log = tmp_path / "log"
    code = "import time\ntry: print('up'); time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(7)"
    process = python(code, log).start().wait_ready(line_in(log, "up"), "up", 60)
    process.stop(sign=signal.SIGINT)
    assert process.returncode == 7


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupts_are_ignored_or_deferred_and_handlers_come_back(sign):
    got = []
    before = signal.signal(sign, lambda *_: got.append(sign))
    try:
        with interrupts_ignored(), interrupts_deferred():
            os.kill(os.getpid(), sign)
        assert got == []
        with interrupts_deferred():
            os.kill(os.getpid(), sign)
            assert got == []
        assert got == [sign]
        os.kill(os.getpid(), sign)
        assert got == [sign, sign]
        signal.signal(sign, signal.SIG_IGN)
        with interrupts_deferred():
            assert signal.getsignal(sign) is signal.SIG_IGN
    finally:
        signal.signal(sign, before)


def test_processes_are_started_and_stopped_in_other_threads_too(tmp_path):
    with pytest.raises(ValueError, match="main thread"):  # what the standard library says
        run_in_thread(lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    process = python("import time; time.sleep(60)", tmp_path / "log")

    def both():
        process.start()
        stop_all([process])

    run_in_thread(both)
    assert process.returncode == -signal.SIGTERM


def run_in_thread(call):
    raised = []

    def guarded():
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_all_are_stopped_within_one_grace(tmp_path):
    many = [deaf(tmp_path / f"{i}") for i in range(3)]
    began = time.monotonic()
    stop_all([*many, python("", tmp_path / "never started")], grace_s=3)
    assert time.monotonic() - began < 6  # one after the other: 9
    assert [process.returncode for process in many] == [-signal.SIGKILL] * 3


def test_a_group_is_stopped_when_the_one_before_has_ended(tmp_path):
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('asked', time.monotonic()); time.sleep({last}); print('ended', time.monotonic()); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up'); time.sleep(60)"
    )
    logs = {name: tmp_path / name for name in ("collector", "stream", "kafka")}
    parts = {name: python(code.format(last=0 if name == "kafka" else 3), log).start() for name, log in logs.items()}
    for name, part in parts.items():
        part.wait_ready(line_in(logs[name], "up\n"), "up", 60)
    stop_all([parts["collector"], parts["stream"]], [parts["kafka"]])
    times = {name: dict(line.split() for line in log.read_text().splitlines()[1:]) for name, log in logs.items()}
    assert float(times["stream"]["asked"]) < float(times["collector"]["ended"])
    assert float(times["kafka"]["asked"]) > max(float(times[name]["ended"]) for name in ("collector", "stream"))
    assert [part.returncode for part in parts.values()] == [0, 0, 0]


def test_an_interrupt_while_many_are_stopped_leaves_none(tmp_path, monkeypatch):
    many = [deaf(tmp_path / f"{i}") for i in range(2)]
    try:
        interrupted_by_stopping(many[0], monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            stop_all(many[:1], many[1:], grace_s=0.5)
        assert [process.returncode for process in many] == [-signal.SIGKILL] * 2
    finally:
        for process in many:
            process.kill()


def killed_parent(code, tmp_path):
    """Run ``code``, which prints the id of a process that it has started, kill it, and return that process."""
    log = tmp_path / "parent"
    code = f"from pathlib import Path; import sys, time\n{code}\nprint(f'pid {{child.pid}}.'); time.sleep(60)"
    with python(code, log, cwd=paths.ROOT).start() as parent:
        parent.wait_ready(line_in(log, "."), "started", 60)
        child = psutil.Process(int(log.read_text().split()[1].rstrip(".")))
        uid = child.uids().effective
        psutil.Process(parent.pid).kill()
        psutil.wait_procs([child], timeout=60)
    return child, uid


@pytest.mark.parametrize("user", [None, pytest.param("nobody", marks=as_root)])
def test_children_end_with_a_parent_that_is_killed(tmp_path, user):
    """Nobody stops the servers where the program that started them is killed: the kernel must, whomever they run as."""
    log = tmp_path / "child"
    code = f"from smartcache.local.process import Process\nchild = Process('c', ['sleep', '60'], Path({str(log)!r}), user={user!r}).start()"
    child, uid = killed_parent(code, tmp_path)
    assert uid == (os.geteuid() if user is None else pwd.getpwnam(user).pw_uid)
    assert not child.is_running()


@pytest.mark.slow
def test_xrootd_ends_with_a_parent_that_is_killed(tmp_path):
    port = ports.free_ports(1)[0]
    with xrootd.temporary_folder() as folder:
        (folder / "data" / "store").mkdir(parents=True)
        code = (
            "from smartcache.local import xrootd\n"
            f"child = xrootd.start_origin(Path({str(folder / 'origin')!r}), {port}, data=Path({str(folder / 'data')!r})).process"
        )
        child, uid = killed_parent(code, tmp_path)
    assert uid == (pwd.getpwnam(xrootd.SERVER_USER).pw_uid if os.geteuid() == 0 else os.geteuid())
    assert not child.is_running()


@as_root
def test_a_process_of_another_user_has_none_of_our_groups(tmp_path):
    log = tmp_path / "log"
    before = os.getgroups()
    os.setgroups([0, 1])
    try:
        assert Process("id", ["id", "-G"], log, user="nobody").start().wait(20) == 0
    finally:
        os.setgroups(before)
    assert log.read_text().split() == [str(pwd.getpwnam("nobody").pw_gid)]


def test_a_user_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ProcessError, match=r"user 'no-such-user'.*make setup"):
        Process("id", ["id"], tmp_path / "log", user="no-such-user").start()


def test_no_proxy_is_asked_for_this_machine(tmp_path, monkeypatch):
    """A proxy knows another 127.0.0.1."""

    class Fine(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    dead = f"http://127.0.0.1:{ports.free_ports(1)[0]}"
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, dead)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.HTTPServer((ports.LOOPBACK, 0), Fine) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        try:
            assert any(http_ok(url)() for _ in range(30))  # each waits for a second
            code = f"from urllib.request import urlopen; print(urlopen({url!r}).status)"
            assert python(code, tmp_path / "log").start().wait(20) == 0
        finally:
            server.shutdown()


def test_exceptions_from_the_proxy_are_kept():
    merged = direct_loopback({"no_proxy": ".cern.ch, localhost", "NO_PROXY": "10.0.0.1", "HOME": "/"})
    assert merged["no_proxy"] == merged["NO_PROXY"] == ".cern.ch,localhost,10.0.0.1,127.0.0.1"
    assert merged["HOME"] == "/"
    assert direct_loopback({})["no_proxy"] == "127.0.0.1,localhost"


def test_nothing_answers_where_nothing_listens():
    port = ports.free_ports(1)[0]
    assert not port_open(port)()
    assert not http_ok(f"http://127.0.0.1:{port}/")()
