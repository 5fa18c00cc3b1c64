"""A data set several times larger than what there is of memory for it: what does not fit is on Spark's disk meanwhile."""

import json

import pyarrow.parquet as pq
import pytest

from smartcache.bench import spark as measured
from smartcache.bench import spark_load
from smartcache.preprocessing.access import read_access_table, table_files

pytestmark = pytest.mark.slow

#: Spark takes no less than 450 MB, of which it lends 130 MB to its jobs.
HEAP_BYTES = 512 << 20
#: Fewer opens with longer names are as many bytes, in less time. All on one day: compaction has four large partitions.
OPENS, NAME_BYTES, DAY_US = 500_000, 4000, 86_400_000_000


@pytest.mark.timeout(1800)
def test_more_than_fits_into_memory(tmp_path, spark, write_config):
    table = tmp_path / "access"
    options = f'"spark.driver.memory" = "{HEAP_BYTES >> 20}m", "spark.local.dir" = "{tmp_path}/spilled"'
    # As many bytes a batch as rows of an ordinary length make, not the tenfold.
    options += ', "spark.sql.execution.arrow.maxRecordsPerBatch" = "1000"'
    config = write_config(tmp_path, options=options, more="[compaction]\nafter_days = 0\n")
    spark_load.table(spark, str(table), OPENS, span_us=DAY_US, name_bytes=NAME_BYTES)
    size = sum(pq.ParquetFile(file).read().nbytes for file in table_files(table))
    assert size > 3.5 * HEAP_BYTES

    built = measured._batch("build-dataset", config)
    assert json.loads((tmp_path / "set/manifest.json").read_text())["rows"] == 2 * OPENS // 3 + 1
    compacted = measured._batch("compact", config)
    assert len(table_files(table)) == spark_load.CACHES
    assert read_access_table(table, ["open_us"]).num_rows == OPENS
    for name, spent in (("build-dataset", built), ("compact", compacted)):
        print(f"{name}: {size} bytes of rows, heap {HEAP_BYTES}, all processes {spent.peak_bytes}, Python {spent.python_peak_bytes}")
        # The heap, what the JVM has beside it, and Python, together: less than the rows alone are.
        assert spent.peak_bytes < size
        assert spent.python_peak_bytes < size / 3
