"""What is on this machine: the doctor, the set-up and the Makefile in front of them, with stand-ins for the programs that they call."""

import fcntl
import hashlib
import importlib.metadata
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time

import pytest
from typer.testing import CliRunner

from smartcache import doctor
from smartcache.cli import app
from smartcache.local import paths
from smartcache.surroundings import machine
from smartcache.surroundings.finding import Finding

JAVA = machine._Program("java", ("-version",), (17,), "Kafka")


def program(folder, name, script):
    """A program ``name`` that does ``script`` (bash)."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_first(tmp_path, monkeypatch):
    """A folder of programs that come before all others."""
    folder = tmp_path / "bin"
    monkeypatch.setattr(paths, "search_path", lambda: f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.21" 2026-10-20', (17, 0, 21)),
        ('openjdk version "21" 2023-09-19\nOpenJDK Runtime Environment (build 21+35-2513)', (21,)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx4g -Dx=1.2\nopenjdk version "21" 2023-09-19', (21,)),
        ("\x1b[1mApache Maven 3.8.7\x1b[m\nJava version: 17.0.21, vendor: Debian", (3, 8, 7)),
        ("go version go1.26.4 linux/amd64", (1, 26, 4)),
        ("cmake version 3.25.1", (3, 25, 1)),
        ("v5.5.3", (5, 5, 3)),
        ("12", (12,)),
        ("no number", ()),
    ],
)
def test_versions(said, version):
    assert machine._version(said) == version


@pytest.mark.parametrize(
    ("script", "state", "detail"),
    [
        ("echo 'openjdk version \"21\" 2023-09-19'", "present", "21"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "too old", "11.0.2; at least 17 is needed"),
        ("echo Unable to locate a Java Runtime; exit 1", "other version", "does not say which; at least 17"),
        ("exec sleep 60", "other version", "does not answer within"),
        ("printf '\\377 17.0'", "present", "17.0"),
    ],
)
def test_programs(bin_first, monkeypatch, script, state, detail):
    monkeypatch.setattr(machine, "_PATIENCE_S", 0.3 if "sleep" in script else 15.0)
    program(bin_first, "java", script)
    finding = machine._look_at_program(JAVA)
    assert finding.state == state
    assert detail in finding.detail


def test_a_program_that_cannot_be_run(bin_first):
    program(bin_first, "java", "").write_bytes(b"\x7fELF no more than that")
    assert machine._look_at_program(JAVA).state == "missing"


@pytest.mark.parametrize(
    ("found", "state"), [("3.17.2", "present"), ("3.9.0", "too old"), ("3.18.0", "other version"), ("3.17.2rc1", "other version")]
)
def test_a_newer_package_is_not_called_too_old(monkeypatch, found, state):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: found)
    assert machine._look_at_distribution("mlflow", "==3.17.2", "smartcache[train]").state == state


@pytest.mark.parametrize(("found", "state"), [("2.2.3", "too old"), ("2.3.0", "present"), ("3.0.1", "other version")])
def test_a_package_of_which_several_versions_will_do(monkeypatch, found, state):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: found)
    finding = machine._look_at_distribution("pandas", "<3,>=2.3", "smartcache[spark]")
    assert finding.state == state
    assert found in finding.detail


def test_every_package_of_every_extra_is_looked_for():
    required = machine._required()
    assert required["psutil"] == (">=7", "smartcache[demo]")
    assert required["pandas"] == ("<3,>=2.3", "smartcache[spark,train]")
    assert required["typer"][1] == "smartcache"
    assert {"lightgbm", "libcachesim", "matplotlib"} < set(required)
    assert "smartcache" not in required
    assert machine._look_at_distribution("no-such-package", "", "smartcache").state == "missing"


@pytest.mark.parametrize(
    ("said", "state", "detail"),
    [
        ("echo 0.9.75", "present", "microhttpd.h, 0.9.75"),
        ("echo 0.9.9", "too old", "libmicrohttpd 0.9.9; at least 0.9.70 is needed"),
        ("exit 1", "missing", "pkg-config knows no libmicrohttpd"),
    ],
)
def test_libraries_are_asked_for_their_version(tmp_path, monkeypatch, said, state, detail):
    program(tmp_path / "bin", "pkg-config", said)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}", prepend=os.pathsep)
    monkeypatch.setattr(machine, "_INCLUDE", (tmp_path,))
    (tmp_path / "microhttpd.h").touch()
    finding = machine._look_at_header(machine._Header("microhttpd.h", "plugin", "libmicrohttpd", (0, 9, 70)))
    assert (finding.state, finding.used_by) == (state, "plugin: to build it")
    assert detail in finding.detail


def test_headers_libraries_and_the_user_are_looked_for(tmp_path, monkeypatch):
    (tmp_path / "XrdPfc").mkdir()
    (tmp_path / "XrdPfc" / "XrdPfcDecision.hh").touch()
    monkeypatch.setattr(machine, "_INCLUDE", (tmp_path / "none", tmp_path))
    monkeypatch.setattr(machine, "_LIB", (tmp_path,))
    monkeypatch.setattr(machine.xrootd, "SERVER_USER", "no-such-user")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    state = {finding.what: finding.state for finding in machine.examine()}
    assert state["XrdPfc/XrdPfcDecision.hh"] == "present"
    assert state["curl/curl.h"] == state["libXrdPfc-5.so"] == state["user no-such-user"] == "missing"


def test_the_doctor_says_how_to_mend(monkeypatch):
    found = [Finding("x[y]", "other version", "2; 1 is pinned", "all"), Finding("z", "missing", "a header " * 20, "all", "look for it")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(found))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "x[y]: other version (2; 1 is pinned); run `make setup`\n" in result.output
    assert f"z: missing ({'a header ' * 20}); look for it\n" in result.output


def make(*arguments, **more):
    # Under `make test` it would also say which folder it is in.
    argv = ["make", "--no-print-directory", "-f", paths.ROOT / "Makefile", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, **more)


def test_make_doctor_before_set_up_says_what_to_do(tmp_path):
    result = make("doctor", cwd=tmp_path)
    assert result.returncode
    assert "run `make setup` first" in result.stdout


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ([], []),
        (["QUICK=1"], ["--quick"]),
        (["QUICK=yes", "SEED=7"], ["--quick", "--seed", "7"]),
        (["QUICK=0"], []),
        (["QUICK="], []),
        (["RUN_DIR=a folder; no command", "PORT_BASE=15000"], ["--port-base", "15000", "--run-dir", "a folder; no command"]),
    ],
)
def test_make_hands_its_settings_to_the_demo(tmp_path, given, arguments):
    shown = program(tmp_path, "smartcache", 'printf "%s\\n" "$@"')
    environment = {name: value for name, value in os.environ.items() if name not in ("QUICK", "SEED", "RUN_DIR", "PORT_BASE")}
    result = make("-o", "setup", "demo", f"SMARTCACHE={shown}", *given, cwd=tmp_path, env=environment)
    assert result.stdout.splitlines() == ["demo", *arguments], result.stderr


def test_every_target_has_a_rule():
    lines = (paths.ROOT / "Makefile").read_text().splitlines()
    phony = next(line for line in lines if line.startswith(".PHONY:")).split()[1:]
    assert {line.split(":")[0] for line in lines if re.match(r"[a-z0-9-]+:(?!=)", line)} >= set(phony)
    assert make("-n", *phony, cwd=paths.ROOT).returncode == 0


def test_go_comes_from_the_python_packages(tmp_path):
    """`make lint` on a machine without any other Go."""
    commands = make("-n", "lint", "format", cwd=paths.ROOT).stdout
    assert f"'{paths.ROOT}/.venv/bin/go' vet" in commands
    (gofmt,) = {
        line.split(" -l ")[0].removeprefix("unformatted=$(") for line in commands.splitlines() if "gofmt" in line and " -l " in line
    }
    badly = tmp_path / "x.go"
    badly.write_text("package  x\n")
    said = subprocess.run(["bash", "-c", f"{gofmt} -l {badly}"], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True)
    assert said.stdout.decode().strip() == str(badly), said.stderr


class SetUp:
    """setup.sh in a folder of its own; the programs that it calls only say that they were called."""

    def __init__(self, root):
        self.root = root
        self.calls = root / "calls"
        self.calls.touch()
        (root / "setup").mkdir()
        for name in ("setup.sh", "apt-packages.txt", "kafka", "spark"):
            copy = shutil.copytree if (paths.ROOT / "setup" / name).is_dir() else shutil.copy2
            copy(paths.ROOT / "setup" / name, root / "setup" / name)
        for name in ("cmake", "apt-get", "sudo"):
            self.program(name, "")
        self.program("dpkg-query", "printf installed")
        self.mvn("a.jar")
        for name in ("kafka", "spark"):
            self.pin(name, "a.jar")
        program(root / "inference" / "server", "build.sh", "")
        version = next(line for line in (root / "setup" / "setup.sh").read_text().splitlines() if "uv_version=" in line)
        program(root / "build" / "uv" / "bin", "uv", f"echo uv {version.split('uv_version=')[1].split()[0]}")

    def program(self, name, script):
        program(self.root / "bin", name, f'echo "{name} $*" >>{self.calls}\n{script}')

    def mvn(self, jar, status=0):
        """Maven leaves ``jar`` where it is told to, and ends with ``status``."""
        self.program("mvn", f'all="$*"; out=${{all##*-DoutputDirectory=}}; mkdir -p "$out" && touch "$out/{jar}"; exit {status}')

    def pin(self, name, jar):
        """``name``'s folder is to hold ``jar``, as :meth:`mvn` makes it."""
        contents = {jar: b"", "pom.xml": (self.root / "setup" / name / "pom.xml").read_bytes()}
        lines = [f"{hashlib.sha256(content).hexdigest()}  {file}\n" for file, content in contents.items()]
        (self.root / "setup" / name / "SHA256SUMS").write_text("".join(lines))

    def start(self, out=subprocess.PIPE, *names, path=None, terminal=None):
        """``terminal``: whose keys it hears, as of a session of its own; None: the tests' own one, if any."""
        environment = {**os.environ, "PATH": path or f"{self.root / 'bin'}:{os.environ['PATH']}"}
        script = self.root / "setup" / "setup.sh"
        takes = (lambda: os.login_tty(terminal)) if terminal else None
        return subprocess.Popen([script, *names], env=environment, stdout=out, stderr=subprocess.STDOUT, text=True, preexec_fn=takes)

    def run(self, *names, path=None):
        with self.start(subprocess.PIPE, *names, path=path) as process:
            said = process.communicate(timeout=60)[0]
        return process.returncode, said

    def called(self, name):
        return [line for line in self.calls.read_text().splitlines() if line.startswith(f"{name} ")]


