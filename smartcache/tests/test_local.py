"""Servers on this machine: ports, processes, what XRootD's user may read, XRootD's own reports."""

import http.server
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import psutil
import pytest

from smartcache.local import kafka, mlflow, paths, ports, summary, xrootd
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


def test_free_ports_are_different_and_can_be_bound():
    found = ports.free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        ports.require_free(port, "a test", "try again")


def test_free_ports_are_none_that_outgoing_connections_get(monkeypatch):
    assert all(15000 <= port < 32000 for port in ports.free_ports(50))
    monkeypatch.setattr(ports, "CHOICE", range(15000, 15003))
    with pytest.raises(ports.PortInUse, match="fewer than 4 ports from 15000 to 15002"):
        ports.free_ports(4)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_free_port_is_one_that_nobody_has(monkeypatch, kind):
    (first,) = ports.free_ports(1)
    monkeypatch.setattr(ports, "CHOICE", range(first, first + 1))
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind((ports.LOOPBACK, first))
        with pytest.raises(ports.PortInUse):
            ports.free_ports(1)
    assert ports.free_ports(1) == [first]


def test_a_connection_to_itself_is_nobody_listening(monkeypatch):
    """Linux may dial out from the very port that is dialled."""

    class FromThatPort(socket.socket):
        def connect_ex(self, address):
            self.bind(address)
            return super().connect_ex(address)

    port = ports.free_ports(1)[0]
    monkeypatch.setattr(socket, "socket", FromThatPort)
    with FromThatPort() as probe:
        assert probe.connect_ex((ports.LOOPBACK, port)) == 0
    assert not ports.listens(ports.free_ports(1)[0])


def test_who_hangs_up_at_once_listens(monkeypatch):
    class HungUp(socket.socket):
        def connect_ex(self, address):
            status = super().connect_ex(address)
            peer, _ = server.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
            peer.close()
            return status

    with socket.create_server((ports.LOOPBACK, 0)) as server:
        monkeypatch.setattr(socket, "socket", HungUp)
        assert ports.listens(server.getsockname()[1])


@pytest.mark.parametrize(("kind", "name"), [(socket.SOCK_STREAM, "TCP"), (socket.SOCK_DGRAM, "UDP")])
def test_a_port_in_use_is_refused_by_name(kind, name):
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind((ports.LOOPBACK, 0))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ports.PortInUse, match=rf"{name} port {port}, which the broker needs.*use --port"):
            ports.require_free(port, "the broker", "use --port")


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
    process.wait_ready(line_in(log, "\n"), "started", 20)
    child = psutil.Process(int(log.read_text()))
    process.stop()
    assert child.wait(5) is None or not child.is_running()


def deaf(log):
    """A process that SIGTERM does not end."""
    return python(DEAF, log).start().wait_ready(line_in(log, "up"), "up", 20)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    process = deaf(tmp_path / "log")
    process.stop(grace_s=0.2)
    assert process.returncode == -signal.SIGKILL


def test_an_interrupt_while_stopping_counts_when_that_is_done(tmp_path):
    process = deaf(tmp_path / "log")
    try:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            process.stop(grace_s=1)
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
    code = "import time; print('up')\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(7)"
    process = python(code, log).start().wait_ready(line_in(log, "up"), "up", 20)
    time.sleep(0.1)
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
    stop_all([*many, python("", tmp_path / "never started")], grace_s=1)
    assert time.monotonic() - began < 2
    assert [process.returncode for process in many] == [-signal.SIGKILL] * 3


def test_a_group_is_stopped_when_the_one_before_has_ended(tmp_path):
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('asked', time.monotonic()); time.sleep({last}); print('ended', time.monotonic()); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up'); time.sleep(60)"
    )
    logs = {name: tmp_path / name for name in ("collector", "stream", "kafka")}
    parts = {name: python(code.format(last=0 if name == "kafka" else 0.5), log).start() for name, log in logs.items()}
    for name, part in parts.items():
        part.wait_ready(line_in(logs[name], "up"), "up", 20)
    stop_all([parts["collector"], parts["stream"]], [parts["kafka"]])
    times = {name: dict(line.split() for line in log.read_text().splitlines()[1:]) for name, log in logs.items()}
    assert float(times["stream"]["asked"]) < float(times["collector"]["ended"])
    assert float(times["kafka"]["asked"]) > max(float(times[name]["ended"]) for name in ("collector", "stream"))
    assert [part.returncode for part in parts.values()] == [0, 0, 0]


def test_an_interrupt_while_many_are_stopped_leaves_none(tmp_path):
    many = [deaf(tmp_path / f"{i}") for i in range(2)]
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
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
        psutil.wait_procs([child], timeout=10)
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


def test_a_server_is_registered_before_it_starts(tmp_path, monkeypatch):
    """Whoever stops them has to know of them before an interrupt can come."""
    seen = []

    def register(process):
        seen.append((process.name, process.running))
        raise InterruptedError

    monkeypatch.setattr(kafka, "_format_storage", lambda *_: None)
    monkeypatch.setattr(paths, "require", lambda path, _: path)
    starts = [
        lambda: kafka.start(tmp_path / "kafka", 1, 2, register=register),
        lambda: mlflow.launch(tmp_path / "mlflow", 1, register=register),
    ]
    for start in starts:
        with pytest.raises(InterruptedError):
            start()
    with xrootd.temporary_folder() as folder, pytest.raises(InterruptedError):
        xrootd.start_origin(folder, 1, data=folder, register=register)
    size = xrootd.CacheSize(1, 2, 3)
    with xrootd.temporary_folder() as folder, pytest.raises(InterruptedError):
        xrootd.start_cache(folder, 1, origin_port=2, size=size, register=register)
    assert seen == [("kafka", False), ("mlflow", False), ("origin", False), ("cache", False)]


