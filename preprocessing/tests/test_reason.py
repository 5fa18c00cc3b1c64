"""Errors of real Spark, in a line that says what is wrong."""

import pytest

from smartcache.preprocessing.reason import reason


def said_by(action):
    with pytest.raises(Exception) as raised:
        action()
    return reason(raised.value)


def test_pythons_own():
    assert reason(ValueError("a bin\nand more")) == "ValueError: a bin"
    assert reason(KeyError()) == "KeyError: no reason given"


@pytest.mark.slow
def test_of_a_python_worker(spark):
    def fail(batches):
        raise OSError("no core here\nin two lines")

    assert said_by(lambda: spark.range(3).mapInArrow(fail, "id long").write.format("noop").mode("append").save()) == "OSError: no core here"


@pytest.mark.slow
def test_of_java_behind_others(spark, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 is all that it has of a Parquet file")
    said = said_by(lambda: spark.read.schema("id long").parquet(str(tmp_path)).collect())
    assert "broken.parquet is not a Parquet file" in said


@pytest.mark.slow
def test_of_a_plan(spark):
    assert "`nothing`" in said_by(lambda: spark.range(3).select("nothing"))