@pytest.fixture
def set_up(tmp_path):
    return SetUp(tmp_path)


def test_set_up_does_nothing_twice(set_up):
    assert set_up.run()[0] == 0
    assert (set_up.root / "build" / "jars" / "kafka" / "a.jar").exists()
    assert (set_up.root / "build" / "jars" / "spark" / "pom.xml").exists()
    assert set_up.run()[0] == 0
    assert len(set_up.called("mvn")) == 2  # one for each folder of jars
    assert set_up.called("apt-get") == []


def test_half_of_the_jars_are_none(set_up):
    set_up.mvn("half.jar", status=1)
    status, said = set_up.run()
    assert status == 1
    assert "set-up failed at: Kafka jars" in said
    assert not (set_up.root / "build" / "jars" / "kafka").exists()
    set_up.mvn("a.jar")
    assert set_up.run()[0] == 0
    assert sorted(path.name for path in (set_up.root / "build" / "jars" / "kafka").iterdir()) == ["a.jar", "pom.xml"]


def test_a_jar_that_is_gone_is_fetched_again(set_up):
    jar = set_up.root / "build" / "jars" / "kafka" / "a.jar"
    for spoil in (jar.unlink, lambda: jar.write_text("damaged"), jar.with_name("another.jar").touch):
        assert set_up.run()[0] == 0
        before = len(set_up.called("mvn"))
        spoil()
        assert set_up.run()[0] == 0
        assert len(set_up.called("mvn")) == before + 1
        assert jar.read_bytes() == b""
        assert not jar.with_name("another.jar").exists()


