"""``smartcache simulate`` and ``smartcache evaluate-policies`` as a person starts them."""

import csv
import json
import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from smartcache.local import mlflow as local_mlflow
from smartcache.local.ports import free_ports
from smartcache.local.process import Process
from smartcache.training.simulate import tables


def smartcache(*arguments, status=0):
    done = subprocess.run([sys.executable, "-m", "smartcache", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done


def summary(folder):
    with (folder / "summary.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_on_standard_output_and_the_rest_in_a_folder(zipf, tmp_path):
    path, output = zipf(2000), tmp_path / "out"
    done = smartcache("simulate", path, "--policy", "lru", "--policy", "belady", "--fraction", 0.1, "--fraction", 0.3, "--output", output)
    assert "zipf, cache of 10 % of the unique bytes" in done.stdout
    lines = summary(output)
    assert [(line["cache_fraction"], line["policy"], line["gap_closed"]) for line in lines] == [
        ("0.1", "lru", "0"),
        ("0.1", "belady", "1"),
        ("0.3", "lru", "0"),
        ("0.3", "belady", "1"),
    ]
    runs = pq.read_table(output / "runs.parquet")
    assert runs.num_rows == 4
    for row in runs.to_pylist():
        assert row["requests"] == 2000
        assert row["command"].startswith("smartcache simulate")
        assert row["version"].startswith("0.")
        assert len(row["trace_digest"]) == 16
        assert row["created"].endswith("+00:00")
    windows = pq.read_table(output / "windows.parquet")
    assert windows.num_rows == 4 * 50
    assert json.loads(windows.schema.metadata[b"smartcache.simulate"])["warm"] == 0.0


def test_the_report_is_one_file_without_network(zipf, tmp_path):
    output = tmp_path / "out"
    smartcache("simulate", zipf(2000), "--output", output, "--fraction", 0.1, "--fraction", 0.3, "--warm", 0.6)
    page = (output / "report.html").read_text()
    sources = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\'>)]*)', page)
    assert len(sources) == 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "The first 60 % of the requests of each trace" in page
    for line in summary(output):
        assert f"<td>{line['policy']}</td>" in page
        assert f"<td>{float(line['byte_miss']):.4f}</td>" in page


def test_xcache_rules(zipf, tmp_path):
    path, output = zipf(2000), tmp_path / "out"
    done = smartcache("simulate", path, "--rules", "xcache", "--fraction", 0.1, "--windows", 2, "--output", output)
    assert "The rules are XCache's: admission at open; blocks of 131072 bytes" in done.stdout
    assert [line["policy"] for line in summary(output)] == ["lru", "uses2+lru", "fallback", "portfolio", "belady"]
    done = smartcache("simulate", path, "--rules", "xcache", "--policy", f"model:{tmp_path}", status=2)
    assert f"model:{tmp_path}" in done.stderr


def test_names_are_text_in_the_page(zipf, tmp_path):
    path = zipf(300, name="<b>&.parquet")
    smartcache("simulate", path, "--output", tmp_path / "out", "--capacity", 500, "--policy", "lru")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page


def test_a_folder_of_traces_is_judged_on_the_last_part(zipf, tmp_path):
    folder, output = tmp_path / "traces", tmp_path / "out"
    folder.mkdir()
    for seed, name in enumerate(("one.parquet", "two.parquet")):
        zipf(1000, seed=seed).rename(folder / name)
    (folder / "README.md").touch()
    done = smartcache("evaluate-policies", folder, "--output", output, "--policy", "fifo")
    assert "passed over, as they are no .parquet files: README.md" in done.stderr
    lines = summary(output)
    assert tuple(lines[0]) == tables.SUMMARY_COLUMNS
    assert {(line["trace"], line["cache_fraction"], line["policy"]) for line in lines} == {
        (trace, fraction, policy)
        for trace in ("one", "two")
        for fraction in ("0.01", "0.05", "0.1", "0.2", "0.4")
        for policy in ("lru", "fifo", "belady")
    }
    assert {(line["requests"], line["training_s"]) for line in lines} == {("400", "0")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "lruu"], "unknown policy 'lruu'; did you mean lru"),
        (["--fraction", "1.5"], "--fraction must be more than 0 and at most 1, not 1.5"),
        (["--fraction", "0"], "--fraction must be more than 0"),
        (["--capacity", "0"], "--capacity"),
        (["{trace}"], "there are several of zipf"),
        (["none.parquet"], "none.parquet is no file"),
    ],
)
def test_wrong_usage(zipf, arguments, said):
    path = zipf(100)
    done = smartcache("simulate", path, *(argument.format(trace=path) for argument in arguments), status=2)
    assert said in done.stderr


def test_a_trace_that_cannot_be_used(write, tmp_path):
    path = write(["a", "b"], times=[2.0, 1.0])
    done = smartcache("simulate", path, "--output", tmp_path / "out", status=1)
    assert "row 2: its time 1.0 is before that of row 1" in done.stderr
    assert "Traceback" not in done.stderr
    smartcache("simulate", path, "--sort", "--capacity", 5)


def test_interrupted_and_gone_on(zipf, tmp_path):
    path, output = zipf(200_000, files=20_000), tmp_path / "out"
    fractions = [part for number in range(1, 60) for part in ("--fraction", f"{number / 100}")]
    arguments = ["simulate", path, "--policy", "lru", "--policy", "belady", *fractions, "--workers", 1, "--output", output]
    argv = [sys.executable, "-m", "smartcache", *map(str, arguments)]
    with Process("simulate", argv, tmp_path / "log").start() as running:
        running.wait_ready(lambda: any((output / "runs").glob("*.json")), "a first result", 120)
        running.stop(grace_s=60, sign=signal.SIGINT)
    log = (tmp_path / "log").read_text()
    assert running.returncode == 130, log
    said = re.search(r"stopped: (\d+) of 118 simulations are done; they are in", log)
    assert said, log
    kept = len(list((output / "runs").glob("*.json")))
    assert 1 <= kept == int(said[1]) < 118
    assert not (output / "report.html").exists()
    done = smartcache(*arguments)
    assert f"{kept} of 118 simulations are in {output} already" in done.stderr
    assert len(summary(output)) == 118


@pytest.mark.slow
def test_mlflow_has_the_figures_and_the_files(zipf, tmp_path):
    (port,) = free_ports(1)
    settings = tmp_path / "site.toml"
    settings.write_text(f'[mlflow]\ntracking_uri = "{local_mlflow.uri(port)}"\nexperiment = "sizes"\n')
    arguments = ("simulate", zipf(500), "--policy", "lru", "--policy", "uses2+lru", "--capacity", 900, "--mlflow", "--config", settings)
    refused = smartcache(*arguments, status=1)
    assert "cannot be reached" in refused.stderr
    with local_mlflow.start(tmp_path / "mlflow", port):
        done = smartcache(*arguments)
        from mlflow import MlflowClient

        client = MlflowClient(local_mlflow.uri(port))
        experiment = client.get_experiment_by_name("sizes")
        runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
        parent = runs["simulate zipf"]
        assert parent.info.run_id in done.stderr
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert parent.data.tags["smartcache.command"].startswith("smartcache simulate")
        files = {file.path for file in client.list_artifacts(parent.info.run_id)}
        assert files == {"report.html", "summary.csv", "runs.parquet", "windows.parquet"}
        children = [run for run in runs.values() if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
        assert {run.data.params["policy"] for run in children} == {"lru", "uses2+lru"}
        for run in children:
            assert 0 < run.data.metrics["byte_miss"] < 1
            assert len(client.get_metric_history(run.info.run_id, "window_byte_miss")) == 50
