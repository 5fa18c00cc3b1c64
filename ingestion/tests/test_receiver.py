"""A socket and what its kernel grants."""

import socket

import pytest

from smartcache.ingestion.receiver import Receiver, ReceiverError


@pytest.fixture
def receiver():
    """Open one with a buffer of so many bytes."""
    opened = []

    def open_(buffer_bytes):
        opened.append(Receiver("gstream", "127.0.0.1", 0, buffer_bytes))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def test_a_buffer_smaller_than_asked_for_is_said_with_the_way_out(receiver):
    one = receiver(1 << 30)
    with open("/proc/sys/net/core/rmem_max") as file:
        limit = int(file.read())
    assert one.granted_bytes == limit
    assert f"gave {limit} of {1 << 30} bytes of receive buffer to gstream" in one.advice
    assert f"sysctl -w net.core.rmem_max={1 << 30}" in one.advice
    assert "[collector] receive_buffer_bytes" in one.advice


def test_a_buffer_as_asked_for_is_not_worth_a_word(receiver):
    assert receiver(100_000).advice == ""


def test_what_is_there_is_taken_in_order_and_no_more_than_asked(receiver):
    one = receiver(100_000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
        for number in range(5):
            to.sendto(b"%d" % number, ("127.0.0.1", one.port))
    assert [raw for raw, _ in one.receive(3)] == [b"0", b"1", b"2"]
    assert one.receive(9) == [(b"3", "127.0.0.1"), (b"4", "127.0.0.1")]
    assert one.receive(9) == []


def test_a_port_that_is_taken_names_the_setting(receiver):
    port = receiver(100_000).port
    with pytest.raises(ReceiverError, match=r"gstream_port"):
        Receiver("gstream", "127.0.0.1", port, 100_000)
