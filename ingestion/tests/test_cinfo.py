"""pfc's .cinfo: files of real caches against what XRootD itself says of them, and files that are broken."""

import json
import shutil

import pytest
from cinfo_bytes import access, access_v2, as_printed, make, make_old, printed

from smartcache.ingestion import cinfo
from smartcache.ingestion.cinfo import parse
from smartcache.ingestion.errors import ParseError

CACHE, NOW = "h:1094", 1_800_000_000_000_000


def test_the_samples_say_what_xrdpfc_print_says(captures, validate):
    samples = sorted((captures / "cinfo").glob("*.cinfo"))
    assert len(samples) == 5
    for sample in samples:
        expected = json.loads(sample.with_suffix(".json").read_text())
        record = parse(b"/data/x", sample.read_bytes(), CACHE, NOW)
        validate("xcache.cinfo.v1", record)
        assert as_printed(record, expected["file"]) == expected, sample
        assert record["n_accesses"] == len(expected["accesses"])


@pytest.mark.skipif(shutil.which("xrdpfc_print") is None, reason="xrdpfc_print is not installed")
@pytest.mark.parametrize(
    "content",
    [
        make(),
        make(size=0, bits=b"\0", accesses=()),
        make(size=1, bits=b"\1", status=3),
        make(size=(9 << 17) + 1, bits=b"\x0f\xfd", status=0, no_cksum=1_700_000_003),
        make(status=1, accesses=[access(detach=0), access(1_700_000_009, 1_700_090_000, merged=7, n_ios=3, duration=90_125, bypass=4)]),
        make(status=5),
        make() + b"left over from before",
        make_old(3, accesses=[access(), access(5, 6), access(n_ios=0), access(detach=0, merged=3), access(1_700_000_000, 9)]),
        make_old(2, accesses=[access_v2(), access_v2(detach=5), access_v2(1_600_000_100, 1_600_090_000), b"cut"], bits=b"\x0f"),
        make_old(2, size=0, bits=b"\0", accesses=[access_v2()]),
        make_old(3, size=(9 << 17) + 1, bits=b"\x0f\xfd"),
        make_old(3)[:-8],
    ],
)
def test_made_ones_say_what_xrdpfc_print_says(content, tmp_path, validate):
    file = tmp_path / "made.cinfo"
    file.write_bytes(content)
    record = parse(b"/x", content, CACHE, NOW)
    validate("xcache.cinfo.v1", record)
    assert as_printed(record, str(file)) == printed(file)


def test_the_same_state_has_the_same_id_and_no_other_has():
    ids = {
        parse(lfn, content, cache, NOW)["record_id"]
        for lfn in (b"/a", b"/b")
        for content in (make(), make(bits=b"\x7f"))
        for cache in (CACHE, "h:1095")
    }
    assert len(ids) == 8
    assert parse(b"/a", make(), CACHE, NOW)["record_id"] == parse(b"/a", make(), CACHE, NOW + 1)["record_id"]


@pytest.mark.parametrize(
    ("content", "cause", "says"),
    [
        (b"", "truncated", "cut off"),
        (make()[:60], "truncated", "cut off"),
        (make()[:-1], "truncated", "cut off"),
        (make_old(3)[:-9], "truncated", "cut off"),
        (make_old(2)[:10], "truncated", "cut off"),
        (make_old(3)[:20] + b"\x01" + make_old(3)[21:], "checksum", "blocks"),
        (make_old(2, size=-1), "record", "sizes"),
        (make_old(3, block=0), "record", "sizes"),
        (make(version=1), "version", "version 1"),
        (make(version=5), "version", "version 5"),
        (make(version=-1), "version", "version -1"),
        (make()[:20] + b"\x01" + make()[21:], "checksum", "head"),
        (make()[:-5] + b"\x01" + make()[-4:], "checksum", "access records"),
        (make(size=-1), "record", "sizes"),
        (make(block=0), "record", "sizes"),
        (make(claimed=-1), "record", "access records"),
        (make(count=2**63), "record", "accesses"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_cause(content, cause, says):
    with pytest.raises(ParseError) as refusal:
        parse(b"/x", content, CACHE, NOW)
    assert refusal.value.cause == cause
    assert says in refusal.value.detail


def test_times_that_cannot_be_are_null(validate):
    record = parse(b"/x", make(created=-5, accesses=[access(2**62, -1)]), CACHE, NOW)
    validate("xcache.cinfo.v1", record)
    assert (record["created_us"], record["accesses"][0]["attach_us"], record["accesses"][0]["detach_us"]) == (None, None, None)


def test_many_access_records_are_counted_and_the_last_ones_sent(validate):
    record = parse(b"/x", make(accesses=[access(1_700_000_000 + n) for n in range(cinfo.MAX_ACCESSES + 5)]), CACHE, NOW)
    validate("xcache.cinfo.v1", record)
    assert record["n_accesses"] == cinfo.MAX_ACCESSES + 5
    assert record["accesses"][0]["attach_us"] == 1_700_000_005_000_000
    assert len(json.dumps(record)) < 256 << 10