def test_jars_that_cannot_be_fetched_again_stay(set_up):
    assert set_up.run()[0] == 0
    stray = set_up.root / "build" / "jars" / "kafka" / "a.jar~"
    stray.touch()
    set_up.mvn("a.jar", status=1)
    assert set_up.run()[0] == 1
    assert stray.with_name("a.jar").exists()


def test_tests_are_built_where_they_are_asked_for(set_up):
    assert "tests of core" not in set_up.run()[1]
    status, said = set_up.run("tests")
    assert status == 0
    assert "tests of core and plugin          ok" in said
    set_up.program("cmake", '[ "$#" -gt 2 ]')
    status, said = set_up.run("tests")
    assert status == 1
    assert "set-up failed at: tests of core and plugin" in said


def test_a_jar_that_is_not_the_pinned_one_is_refused(set_up):
    set_up.mvn("b.jar")
    status, said = set_up.run()
    assert status == 1
    assert "a.jar: FAILED" in said
    assert "is not what setup/kafka/SHA256SUMS pins" in said
    assert not (set_up.root / "build" / "jars" / "kafka").exists()
    assert subprocess.run(["bash", "-c", said.split("pin it anew:\n")[1].splitlines()[0]], cwd=set_up.root).returncode == 0
    set_up.pin("spark", "b.jar")
    assert set_up.run()[0] == 0


