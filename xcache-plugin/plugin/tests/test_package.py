"""The Debian package of the plugin: what it owns, what it depends on, and that a real server loads it from the place it is installed at."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_site import Site

from smartcache.local import paths, xrootd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="no dpkg-dev here: `setup/setup.sh deb`"),
    pytest.mark.skipif(paths.XROOTD_PREFIX is not None, reason="the package is that of Debian's own XRootD"),
]

DOCUMENTS = "usr/share/doc/xrootd-smartcache"


def run(*argv: str | Path) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deb")
    run("cpack", "-G", "DEB", "--config", paths.BUILD / "plugin" / "CPackConfig.cmake", "-B", folder)
    (found,) = folder.glob("*.deb")
    return found


@pytest.fixture(scope="module")
def installed(package: Path) -> Iterator[Path]:
    """A root with the package in it, which the servers' user may enter."""
    with xrootd.temporary_folder() as root:
        run("dpkg-deb", "-x", package, root)
        yield root


def test_it_owns_the_plugin_and_documents_only(package: Path, installed: Path) -> None:
    owned = {str(path.relative_to(installed)) for path in installed.rglob("*") if not path.is_dir()}
    architecture = run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    assert owned == {
        f"usr/lib/{architecture}/libXrdPfcSmartCache-5.so",
        f"{DOCUMENTS}/admin.md",
        f"{DOCUMENTS}/changelog.gz",
        f"{DOCUMENTS}/copyright",
        f"{DOCUMENTS}/examples/smartcache.toml",
        f"{DOCUMENTS}/examples/smartcache.reference.toml",
        "usr/share/lintian/overrides/xrootd-smartcache",
    }
    assert all(line.split()[1] == "root/root" for line in run("dpkg-deb", "-c", package).splitlines())


def test_it_depends_on_what_it_links_and_on_one_major_version_of_the_server(package: Path) -> None:
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert "xrootd-server-plugins (>= 5)" in depends
    assert "xrootd-server-plugins (<< 6~)" in depends
    for library in ("libc6", "libstdc++6", "libcurl4", "libmicrohttpd12", "libssl3", "libxrdutils3"):
        assert any(part.strip().startswith(library) for part in depends.split(",")), (library, depends)


def test_lintian_finds_no_errors(package: Path) -> None:
    # The maintainer's address is the site's that builds it.
    run(
        "lintian",
        "--allow-root",
        "--fail-on",
        "error",
        "--suppress-tags",
        "root-in-contact,bogus-mail-host,bogus-mail-host-in-debian-changelog",
        package,
    )


def test_a_real_server_loads_it_from_where_it_is_installed(site: Site, installed: Path) -> None:
    (file,) = installed.glob("usr/lib/*/libXrdPfcSmartCache-5.so")
    # The example is a configuration as it stands, but for its ports, which a test has to choose.
    example = (installed / DOCUMENTS / "examples" / "smartcache.toml").read_text()
    port = site.log.getsockname()[1]
    raw = example.replace("port = 9933", f"port = {port}").replace("port = 9935", "port = 0")
    site.start(raw=raw, plugin=file.with_name("libXrdPfcSmartCache.so"))
    decision = site.opened("/store/set/0.root")
    assert (decision["answer"], decision["reason"]) == ("admit", "no_model")
    maps = Path(f"/proc/{site.cache.process.pid}/maps").read_text()
    assert str(file) in maps
