"""The configuration: defaults in one place, errors that say field, rule, value and way out."""

import tomllib

import pytest

from smartcache import config


def test_the_reference_file_alone_is_a_valid_configuration():
    assert config.load().collector.bind == "127.0.0.1"


def test_each_key_of_the_reference_has_a_type_and_a_rule():
    """A key in the file that the classes do not know, or the other way round, is an error: they cannot drift apart."""
    reference = config.reference()
    assert set(reference) == set(config.Config.model_fields)
    for section, values in reference.items():
        fields = config.Config.model_fields[section].annotation.model_fields
        assert set(values) == {field.alias or name for name, field in fields.items()}, section


def test_no_default_is_written_in_code():
    for section, field in config.Config.model_fields.items():
        for name, inner in field.annotation.model_fields.items():
            assert inner.is_required(), f"{section}.{name}"


def test_a_file_lies_over_the_defaults(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text("[policy]\nexplore = 0.5\n")
    loaded = config.load(path)
    assert loaded.policy.explore == 0.5
    assert loaded.policy.fallback == config.load().policy.fallback


def test_the_environment_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "site.toml"
    path.write_text("[watch]\npoll_s = 9\n")
    monkeypatch.setenv(config.ENVIRONMENT_VARIABLE, str(path))
    assert config.load().watch.poll_s == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[polcy]\nexplore = 0.1", "did you mean 'policy'"),
        ("[policy]\nexplor = 0.1", "did you mean 'explore'"),
        ("[policy]\nexplore = 2", "policy.explore"),
        ("[policy]\nfallback = 'maybe'", "policy.fallback"),
        ("[policy]\npressure = [[0.9, 1.0], [0.9, 2.0]]", "fill rises strictly"),
        ("[policy]\npressure = [[0.9, 0.0]]", "policy.pressure"),
        ("[promote]\nendpoints = ['127.0.0.1:8083']", "promote.endpoints.0: String should match pattern"),
        ("[promote]\nendpoints = ['http://a:1', 'http://a:1/']", "must each be named once"),
        ("[watch]\nwebhook_url = 'http://a/'", "webhook_url needs a webhook_port"),
        ("[trace]\nlevel = 'loud'", "trace.level"),
        ("[spool]\nmax_bytes = 100\nsegment_bytes = 99", "twice segment_bytes 99 or more"),
        ("[spool]\nfsync = 'sometimes'", "spool.fsync"),
        ("[evictor]\nlow = 0.95", "low must be less than high"),
        ("[training]\nbucket_edges_s = [5.0, 3.0]\nhorizon_s = 3.0", "must rise strictly"),
        ("[training]\nhorizon_s = 7.0", "must be one of bucket_edges_s"),
        ("[training_set]\ntrain = 0.9\nvalidate = 0.2", "sum to less than 1"),
        (
            "[streaming]\ntable = '/data/local[1]/access'",
            r"streaming.table: .*must not have \[ \] in it.* \(is '/data/local\[1\]/access'\)",
        ),
        ("[streaming]\nquarantine = 's3a://b/{a}*'", r"streaming.quarantine: .*must not have { } \* in it"),
        ("[streaming]\nmax_records_per_batch = 0", "streaming.max_records_per_batch"),
        ("policy = 3", "must be a table"),
        ("[policy", "not TOML"),
    ],
)
def test_an_error_says_what_is_wrong(tmp_path, text, said):
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(config.ConfigError, match=said) as error:
        config.load(path)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(config.ConfigError, match="--config"):
        config.load(tmp_path / "none.toml")


def test_the_reference_is_commented_toml():
    text = config.REFERENCE.read_text()
    assert tomllib.loads(text) == config.reference()
