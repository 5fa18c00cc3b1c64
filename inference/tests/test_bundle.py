import json

import numpy as np
import pytest

from smartcache.inference import bundle as bundles


def test_round_trip(make):
    written = make()
    again = bundles.read(written.folder)
    assert again.info == written.info
    np.testing.assert_array_equal(again.golden_outputs, written.golden_outputs)
    np.testing.assert_array_equal(again.embedded.mean, written.embedded.mean)
    assert again.golden_difference() < 1e-6


def test_float32_survives_json_to_the_last_bit(make):
    bundle = make()
    mean = np.random.default_rng(9).standard_normal(3).astype(np.float32)
    edit(bundle.folder, "weights.json", lambda content: set_in(content, ["normalization", "mean"], mean.tolist()))
    np.testing.assert_array_equal(bundles.read(bundle.folder).embedded.mean, mean)


def test_network_is_the_formula(make):
    bundle = make()
    content = json.loads((bundle.folder / "weights.json").read_text())
    row = np.array([0.5, -1.0, 2.0])
    value = (row - content["normalization"]["mean"]) / content["normalization"]["scale"]
    (kernel, bias), (last_kernel, last_bias) = ((layer["kernel"], layer["bias"]) for layer in content["layers"])
    hidden = [max(0.0, sum(value[i] * kernel[i][j] for i in range(3)) + bias[j]) for j in range(4)]
    logits = [sum(hidden[i] * last_kernel[i][j] for i in range(4)) + last_bias[j] for j in range(3)]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert bundle.embedded.predict(row[None, :].astype(np.float32))[0] == pytest.approx(expected, abs=1e-6)


def test_named_copy(make, tmp_path):
    bundle = make()
    named = bundles.copy_named(bundle, tmp_path / "reuse_v3", "reuse_v3")
    assert named.info.name == "reuse_v3"
    assert json.loads((named.folder / "params.json").read_text())["name"] == "reuse_v3"
    assert (named.folder / "assets").is_dir()
    assert bundles.read(bundle.folder).info.name == ""
    assert named.info.model_copy(update={"name": ""}) == bundle.info


def edit(folder, name, change):
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def set_in(content, keys, value):
    for key in keys[:-1]:
        content = content[key]
    content[keys[-1]] = value


@pytest.mark.parametrize(
    ("name", "keys", "value", "text"),
    [
        ("bundle.json", ["format"], 2, "format: Input should be 1"),
        ("bundle.json", ["name"], "../x", "name: String should match pattern"),
        ("bundle.json", ["horizon_s"], 61.0, "horizon_s must be one of bucket_edges_s"),
        ("bundle.json", ["horizon_buckets"], 1, "horizon_buckets must be 2"),
        ("bundle.json", ["bucket_edges_s"], [3600.0, 60.0], "must rise strictly"),
        ("bundle.json", ["thresholds", "admit"], 1.5, "thresholds.admit: Input should be less than or equal to 1"),
        ("bundle.json", ["thresholds", "evict"], 0.3, "evict must be at most admit"),
        ("bundle.json", ["schema", "hash"], "x", "schema.hash: String should match pattern"),
        ("bundle.json", ["schema", "names"], ["a", "b"], "must take 2 features and give 3 outputs"),
        ("bundle.json", ["surprise"], 1, "surprise: Extra inputs are not permitted"),
        ("weights.json", ["layers", 1, "activation"], "relu", r'layers\[1\].activation must be "softmax", but is "relu"'),
        ("weights.json", ["layers", 0, "bias"], [0.0], r"layers\[0\].kernel\[0\] must be an array of 1 finite numbers"),
        ("weights.json", ["layers", 0, "bias"], [0.0, 0.0, 0.0, 1e39], r"layers\[0\].bias must be an array of finite numbers"),
        ("weights.json", ["normalization", "scale"], [1.0, 0.0, 1.0], "normalization.scale must be positive"),
        ("weights.json", ["layers"], [], "an array of 1 to 16 layers"),
        ("golden.json", ["outputs"], [], r"must have shape \[N, 3\]"),
        ("golden.json", ["inputs"], [[1, 2, 3]], "as many outputs as inputs"),
        ("params.json", ["input_node"], "other", "input_node must be 'serving_default_inputs_input'"),
    ],
)
def test_each_rule(make, name, keys, value, text):
    folder = make().folder
    edit(folder, name, lambda content: set_in(content, keys, value))
    with pytest.raises(bundles.BundleError, match=text) as caught:
        bundles.read(folder)
    assert str(folder / name) in str(caught.value) or name == "bundle.json"


@pytest.mark.parametrize(
    "name",
    ["bundle.json", "weights.json", "golden.json", "params.json", "model-card.md", *bundles.SAVED_MODEL],
)
def test_each_file_is_needed(make, name):
    folder = make().folder
    (folder / name).unlink()
    with pytest.raises(bundles.BundleError, match=name):
        bundles.read(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1'])
def test_half_a_file(make, content):
    folder = make().folder
    (folder / "bundle.json").write_text(content)
    with pytest.raises(bundles.BundleError, match=r"bundle.json: (not JSON|must be a JSON object)"):
        bundles.read(folder)