@pytest.fixture
def open_folder():
    with xrootd.temporary_folder() as folder:
        yield folder


@as_root
def test_a_folder_that_the_servers_may_not_enter_is_named_with_the_way_out(open_folder):
    locked = open_folder / "locked"
    run = locked / "a" / "run"
    run.mkdir(parents=True)
    xrootd.require_access(run, open_folder / "not" / "yet")
    locked.chmod(0o700)
    with pytest.raises(
        ProcessError, match=rf"'xrootd', which may not enter the folder {locked} \(mode 0700\).*chmod o\+x {locked}`.*--run-dir"
    ):
        xrootd.require_access(open_folder, run)
    # It is the real name that counts, and a folder that is yet to be made is not what is in the way.
    link = open_folder / "link"
    link.symlink_to(locked / "a")
    with pytest.raises(ProcessError, match=f"enter the folder {locked} "):
        xrootd.require_access(link / "not" / "yet")


@as_root
def test_another_run_folder_is_not_advised_where_the_clone_is_out_of_reach(open_folder, monkeypatch):
    clone = open_folder / "locked" / "clone"
    plugin = clone / "build" / "plugin" / "lib.so"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    monkeypatch.setattr(paths, "ROOT", clone)
    monkeypatch.setattr(paths, "BUILD", clone / "build")
    clone.parent.chmod(0o700)
    with pytest.raises(ProcessError, match=r"the plugin and all else.*clone smartcache where") as refused:
        xrootd.require_access(open_folder, plugin)
    assert "--run-dir" not in str(refused.value)
    clone.parent.chmod(0o755)
    plugin.chmod(0o600)
    with pytest.raises(ProcessError, match=rf"read the file {plugin}.*chmod -R o\+rX {clone / 'build'}`"):
        xrootd.require_access(open_folder, plugin)


@as_root
def test_a_cache_does_not_start_with_a_plugin_that_it_cannot_read(open_folder):
    (open_folder / "libX-5.so").touch(mode=0o600)
    with pytest.raises(ProcessError, match=r"read the file .*libX-5\.so"):
        xrootd.start_cache(open_folder / "cache", 1, origin_port=2, size=xrootd.CacheSize(1, 2, 3), plugin=open_folder / "libX.so")


@as_root
def test_who_is_in_the_folders_group_may_enter(open_folder):
    locked = open_folder / "locked"
    locked.mkdir(mode=0o710)
    os.chown(locked, 0, pwd.getpwnam(xrootd.SERVER_USER).pw_gid)
    xrootd.require_access(locked)


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
            assert http_ok(url)()
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


REPORT = (
    b'<statistics tod="1795253172" ver="v5.5.3" src="vm:29998" tos="1" pgm="xrootd" ins="o" pid="1" site="">'
    b'<stats id="link"><num>0</num><maxn>1</maxn><tot>3</tot><in>235</in><out>4198625</out></stats></statistics>\0'
)


def test_summary_report():
    port, counters = summary.parse(REPORT)
    assert (port, counters) == (29998, summary.LinkCounters(1795253172, 235, 4198625, 3))


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\0",
        b"<statistics>",
        REPORT.replace(b"link", b"buff"),
        REPORT.replace(b"vm:29998", b"vm"),
        b"\xff\xfe",
        b"<!DOCTYPE x>" + REPORT,
    ],
)
def test_what_is_no_summary_report(packet):
    with pytest.raises(ValueError, match="summary report"):
        summary.parse(packet)


def test_listener_keeps_the_newest_and_counts_garbage():
    port = ports.free_ports(1)[0]
    with summary.SummaryListener(port) as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"garbage", (ports.LOOPBACK, port))
        later = str(2**31).encode()
        sender.sendto(REPORT.replace(b"1795253172", later), (ports.LOOPBACK, port))
        assert listener.fresh([29998], timeout_s=10)[29998].bytes_out == 4198625
        assert listener.malformed == 1
        with pytest.raises(TimeoutError, match="port 1 sent no summary report"):
            listener.fresh([1, 29998], timeout_s=0.1)


def test_a_missing_part_names_the_way_out(tmp_path):
    with pytest.raises(paths.MissingPart, match="make setup"):
        paths.require(tmp_path / "none", "the thing")


def test_a_missing_module_names_the_way_out():
    assert paths.require_module("json").loads("1") == 1
    with pytest.raises(paths.MissingPart, match=r"no_such_module is missing .*make setup"):
        paths.require_module("no_such_module")


def test_a_cluster_id_is_never_taken_for_an_option():
    """One in 64 random ids begins with a dash."""
    assert not [drawn for drawn in (kafka.cluster_id() for _ in range(2000)) if drawn.startswith("-") or len(drawn) != 22]
