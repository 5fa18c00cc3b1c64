"""What set-up would do in a checkout, found out without doing it: with the real dpkg, uv and Ninja, on small checkouts."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from smartcache.local import paths
from smartcache.surroundings import checkout, machine
from smartcache.surroundings.finding import SET_UP

_LATER_S = 10


@pytest.fixture
def root(tmp_path):
    """A checkout with set-up's own files and its uv, and nothing built."""
    shutil.copytree(paths.ROOT / "setup", tmp_path / "setup")
    for name in ("pyproject.toml", "uv.lock", "README.md"):
        shutil.copy(paths.ROOT / name, tmp_path / name)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "uv").symlink_to(paths.BUILD / "uv")
    return tmp_path


def one(findings):
    (finding,) = findings
    return finding


def named(findings, what):
    return one(finding for finding in findings if finding.what == what)


def test_the_doctor_finds_all_that_set_up_has_just_put_here():
    """As a person runs it, on this machine; what has changed since set-up is a finding, too."""
    result = subprocess.run(
        [sys.executable, "-m", "smartcache", "doctor"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert result.returncode == 0, result.stdout
    for what in (
        "gmock/gmock.h",
        "microhttpd.h",
        "libfaketimeMT",
        "psutil",
        "lightgbm",
        "libcachesim",
        "Debian packages",
        "core binding",
        "xrdfs",
    ):
        assert re.search(rf"{what}.*present", result.stdout), what


def test_debian_packages_that_are_missing_are_named(tmp_path):
    listed = tmp_path / "apt-packages.txt"
    listed.write_text("# the machine\nlibc6\n# a test of this\nno-such-package-a  no-such-package-b # twice\ndpkg\n")
    found = list(checkout.debian_packages(listed))
    assert [(finding.what, finding.state) for finding in found] == [("no-such-package-a", "missing"), ("no-such-package-b", "missing")]
    assert found[0].mend == "run `make setup`, as root or with sudo"
    listed.write_text("libc6\ndpkg\n")
    assert one(checkout.debian_packages(listed)).detail == "all 2 of setup/apt-packages.txt"


def test_every_debian_package_says_what_needs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "_run", lambda *argv, **_: subprocess.CompletedProcess(argv, 1, "", "no packages found"))
    found = list(checkout.debian_packages(paths.ROOT / "setup" / "apt-packages.txt"))
    assert named(found, "libmicrohttpd-dev").used_by == "core, plugin, binding"
    assert named(found, "libfaketime").used_by == "tests that set a server's clock"


def test_python_packages_of_other_versions_than_the_lock_are_named(root):
    lock = root / "uv.lock"
    before, name, after = lock.read_text().partition('name = "yarl"\n')
    yarl, end, rest = after.partition("[[package]]")
    version = re.search(r'^version = "(.*)"', yarl)[1]
    lock.write_text(before + name + yarl.replace(version, "99.0") + end + rest)
    found = list(checkout.python_environment(root))
    yarl = named(found, "yarl")
    assert (yarl.state, yarl.detail) == ("other version", f"{version}; 99.0 is in uv.lock")
    assert named(found, "uv").state == "present"
    # What is installed was built from another checkout's sources.
    assert named(found, "core binding").state == "too old"
    assert len(found) == 3


def test_python_packages_that_are_missing_are_named(root, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(root / "none"))
    found = {finding.what: finding for finding in checkout.python_environment(root)}
    assert {found[name].state for name in ("keras", "libcachesim", "pytest", "core binding")} == {"missing"}
    assert found["keras"].mend == SET_UP


def test_a_lock_that_does_not_belong_to_pyproject_is_named(root):
    project = root / "pyproject.toml"
    project.write_text(project.read_text().replace("lightgbm==4.6.0", "lightgbm==4.5.0"))
    finding = named(checkout.python_environment(root), "uv.lock")
    assert (finding.state, finding.detail) == ("too old", "does not hold what pyproject.toml asks for")
    assert "`build/uv/bin/uv lock`" in finding.mend
    (root / "uv.lock").write_text("no TOML")
    finding = named(checkout.python_environment(root), "uv.lock")
    assert "parse" in finding.detail
    assert finding.mend == SET_UP


def test_another_uv_than_set_ups(root):
    script = root / "setup" / "setup.sh"
    script.write_text(re.sub(r"uv_version=\S+", "uv_version=0.0.1", script.read_text()))
    finding = named(checkout.python_environment(root), "uv")
    assert (finding.state, finding.mend) == ("other version", SET_UP)
    assert finding.detail.endswith("setup/setup.sh takes 0.0.1")
    (root / "build" / "uv").unlink()
    assert one(checkout.python_environment(root)).state == "missing"


def test_jars(root):
    def look():
        return checkout.jars(root, "spark", "Spark's jars", "stream")

    folder = root / "build" / "jars" / "spark"
    assert look().state == "missing"
    folder.mkdir(parents=True)
    assert (look().state, look().mend) == ("too old", SET_UP)
    for file in paths.SPARK_JARS.iterdir():
        shutil.copy(file, folder)
    assert look().state == "present"
    (folder / "a.jar").touch()
    assert (look().state, look().detail) == ("other version", f"{folder}/a.jar is not in setup/spark/SHA256SUMS")
    (folder / "a.jar").unlink()
    (jar,) = folder.glob("kafka-clients-*.jar")
    jar.write_text("another")
    assert (look().state, look().mend) == ("other version", SET_UP)
    assert look().detail == f"{jar} is not what setup/spark/SHA256SUMS pins"
    jar.unlink()
    assert (look().state, look().detail) == ("missing", str(jar))
    with (root / "setup" / "spark" / "pom.xml").open("a") as pom:
        pom.write("<!-- changed -->\n")
    assert (look().state, look().mend) == ("too old", SET_UP)
    assert look().detail.endswith("is of another setup/spark/pom.xml")


def test_a_plugin_that_is_older_than_its_sources(root):
    folder = root / "build" / "plugin"
    assert checkout.plugin(root).state == "missing"
    folder.mkdir()
    source = root / "plugin.cc"
    source.write_text("1")
    built = folder / "libXrdPfcSmartCache-5.so"
    (folder / "build.ninja").write_text(f"rule copy\n  command = cp $in $out\nbuild {built.name}: copy {source}\n")
    subprocess.run(["ninja", "-C", folder], check=True, capture_output=True)
    assert checkout.plugin(root).state == "present"
    _touch_later(source, built)
    finding = checkout.plugin(root)
    assert (finding.state, finding.mend) == ("too old", SET_UP)
    assert "cp" in finding.detail
    assert built.read_text() == "1"


def test_an_endpoint_that_is_older_than_its_sources(root):
    sources = root / "inference" / "server"
    (sources / "tf").mkdir(parents=True)
    names = ("main.go", "main_test.go", "go.sum", "tf/run.c", "README.md")
    for name in names:
        (sources / name).touch()
    assert checkout.endpoint(root).state == "missing"
    built = root / "build" / "bin" / "smartcache-endpoint"
    built.parent.mkdir()
    built.touch()
    _touch_later(built, sources / "tf" / "run.c")
    for name in ("main_test.go", "README.md"):  # which the server does not consist of
        _touch_later(sources / name, built)
        assert checkout.endpoint(root).state == "present"
    for name in ("main.go", "go.sum", "tf/run.c"):
        _touch_later(sources / name, built)
        assert (checkout.endpoint(root).state, checkout.endpoint(root).detail) == ("too old", f"older than inference/server/{name}")
        _touch_later(built, sources / name)


def test_an_installed_package_has_no_set_up(tmp_path):
    found = list(checkout.examine(tmp_path))
    assert [finding.what for finding in found] == ["Kafka's jars", "Spark's Kafka connector", "XCache plugin", "serving endpoint"]
    assert {finding.state for finding in found} == {"missing"}


def test_the_libraries_are_as_new_as_cmake_asks_for():
    asked = (paths.ROOT / "xcache-plugin" / "CMakeLists.txt").read_text()
    wanted = {
        "libcurl": re.search(r"find_package\(CURL ([\d.]+)", asked)[1],
        "libmicrohttpd": re.search(r"libmicrohttpd>=([\d.]+)", asked)[1],
        "nlohmann_json": re.search(r"find_package\(nlohmann_json ([\d.]+)", asked)[1],
    }
    assert {header.module: ".".join(map(str, header.minimum)) for header in machine._HEADERS if header.minimum} == wanted


def test_what_the_core_is_built_with_is_pinned_to_the_last_package():
    """uv builds in an environment of its own, whose packages uv.lock does not hold; it says which they are, from what it has fetched."""
    given = re.search(r"^requires = \[(.*)\]$", (paths.ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    pinned = re.findall(r'"([^"]+)"', given)
    argv = [
        paths.BUILD / "uv" / "bin" / "uv",
        "pip",
        "compile",
        "--offline",
        "--no-header",
        "--no-annotate",
        "--quiet",
        "--python",
        sys.executable,
        "-",
    ]
    resolved = subprocess.run(argv, input="\n".join(pinned), capture_output=True, text=True)
    assert resolved.returncode == 0, resolved.stderr
    assert sorted(pinned) == sorted(resolved.stdout.split())


def test_what_packages_without_a_wheel_are_built_with_is_pinned():
    packages = tomllib.loads((paths.ROOT / "uv.lock").read_text())["package"]
    built = {package["name"]: package["version"] for package in packages if "sdist" in package and not package.get("wheels")}
    assert built.keys() == {"pyspark"}  # another one may be built with something else
    said = metadata.distribution("pyspark").read_text("WHEEL")
    builder = re.search(r"^Generator: (\S+) \((\S+)\)$", said, re.MULTILINE)
    settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["tool"]["uv"]
    assert settings["build-constraint-dependencies"] == [f"{builder[1]}=={builder[2]}"]


def _touch_later(path: Path, than: Path) -> None:
    when = than.stat().st_mtime + _LATER_S
    os.utime(path, (when, when))
