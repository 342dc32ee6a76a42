import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.errors import BrokenFraming
from proxy.wire.members import JSONBytes
from proxy.wire.rewriting import Rewriter, Rewriters, Untouched
from proxy.wire.sse import data_of, event, with_data

DONE = b"data: [DONE]\n\n"


class Count(Untouched):
    """Numbers the events that it sees, drops `drop`, doubles `double`, adds the number at the end."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def answer(self, members: dict[str, JSONBytes]) -> None:
        members["count"] = b"%d" % len(members)
        members.pop("drop", None)

    def event(self, event: bytes) -> bytes:
        self.seen.append(event)
        data = data_of(event)
        if data == b"drop":
            return b""
        if data == b"double":
            return event + event
        return with_data(event, b"changed") if data == b"change" else event

    def end(self) -> bytes:
        return event(b"%d" % len(self.seen))


def test_an_answer() -> None:
    rewriters = Rewriters([Count(), Untouched(), Count()])
    assert rewriters.answer(b' {"a" : [1, 2],"drop":0,"b":"\xc3\xb6"} ') == (
        b'{"a":[1, 2],"b":"\xc3\xb6","count":3}'
    )


@pytest.mark.parametrize("body", [b"null", b"[1]", b"", b"no JSON", b'{"a":1'])
def test_what_is_no_object_stays(body: bytes) -> None:
    assert Rewriters([Count()]).answer(body) == body


STREAMS = [
    (
        b"data: a\n\ndata: drop\n\ndata: change \n\ndata: change\n\ndata: double\n\n" + DONE,
        b"data: a\n\ndata: change \n\ndata: changed\n\ndata: double\n\ndata: double\n\n"
        + DONE
        + b"data: 6\n\n",
    ),
    (
        b": note\r\n\r\nid: 1\r\ndata: cha\r\ndata: nge\r\n\r\ndata: drop\r\n\r\ndata: x\r\n\r\n",
        b": note\r\n\r\nid: 1\r\ndata: cha\r\ndata: nge\r\n\r\ndata: x\r\n\r\ndata: 4\n\n",
    ),
    (b"data: drop\r\rdata: a\r\r", b"data: a\r\rdata: 2\n\n"),
    (b"data: a\n\ndata: b\n", b"data: a\n\ndata: b\n\n\ndata: 2\n\n"),
    (b"data: a\n\ndata: drop\n", b"data: a\n\ndata: 2\n\n"),
    (b"", b"data: 0\n\n"),
]


@pytest.mark.parametrize(("stream", "expected"), STREAMS)
def test_a_stream_whatever_the_pieces(stream: bytes, expected: bytes) -> None:
    assert Rewriters([Count()]).stream(stream) == expected
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            rewriters = Rewriters([Count()])
            sent = [
                rewriters.feed(piece) for piece in (stream[:first], stream[first:second], stream[second:])
            ]
            assert b"".join(sent) + rewriters.finish() == expected, (first, second)


def test_several_see_what_those_before_have_made() -> None:
    first, second, third = Count(), Count(), Count()
    rewriters = Rewriters([first, Untouched(), second, third])
    stream = b"data: double\n\ndata: drop\n\ndata: change\n\n"
    assert rewriters.feed(stream) == b"data: double\n\n" * 8 + b"data: changed\n\n"
    assert [data_of(each) for each in second.seen] == [b"double", b"double", b"changed"]
    assert [data_of(each) for each in third.seen] == [b"double"] * 4 + [b"changed"]
    assert rewriters.finish() == b"data: 3\n\ndata: 4\n\ndata: 7\n\n"


def test_untouched_events_are_not_copied() -> None:
    one = b"data: a\n\n"
    rewriters: list[Rewriter] = [Untouched(), Untouched()]
    assert Rewriters(rewriters).feed(one) == one
    assert Rewriters(rewriters).finish() == b""


def test_a_stream_without_events() -> None:
    rewriters = Rewriters([Untouched()])
    for _ in range(16):
        assert rewriters.feed(b"x" * (1 << 20)) == b""
    with pytest.raises(BrokenFraming):
        rewriters.feed(b"x")


@given(st.lists(st.text("\r\n d:", max_size=6).map(str.encode), max_size=12))
def test_what_nobody_touches_is_verbatim(pieces: list[bytes]) -> None:
    rewriters = Rewriters([Untouched(), Untouched()])
    sent = [rewriters.feed(piece) for piece in pieces]
    assert b"".join(sent) + rewriters.finish() == b"".join(pieces)


@given(st.lists(st.text("\r\n d:", max_size=6).map(str.encode), max_size=12))
def test_the_pieces_make_no_difference(pieces: list[bytes]) -> None:
    """Rewriters see the same events, each with one blank line, at its end."""
    stream = b"".join(pieces)
    whole, cut = Count(), Count()
    expected = Rewriters([whole]).stream(stream)
    rewriters = Rewriters([cut])
    assert b"".join([rewriters.feed(piece) for piece in pieces]) + rewriters.finish() == expected
    assert cut.seen == whole.seen
