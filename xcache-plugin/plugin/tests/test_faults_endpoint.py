"""Whatever the endpoint does, no client's open fails, the deadline holds, and all else that `plugin_invariants` judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from plugin_client import Clients
from plugin_endpoint import ADMIT, BYPASS, EVICT, Endpoint, Talk, http
from plugin_invariants import require_waited, watched
from plugin_site import Site, another_site, wait_until

from smartcache.local import xrootd

pytestmark = pytest.mark.slow

DEADLINE_MS = 10
GOOD = http(json.dumps(ADMIT).encode())


def byte_by_byte(talk: Talk) -> None:
    for byte in GOOD:
        if not (talk.wait(DEADLINE_MS / 1000 / 4) and talk.send(bytes([byte]))):
            return


def late(talk: Talk) -> None:
    talk.wait(3 * DEADLINE_MS / 1000)
    talk.send(GOOD)


def hang_up(talk: Talk) -> None:
    talk.hang_up()


def half_an_answer(talk: Talk) -> None:
    talk.send(GOOD[:-10])
    talk.hang_up()


def half_a_head(talk: Talk) -> None:
    talk.send(GOOD[:30])
    talk.wait()


def hundred_megabytes(talk: Talk) -> None:
    talk.send(http(b"[", length=100_000_000))
    chunk = b"0.1," * 4096
    while talk.wait(0) and talk.send(chunk):
        pass


def endless_head(talk: Talk) -> None:
    talk.send(b"HTTP/1.1 200 OK\r\n")
    lines = (b"X-More: " + b"y" * 4000 + b"\r\n") * 100  # at once more than curl takes: it is not this end that the deadline passes by
    while talk.wait(0) and talk.send(lines):
        pass


def replies(reply: bytes) -> Callable[[Talk], object]:
    return lambda talk: talk.send(reply)


def body(text: str) -> Callable[[Talk], object]:
    return replies(http(text.encode()))


FAULTS: dict[str, tuple[Callable[[Talk], object], str]] = {
    "never answering": (lambda talk: talk.wait(), "deadline"),
    "late": (late, "deadline"),
    "byte by byte": (byte_by_byte, "deadline"),
    "half a head": (half_a_head, "deadline"),
    "less than promised": (replies(http(b"[0.9,", length=100)), "deadline"),
    "hanging up": (hang_up, "unreachable"),
    "500": (replies(http(b"{}", status="500 Internal Server Error")), "invalid_reply"),
    "redirect": (replies(http(b"", status="302 Found", headers="Location: /json\r\n")), "invalid_reply"),
    "200, empty": (body(""), "invalid_reply"),
    "half JSON": (body("[0.9,0.0"), "invalid_reply"),
    "half an answer": (half_an_answer, "invalid_reply"),
    "more than promised": (replies(http(b"[0.9,0.05,0.05]", length=5)), "invalid_reply"),
    "too few": (body("[0.9,0.1]"), "invalid_reply"),
    "too many": (body("[0.9,0.05,0.025,0.025]"), "invalid_reply"),
    "NaN": (body("[NaN,0.5,0.5]"), "invalid_reply"),
    "no probabilities": (body("[9,-4,-4]"), "invalid_reply"),
    "not summing to 1": (body("[0.9,0.9,0.9]"), "invalid_reply"),
    "an object": (body('{"outputs":[0.9,0.05,0.05]}'), "invalid_reply"),
    "deep": (body("[" * 60000), "invalid_reply"),
    "100 MB": (hundred_megabytes, "invalid_reply"),
    "endless head": (endless_head, "unreachable"),
    "not HTTP": (replies(b"SSH-2.0-OpenSSH_9.2\r\n"), "invalid_reply"),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        one.outputs = BYPASS
        yield one


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd, endpoint: Endpoint) -> Iterator[Site]:
    """It never leaves the endpoint alone, and stores no file: each open meets the fault, and waits."""
    with another_site(origin) as site:
        site.start(site.model(endpoint.url, stores_little=True, deadline_ms=DEADLINE_MS, breaker_failures=1_000_000))
        site.wait_for_model()
        yield site


@pytest.fixture
def well_again(endpoint: Endpoint) -> Iterator[None]:
    yield
    endpoint.order(None)
    endpoint.listen()


@pytest.mark.usefixtures("well_again")
@pytest.mark.parametrize("fault", FAULTS)
def test_an_endpoint_that_answers(fault: str, cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    answer, reason = FAULTS[fault]
    endpoint.order(answer)
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={reason}) as watch:
        watch.soak(cache.lfns)
    require_waited(watch)


@pytest.mark.usefixtures("well_again")
def test_an_endpoint_that_refuses(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    endpoint.vanish()
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"unreachable"}) as watch:
        watch.soak(cache.lfns)
    require_waited(watch)


@pytest.mark.usefixtures("well_again")
def test_an_endpoint_that_is_absent(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    endpoint.absent()
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"deadline"}) as watch:
        watch.soak(cache.lfns)
    require_waited(watch)


@pytest.mark.usefixtures("well_again")
def test_an_endpoint_that_is_replaced_again_and_again(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    with watched(
        cache, clients, deadline_ms=DEADLINE_MS, reasons={"model", "unreachable"}, beside=frozenset({"deadline", "invalid_reply"})
    ) as watch:
        for _ in range(10):
            watch.open(cache.lfns)
            endpoint.vanish()
            watch.open(cache.lfns)
            endpoint.listen()
    require_waited(watch)


@pytest.mark.usefixtures("well_again")
@pytest.mark.parametrize("fault", ["never answering", "half JSON", "hanging up"])
def test_what_is_to_be_evicted_goes_but_not_what_is_open(fault: str, origin: xrootd.Xrootd) -> None:
    """The endpoint's copy in the server decides, and wants nothing kept."""
    with Endpoint() as endpoint, another_site(origin) as site:
        toml = site.model(endpoint.url, breaker_failures=1_000_000)
        site.embed("reuse_v1", EVICT)
        site.start(toml)
        site.wait_for_model()
        site.wait_for_check()
        held, *others = site.lfns[:4]
        with site.clients() as clients:
            wait_until(lambda: not any(clients.open([held, *others])) and all(map(site.on_disk, [held, *others])), "stored")
            for lfn in (held, *others):
                site.wait_let_go(lfn)
            endpoint.order(FAULTS[fault][0])
            clients.hold(held)
            assert clients.open(others) == [""] * len(others)
            wait_until(lambda: not any(map(site.on_disk, others)), "evicted", 60)
            wait_until(lambda: site.counter('smartcache_evictions_total{result="busy"}') >= 1, "tried")
            assert site.on_disk(held)
            clients.release(held)  # reads it, and compares
            wait_until(lambda: not site.on_disk(held), "evicted in the end", 60)


@pytest.mark.usefixtures("well_again")
def test_after_all_of_that_the_model_decides(cache: Site, clients: Clients) -> None:
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.soak(cache.lfns)
    require_waited(watch)


@pytest.mark.usefixtures("well_again")
def test_an_endpoint_that_wants_nothing_stored_takes_no_file_from_disk(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    endpoint.outputs = ADMIT
    wait_until(lambda: not any(clients.open(cache.lfns)) and all(map(cache.on_disk, cache.lfns)), "stored")
    endpoint.outputs = BYPASS
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"cached"}) as watch:
        watch.soak(cache.lfns)
