import importlib.util
from pathlib import Path

import numpy as np
import pytest

from smartcache.training import dataset


def test_reads_what_was_written(synthetic, tmp_path):
    data = dataset.read(synthetic.write(tmp_path, rows=500))
    assert sum(map(len, (data.train, data.validate, data.test))) == 500
    assert data.train.features.shape == (len(data.train), 4)
    assert data.train.features.dtype == np.float32
    assert (np.diff(data.train.t_us) >= 0).all()
    assert data.train.t_us.max() <= data.validate.t_us.min() <= data.validate.t_us.max() <= data.test.t_us.min()
    assert np.isnan(data.test.next_open_s[data.test.censored]).all()
    assert data.names == synthetic.NAMES


def test_a_changed_row_is_found(synthetic, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = synthetic.write(tmp_path, rows=200) / "part-00000.parquet"
    table = pq.read_table(path)
    weight = table["weight"].to_pylist()
    weight[77] += 1
    pq.write_table(table.set_column(table.column_names.index("weight"), "weight", pa.array(weight)), path)
    with pytest.raises(dataset.DatasetError, match=r"part-00000.parquet: SHA-256 of its rows must be [0-9a-f]{64}, as manifest.json says"):
        dataset.read(tmp_path)


def test_a_file_that_is_not_listed_is_not_read(synthetic, tmp_path):
    synthetic.write(tmp_path, rows=200)
    (tmp_path / "part-00001.parquet").write_bytes(b"what a killed job left")
    assert sum(map(len, (lambda data: (data.train, data.validate, data.test))(dataset.read(tmp_path)))) == 200


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rows": 7}, "the manifest says 7 rows, the Parquet files hold 200"),
        ({"rows": "many"}, "rows must be a int, not 'many'"),
        ({"sha256": None}, "sha256 must be a str"),
        ({"sha256": "0" * 64}, "SHA-256 of the rows must be 0000"),
        ({"format": 2}, "format must be 1, not 2"),
        ({"files": []}, "at least one file"),
        ({"files": [{"name": "../x.parquet", "sha256": ""}]}, "the name of a file in this folder"),
        ({"files": [{"name": "x.parquet", "sha256": ""}]}, "x.parquet: cannot be read as Parquet"),
        ({"split_at_us": {"validate": 1}}, "split_at_us.test must be a time, not None"),
        ({"schema": {"version": 1, "names": [], "hash": "0" * 16}}, "schema.names must be a list of feature names"),
        ({"schema": {"version": 1, "names": ["a", "a"], "hash": "0" * 16}}, "must differ from each other"),
        ({"schema": {"version": 1, "names": ["a"], "hash": "xyz"}}, "schema.hash must be 16 hex digits, not 'xyz'"),
        ({"schema": {"version": 1, "names": ["a"], "hash": "0" * 16}}, r"one value per name of the schema, 1, not \[4\]"),
    ],
)
def test_manifest_that_lies(synthetic, tmp_path, changes, text):
    synthetic.write(tmp_path, rows=200)
    synthetic.change_manifest(tmp_path, **changes)
    with pytest.raises(dataset.DatasetError, match=text) as caught:
        dataset.read(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "smartcache build-dataset" in str(caught.value)


@pytest.mark.parametrize(
    ("replaced", "text"),
    [
        ({"weight": None}, "column weight is missing"),
        ({"weight": np.full(200, -1.0)}, "weight must be a number >= 0; row 0 has"),
        ({"observed_s": np.full(200, np.nan), "censored": np.full(200, True), "next_open_s": [None] * 200}, "observed_s must be"),
        ({"censored": np.full(200, True), "next_open_s": [1.0] * 200}, "next_open_s must be null where censored"),
        ({"split": ["trian"] * 200}, r"split must be one of train, validate, test, not \['trian'\]"),
        ({"features": [[0.0, 1.0, float("nan"), 0.0]] * 200}, "features must be finite, constant of row 0 is nan"),
        ({"features": [[0.0] * 4] * 199 + [[0.0] * 3]}, r"not \[3, 4\]"),
        ({"features": [[0.0] * 4] * 199 + [None]}, "must not be null, 1 rows are"),
    ],
)
def test_rows_that_break_a_rule(synthetic, tmp_path, replaced, text):
    synthetic.write(tmp_path, rows=200, **replaced)
    with pytest.raises(dataset.DatasetError, match=text):
        dataset.read(tmp_path)


def test_no_folder_names_the_option(tmp_path):
    with pytest.raises(dataset.DatasetError, match="--dataset must name a folder"):
        dataset.read(tmp_path / "none")


def test_torn_file_is_named(synthetic, tmp_path):
    synthetic.write(tmp_path, rows=200)
    path = tmp_path / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(dataset.DatasetError, match=r"part-00000.parquet: cannot be read as Parquet"):
        dataset.read(tmp_path)


def test_command_line_starts_without_tensorflow():
    """Importing the subcommands must not import TensorFlow, Keras or MLflow."""
    import subprocess
    import sys

    assert importlib.util.find_spec("smartcache.training.cli")
    code = (
        "import sys, smartcache.training.cli, smartcache.inference.cli; "
        "print(sorted({'tensorflow', 'keras', 'mlflow', 'pyarrow', 'httpx'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
