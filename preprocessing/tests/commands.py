"""The commands as `smartcache NAME …` runs them, one after the other in one session: starting Spark for each takes longer than they do.

As a program it is the driver of a cluster: `python -m smartcache.preprocessing.tests.commands CONFIG '[["stats", "--output", DIR], …]'`.
At its end it says how many tasks each executor has done.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from smartcache.config import load
from smartcache.preprocessing.cli import register
from smartcache.preprocessing.session import spark_session

Command = Callable[..., Any]


def runner(spark: Any) -> Command:
    """`run(config, name, *options, status=0)`: a command in the session ``spark``, which goes on as it was; what it printed."""
    app = typer.Typer()
    register(app)

    def run(config: Path, name: str, *options: object, status: int = 0) -> Any:
        argv = [name, "--config", str(config), *map(str, options)]
        with pytest.MonkeyPatch.context() as patch, _own_settings(spark):
            patch.setattr(spark, "stop", lambda: None)
            patch.setattr(sys, "argv", ["smartcache", *argv])
            done = CliRunner().invoke(app, argv)
        assert done.exit_code == status, f"{argv}: status {done.exit_code}\n{done.output}"
        return done

    return run


@contextlib.contextmanager
def _own_settings(spark: Any) -> Iterator[None]:
    """Where there is a session already, a command's [spark] options are laid over its settings, and would stay."""
    before = dict(spark.conf.getAll)
    try:
        yield
    finally:
        after = dict(spark.conf.getAll)
        for name in before.keys() | after.keys():
            if before.get(name) == after.get(name):
                continue
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)


def in_one_driver(config: Path, *argvs: tuple[object, ...], timeout_s: float) -> Any:
    """Run commands in a process and session of their own; how many tasks each executor has done, by its number."""
    argv = [sys.executable, "-m", __name__, str(config), json.dumps([[*map(str, each)] for each in argvs])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main(config: str, argvs: list[list[str]]) -> None:
    """Run them all."""
    spark = spark_session(load(config), "commands")
    run = runner(spark)
    for name, *options in argvs:
        run(Path(config), name, *options)
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    listed = [executors.apply(number) for number in range(executors.size())]
    print(json.dumps({each.id(): each.completedTasks() for each in listed}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
