"""What holds for every test."""

import os
import signal


def pytest_configure() -> None:
    """Let SIGINT and SIGHUP be heard: as a background job, or under nohup, all that the tests start would ignore them like ourselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # No session of Spark in a test lives long enough for the JVM's second compiler to pay: without it each costs a third less.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
