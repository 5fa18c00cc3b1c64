"""What is remembered of several servers at once: whose it is that goes, which life is over, and what a killed collector had of it."""

import pytest
from test_fstream import HERE, NOW, PSEUDONYMS, closed, ident, opened, path, unnamed, user, window

from smartcache.ingestion import opens
from smartcache.ingestion.counters import Counters
from smartcache.ingestion.numbering import Numbering
from smartcache.ingestion.opens import FStreamHandler
from smartcache.ingestion.sequence import AWAY, CLOCKS_DIFFER_US

LONG, OTHER = b"/" + b"x" * 4000, "192.0.2.1"


def lives(handler, source=HERE):
    def feed(*packets):
        for raw in packets:
            handler.handle(raw, source, NOW)

    return feed


@pytest.mark.parametrize("what", ["paths", "opens", "users", "records without identity"])
def test_long_names_of_one_sender_cost_no_other_its_closes(what, monkeypatch, output, counters):
    monkeypatch.setattr(opens, "MAX_NAME_BYTES", 200_000)
    handler = FStreamHandler(output, counters, PSEUDONYMS)
    good, bad = lives(handler), lives(handler, OTHER)
    good(ident(), user(1), *(path(50 + n, f"/late{n}") for n in range(5)))
    if what != "records without identity":
        bad(ident(host="other"))
    for n in range(100):
        if what == "paths":
            bad(path(n, LONG[:1200].decode()), path(1000 + n, LONG[:1200].decode()))
        elif what == "opens":
            bad(window(opened(n, lfn=LONG), pseq=n))
        elif what == "users":
            bad(user(n, info="&x=" + "z" * 5000))
        else:
            bad(window(opened(n, lfn=LONG), closed(n), pseq=n))
        good(window(opened(200 + n, lfn=b"/f%d" % n), pseq=n))
    good(*(window(closed(200 + n), pseq=100 + n) for n in range(100)))
    good(window(*(unnamed(50 + n) for n in range(5)), *(closed(50 + n) for n in range(5)), pseq=200))
    mine = [record for record in output.records if record["cache"] == "h:1094"]
    assert [record["lfn"] for record in mine] == [*(f"/f{n}" for n in range(100)), *(f"/late{n}" for n in range(5))]
    assert all(record["close_lo_us"] is not None for record in mine)
    assert {record["app"] for record in mine[:100]} == {"cmsRun"}
    gone = {"paths": "paths_forgotten", "opens": "opens_unclosed", "users": "users_forgotten"}.get(what, "records_dropped")
    assert counters.total(gone, "fstream") > 40
    handler.close(NOW)
    assert handler._names.used == 0


def test_many_opens_of_one_sender_cost_no_other_its_closes(monkeypatch, output, counters):
    monkeypatch.setattr(opens, "MAX_OPENS", 50)
    handler = FStreamHandler(output, counters, PSEUDONYMS)
    good, bad = lives(handler), lives(handler, OTHER)
    good(ident(), window(*(opened(n) for n in range(10))))
    bad(ident(host="other"), *(window(opened(n), pseq=n) for n in range(200)))
    good(window(opened(10), *(closed(n) for n in range(11)), pseq=1))
    assert [record["close_lo_us"] is not None for record in output.records if record["cache"] == "h:1094"] == [True] * 11
    assert counters.get("opens_unclosed", "fstream", "too_many") == 200 + 10 - 50


def test_an_old_lifes_identity_by_way_of_another_address_ends_nothing(output, counters):
    """As by a shoveler that is behind."""
    handler = FStreamHandler(output, counters, PSEUDONYMS)
    direct, shoveled = lives(handler), lives(handler, OTHER)
    direct(ident(stod=100), ident(stod=200), window(opened(2), stod=200))
    shoveled(ident(stod=100), window(opened(3), closed(3), stod=100))
    assert counters.total("opens_unclosed", "fstream") == 0
    direct(window(closed(2), pseq=1, stod=200))
    assert [(record["record_id"].split("/")[1], record["close_lo_us"] is not None) for record in output.records] == [
        ("100", True),
        ("200", True),
    ]
    direct(window(opened(4), pseq=2, stod=200))
    shoveled(ident(stod=200))
    assert counters.total("opens_unclosed", "fstream") == 0
    direct(ident(stod=300))
    assert counters.get("opens_unclosed", "fstream", "restart") == 1, "of the life that has ended, from whatever address"


class Life:
    """One life of a collector's handler of the f-stream."""

    def __init__(self, folder, output):
        self.counters = Counters()
        self.numbering = Numbering(folder / "numbering", print, NOW)
        self.handler = FStreamHandler(output, self.counters, PSEUDONYMS, self.numbering)

    def hears(self, *packets):
        for raw in packets:
            self.handler.handle(raw, HERE, NOW)
            self.numbering.commit(NOW)
        return self

    def ends(self):
        """As where it is asked to stop; without it, it is killed."""
        self.handler.close(NOW)
        self.numbering.commit(NOW)
        return self

    @property
    def lost(self):
        return {cause: count for (metric, _, cause), count in self.counters.snapshot().items() if metric == "packets_lost" and count}


def whole(*numbers, stod=100):
    """A packet for each number, with an open and its close."""
    return [window(opened(n), closed(n), pseq=n, stod=stod) for n in numbers]


LATER = NOW // 1_000_000 + 2 * CLOCKS_DIFFER_US // 1_000_000


@pytest.mark.parametrize("stod", [100, LATER])
def test_records_that_waited_for_an_identity_when_the_collector_was_killed_are_lost_packets(stod, tmp_path, output):
    first = 5 if stod == 100 else 0
    Life(tmp_path, output).hears(user(1, stod=stod), *whole(first, first + 1, first + 2, stod=stod))
    Life(tmp_path, output).hears(*whole(first + 3, stod=stod))  # killed again
    again = Life(tmp_path, output).hears(ident(stod=stod), *whole(first + 4, stod=stod))
    assert again.lost == {AWAY: 4}
    assert len(output.records) == 1


def test_what_was_taken_before_the_collector_knew_the_server_again_is_lost_from_there_on(tmp_path, output):
    Life(tmp_path, output).hears(ident(), *whole(5, 6))
    assert Life(tmp_path, output).hears(*whole(7, 8)).lost == {}
    again = Life(tmp_path, output).hears(*whole(9, 10), ident())
    assert again.lost == {AWAY: 2}
    assert len(output.records) == 4
    assert Life(tmp_path, output).hears(*whole(11), ident()).lost == {}


def test_packets_whose_records_were_sent_or_counted_are_not_lost_too(tmp_path, output):
    Life(tmp_path, output).hears(*whole(5, 6), ident())
    Life(tmp_path, output).hears(*whole(7)).ends()
    assert len(output.letters) == 1, "without an identity to the end"
    assert Life(tmp_path, output).hears(ident(), *whole(8)).lost == {}
