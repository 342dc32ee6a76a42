import pytest

from proxy.wire.sse import DONE, Tail, event


def test_event() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert DONE == b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("pieces", "between"),
    [
        ([], True),
        ([b""], True),
        ([b"data: {}\n\n"], True),
        ([b"data: {} \n\n"], True),
        ([b"data: {}\n", b"\n"], True),
        ([b"data: {}\n", b"", b"\n"], True),
        ([b"data: {}\r\n\r\n"], True),
        ([b"data: {}\r", b"\n", b"\r", b"\n"], True),
        ([b"data: {}\n\r\n"], True),
        ([b"data: {}\r\r"], True),
        ([b"data: {}\n\n", b"d"], False),
        ([b"data: {}\n"], False),
        ([b"data: {}\r\n"], False),
        ([b"\n\ndata: a b c"], False),
        ([b"a", b"b", b"c", b"d", b"e"], False),
        ([b"data: {}\r\n\r"], False),
    ],
)
def test_tail(pieces: list[bytes], between: bool) -> None:
    tail = Tail()
    for piece in pieces:
        tail.saw(piece)
    assert tail.between_events is between


def test_tail_at_each_split() -> None:
    stream = b"data: {}\n\ndata: [DONE]\n\n"
    for at in range(len(stream) + 1):
        tail = Tail()
        tail.saw(stream[:at])
        assert tail.between_events is (at in (0, 10, 24)), at
        tail.saw(stream[at:])
        assert tail.between_events
