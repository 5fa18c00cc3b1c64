"""Benchmarks: ratios are taken within a round, results are kept with what made them, and the page shows what was kept."""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.main import get_command

from smartcache.bench import collector, core, endpoint, gstream_load, opens, page, results, spark
from smartcache.cli import app
from smartcache.local.process import Process, ProcessError, line_in, stop_all


def measurement(server, round_, rate, p50, connections=1):
    return {
        "server": server,
        "connections": connections,
        "round": round_,
        "opens": rate * 2,
        "seconds": 2.0,
        "p50_us": p50,
        "p99_us": 4 * p50,
        "p999_us": 9 * p50,
        "cpu_us": 2 * p50,
    }


@pytest.fixture
def measured():
    """Two rounds, the second on a machine half as fast."""
    return [
        measurement("none", 0, 1000, 100.0),
        measurement("control", 0, 1000, 100.0),
        measurement("asked", 0, 1000, 100.0),
        measurement("embedded", 0, 980, 102.0),
        measurement("endpoint", 0, 500, 250.0),
        measurement("none", 1, 500, 200.0),
        measurement("control", 1, 500, 200.0),
        measurement("asked", 1, 500, 200.0),
        measurement("embedded", 1, 480, 206.0),
        measurement("endpoint", 1, 250, 400.0),
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    return tmp_path


def test_ratios_are_taken_within_a_round(measured):
    rows = {row["server"]: row for row in opens.table(measured)}
    assert rows["none"]["rate_ratio"] == 1.0
    assert rows["embedded"]["rate_ratio"] == pytest.approx((0.98 + 0.96) / 2)
    assert (rows["embedded"]["rate_ratio_low"], rows["embedded"]["rate_ratio_high"]) == (0.96, 0.98)
    assert rows["embedded"]["p50_added_us"] == pytest.approx(4.0)
    assert rows["endpoint"]["rate_ratio"] == 0.5
    assert rows["endpoint"]["p50_added_us"] == pytest.approx(175.0)
    assert rows["endpoint"]["cpu_added_us"] == pytest.approx(350.0)


@pytest.mark.parametrize(
    ("rate", "low", "added_us", "added_low_us", "said"),
    [
        (0.98, 0.971, 299.0, 280.0, ["0.980 meets its bar of 0.97", "+299 µs meets its bar of 300 µs"]),
        (0.98, 0.969, 302.0, 301.0, ["0.980 not told apart from its bar of 0.97", "+302 µs misses its bar of 300 µs"]),
        (0.95, 0.94, 302.0, 299.0, ["0.950 misses its bar of 0.97", "+302 µs not told apart from its bar of 300 µs"]),
    ],
)
def test_the_bars(rate, low, added_us, added_low_us, said):
    row = {"connections": 16, "rate_ratio": rate, "rate_ratio_low": low, "rate_ratio_high": rate + 0.01, "p50_added_us": added_us}
    row |= {"p50_added_low_us": added_low_us, "p50_added_high_us": added_us + 1}
    rows = [{**row, "server": name} for name in opens.SERVERS]
    assert opens.verdicts(rows) == [f"embedded, 16 connections: {said[0]}", f"endpoint, 16 connections: {said[1]}"]


@pytest.mark.parametrize(("rounds", "each"), [(60, [6] * 10), (12, [2, 2] + [1] * 8), (1, [1])])
def test_rounds_are_spread_over_the_starts(rounds, each):
    assert opens.Length(rounds).rounds_of_starts() == each


@pytest.mark.parametrize("count", [1, 2, 20, 60, 401])
def test_the_interval_of_a_median(count):
    """Against the binomial distribution itself: how likely the true median lies outside."""
    low, high = opens.median_interval(count)
    assert (low, high) == (count - 1 - high, count - 1 - low)
    outside = 2 * sum(math.comb(count, k) for k in range(low + 1)) / 2**count
    assert low == 0 or 0.025 < outside < 0.075


def test_the_page_shows_what_was_kept(folder, measured):
    page.PAGE.write_text("before\n<!-- opens -->\nold\n<!-- end opens -->\nbetween\n<!-- core -->\nnone\n<!-- end core -->\nafter\n")
    figures = {"rounds": 2, "seconds": 2.0, "starts": 1, "measured": measured, "answers": {"embedded": {"model": 7.0}}}
    kept = results.save("opens", "smartcache bench opens", results.machine(), figures)
    assert json.loads(kept.read_text())["command"] == "smartcache bench opens"
    assert page.write() == ["opens"]
    text = page.PAGE.read_text()
    assert "\nold\n" not in text
    assert "| 1 | embedded | 730 | 0.970 (0.960 to 0.980) | 154 | +4 (+2 to +6) | 616 | 308 | +8 |" in text
    assert "`smartcache bench opens`" in text
    assert "embedded: model 7" in text
    assert (
        "- embedded, 1 connection: 0.970 not told apart from its bar of 0.97\n- endpoint, 1 connection: +175 µs meets its bar of 300 µs\n"
        in text
    )
    assert text.startswith("before\n")
    assert "between\n<!-- core -->\nnone\n" in text
    assert text.endswith("after\n")


def test_a_result_without_a_place_is_named(folder, measured):
    page.PAGE.write_text("nothing\n")
    results.save("core", "x", results.machine(), {"rows": []})
    with pytest.raises(page.PageError, match="<!-- core -->"):
        page.write()


def test_the_core_s_steps_are_in_order_with_how_many_are_done_in_a_second(folder):
    page.PAGE.write_text("<!-- core -->\n<!-- end core -->\n")
    rows = [{"name": "BM_B", "time_ns": 2000.0}, {"name": "BM_A/8", "time_ns": 250.0, "p50_ns": 240.0, "file_MB": 1.5}]
    results.save("core", "x", results.machine(), {"rows": rows})
    assert page.write() == ["core"]
    assert "| `A/8` | 4,000,000 | 250 | 240 |  |  | file_MB 1.5 |\n| `B` | 500,000 | 2,000 |  |  |  |  |\n" in page.PAGE.read_text()


@pytest.mark.parametrize(("p99", "late", "said"), [(4000.0, 0.01, ("meets", "no more often")), (5001.0, 0.03, ("misses", "more often"))])
def test_what_is_said_of_the_core_s_bars(p99, late, said):
    rows = [
        {"name": "BM_SilentEndpoint/iterations:100/real_time/threads:16", "over_1ms": late, "poll_over_1ms": 0.02},
        {"name": "BM_DecideEmbedded/real_time/threads:1", "p99_ns": p99},
        {"name": "BM_DecideEmbedded/real_time/threads:8", "p99_ns": 1e9},
    ]
    decision, silent = core.verdicts(rows)
    assert decision == f"history, features, embedded model and policy: {p99:,.0f} ns at p99 {said[0]} its bar of 5,000 ns"
    assert f"16 threads: {late:.2%} of the opens are answered more than 1 ms after their deadline, {said[1]} than a plain poll" in silent


def test_rows_of_the_core_are_medians():
    frame = {"run_name": "BM_X", "real_time": 10.0, "cpu_time": 10.0, "p50_ns": 9.0, "iterations": 5}
    raw = {"benchmarks": [{**frame, "real_time": 99.0}, {**frame, "aggregate_name": "median"}, {**frame, "aggregate_name": "mean"}]}
    assert core.rows(raw) == [{"name": "BM_X", "time_ns": 10.0, "p50_ns": 9.0}]


def step(rate, lost=0, late=0.1, cpu=10.0, missing=0):
    return collector.Step(rate, rate - 1, lost, missing, cpu, late)


class Scripted:
    """A site that loses packets above a rate, and above another one is late."""

    def __init__(self, loses_above, late_above=float("inf")):
        self.held = []
        self.loses_above, self.late_above = loses_above, late_above

    def hold(self, rate, seconds):
        self.held.append(rate)
        return step(rate, lost=3 * (rate > self.loses_above), late=9.0 if rate > self.late_above else 0.1)


def test_the_highest_rate_that_held_is_held_again():
    site = Scripted(loses_above=50_000)
    rising, repeated = collector._search(site, 3, 1.0, lambda text: None)
    assert [each.held for each in rising] == [True] * (len(rising) - 1) + [False]
    assert [each.offered_per_s for each in repeated] == [rising[-2].offered_per_s] * 3
    assert 50_000 / collector.RISE < repeated[0].offered_per_s <= 50_000
    row = collector.table({"spool only": (rising, repeated)})[0]
    assert row["records_per_s"] == repeated[0].offered_per_s - 1
    assert row["lost_packets"] == 3


def test_a_rate_that_does_not_hold_again_gives_way_to_a_lower_one():
    site = Scripted(loses_above=50_000)
    first = site.hold
    site.hold = lambda rate, seconds: step(rate, lost=1) if rate > 40_000 and len(site.held) > 6 else first(rate, seconds)
    _, repeated = collector._search(site, 2, 1.0, lambda text: None)
    assert len(repeated) == 2
    assert repeated[0].offered_per_s <= 40_000


def test_what_piles_up_does_not_hold():
    rising, _ = collector._search(Scripted(loses_above=90_000, late_above=30_000), 1, 1.0, lambda text: None)
    assert rising[-1].lost_packets == 0
    assert not rising[-1].held
    assert not step(1, missing=1).held
    assert not step(1, missing=-20).held


@pytest.mark.slow
@pytest.mark.parametrize("broker", [False, True], ids=["spool only", "broker writing"])
def test_a_real_collector_holds_a_low_rate(broker, tmp_path, monkeypatch):
    """On one of the cores that we may use, whichever that is, with all that it works with."""
    monkeypatch.setattr(collector, "_SETTLE_S", 30.0)
    parts = []
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        site = collector._Site(tmp_path, parts, broker)
        held = [site.hold(2000, 1.0) for _ in range(2)]
        assert os.sched_getaffinity(parts[-1].pid) == {max(allowed)}
        assert site.buffer_bytes > 0
    finally:
        stop_all(parts[-1:], parts[:-1])
        os.sched_setaffinity(0, allowed)
    for one in held:
        assert one.lost_packets == one.missing_records == 0
        assert 0 < one.records_per_s <= 2000 * 1.05
        assert one.cpu_us_per_record > 0
        assert (one.late_s > 0) == broker


def test_the_page_shows_the_collector(folder):
    page.PAGE.write_text("<!-- collector -->\nNot measured yet.\n<!-- end collector -->\n")
    modes = {"spool only": ([step(70_000), step(80_000, lost=7)], [step(70_000)]), "broker writing": ([step(60_000, lost=2)], [])}
    figures = {"rounds": 1, "seconds": 2.0, "bar_per_s": 50_000, "receive_buffer_bytes": 4_194_304, "rows": collector.table(modes)}
    results.save("collector", "smartcache bench collector", results.machine(), figures)
    assert page.write() == ["collector"]
    text = page.PAGE.read_text()
    assert "| spool only | 69,999 | 10.0 |  | 79,999 | 7 | 0 |" in text
    assert "| broker writing | 0 |  |  | 59,999 | 2 | 0 |" in text
    assert "- spool only: 69,999 records/s without loss, the bar is 50,000: met.\n" in text
    assert "- broker writing: 0 records/s without loss, the bar is 50,000: MISSED.\n" in text


def test_the_load_is_numbered_as_a_server_numbers():
    made = gstream_load.packets(1001, 2)
    assert b'"pseq":999,' in made[999]
    assert b'"pseq":  0,' in made[1000]
    assert made[0] != made[1000]


def asked(server, round_, rate, cpu, p50=100, rows=None):
    return {
        "server": server,
        "round": round_,
        "connections": 16,
        "requests_per_s": rate,
        "cpu_us": cpu,
        "p50_us": p50,
        "p99_us": 5 * p50,
        "rows_a_run": rows,
    }


@pytest.fixture
def served():
    """Three rounds on a machine that gets slower; the stock server's processor time is not known in one of them."""
    rounds = []
    for number, speed in enumerate((1.0, 0.5, 0.25)):
        rounds += [
            asked("nothing", number, 40_000 * speed, 20 / speed),
            asked("endpoint", number, 30_000 * speed, 30 / speed, rows=2.0 + number),
            asked("alone", number, 20_000 * speed, 40 / speed, rows=1.0),
            asked("tfaas", number, 10_000 * speed, None if number == 1 else 120 / speed),
        ]
    return rounds


def test_the_endpoint_is_compared_within_a_round(served):
    rows = {row["server"]: row for row in endpoint.table(served)}
    assert rows["endpoint"]["requests_per_s_against_nothing"] == pytest.approx(0.75)
    assert rows["endpoint"]["requests_per_s_against_tfaas"] == pytest.approx(3.0)
    assert rows["endpoint"]["requests_per_s_against_alone"] == pytest.approx(1.5)
    assert rows["endpoint"]["cpu_us_against_alone"] == pytest.approx(0.75)
    assert rows["endpoint"]["cpu_us_against_tfaas"] == pytest.approx(0.25)
    assert rows["endpoint"]["cpu_us_against_nothing"] == pytest.approx(1.5)
    assert rows["endpoint"]["rows_a_run"] == 3.0
    assert rows["nothing"]["rows_a_run"] is None
    assert rows["tfaas"]["requests_per_s"] == 5_000


def test_the_page_shows_the_endpoint(folder, served):
    page.PAGE.write_text("<!-- endpoint -->\n<!-- end endpoint -->\n")
    figures = {"rounds": 3, "seconds": 1, "load_generator": "wrk 4", "rows": endpoint.table(served)}
    results.save("endpoint", "smartcache bench endpoint", results.machine(), figures)
    assert page.write() == ["endpoint"]
    assert "| 16 | endpoint | 15,000 | 0.75 | 1.50 | 3.00 | 60.0 | 1.50 | 0.75 | 0.25 | 100 | 500 | 3.0 |" in page.PAGE.read_text()
    without = [one for one in served if one["server"] != "tfaas"]
    results.save("endpoint", "smartcache bench endpoint", results.machine(), {**figures, "rows": endpoint.table(without)})
    page.write()
    assert "| 16 | endpoint | 15,000 | 0.75 | 1.50 | 60.0 | 1.50 | 0.75 | 100 | 500 | 3.0 |" in page.PAGE.read_text()
    assert "No stock TFaaS was named" in page.PAGE.read_text()


def test_who_listens_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert endpoint.listener(port) == os.getpid()
    assert endpoint.listener(port) is None


def test_answers_that_are_no_success_are_no_measurement(tmp_path):
    """A server that knows no POST."""
    wrk = shutil.which("wrk")
    assert wrk, "run `make setup`"
    server = Process("files", [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"], tmp_path / "log")
    with server:
        server.start().wait_ready(line_in(server.log, "Serving HTTP"), "ready", 30)
        port = server.log.read_text().split("port ")[1].split()[0]
        body = tmp_path / "body"
        body.write_text("{}")
        with pytest.raises(ProcessError, match="must answer each prediction with 200"):
            endpoint._ask(wrk, endpoint.Server("files", f"http://127.0.0.1:{port}", body, server.pid, metrics=False), 2, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
def test_the_endpoint_under_load(folder, monkeypatch):
    """The real thing, short: each server answers, its processor time is seen, and only where they may do predictions share runs."""
    monkeypatch.setattr(endpoint, "CONNECTIONS", (16,))
    kept = json.loads(endpoint.run(1, 1.0, "smartcache bench endpoint", lambda text: None).read_text())
    rows = {row["server"]: row for row in kept["rows"]}
    assert set(rows) >= {endpoint.NOTHING, endpoint.ENDPOINT, endpoint.ALONE}
    assert all(row["requests_per_s"] > 0 and row["cpu_us"] > 0 and row["p50_us"] > 0 for row in rows.values())
    assert rows[endpoint.ALONE]["rows_a_run"] == 1.0
    assert rows[endpoint.ENDPOINT]["rows_a_run"] > 1.0
    assert kept["load_generator"].startswith("wrk")


def spark_row(opens, seconds, peak_bytes, job="stats"):
    return {"job": job, "master": "local[1]", "opens": opens, "records": 2 * opens, "seconds": seconds, "peak_bytes": peak_bytes}


def test_growth_is_against_the_opens_and_without_the_start():
    rows = [spark_row(1, 10.0, 7), spark_row(5000, 60.0, 150), spark_row(1000, 20.0, 100), spark_row(1000, 30.0, 100, "stream")]
    small, large, stream = spark.growth(rows)
    assert (small["opens"], small["per_s"], small["time_growth"], small["memory_growth"]) == (1000, 200.0, None, None)
    assert (large["per_s"], large["time_growth"], large["memory_growth"]) == (200.0, 1.0, 0.3)
    assert (stream["start_seconds"], stream["per_s"]) == (10.0, 100.0)


@pytest.mark.parametrize("job", [*spark.BATCH, "stream"])
def test_command_lines_of_the_jobs(job, tmp_path):
    name, *options = spark.argv(job, tmp_path / "smartcache.toml")
    assert get_command(app).commands[name].make_context(name, options).params["config"] == tmp_path / "smartcache.toml"


def test_what_spark_took_is_kept_after_each_number_of_opens(folder, monkeypatch):
    """The second number fails, as where the disk is full: what the first one took is a result."""

    def batch(job, config):
        if "opens5000" in str(config):
            raise ProcessError("no space left on device")
        return spark.Spent(2.0, 7, 3)

    monkeypatch.setattr(spark, "_make_table", lambda shared, opens: (shared / "access/_spark_metadata").mkdir(parents=True))
    monkeypatch.setattr(spark, "_copy", lambda shared, master: shared / "copy")
    monkeypatch.setattr(spark, "_batch", batch)
    monkeypatch.setattr(spark, "_stream", lambda folder, master, opens: (3 * opens, spark.Spent(9.0, 7, 3)))
    page.PAGE.write_text("<!-- spark -->\n<!-- end spark -->\n")
    with pytest.raises(ProcessError):
        spark.run((1000, 5000), ("local[1]",), "smartcache bench spark", lambda text: None)
    kept = results.load("spark")
    assert kept["events"] == [1000]
    assert [(row["job"], row["opens"]) for row in kept["rows"]] == [
        *((job, 1) for job in spark.BATCH),
        *((job, 1000) for job in (*spark.BATCH, "stream")),
    ]
    assert page.write() == ["spark"]
    assert page.PAGE.read_text().count("| 1,000 |") == len(spark.BATCH) + 1
    assert [path.name for path in results.FOLDER.iterdir()] == ["spark.json"]


@pytest.mark.parametrize("look_s", [0.001, 0.3])
def test_looking_at_the_memory_leaves_the_machine_to_what_is_measured(monkeypatch, look_s):
    now, looked = 1000.0, 0

    def sleep(seconds):
        nonlocal now
        now += seconds

    def look(pid):
        nonlocal looked
        looked += 1
        sleep(look_s)
        return looked, 1

    monkeypatch.setattr(spark, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(spark, "_resident", look)
    spent = spark._watch(SimpleNamespace(pid=1), lambda: now >= 1100.0)
    assert 10 <= looked <= 1000
    assert looked * look_s <= 0.06 * spent.seconds
    assert spent.peak_bytes == looked + 1


def test_a_jvm_that_is_about_to_become_another_program_counts_once(tmp_path):
    """A JVM starts each program by way of a child that shares its memory; here it is one of the same program, with memory of its own."""
    java = tmp_path / "java"
    shutil.copy(os.path.realpath(sys.executable), java)
    hold = "import sys; held = bytearray(b'x' * (64 << 20)); print('ready', flush=True); sys.stdin.read()"
    start = f"import subprocess, sys; subprocess.run([sys.argv[1], '-c', {hold!r}])"
    environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([java, "-c", start, java], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        jvm, python = spark._resident(process.pid)
        process.stdin.close()
    assert 0 < jvm < 64 << 20
    assert python == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_is_measured(folder, monkeypatch):
    # Each job is two starts of Spark: two of the four here, and the command lines of all below.
    monkeypatch.setattr(spark, "BATCH", ("build-dataset", "compact"))
    said = []
    page.PAGE.write_text("<!-- spark -->\n<!-- end spark -->\n")
    kept = spark.run((200,), ("local[1]",), "smartcache bench spark", said.append)
    rows = json.loads(kept.read_text())["rows"]
    assert [(row["job"], row["opens"]) for row in rows] == [
        *((job, 1) for job in spark.BATCH),
        *((job, 200) for job in (*spark.BATCH, "stream")),
    ]
    assert all(row["seconds"] > 1 and row["peak_bytes"] > 100 << 20 for row in rows)
    assert rows[-1]["records"] == 200 + 200 + 134
    assert len(said) == len(rows)
    assert list(results.FOLDER.iterdir()) == [kept], "what it worked on is gone"
    assert page.write() == ["spark"]
    assert page.PAGE.read_text().count("| 200 |") == 3
