"""Which names of datasets have a person's in them, by the patterns that a site gets."""

import re

import pytest

from smartcache.config import ConfigError, load, parse
from smartcache.preprocessing.privacy import expression


@pytest.mark.parametrize(
    "dataset",
    [
        "/store/user/alice",
        "//store//user/alice/ntuples",
        "/store/user/rucio/alice/v1",
        "/cms/store/user/alice/ntuples",
        "/store/temp/user/alice.1234abcd",
        "/store/group/phys_higgs/alice",
        "/atlas/rucio/user/alice/ab/cd",
        "/atlas/datadisk/user.alice.skim_EXT0",
        "user.alice:user.alice.skim",
        "data:user.alice",
    ],
)
def test_of_a_user(dataset):
    assert re.search(expression(load(None).privacy.user_paths), dataset)


@pytest.mark.parametrize(
    "dataset", ["/store/user", "/store/user/", "/store/mc/C/user/T", "/store/group/phys_higgs", "/atlas/superuser.x", ""]
)
def test_of_no_user(dataset):
    assert not re.search(expression(load(None).privacy.user_paths), dataset)


def test_patterns_of_a_site():
    users = parse({"privacy": {"user_paths": ["/h+me/*/priv*"]}}, "test").privacy.user_paths
    found = [
        name for name in ("/h+me/a/private", "/hhme/a/private", "/x/h+me/a/private", "/h+me/a/b") if re.search(expression(users), name)
    ]
    assert found == ["/h+me/a/private"]
    assert expression([]) == ""


@pytest.mark.parametrize("pattern", ["*", "/*", "store/user/", ""])
def test_pattern_that_names_everything_or_nobody(pattern):
    with pytest.raises(ConfigError, match="user_paths"):
        parse({"privacy": {"user_paths": [pattern]}}, "test")
