"""Servers on this machine: ports, what XRootD's user may read, XRootD's own reports."""

import os
import pwd
import socket
import struct
import subprocess
import sys
import tempfile
from collections import deque

import pytest

from smartcache.local import kafka, mlflow, paths, ports, summary, xrootd
from smartcache.local.process import ProcessError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")


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
    monkeypatch.setattr(ports, "_chosen", deque())
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind((ports.LOOPBACK, first))
        with pytest.raises(ports.PortInUse):
            ports.free_ports(1)
    assert ports.free_ports(1) == [first]


@pytest.fixture
def ten_ports(monkeypatch, tmp_path):
    """To choose from, with nobody else who does: they are chosen as others are, and then known to nobody."""
    ten = sorted(ports.free_ports(10))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ports._Choice, "_file", None)
    monkeypatch.setattr(ports, "_chosen", deque())
    return ten


CHOOSE = """
import sys
from smartcache.local import ports
ports.CHOICE = [int(word) for word in sys.argv[1:]]
print(*ports.free_ports(4), flush=True)
sys.stdin.read()
"""


def test_a_port_is_given_to_one_process(ten_ports, monkeypatch, tmp_path):
    """A server may listen only seconds after its port was chosen."""
    monkeypatch.setattr(ports, "CHOICE", ten_ports)
    argv = [sys.executable, "-c", CHOOSE, *map(str, ten_ports)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(tmp_path)}, **pipes) as other:
        theirs = {int(word) for word in other.stdout.readline().split()}
        ours = ports.free_ports(3) + ports.free_ports(3)
        assert theirs | set(ours) == set(ten_ports)
        with pytest.raises(ports.PortInUse):
            ports.free_ports(1)
        other.stdin.close()
    assert set(ports.free_ports(4)) == theirs


def test_ports_in_a_row_are_nobody_elses():
    first = ports.free_run(5)
    assert set(range(first, first + 5)) <= set(ports._chosen)
    for port in range(first, first + 5):
        ports.require_free(port, "a test", "take another")
    second = ports.free_run(5)
    assert second + 5 <= first or first + 5 <= second


def test_of_the_ports_that_were_chosen_the_oldest_are_free_again(ten_ports, monkeypatch):
    monkeypatch.setattr(ports, "CHOICE", ten_ports)
    monkeypatch.setattr(ports, "_KEPT", 6)
    first = ports.free_ports(8)
    assert ports.free_ports(1)[0] not in first[2:]
    assert not set(ports.free_ports(1)) & set(first[3:])


def test_ports_are_chosen_where_no_file_can_be_made(ten_ports, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert len(ports.free_ports(5)) == 5


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


def test_xrootd_is_bound_to_every_address_and_refuses_who_is_not_this_machine():
    """Its configuration has no address to bind to."""
    hello = struct.pack(">5i", 0, 0, 0, 4, 2012)
    with xrootd.temporary_folder() as folder:
        port = ports.free_ports(1)[0]
        origin = xrootd.start_origin(folder / "origin", port, data=folder)
        try:
            answers = {}
            for source in (ports.LOOPBACK, "127.0.0.2"):  # Linux has all of 127/8, and only the first has a name that is allowed
                with socket.create_connection((ports.LOOPBACK, port), timeout=20, source_address=(source, 0)) as client:
                    client.sendall(hello)
                    try:
                        answers[source] = client.recv(16)
                    except ConnectionResetError:
                        answers[source] = b""
        finally:
            origin.process.stop()
    assert len(answers.pop(ports.LOOPBACK)) >= 8
    assert answers == {"127.0.0.2": b""}


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
        with pytest.raises(TimeoutError, match=r"no summary report for .* from the xrootd servers at ports 1 \(none at all\)"):
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
