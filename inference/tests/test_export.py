import json
import subprocess

import numpy as np
import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference import export
from smartcache.training import model as network

EDGES = [60.0, 3600.0]
INFO = {
    "schema": {"version": 1, "names": ["a", "b", "c"], "hash": "0123456789abcdef"},
    "bucket_edges_s": EDGES,
    "horizon_s": 60.0,
    "horizon_buckets": 1,
    "thresholds": {"admit": 0.2, "evict": 0.05},
    "metrics": {"skill": 0.5},
    "provenance": {},
}


@pytest.fixture(scope="module")
def model():
    network.deterministic(3)
    rng = np.random.default_rng(3)
    mean, scale = network.normalization((rng.standard_normal((100, 3)) * [1, 10, 1e4] + [0, 5, 1e6]).astype(np.float32))
    return network.build(mean, scale, [8, 4], 3, learning_rate=0.01, dropout=0.2)


@pytest.fixture(scope="module")
def rows():
    return (np.random.default_rng(4).standard_normal((20, 3)) * [1, 10, 1e4] + [0, 5, 1e6]).astype(np.float32)


@pytest.fixture
def info():
    return bundles.Info.model_validate(INFO)


def test_export_agrees_with_keras(model, rows, info, tmp_path):
    bundle = export.export(model, tmp_path / "out", info, rows, 1e-5)
    expected = network.predict(model, rows)
    assert bundles.max_difference(bundle.embedded.predict(rows), expected) < 1e-5
    assert bundles.max_difference(export.saved_model_outputs(bundle.folder, rows), expected) < 1e-5
    assert bundle.info.metrics["max_output_difference"] < 1e-5
    assert bundle.info.metrics["skill"] == 0.5
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nodes_are_those_that_tfaas_has_compiled_in(model, rows, info, tmp_path):
    folder = export.export(model, tmp_path / "out", info, rows, 1e-5).folder
    assert export._nodes(folder) == ("serving_default_inputs_input:0", "StatefulPartitionedCall:0")
    assert {"saved_model.pb", "variables", "assets", "params.json"} <= {path.name for path in folder.iterdir()}


def tamper_weights(folder):
    content = json.loads((folder / "weights.json").read_text())
    content["layers"][0]["kernel"][0][0] += 0.1
    (folder / "weights.json").write_text(json.dumps(content))


def tamper_golden(folder):
    content = json.loads((folder / "golden.json").read_text())
    content["outputs"][3] = content["outputs"][3][::-1]
    (folder / "golden.json").write_text(json.dumps(content))


@pytest.mark.parametrize(("tamper", "what"), [(tamper_weights, "weights.json"), (tamper_golden, "golden.json")])
def test_parity_is_refused_when_tampered(model, rows, info, tmp_path, tamper, what):
    bundle = export.export(model, tmp_path / "out", info, rows, 1e-5)
    tamper(bundle.folder)
    with pytest.raises(export.ExportError, match=rf"{what} must give what Keras gives .* differs by"):
        export.check_parity(bundle.folder, bundle.golden_outputs, 1e-5)


def test_parity_is_refused_for_another_saved_model(model, rows, info, tmp_path):
    bundle = export.export(model, tmp_path / "out", info, rows, 1e-5)
    other = network.build(bundle.embedded.mean, bundle.embedded.scale, [8, 4], 3, learning_rate=0.01, dropout=0.2)
    export.write_saved_model(other, bundle.folder)
    with pytest.raises(export.ExportError, match="the SavedModel must give what Keras gives"):
        export.check_parity(bundle.folder, bundle.golden_outputs, 1e-5)


def test_refused_export_leaves_nothing(model, rows, info, tmp_path, monkeypatch):
    real = export.network_of

    def wrong(given):
        network_ = real(given)
        return bundles.Network(network_.mean + 1, network_.scale, network_.layers)

    monkeypatch.setattr(export, "network_of", wrong)
    with pytest.raises(export.ExportError, match=r"weights\.json must give"):
        export.export(model, tmp_path / "out", info, rows, 1e-5)
    assert list(tmp_path.iterdir()) == []


def test_never_written_over(model, rows, info, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(export.ExportError, match="never written over"):
        export.export(model, tmp_path / "out", info, rows, 1e-5)


def test_layers_that_weights_json_does_not_know(rows, info, tmp_path):
    import keras

    inputs = keras.Input((3,))
    odd = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(keras.layers.LayerNormalization()(inputs)))
    with pytest.raises(
        export.ExportError,
        match="layer layer_normalization must be Dense or Dropout, or Normalization in the first place, not LayerNormalization",
    ):
        export.export(odd, tmp_path / "out", info, rows, 1e-5)
    assert list(tmp_path.iterdir()) == []


def test_archive_has_the_name_on_top(model, rows, info, tmp_path):
    from smartcache.inference.serving import archive

    bundle = export.export(model, tmp_path / "out", info, rows, 1e-5)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(archive(bundle.folder, "reuse_v1"))
    listed = subprocess.run(["tar", "tzf", str(path)], check=True, capture_output=True, text=True).stdout.split()
    assert "reuse_v1/saved_model.pb" in listed
    assert "reuse_v1/assets/" in listed
    assert all(name.startswith("reuse_v1/") for name in listed)
