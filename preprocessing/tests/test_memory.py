"""A data set several times larger than what there is of memory for it: what does not fit is on Spark's disk meanwhile."""

import json

import pyarrow.parquet as pq
import pytest

from smartcache.bench import spark as measured
from smartcache.bench import spark_load
from smartcache.preprocessing.access import read_access_table, table_files
from smartcache.preprocessing.popularity import load as load_side_table
from smartcache.preprocessing.stats.measure import ALL

pytestmark = pytest.mark.slow

#: Spark takes no less than 450 MB, of which it lends 130 MB to its jobs.
HEAP_BYTES = 512 << 20
#: Fewer opens with longer names are as many bytes, in less time. All on one day: compaction has four large partitions.
OPENS, NAME_BYTES, DAY_US = 500_000, 4000, 86_400_000_000


def large_table(folder, spark, write_config, opens):
    """A table of so many opens, a configuration that leaves little memory for it, and the bytes of its rows."""
    options = f'"spark.driver.memory" = "{HEAP_BYTES >> 20}m", "spark.local.dir" = "{folder}/spilled"'
    # As many bytes a batch as rows of an ordinary length make, not the tenfold.
    options += ', "spark.sql.execution.arrow.maxRecordsPerBatch" = "1000"'
    config = write_config(folder, options=options, more="[compaction]\nafter_days = 0\n[side_table]\nwindows_s = [86400.0, 1e9]\n")
    spark_load.table(spark, str(folder / "access"), opens, span_us=DAY_US, name_bytes=NAME_BYTES)
    return config, sum(pq.ParquetFile(file).read().nbytes for file in table_files(folder / "access"))


def little_was_taken(name, spent, size):
    """The heap, what the JVM has beside it, and Python, together: less than the rows alone are."""
    print(f"{name}: {size} bytes of rows, heap {HEAP_BYTES}, all processes {spent.peak_bytes}, Python {spent.python_peak_bytes}")
    assert spent.peak_bytes < size
    assert spent.python_peak_bytes < size / 3


@pytest.mark.timeout(1800)
def test_more_than_fits_into_memory(tmp_path, spark, write_config):
    config, size = large_table(tmp_path, spark, write_config, OPENS)
    assert size > 3.5 * HEAP_BYTES
    built = measured._batch("build-dataset", config)
    assert json.loads((tmp_path / "set/manifest.json").read_text())["rows"] == 2 * OPENS // 3 + 1
    compacted = measured._batch("compact", config)
    table = tmp_path / "access"
    assert len(table_files(table)) == spark_load.CACHES
    assert read_access_table(table, ["open_us"]).num_rows == OPENS
    little_was_taken("build-dataset", built, size)
    little_was_taken("compact", compacted, size)


@pytest.mark.timeout(1800)
def test_sums_over_more_than_fits_into_memory(tmp_path, spark, write_config):
    opens = 3 * OPENS // 5
    config, size = large_table(tmp_path, spark, write_config, opens)
    assert size > 2 * HEAP_BYTES
    little_was_taken("stats", measured._batch("stats", config), size)
    little_was_taken("side-table", measured._batch("side-table", config), size)
    caches = pq.read_table(tmp_path / "stats/caches.parquet").to_pylist()
    assert [row["opens"] for row in caches if row["cache"] == ALL][-1] == opens
    assert sum(each["opens"][-1] for each in load_side_table(tmp_path / "side.json")[1]) > 0