def test_a_step_ends_with_its_first_failure(set_up):
    set_up.program("cmake", '[ "$1" = --build ]')
    status, said = set_up.run()
    assert status == 1
    assert "set-up failed at: XCache plugin" in said
    assert len(set_up.called("cmake")) == 1
    set_up.program("dpkg-query", "exit 1")
    set_up.program("apt-get", '[ "$1" = install ]')
    set_up.program("sudo", 'shift; exec "$@"')
    status, said = set_up.run()
    assert status == 1
    assert "set-up failed at: Debian packages" in said
    assert "what to do: look for the apt error above; is the package registry reachable? then run `make setup` again" in said
    assert len(set_up.called("apt-get")) == 1


def test_who_may_not_install_packages_is_told_whom_to_ask(set_up):
    set_up.program("id", "echo 1000")
    set_up.program("dpkg-query", '[ "$4" != ninja-build ] && printf installed')
    (set_up.root / "bin" / "sudo").unlink()
    for name in ("bash", "dirname", "mkdir", "flock", "sed", "tr", "tail", "stat", "cut"):
        (set_up.root / "bin" / name).symlink_to(shutil.which(name))
    status, said = set_up.run(path=f"{set_up.root / 'bin'}")
    assert status == 1
    assert "not root, and no sudo: ask an administrator to install: ninja-build" in said
    assert set_up.called("apt-get") == []


def test_a_folder_that_cannot_be_written_is_named(set_up):
    (set_up.root / "build" / "setup").write_text("")
    status, said = set_up.run()
    assert status == 1
    assert f"no permission to write {set_up.root / 'build' / 'setup'}" in said


def test_what_set_up_makes_can_be_read_by_the_servers_user(set_up):
    before = os.umask(0o077)
    try:
        assert set_up.run()[0] == 0
    finally:
        os.umask(before)
    assert (set_up.root / "build" / "jars" / "kafka").stat().st_mode & 0o777 == 0o755


def test_a_second_set_up_says_that_it_waits(set_up):
    lock = set_up.root / "build" / "setup" / "lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = set_up.start()
        assert second.stdout.readline() == "another set-up is running: waiting for it\n"
        time.sleep(0.2)
        assert second.poll() is None
    said = second.communicate(timeout=60)[0]
    assert second.returncode == 0, said


