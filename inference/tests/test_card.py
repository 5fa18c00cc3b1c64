"""The model card says what the bundle says, and a card of another bundle is refused."""

import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference import card
from smartcache.inference.tests.fakes import METRICS

ORIGIN = {
    "run_id": "run-1",
    "seed": 7,
    "git_revision": "0f" * 20,
    "window": {"from_us": 0, "to_us": 9, "first_us": 1_700_000_000_000_000, "last_us": 1_700_086_400_000_000},
    "opens": {"trained": 70, "judged": 15},
    "command": "smartcache train `x`\n# not a title",
}


def text_of(bundle):
    return (bundle.folder / card.FILE).read_text()


def test_it_says_what_the_run_knows(make):
    text = text_of(make(provenance=ORIGIN))
    for said in (
        "# Not registered yet: ",
        "- **Feature schema**: version 1, 3 features, hash `0123456789abcdef`",
        "- **Seed**: `7`",
        f"- **Revision**: `{'0f' * 20}`",
        "- **Data window**: 2023-11-14T22:13:20+00:00 to 2023-11-15T22:13:20+00:00, trained on 70 opens, judged on 15 opens",
        "| skill | 0.3 |",
        "- command: `smartcache train 'x' # not a title`",
        "- run_id: `run-1`",
    ):
        assert said in text.split("\n") or any(line.startswith(said) for line in text.split("\n")), said


def test_the_named_copy_has_its_own(make, tmp_path):
    named = bundles.copy_named(make(provenance=ORIGIN), tmp_path / "reuse_v3", "reuse_v3")
    assert text_of(named).startswith("# reuse_v3: ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"provenance": ORIGIN | {"seed": 8}}, "must say '- **Seed**: `7`'"),
        ({"provenance": ORIGIN | {"git_revision": "x"}}, "must say '- **Revision**"),
        ({"metrics": METRICS | {"skill": 0.9}}, "must say '| skill | 0.3 |'"),
        ({"schema": {"version": 1, "names": ["a", "b", "c"], "hash": "f" * 16}}, "must say '- **Feature schema**"),
        ({"name": "reuse_v9"}, "must begin with the bundle's name"),
    ],
)
def test_the_card_of_another_bundle(make, tmp_path, changes, said):
    bundle = make(tmp_path / "this", provenance=ORIGIN)
    other = make(tmp_path / "other", **({"provenance": ORIGIN} | changes))
    (bundle.folder / card.FILE).write_text(text_of(other))
    with pytest.raises(bundles.BundleError) as caught:
        bundles.read(bundle.folder)
    assert said in str(caught.value)
    assert str(bundle.folder / card.FILE) in str(caught.value)


@pytest.mark.parametrize(("content", "said"), [(b"", "must begin"), (b"\xff\xfe", "UTF-8"), (b"x" * (card.MAX_BYTES + 1), "at most")])
def test_what_is_no_card(make, content, said):
    bundle = make()
    (bundle.folder / card.FILE).write_bytes(content)
    with pytest.raises(bundles.BundleError, match=said):
        bundles.read(bundle.folder)


def test_other_words_are_no_fault(make):
    """A later release words it otherwise; the bundles before stay good."""
    bundle = make(provenance=ORIGIN)
    (bundle.folder / card.FILE).write_text(text_of(bundle).replace("**Not for**", "Never for") + "\nMore.\n")
    assert bundles.read(bundle.folder)


def test_the_description_fits_into_mlflow(make):
    metrics = METRICS | {f"figure_{number:03}": 0.5 for number in range(400)}
    info = make(provenance=ORIGIN, metrics=metrics).info
    text = card.description(info)
    assert len(text) == 5000
    assert text.endswith("(the whole card: artifact `bundle/model-card.md`)\n")


def test_windows_that_are_none(make, tmp_path):
    for number, window in enumerate([None, {}, {"from_us": "x", "to_us": 3}, {"from_us": -1, "to_us": 1 << 60}, [1, 2]]):
        assert "- **Data window**: " in text_of(make(tmp_path / str(number), provenance={"window": window}))
