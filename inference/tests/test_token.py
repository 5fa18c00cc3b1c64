"""The administrator's token: a changed one is read anew, and who changes nothing can do without."""

from functools import partial

import pytest
from typer.testing import CliRunner

from smartcache import cli
from smartcache.inference.install import BundleDir
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint, ServingError, read_token, token_to_ask
from smartcache.inference.tests.fakes import site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"


@pytest.fixture
def file(tmp_path, server):
    """The file with the token that the endpoint asks for, for predictions too."""
    server.token, server.guarded = "first", True
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


@pytest.fixture
def endpoint(file, server):
    with Endpoint(server.endpoint.url, partial(read_token, str(file)), timeout_s=5) as endpoint:
        yield endpoint


def test_the_watcher_goes_on_with_a_changed_token(registry, publish, server, endpoint, file, said, tmp_path):
    """The endpoint drops the old one at once; nobody starts the watcher anew."""
    folder = BundleDir(tmp_path / "bundles", "reuse")
    watch = Watch(
        registry,
        folder,
        Fleet([endpoint], wait_s=0),
        site_config(latency_requests=5, latency_p50_ms=5e3, latency_p99_ms=5e3),
        HASH,
        said.append,
    )
    with folder.writer():
        publish()
        assert watch.round()
        server.token = "second"
        publish()
        assert not watch.round()
        assert "status 401" in said[-1]
        assert not {"first", "second"} & set(said[-1].split())
        file.write_text("second\n")
        assert watch.round()
        assert folder.current() == server.default == "reuse_v2"
        assert said[-2:] == ["well again", "reuse_v2 is live, reuse_v1 was"]


def test_a_token_that_changes_as_predictions_are_timed(make, server, endpoint, file):
    bundle = make(name="reuse_v1")
    endpoint.upload(bundle)
    server.requests.clear()
    file.write_text("second\n")

    def change(_):
        if len(server.requests) == 3:
            server.token = "second"

    server.before = change
    assert len(endpoint.timed(bundle, 9)) == 9
    assert server.requests == ["POST /json"] * 11, "ten, of which the first does not count, and one that was refused"


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text(""), lambda file: None])
def test_a_token_that_is_no_other_is_not_sent_again(server, endpoint, file, damage):
    server.token = "second"
    damage(file)
    with pytest.raises(ServingError, match="/params: status 401"):
        endpoint.set_default("reuse_v1")
    assert server.requests == ["POST /params"]


@pytest.mark.parametrize("text", ["", " \n", "two words", "zwölf", "two\nlines"])
def test_what_is_no_token(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(ServingError, match=r"\[endpoint\] admin_token_file .*token: must hold"):
        read_token(str(tmp_path / "token"))


def test_which_token_is_asked_with(tmp_path):
    admin, other = tmp_path / "admin", tmp_path / "other"
    ask = partial(token_to_ask, str(admin), str(other))
    assert ask() == ""
    other.write_text("predictions")
    assert ask() == "predictions"
    admin.write_text("everything")
    assert ask() == "everything"
    assert token_to_ask("", "") == ""


def test_status_does_without_the_administrators_token(publish, registry, watch, server, tmp_path, monkeypatch):
    """An operator on another host, who may not read it. Predictions have a token of their own."""
    publish()
    assert watch.round()
    server.token, server.guarded = "predictions", True
    (tmp_path / "predict.token").write_text("predictions\n")
    config = tmp_path / "smartcache.toml"
    model = {"token_file": tmp_path / "predict.token", "bundle_dir": watch.bundles_.folder, "endpoint_url": server.endpoint.url}
    config.write_text(
        f'[endpoint]\nadmin_token_file = "{tmp_path / "not for me"}"\n[model]\n'
        + "".join(f'{key} = "{value}"\n' for key, value in model.items())
    )
    monkeypatch.setattr("smartcache.inference.cli._registry", lambda _: registry)
    found = CliRunner().invoke(cli.app, ["status", "--config", str(config)])
    assert found.exit_code == 0, found.output
    # What changes something there needs it.
    refused = CliRunner().invoke(cli.app, ["promote", "--schema-hash", HASH, "--config", str(config)])
    assert refused.exit_code == 1
    assert "admin_token_file" in refused.output
