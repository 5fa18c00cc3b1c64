"""Servers on this machine: ports, processes, XRootD's own reports."""

import signal
import socket
import sys

import psutil
import pytest

from smartcache.local import paths, ports, summary
from smartcache.local.process import Process, ProcessError, http_ok, line_in, port_open


def python(code, log, **options):
    return Process("child", [sys.executable, "-u", "-c", code], log, **options)


def test_free_ports_are_different_and_can_be_bound():
    found = ports.free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        ports.require_free(port, "a test", "try again")


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


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    log = tmp_path / "log"
    process = python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(60)", log).start()
    process.wait_ready(line_in(log, "deaf"), "started", 20)
    process.stop(grace_s=0.2)
    assert process.returncode == -signal.SIGKILL


def test_children_end_with_a_parent_that_is_killed(tmp_path):
    """Nobody stops the servers where the program that started them is killed: the kernel must."""
    code = (
        "from pathlib import Path; import sys, time; from smartcache.local.process import Process\n"
        f"child = Process('c', [sys.executable, '-c', 'import time; time.sleep(60)'], Path({str(tmp_path / 'child')!r})).start()\n"
        "print(f'pid {child.pid}.'); time.sleep(60)"
    )
    log = tmp_path / "log"
    parent = python(code, log, cwd=paths.ROOT).start()
    parent.wait_ready(line_in(log, "."), "started", 30)
    child = psutil.Process(int(log.read_text().split()[1].rstrip(".")))
    psutil.Process(parent.pid).kill()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running()
    parent.stop()


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
        assert listener.fresh(29998, timeout_s=10).bytes_out == 4198625
        assert listener.malformed == 1
        with pytest.raises(TimeoutError, match="no summary report"):
            listener.fresh(1, timeout_s=0.1)


def test_a_missing_part_names_the_way_out(tmp_path):
    with pytest.raises(paths.MissingPart, match="make setup"):
        paths.require(tmp_path / "none", "the thing")
