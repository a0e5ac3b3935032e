"""TCP connections that retransmit."""

import os
import socket

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.hang.sockets import Stuck, parse_line, stuck

LINE = "   2: {} {} 01 {}:00000000 {}:00000064 {:08X} 1000 0 48211 2 0000000000000000 20 4 30 10 -1"
HERE, THERE = "0100007F:7148", "0200000A:A02A"


def test_a_connection_that_retransmits() -> None:
    assert ("48211", Stuck("127.0.0.1:29000", "10.0.0.2:41002", 65536, 6)) == parse_line(
        LINE.format(HERE, THERE, "00010000", "01", 6)
    )
    mapped = "0000000000000000FFFF00000200000A:A02A"
    own = "000080FE00000000FF565002BDB42FFE:0016"
    found = parse_line(LINE.format(own, mapped, "00000001", "01", 1))
    assert found is not None
    assert ("[fe80::250:56ff:fe2f:b4bd]:22", "10.0.0.2:41002") == found[1][:2]


def test_a_connection_that_nobody_answers() -> None:
    line = LINE.format(HERE, THERE, "00000001", "01", 4).replace(" 01 ", " 02 ", 1)
    assert ("48211", Stuck("127.0.0.1:29000", "10.0.0.2:41002", 0, 4)) == parse_line(line)


def test_others_are_left_out() -> None:
    assert parse_line(LINE.format(HERE, THERE, "00010000", "01", 0)) is None  # on its way
    assert parse_line(LINE.format(HERE, THERE, "00010000", "04", 3)) is None  # the peer reads nothing
    assert parse_line(LINE.format(HERE, THERE, "00000000", "01", 3)) is None


@given(st.text(max_size=200))
def test_nothing_makes_reading_fail(text: str) -> None:
    found = parse_line(text)
    assert found is None or found[1].retransmits > 0


def test_a_live_process_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert [] == stuck(os.getpid())
    assert [] == stuck(0)
