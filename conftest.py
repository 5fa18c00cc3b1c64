"""What holds for every test."""

import os
import signal
import sys
from typing import Any

import pytest

DEMOS = "tests/"


def pytest_configure() -> None:
    """Let SIGINT and SIGHUP be heard: as a background job, or under nohup, all that the tests start would ignore them like ourselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # No session of Spark in a test lives long enough for the JVM's second compiler to pay: without it each costs a third less.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, the demos come first: they are a quarter of all the time."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(DEMOS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each process gets whole files, as fixtures start servers for all tests of a file; and one of them every demo: it wants a machine."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return DEMOS if nodeid.startswith(DEMOS) else super()._split_scope(nodeid)

    return Files(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What failed is told at once: where all of them are cut off, the summary never comes."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.failed and crash is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nfailed: {report.nodeid} ({report.when}, {crash.path}:{crash.lineno}): {crash.message}", file=sys.__stderr__, flush=True)
