"""A data set several times larger than what there is of memory for it: what does not fit is on Spark's disk meanwhile."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from smartcache.bench import spark as measured
from smartcache.bench import spark_load
from smartcache.preprocessing.access import read_access_table, table_files
from smartcache.preprocessing.popularity import load as load_side_table
from smartcache.preprocessing.stats.measure import ALL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Spark takes no less than 450 MB, of which it lends 130 MB to its jobs. Beside it the JVM may have as much again, for Arrow's buffers.
HEAP_BYTES = 512 << 20
#: Fewer opens with longer names are as many bytes, in less time. All on one day: compaction has four large partitions.
OPENS, NAME_BYTES, DAY_US = 500_000, 4000, 86_400_000_000


@dataclass
class Table:
    """A table much larger than the memory that its configuration leaves to Spark."""

    folder: Path
    config: Path
    #: Of its rows.
    size: int


@pytest.fixture(scope="module")
def large(tmp_path_factory, spark, write_config):
    folder = tmp_path_factory.mktemp("large")
    options = f'"spark.driver.memory" = "{HEAP_BYTES >> 20}m", "spark.local.dir" = "{folder}/spilled"'
    # As many bytes a batch as rows of an ordinary length make, not the tenfold.
    options += ', "spark.sql.execution.arrow.maxRecordsPerBatch" = "1000"'
    config = write_config(folder, options=options, more="[compaction]\nafter_days = 0\n[side_table]\nwindows_s = [86400.0, 1e9]\n")
    spark_load.table(spark, str(folder / "access"), OPENS, span_us=DAY_US, name_bytes=NAME_BYTES)
    size = sum(pq.ParquetFile(file).read().nbytes for file in table_files(folder / "access"))
    assert size > 3.5 * HEAP_BYTES
    return Table(folder, config, size)


def run(name, large):
    """Do it. The heap, what the JVM has beside it, and Python, together, have to be less than the rows alone are."""
    spent = measured._batch(name, large.config)
    print(f"{name}: {large.size} bytes of rows, heap {HEAP_BYTES}, all processes {spent.peak_bytes}, Python {spent.python_peak_bytes}")
    assert spent.peak_bytes < large.size
    assert spent.python_peak_bytes < large.size / 3


def test_training_set_of_more_than_fits_into_memory(large):
    run("build-dataset", large)
    assert json.loads((large.folder / "set/manifest.json").read_text())["rows"] == 2 * OPENS // 3 + 1


def test_statistics_of_more_than_fit_into_memory(large):
    run("stats", large)
    caches = pq.read_table(large.folder / "stats/caches.parquet").to_pylist()
    assert [row["opens"] for row in caches if row["cache"] == ALL][-1] == OPENS


def test_side_table_of_more_than_fits_into_memory(large):
    run("side-table", large)
    assert sum(each["opens"][-1] for each in load_side_table(large.folder / "side.json")[1]) > 0


def test_compaction_of_more_than_fits_into_memory(large):
    run("compact", large)
    table = large.folder / "access"
    assert len(table_files(table)) == spark_load.CACHES
    assert read_access_table(table, ["open_us"]).num_rows == OPENS