def test_on_a_terminal_a_long_step_shows_that_it_goes_on(set_up, tmp_path):
    began, ended = tmp_path / "began", tmp_path / "ended"
    waits = 'until [ -e "{}" ]; do sleep 0.05; done'
    set_up.program("cmake", f'[ "$1" = --build ] || exit 0; {waits.format(began)}; echo "[1/9] Building x"; {waits.format(ended)}')
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 70))
    with set_up.start(theirs) as process:
        os.close(theirs)
        said = _until(ours, rb"XCache plugin +\d+ s  \x1b")  # of which its log says nothing yet
        began.touch()
        said += _until(ours, rb"\[1/9\] Building x")
        ended.touch()
        said += _until(ours, None)
    os.close(ours)
    assert process.returncode == 0
    lines = re.split(r"[\r\n]+", said.decode())
    assert [line for line in lines if re.fullmatch(r"  XCache plugin +\d+ s  \[1/9\] Building x\x1b\[K", line)]
    assert [line for line in lines if re.fullmatch(r"  XCache plugin +\x1b\[Kok +\d+ s", line)]
    assert max(lines, key=len)[70:] == ""


def test_ctrl_c_ends_all_of_it_and_the_next_run_goes_on(set_up, tmp_path):
    pid = tmp_path / "pid"
    set_up.program(
        "mvn", f'out=${{*##*-DoutputDirectory=}}; mkdir "$out"; touch "$out/half.jar"; echo $$ >{pid}; echo half of it; sleep 600'
    )
    ours, theirs = pty.openpty()
    with set_up.start(theirs, terminal=theirs) as process:
        os.close(theirs)
        said = _until(ours, rb"Kafka jars +\d+ s  half of it")
        os.write(ours, b"\x03")
        said += _until(ours, None)
    os.close(ours)
    assert process.returncode != 0, said
    assert b"Spark" not in said, "it went on to the next step"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    set_up.mvn("a.jar")
    status, said = set_up.run()
    assert status == 0, said
    assert "waiting" not in said
    assert sorted(jar.name for jar in (set_up.root / "build" / "jars" / "kafka").iterdir()) == ["a.jar", "pom.xml"]


def test_sudo_asks_before_anything_writes_over_its_question(set_up):
    set_up.program("id", "echo 1000")
    set_up.program("dpkg-query", "exit 1")
    set_up.program("sudo", '[ "$1" = -v ] || exec "$@"')
    assert set_up.run()[0] == 0
    # Where there is no terminal nobody is asked; and nothing but packages wants another user.
    asked = set_up.called("sudo")
    assert [line.split(" apt-get ")[1].split()[0] for line in asked] == ["update", "install"], asked
    assert all(line.startswith("sudo env DEBIAN_FRONTEND=") for line in asked)
    set_up.calls.write_text("")
    ours, theirs = pty.openpty()
    with set_up.start(theirs) as process:
        os.close(theirs)
        said = _until(ours, None).decode()
    os.close(ours)
    assert process.returncode == 0, said
    assert set_up.called("sudo")[0] == "sudo -v"
    assert said.index("needs root") < said.index("Debian packages   ")


def _until(terminal, wanted):
    """What comes up to ``wanted``, a pattern; None: to the end."""
    said = b""
    while not wanted or not re.search(wanted, said):
        assert select.select([terminal], [], [], 60)[0], f"no {wanted} in {said}"
        try:
            said += os.read(terminal, 4096)
        except OSError:  # nobody has its other side open any more
            assert wanted is None, said
            break
    return said


def test_what_a_step_leaves_running_does_not_keep_the_lock(set_up):
    set_up.program("cmake", f"{sys.executable} -c 'import time; time.sleep(60)' >/dev/null 2>&1 &")
    assert set_up.run()[0] == 0
    status, said = set_up.run()
    assert status == 0
    assert "waiting" not in said
