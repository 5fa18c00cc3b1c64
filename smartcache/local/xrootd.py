"""Real XRootD servers on loopback: an origin that serves a folder, and XCaches in front of it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import paths
from .ports import LOOPBACK
from .process import START_LIMIT_S, Process, ProcessError, Register, port_open

#: XRootD refuses to run as root; Debian's package makes this user.
SERVER_USER = "xrootd"
EXPORT = "/store"
#: A cache stores files in blocks of this.
BLOCK_BYTES = 128 << 10


@dataclass(frozen=True)
class CacheSize:
    """``pfc.diskusage … files``: past ``maximum`` bytes the purge runs, down to ``nominal``, never below ``base``."""

    base: int
    nominal: int
    maximum: int
    #: Seconds between two looks of the purge; XRootD takes 60 to 3600.
    purge_interval_s: int = 60


@dataclass(frozen=True)
class Monitoring:
    """Where a cache's detailed monitoring goes, by UDP on loopback."""

    gstream_port: int
    fstream_port: int
    #: How often the f-stream is sent: the resolution of its clock.
    fstream_interval_s: int = 1
    #: Whether the names of files come in packets of their own, not within the f-stream's opens.
    path_packets: bool = False


@dataclass(frozen=True)
class Xrootd:
    """One xrootd server: its files under ``folder``, its port, its process."""

    name: str
    folder: Path
    port: int
    process: Process = field(repr=False)

    @property
    def data(self) -> Path:
        """What it stores: the origin's files, a cache's blocks."""
        return self.folder / "data"

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"root://{LOOPBACK}:{self.port}/"


