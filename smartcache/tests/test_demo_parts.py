"""The demo's parts that need no server: workload, clients' files, folder, ports, measurements, report."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from smartcache import config
from smartcache.cli import app
from smartcache.demo import clients, folder, measure, model_table, plan, plugin_metrics, report
from smartcache.demo.run import Demo, Phase
from smartcache.demo.workload import MIB, File, Open, Shape, generate
from smartcache.local import xrootd
from smartcache.local.ports import PortInUse
from smartcache.training import evaluate
from smartcache.training.dataset import Split

SHAPE = Shape(seed=3, duration_s=300, rate=14, file_size=600 * 1024)


def test_the_same_seed_gives_the_same_opens():
    assert generate(SHAPE) == generate(SHAPE)
    assert generate(SHAPE) != generate(replace(SHAPE, seed=4))


def test_the_population_is_as_promised():
    opens = generate(SHAPE)
    assert [one.time_s for one in opens] == sorted(one.time_s for one in opens)
    assert all(0 <= one.time_s < SHAPE.duration_s for one in opens)
    counts = Counter(one.file.lfn for one in opens)
    once = sum(1 for count in counts.values() if count == 1) / len(counts)
    assert 0.5 < once < 0.9
    partly = sum(1 for one in opens if one.bytes_read < one.file.size / 2)
    assert 0.1 < partly / len(opens) < 0.6
    skims = {lfn for lfn in counts if lfn.split("/")[-2] in ("AODSIM", "RAW")}
    assert skims
    assert all(counts[lfn] == 1 for lfn in skims)
    reads = {}
    for one in opens:
        reads.setdefault((one.user, one.file.lfn), []).append(one.time_s)
    # Users come back to what they read, after a while.
    again = [times[-1] - times[0] for (_, lfn), times in reads.items() if "/NANOAODSIM/" in lfn and len(times) > 1]
    assert len(again) > 100
    assert sorted(again)[len(again) // 2] > SHAPE.rerun_gap_s / 2
    campaigns = Counter(lfn.rpartition("/")[0] for lfn in counts if "/NANOAODSIM/" in lfn)
    assert max(campaigns.values()) > 5


def test_ranges_lie_in_the_file_and_are_the_same_each_time():
    by_file = {}
    for one in generate(SHAPE):
        assert one.ranges
        assert all(offset >= 0 and length > 0 and offset + length <= one.file.size for offset, length in one.ranges)
        if "/NANOAODSIM/" in one.file.lfn:
            assert by_file.setdefault(one.file.lfn, one.ranges) == one.ranges


def test_content_is_the_same_however_it_is_cut():
    file = File("/store/x.root", 3 * MIB + 17, 5)
    whole = clients.content(file, 0, file.size)
    assert len(whole) == file.size
    for offset, length in ((0, 1), (MIB - 3, 7), (2 * MIB - 1, MIB + 2), (file.size - 1, 1)):
        assert clients.content(file, offset, length) == whole[offset : offset + length]
    assert clients.content(replace(file, serial=6), 0, 100) != whole[:100]


def test_files_are_written_as_their_content_says(tmp_path):
    file = File("/store/a/b.root", MIB + 5, 2)
    assert clients.write_file(file, tmp_path) == file.size
    assert (tmp_path / "store/a/b.root").read_bytes() == clients.content(file, 0, file.size)
    assert clients.write_file(file, tmp_path) == 0


def test_a_schedule_comes_back_as_it_was(tmp_path):
    opens = generate(replace(SHAPE, duration_s=10))
    clients.write_schedule(opens, tmp_path / "s")
    assert list(clients.read_schedule(tmp_path / "s")) == opens


def test_sequential_and_sparse_reads():
    file = File("/store/x.root", 10 * MIB, 1)
    assert Open(0, file, "u", ((0, 5), (5, 5))).sequential
    assert not Open(0, file, "u", ((0, 5), (6, 5))).sequential


def test_one_run_at_a_time_in_a_folder(tmp_path):
    run = tmp_path / "run"
    holder = (
        "from smartcache.demo.folder import claim; from pathlib import Path\n"
        f"with claim(Path({str(run)!r})): print('held', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(folder.FolderInUse, match=rf"process {other.pid}\) is running"), folder.claim(run):
            pass
        other.communicate("\n")
    with folder.claim(run):
        (run / "left").write_text("x")
    with folder.claim(run):
        assert not (run / "left").exists()


def test_nothing_is_removed_before_the_run_may_begin(tmp_path):
    run = tmp_path / "run"
    with folder.claim(run):
        (run / "report").mkdir()

    def refuse():
        raise PortInUse("a port is in use")

    with pytest.raises(PortInUse), folder.claim(run, refuse):
        pass
    assert (run / "report").exists()
    with folder.claim(run):
        assert not (run / "report").exists()


def test_what_other_commands_keep_in_the_folder_stays(tmp_path):
    kept = tmp_path / "run" / "bench" / "collector.json"
    kept.parent.mkdir(parents=True)
    kept.touch()
    for _ in range(2):
        with folder.claim(tmp_path / "run"):
            assert kept.exists()


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(folder.FolderInUse, match="not of a demo"), folder.claim(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").exists()


def test_ports():
    ports = plan.Ports.from_base(21000, {"kafka": 30000})
    assert ports.kafka == 30000
    assert ports.cache("smart") == ports.cache_smart
    for base, changed, said in (
        (21000, {"kafak": 1}, "no part has a port"),
        (70000, {}, "1024 to 65535"),
        (21000, {"kafka": 21002}, "differ"),
    ):
        with pytest.raises(ValueError, match=said):
            plan.Ports.from_base(base, changed)


@pytest.mark.parametrize("make", [plan.quick, plan.full])
def test_the_demos_configuration_is_valid(make, tmp_path):
    chosen = make(1)
    loaded = config.parse(plan.configuration(chosen, plan.Ports.from_base(21000), tmp_path, tmp_path / "p"), "demo")
    assert loaded.training.horizon_s == chosen.horizon_s
    scratch = [path for name, path in loaded.spark.options.items() if name.endswith(".dir")]
    assert len(scratch) == 2
    assert all(path.startswith(f"{tmp_path}/tmp") for path in scratch)


def test_a_run_on_a_slow_machine_is_cut_but_not_to_nothing():
    full = plan.full(1)
    assert full.decide_until(full.budget_s - plan.END_S - full.decide_s) == full.decide_s
    assert full.decide_until(full.budget_s - plan.END_S - 100) == 100
    assert full.decide_until(10 * full.budget_s) == full.decide_s / 2
    assert plan.full(1, decide_s=50).decide_until(1e6) == 50


def test_what_is_cut_is_said(tmp_path):
    chosen = replace(plan.quick(1), budget_s=0.0)
    demo = Demo(chosen, plan.Ports.from_base(21000), tmp_path, Console())
    planned = generate(chosen.shape)
    decide = Phase("decide", list(planned))
    demo._keep_to_budget(decide)
    assert decide.opens == [one for one in planned if one.time_s < chosen.decide_s / 2]
    assert f"{len(decide.opens)} of {len(planned)} opens" in demo._notes[0]


def test_percentiles():
    assert measure.percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.0
    assert measure.percentile([float(value) for value in range(1, 101)], 99) == 99.0
    assert measure.percentile([], 50) != measure.percentile([], 50)


def test_what_a_process_has_written(tmp_path):
    before = measure.written_bytes(os.getpid())
    with (tmp_path / "f").open("wb") as out:
        out.write(b"x" * MIB)
        out.flush()
        os.fsync(out.fileno())
    assert measure.written_bytes(os.getpid()) - before >= MIB


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has servers of another user")
def test_what_a_server_has_written_is_known_to_root_in_a_container_too():
    """Which has no CAP_SYS_PTRACE."""
    look = "import sys; from smartcache.demo import measure; print(measure.written_bytes(int(sys.argv[1])))"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=xrootd.SERVER_USER, extra_groups=[]) as server:
        less = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace", sys.executable, "-c"]
        refused = subprocess.run([*less, "import sys; open(f'/proc/{sys.argv[1]}/io').read()", str(server.pid)], stderr=subprocess.PIPE)
        assert b"PermissionError" in refused.stderr
        found = subprocess.run([*less, look, str(server.pid)], stdout=subprocess.PIPE, text=True, check=True)
        server.communicate()
    assert int(found.stdout) == 0


def test_hit_rate_of_a_phase():
    early, late = measure.Counters(0, 100, 1000, 50), measure.Counters(10, 400, 2000, 90)
    assert late.since(early) == {"seconds": 10, "origin_bytes": 300, "delivered_bytes": 1000, "written_bytes": 40, "byte_hit_rate": 0.7}


def test_plugin_counters(tmp_path):
    assert plugin_metrics.read(tmp_path / "none") == plugin_metrics.PluginMetrics()
    (tmp_path / "p.prom").write_text(
        '# TYPE smartcache_model_info gauge\nsmartcache_model_info{model="reuse_v2"} 1\n'
        "# TYPE smartcache_evictions_total counter\n"
        'smartcache_evictions_total{result="done"} 4\nsmartcache_evictions_total{result="busy"} 9\n'
    )
    found = plugin_metrics.read(tmp_path / "p.prom")
    assert (found.model, found.evicted) == ("reuse_v2", 4)


def figures(origin, written):
    numbers = dict.fromkeys((*report.FIGURES, "seconds"), 1.0)
    return numbers | {
        "opens": 14.0,
        "origin_bytes": origin,
        "written_bytes": written,
        "delivered_bytes": 1e9,
        "byte_hit_rate": 1 - origin / 1e9,
    }


@pytest.fixture
def measured():
    answers = [
        {"answer": "admit", "reason": "deadline", "opens": 3, "scored": 2},
        {"answer": "admit", "reason": "model", "opens": 7, "scored": 7},
        {"answer": "bypass", "reason": "explore", "opens": 2, "scored": 2},
    ]
    phase = {"began": 100.0, "ended": 160.0, "answers": answers, "open_ms": {"plain": [1.0, 2.0], "smart": [1.5]}}
    caches = {"plain": figures(4e8, 4e8), "smart": figures(5e8, 2e8)}
    sample = {"time_s": 110.0, "origin_bytes": 1, "stored_bytes": 2, "stored_files": 1, "removed_files": 0}
    return {
        "plan": "quick",
        "seed": 1,
        "revision": "abc",
        "began": 90.0,
        "seconds": 80.0,
        "cache": {"nominal_bytes": 10**8, "maximum_bytes": 2 * 10**8},
        "model": {
            "promoted": True,
            "name": "reuse_v1",
            "metrics": {"skill": 0.25, "calibration_0_observed": 0.5, "calibration_2_predicted": 0.125},
            "thresholds": {"admit": 0.2, "evict": 0.05},
            "bucket_edges_s": [5.0, 10.0],
        },
        "phases": {name: {**phase, "caches": caches} for name in ("learn", "decide")},
        "client_opens": {"plain": 2, "smart": 2},
        "access_rows": {"plain": 2, "smart": 2},
        "removed_files": {"plain": 3, "smart": 4},
        "evicted_files": 1,
        "samples": [{"cache": cache, **sample} for cache in ("plain", "smart")],
        "notes": ["one <b>note</b>"],
    }


def test_report_is_one_self_contained_page(measured, tmp_path):
    page = report.write(measured, tmp_path / "report").read_text()
    assert json.loads((tmp_path / "report" / "measurements.json").read_text()) == measured
    assert len(list((tmp_path / "report").glob("*.png"))) == page.count("data:image/png;base64,") == 5
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "&lt;b&gt;note" in page
    assert "link counter" in page


def test_the_models_table_says_how_each_figure_was_measured(measured, tmp_path):
    page = report.write(measured, tmp_path / "report").read_text()
    table = page[page.index("<h2>The model") :]
    assert "<tr><td>skill</td><td>0.25</td><td class=how>1 - loss / base_loss</td></tr>" in table
    assert "<td>0.5</td><td class=how>share of the test part&#x27;s opens whose next open came after 0 to 5 s, " in table
    assert "<td>0.125</td><td class=how>mean probability that the model gave to a next open after 10 s or never, " in table
    measured["model"] = {"promoted": False}
    assert "<h2>The model" not in report.write(measured, tmp_path / "report").read_text()


def test_every_figure_that_a_training_gives_is_explained():
    gaps = np.linspace(1, 20, 40)
    part = Split(
        features=np.zeros((40, 1), dtype=np.float32),
        t_us=np.zeros(40, dtype=np.int64),
        next_open_s=gaps,
        censored=np.zeros(40, dtype=np.bool_),
        observed_s=gaps,
        weight=np.ones(40),
    )
    given = evaluate.evaluate(part, part.weight, np.full((40, 3), 1 / 3, np.float32), np.full(3, 1 / 3, np.float32), [5.0, 10.0], 10.0)
    assert {"auc", "calibration_2_observed"} < set(given)
    said = {name: text for name, _, text in model_table.rows({"metrics": given, "bucket_edges_s": [5.0, 10.0]})}
    assert set(said) == set(given)
    assert [name for name, text in said.items() if "bundle.json" in text] == []


def test_report_says_so_where_the_smart_cache_loses(measured):
    measured["phases"]["decide"]["caches"]["smart"]["open_ms_p50"] = 1.5
    lost, won, slower, *_ = report.remarks(measured)
    assert "25.0 % MORE" in lost
    assert "50.0 % less" in won
    assert "took 50 % LONGER at the median (1.50 ms, plain 1.00 ms) and as long at p99 (1.00 ms, plain 1.00 ms)" in slower
    measured["phases"]["decide"]["caches"]["plain"]["written_bytes"] = 0
    assert "the smart cache wrote 200.0 MB to its disk, the plain one NOTHING" in report.remarks(measured)[1]


def test_table_on_the_terminal(measured):
    console = Console(record=True, width=140)
    report.show(measured, console)
    text = console.export_text()
    assert "1.25" in text
    assert "-10.0 points" in text
    assert "reuse_v1" in text
    assert "14 opens, 2 of them without an answer" in text
    assert "of 12 answers 9 were the model's: admit 9, bypass 0, evict 0; 2 of them by the plugin's own copy" in text
    for figure in report.FIGURES.values():
        assert figure.how in text
        assert f" {figure.name} [{figure.unit}] " in text or not figure.unit


def test_every_command_has_help():
    runner = CliRunner()
    assert runner.invoke(app, ["--help"]).exit_code == 0
    for command in app.registered_commands:
        name = command.name or command.callback.__name__.replace("_", "-")
        result = runner.invoke(app, [name, "--help"])
        assert result.exit_code == 0, name
        assert len(result.output) > 200, name
