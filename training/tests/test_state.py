"""A training that was killed goes on after its last whole epoch, and ends as if nobody had disturbed it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smartcache import config as configs
from smartcache.cli import app
from smartcache.inference import bundle as bundles
from smartcache.local.process import START_LIMIT_S
from smartcache.training import cli, dataset, epochs
from smartcache.training import state as states
from smartcache.training import train as training

SETTINGS = {"training": {"hidden": [16], "epochs": 6, "batch": 64, "learning_rate": 0.01}}


@pytest.fixture(scope="module")
def config():
    return configs.parse(SETTINGS, "test")


@pytest.fixture(scope="module")
def data(synthetic, tmp_path_factory):
    return dataset.read(synthetic.write(tmp_path_factory.mktemp("set"), rows=1000))


@pytest.fixture(scope="module")
def undisturbed(data, config):
    return training.train(data, config)


class Died(Exception):
    pass


def die_after(epoch):
    def progress(at, *_):
        if at == epoch:
            raise Died

    return progress


def same(a, b):
    return all(np.array_equal(one, other) for one, other in zip(a.model.get_weights(), b.model.get_weights(), strict=True))


def test_it_goes_on_after_the_last_epoch(data, config, undisturbed, tmp_path):
    with pytest.raises(Died):
        training.train(data, config, training.How(state=tmp_path / "state", progress=die_after(3)))
    said, told = [], []
    how = training.How(state=tmp_path / "state", say=said.append, progress=lambda epoch, *_: told.append(epoch))
    again = training.train(data, config, how)
    assert said == [f"going on after epoch 3, as {tmp_path / 'state' / 'state.npz'} has it"]
    assert told == [4, 5, 6]
    assert same(again, undisturbed)
    assert again.history == undisturbed.history
    assert again.metrics == undisturbed.metrics
    # What is whole is not trained again, only judged and recorded.
    told.clear()
    assert same(training.train(data, config, how), undisturbed)
    assert told == []


def test_a_stop_is_within_an_epoch(data, config, undisturbed, tmp_path):
    asked = []
    how = training.How(state=tmp_path / "state", stop=lambda: asked.append(1) or len(asked) == 25)
    with pytest.raises(epochs.Stopped, match="in epoch 3 of 6"):
        training.train(data, config, how)
    assert same(training.train(data, config, training.How(state=tmp_path / "state")), undisturbed)


@pytest.mark.parametrize("change", [{"seed": 2}, {"dropout": 0.3}, {"epochs": 7}])
def test_another_training_begins_anew_and_says_why(data, config, tmp_path, change):
    with pytest.raises(Died):
        training.train(data, config, training.How(state=tmp_path, progress=die_after(1)))
    ((name, value),) = change.items()
    other = config.model_copy(update={"training": config.training.model_copy(update=change)})
    said = []
    with pytest.raises(Died):
        training.train(data, other, training.How(state=tmp_path, say=said.append, progress=die_after(1)))
    before = getattr(config.training, name)
    assert said == [f"what an earlier training has left is of another one ([training] {name} was {before}, is {value}): beginning anew"]


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"", lambda content: b"no archive"])
def test_a_damaged_state_is_not_gone_on_from(data, config, undisturbed, tmp_path, damage):
    with pytest.raises(Died):
        training.train(data, config, training.How(state=tmp_path, progress=die_after(1)))
    path = tmp_path / states.FILE
    path.write_bytes(damage(path.read_bytes()))
    said = []
    assert same(training.train(data, config, training.How(state=tmp_path, say=said.append)), undisturbed)
    assert said[0].startswith(f"{path}: cannot be read (")
    assert said[0].endswith("beginning anew")


def test_one_at_a_time(data, config, tmp_path):
    def progress(*_):
        training.train(data, config, training.How(state=tmp_path))

    with pytest.raises(states.StateError, match=r"another training \(process \d+\) is at work on the same"):
        training.train(data, config, training.How(state=tmp_path, progress=progress))


def test_an_interrupt_after_the_last_epoch_is_one_too(data, config, monkeypatch):
    def trained(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training, "train", trained)
    with pytest.raises(epochs.Stopped, match="after the last epoch"):
        cli.fit(data, config, training.How())


def test_killed_and_given_again(synthetic, undisturbed, tmp_path):
    """The command itself, by SIGKILL, in a process of its own."""
    folder = synthetic.write(tmp_path / "set", rows=1000)
    site = tmp_path / "site.toml"
    settings = {"hidden": [16], "epochs": 6, "batch": 64, "learning_rate": 0.01}
    site.write_text("[training]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    options = ["train", "--dataset", str(folder), "--no-register", "--output", str(tmp_path / "bundle"), "--config", str(site)]
    root = Path(__file__).resolve().parents[2]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "smartcache", *options], stdout=log, stderr=log, cwd=root)
        state = tmp_path / ".bundle.training" / states.FILE
        deadline = time.monotonic() + START_LIMIT_S
        while not state.exists():
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGSTOP)
        assert state.exists(), "it was done before it was killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    assert "going on after epoch" in done.output
    assert not state.parent.exists()
    network = bundles.read_network(tmp_path / "bundle")
    for kept, weights in zip(network.layers, undisturbed.model.get_weights()[-4::2], strict=True):
        np.testing.assert_array_equal(kept.kernel, weights)
