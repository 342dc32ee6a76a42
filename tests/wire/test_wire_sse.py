import pytest

from proxy.wire.errors import BrokenFraming
from proxy.wire.sse import DONE, EventSplitter, Tail, data_of, event, with_data


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


STREAMS = [
    b"data: 1\n\ndata: [DONE]\n\n",
    b"data: 1\r\n\r\nid: 7\r\ndata: 2\r\n\r\n",
    b"data: 1\r\rdata: 2\r\r",
    b"data: 1\n\r\ndata: 2\r\n\ndata: 3\r\r\n",
    b": comment\n\ndata: a\ndata: b\n\n\n\nx\n\n",
    b"\n\r\r\n\n\r\n\r\r\r\n",
    b"data: 1 \n\nevent: e\ndata: 2\n\ndata: no end\n",
]


def events_of(stream: bytes) -> list[bytes]:
    """The events of a whole stream, by a walk over its bytes."""
    found, at, line = [], 0, 0
    while line < len(stream):
        end = line
        while end < len(stream) and stream[end : end + 1] not in b"\r\n":
            end += 1
        if end == len(stream):
            break
        after = end + (2 if stream.startswith(b"\r\n", end) else 1)
        if line == end and line > at:
            found.append(stream[at:after])
            at = after
        line = after
    return [*found, stream[at:]]


@pytest.mark.parametrize("stream", STREAMS)
def test_events_whatever_the_pieces(stream: bytes) -> None:
    whole = EventSplitter()
    expected = whole.feed(stream)
    # A line end of one byte at the very end could become one of two.
    assert [*expected, bytes(whole.rest)] in (
        events_of(stream),
        [*events_of(stream)[:-2], events_of(stream)[-2]],
    )
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            splitter = EventSplitter()
            pieces = stream[:first], stream[first:second], stream[second:]
            events = [event for piece in pieces for event in splitter.feed(piece)]
            assert [*events, bytes(splitter.rest)] == [*expected, bytes(whole.rest)], pieces


@pytest.mark.parametrize("stream", STREAMS)
def test_events_of_single_bytes(stream: bytes) -> None:
    splitter, whole = EventSplitter(), EventSplitter()
    events = [event for byte in stream for event in splitter.feed(bytes([byte]))]
    assert (events, splitter.rest) == (whole.feed(stream), whole.rest)


def test_an_event_goes_on_with_its_last_byte() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n") == []
    assert splitter.feed(b"\nda") == [b"data: 1\n\n"]
    assert splitter.feed(b"ta: 2\r\n\r") == []
    assert splitter.feed(b"\n") == [b"data: 2\r\n\r\n"]
    assert splitter.feed(b"data: 3\n\n") == [b"data: 3\n\n"]
    assert not splitter.rest


def test_an_event_without_an_end() -> None:
    splitter = EventSplitter()
    piece = b"x" * (1 << 20)
    for _ in range(16):
        assert splitter.feed(piece) == []
    with pytest.raises(BrokenFraming):
        splitter.feed(piece)


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data: {} \n\n", b"{} "),
        (b"data:{}\r\n\r\n", b"{}"),
        (b'data: {"a":\ndata: 1}\n\n', b'{"a":\n1}'),
        (b'id: 3\rdata: {"a":\rdata:1}\r\r', b'{"a":\n1}'),
        (b": data: no\nevent: data\ndata\ndatas: 1\n\n", b""),
        (b"data: 1\ndata\n\n", b"1\n"),
        (b"\n\ndata:  1", b" 1"),
        (b": nothing\n\n", b""),
    ],
)
def test_data_of(event: bytes, data: bytes) -> None:
    assert data_of(event) == data


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (b"data: {}\n\n", b'data: {"a": 1}\n\n'),
        (b"data: {} \n\n", b'data: {"a": 1}\n\n'),
        (b"id: 3\r\ndata: {\r\n: note\r\ndata: }\r\n\r\n", b'id: 3\n: note\ndata: {"a": 1}\n\n'),
        (b"data: {}", b'data: {"a": 1}\n\n'),
    ],
)
def test_with_data(event: bytes, changed: bytes) -> None:
    assert with_data(event, b'{"a":\n1}') == changed