#: XRootD's timer misses a job that wants to run again just as it finds nothing else to wait for, and then sleeps until the next that it
#: knows of: by default up to 13 minutes, an hour where there is none. These two run each 11 and each 7 seconds and do next to nothing, so
#: that it misses the summary report for some seconds only, and all of them where they fall on the same second: each 77th, and seldom then.
TIMERS = ("xrd.timeout idle 33", "xrd.sched idle 7")


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for servers that are gone with it, which the servers' user may enter (a folder of pytest's, it may not)."""
    with tempfile.TemporaryDirectory(prefix="smartcache-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def start_origin(
    folder: Path,
    port: int,
    *,
    data: Path,
    name: str = "origin",
    report_port: int | None = None,
    timeout_s: float = START_LIMIT_S,
    register: Register | None = None,
) -> Xrootd:
    """Serve the files of ``data`` (``data/store/…``) read-only. ``report_port``, ``register``: see :func:`start_cache`."""
    lines = [f"all.export {EXPORT} nolock r/o", f"oss.localroot {data}"]
    return _start(name, folder, port, lines, report_port, timeout_s, register, reads=[data])


def start_cache(
    folder: Path,
    port: int,
    *,
    origin_port: int,
    size: CacheSize,
    monitoring: Monitoring | None = None,
    plugin: Path | None = None,
    plugin_config: Path | None = None,
    name: str = "cache",
    report_port: int | None = None,
    timeout_s: float = START_LIMIT_S,
    register: Register | None = None,
    env: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    directives: Sequence[str] = (),
) -> Xrootd:
    """An XCache in front of the origin at ``origin_port``; with ``plugin``, opens are decided by it.

    ``report_port``: the server sends its summary counters there each second (UDP, XML): see :mod:`.summary`.
    ``directives``: further lines of its configuration.
    ``register`` is called with the process before it starts. ``env``: beside our own environment. ``wrapper``: a command that runs the
    server, as `nice` does; it must become the server (exec).
    """
    lines = [
        f"all.export {EXPORT}",
        "ofs.osslib libXrdPss.so",
        "pss.cachelib libXrdPfc.so",
        f"pss.origin {LOOPBACK}:{origin_port}",
        f"oss.localroot {folder / 'data'}",
        f"pfc.blocksize {BLOCK_BYTES // 1024}k",
        "pfc.ram 1g",
        "pfc.prefetch 0",
        # Else XRootD 5.5.3 fails reads past the end of a file that a decision plugin does not have stored.
        "pfc.cschk nonet",
        # The fractions are of the whole file system and never reached before `files` is: that is what bounds the cache here.
        # A size without a unit would be taken as a fraction.
        f"pfc.diskusage 0.98 0.99 files {size.base // 1024}k {size.nominal // 1024}k {size.maximum // 1024}k "
        f"purgeinterval {size.purge_interval_s}",
    ]
    reads: list[Path] = []
    if plugin is not None:
        reads += [plugin, *plugin.parent.glob(f"{plugin.stem}-*{plugin.suffix}"), *([plugin_config] if plugin_config else [])]
        lines.append(f"pfc.decisionlib {plugin} {plugin_config or ''}".rstrip())
    if monitoring is not None:
        lines += [
            # XRootD 5.5.3's f-stream counts no bytes of asynchronous reads, which large reads become.
            "xrootd.async off",
            f"xrootd.mongstream pfc use flush 1s maxlen 8k send json fullhdr {LOOPBACK}:{monitoring.gstream_port}",
            f"xrootd.monitor all auth flush 1s fstat {monitoring.fstream_interval_s}s {'' if monitoring.path_packets else 'lfn '}ops xfr 1 "
            f"ident 5s dest {'files ' if monitoring.path_packets else ''}fstat info user {LOOPBACK}:{monitoring.fstream_port}",
        ]
    return _start(name, folder, port, [*lines, *directives], report_port, timeout_s, register, reads, env, wrapper)


def require_access(*needed: Path) -> None:
    """Raise :class:`ProcessError` where the servers' user may not enter a folder that leads to one of ``needed``, or not read that file.

    What does not exist yet is passed over, the folders above it are not. Where we are not root, the servers run as us: nothing is checked.
    """
    if os.geteuid() != 0:
        return
    steps = list(dict.fromkeys(step for path in needed for step in _way_to(path)))
    # That user itself is asked: it may be in the folder's group, or be let in by an access control list.
    test = 'for path; do if [ -d "$path" ]; then [ -x "$path" ]; else [ -r "$path" ]; fi || { printf %s "$path"; exit 1; }; done'
    account = _account()
    argv = ["/bin/sh", "-c", test, "sh", *map(str, steps)]
    try:
        found = subprocess.run(argv, stdout=subprocess.PIPE, text=True, user=account.pw_uid, group=account.pw_gid, extra_groups=[], cwd="/")
    except PermissionError as error:  # not even that: / itself is closed
        raise ProcessError(_refusal(Path("/"))) from error
    if found.returncode:
        raise ProcessError(_refusal(Path(found.stdout)))


def _way_to(path: Path) -> list[Path]:
    """The folders that lead to ``path``, from the top, and itself, as far as they exist; by its real name, then by the one given."""
    ways = (path.resolve(), path.absolute())
    return [step for way in ways for step in (*reversed(way.parents), way) if step.exists()]


def _refusal(path: Path) -> str:
    mode = stat.S_IMODE(path.stat().st_mode)
    what, permission = ("enter the folder", "x") if path.is_dir() else ("read the file", "r")
    said = f"XRootD's servers, started by root, run as user {SERVER_USER!r}, which may not {what} {path} (mode {mode:04o})"
    mend = f"`chmod o+{permission} {shlex.quote(str(path))}`"
    if paths.ROOT.is_relative_to(path):
        return f"{said}; the plugin and all else that was set up lie below it: {mend}, or clone smartcache where every user may enter"
    if path.is_relative_to(paths.BUILD):
        return f"{said}: `chmod -R o+rX {shlex.quote(str(paths.BUILD))}`"
    if path.is_relative_to(paths.ROOT):
        return f"{said}: {mend}"
    return f"{said}: {mend}, or choose a run folder that every user may enter (--run-dir)"


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError as error:
        raise ProcessError(f"user {SERVER_USER!r}, which xrootd runs as when started by root, does not exist; run `make setup`") from error


def _start(
    name: str,
    folder: Path,
    port: int,
    lines: list[str],
    report_port: int | None,
    timeout_s: float,
    register: Register | None,
    reads: list[Path],
    env: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
) -> Xrootd:
    program = paths.xrootd_program("xrootd")
    if shutil.which(program) is None:
        raise ProcessError(f"{name}: {program} is not installed; run `make setup`")
    for part in ("data", "admin"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    config = folder / "xrootd.cfg"
    common = [
        f"xrd.port {port}",
        "xrd.network nodnr",
        # XRootD cannot bind to one address: it refuses who does not come from this machine.
        *(f"xrd.allow host {host}" for host in ("127.0.0.1", "localhost", "[::1]")),
        f"all.adminpath {folder / 'admin'}",
        f"all.pidpath {folder / 'admin'}",
    ]
    if report_port is not None:
        common += [f"xrd.report {LOOPBACK}:{report_port} every 1s all sync", *TIMERS]
    config.write_text("\n".join([*common, *lines, ""]))
    # What it writes about itself lies beside the pid file, else in /tmp.
    argv = [*wrapper, program, "-n", name, "-c", str(config), "-l", str(folder / "xrootd.log"), "-s", str(folder / "admin" / "xrootd.pid")]
    user = None
    if os.geteuid() == 0:
        # Not by xrootd's own -R: see Process.
        user = SERVER_USER
        _give(folder)
    require_access(folder, *reads)
    own_log = folder / name / "xrootd.log"  # xrootd puts its instance name in between
    # XRootD 5.5.3 adds these to its environment while another of its threads reads that; where they are there already, nothing moves.
    exported = {"XRDLOGDIR": str(own_log.parent), "XRDCONFIGFN": str(config), "XRDADMINPATH": str(folder / "admin")}
    server_env = {**exported, **paths.xrootd_env(), **(env or {})}
    process = Process(name, argv, folder / "stdout.log", env=server_env, own_log=own_log, user=user)
    if register is not None:
        register(process)
    process.start().wait_ready(port_open(port), f"listening at {port}", timeout_s)
    return Xrootd(name, folder, port, process)


def _give(folder: Path) -> None:
    """Let the servers' user own the server's folder."""
    account = _account()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
