"""The readers with raw bytes: whatever the reads' boundaries are, the outcome must be the same."""

import random
from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import properties, seeds

from proxy.wire.chunks import (
    LAST_CHUNK,
    BodyReader,
    ChunkedReader,
    LengthReader,
    UntilCloseReader,
    chunk,
)
from proxy.wire.errors import BrokenFraming

EVENT = b'data: {"id":"chatcmpl-77","choices":[{"index":0,"delta":{"content":"\xc3\xa9"}}]}\n\n'


class _Payload:
    """Collects what a client's parser makes of a framed answer."""

    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


def parsed_by_a_client(framed: bytes) -> bytes:
    seen = _Payload()
    parser = httptools.HttpResponseParser(seen)
    parser.feed_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + framed + LAST_CHUNK)
    assert seen.complete
    return seen.body


def assert_whole_bare_frames(framed: bytes) -> None:
    """Walk over frames in the strictest way; an open frame, an extension or a last chunk fails."""
    while framed:
        line, _, rest = framed.partition(b"\r\n")
        assert line
        assert not set(line) - set(b"0123456789abcdefABCDEF")
        size = int(line, 16)
        assert size
        assert rest[size : size + 2] == b"\r\n"
        framed = rest[size + 2 :]


def read(pieces: list[bytes], *, framed: bool) -> tuple[bytes, bytes | None]:
    """Payload and leftover of a chunked body that arrives in these pieces; no leftover: not complete."""
    reader = ChunkedReader()
    reader.framed = framed
    out: list[bytes] = []
    for piece in pieces:
        fed = reader.feed(piece)
        assert all(fed), "empty pieces are of no use to anybody"
        if framed:
            assert_whole_bare_frames(b"".join(fed))
        out += fed
    assert reader.closed() is reader.complete
    body = b"".join(out)
    return parsed_by_a_client(body) if framed else body, reader.leftover if reader.complete else None


GOOD = [
    # body, payload, leftover (None: not complete)
    (b"0\r\n\r\n", b"", b""),
    (b"000\r\n\r\n", b"", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello", b""),
    (b"5\r\nhello\r\n00006\r\n world\r\n0\r\n\r\n", b"hello world", b""),
    (b"a\r\n0123456789\r\nA\r\nabcdefghij\r\n0\r\n\r\n", b"0123456789abcdefghij", b""),
    (b"2\r\n\r\n\r\n2\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n", b""),
    (b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n", b""),
    (b"5;name=value\r\nhello\r\n1 ; a=\"x\"\r\n!\r\n1\r\n?\r\n0;last\r\n\r\n", b"hello!?", b""),
    (b"1\r\na\r\n1;e\r\nb\r\n1\r\nc\r\n0\r\nDigest: x\r\nA: b\r\n\r\n", b"abc", b""),
    (b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"a", b"HTTP/1.1 200 OK\r\n\r\n"),
    (b"1\r\na\r\n0\r\nX: y\r\n\r\n\r\n\r\n", b"a", b"\r\n\r\n"),
    (b"5\r\nhel", b"hel", None),
    (b"5\r\nhello\r\n", b"hello", None),
    (b"5\r\nhello\r\n0\r\n", b"hello", None),
    (b"5\r\nhello\r\n0\r\nX: y\r\n", b"hello", None),
    (b"ffffffffffffffff\r\nhello", b"hello", None),
]  # fmt: skip

BAD = [
    b"\r\n",
    b"\r\n5\r\nhello\r\n",
    b"\nhello",
    b" 5\r\nhello\r\n",
    b"5 \r\nhello\r\n",
    b"5\t\r\nhello\r\n",
    b"+5\r\nhello\r\n",
    b"-5\r\nhello\r\n",
    b"-0\r\n\r\n",
    b"1_0\r\n0123456789abcdef\r\n",
    b"0x5\r\nhello\r\n",
    b"0X5\r\nhello\r\n",
    b"5h\r\nhello\r\n",
    b"g\r\nhello\r\n",
    b"0o5\r\nhello\r\n",
    b"5.\r\nhello\r\n",
    b";a=b\r\nhello\r\n",
    b"\xd9\xa5\r\nhello\r\n",
    b"\xb2\r\nhello\r\n",
    b"10000000000000000\r\nhello\r\n",
    b"00000000000000005\r\nhello\r\n",
    b"5\nhello\n0\n\n",
    b"5\rhello\r\n",
    b"5\r\rhello\r\n",
    b"5;a\nb\r\nhello\r\n",
    b"5;a\rb\r\nhello\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"5\r\nhelloX\r\n0\r\n\r\n",
    b"5\r\nhello\rX0\r\n\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhello\r\n\r\n0\r\n\r\n",
    b"0\r\nX: y\n\r\n\r\n",
    b"0\r\nX: y\rz\r\n\r\n",
    b"0\r\nno colon\r\n\r\n",
    b"0\r\nX : y\r\n\r\n",
    b"0\r\nX: y\r\n folded\r\n\r\n",
    b"0\r\n: y\r\n\r\n",
    b"0\r\nX: y\x0b\r\n\r\n",
    b"5;" + b"e" * 5000 + b"\r\nhello\r\n",
    b"5" + b" " * 5000 + b";\r\nhello\r\n",
    b"0\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
    b"0\r\n" + b"X: y\r\n" * 4000 + b"\r\n",
]

framings = pytest.mark.parametrize("framed", [False, True])


@framings
@pytest.mark.parametrize(("body", "payload", "leftover"), GOOD)
def test_every_split_gives_the_same(
    body: bytes, payload: bytes, leftover: bytes | None, framed: bool
) -> None:
    expected = (payload, leftover)
    assert read([body], framed=framed) == expected
    assert read([body[at : at + 1] for at in range(len(body))], framed=framed) == expected
    for at in range(len(body) + 1):
        assert read([body[:at], body[at:]], framed=framed) == expected, at
        assert read([body[:at], b"", body[at : at + 2], body[at + 2 :]], framed=framed) == expected, at


@framings
@pytest.mark.parametrize("body", BAD)
def test_bad_framing_is_refused_at_every_split(body: bytes, framed: bool) -> None:
    body += b"." * 100  # what is held back as a possible beginning must come out in the end
    splits = (
        range(len(body) + 1) if len(body) < 1000 else (0, 1, 2, 3, 4, 4000, 4010, 5000, 16_385, len(body))
    )
    for at in splits:
        with pytest.raises(BrokenFraming):
            read([body[:at], body[at:]], framed=framed)
    with pytest.raises(BrokenFraming):
        read([body[at : at + 1] for at in range(len(body))], framed=False)


def test_bad_beginnings_are_refused_without_waiting() -> None:
    for beginning in (b"\r", b"x", b"5x", b"5 \r", b"1" * 17, b"5;" + b"e" * 4001, b"5;a\rb"):
        with pytest.raises(BrokenFraming):
            ChunkedReader().feed(beginning)


def test_complete_bare_frames_go_out_as_they_came_in_one_slice() -> None:
    frames = b"".join(chunk(EVENT) for _ in range(5)) + b"00A\r\n0123456789\r\n"
    reader = ChunkedReader()
    reader.framed = True
    assert reader.feed(frames) == [frames]
    assert reader.feed(chunk(EVENT) + LAST_CHUNK) == [chunk(EVENT)]
    assert reader.complete


def test_partial_frames_are_framed_anew() -> None:
    reader = ChunkedReader()
    reader.framed = True
    assert reader.feed(b"1\r\na\r\n5\r\nhe") == [b"1\r\na\r\n", b"2\r\nhe\r\n"]
    assert reader.feed(b"l") == [b"1\r\nl\r\n"]
    assert reader.feed(b"lo\r") == [b"2\r\nlo\r\n"]
    assert reader.feed(b"\n1\r\nb\r\n3") == [b"1\r\nb\r\n"]
    assert reader.feed(b"\r\nabc\r\n") == [b"3\r\nabc\r\n"]


def test_size_line_split_across_reads() -> None:
    reader = ChunkedReader()
    reader.framed = True
    assert reader.feed(b"1") == []
    assert reader.feed(b"0") == []
    assert reader.feed(b"\r") == []
    assert reader.feed(b"\n") == []
    assert reader.feed(b"0123456789abcdef") == [b"10\r\n0123456789abcdef\r\n"]
    assert reader.feed(b"\r\n0") == []
    assert reader.feed(b"\r\n\r") == []
    assert not reader.complete
    assert reader.feed(b"\nX") == []
    assert reader.complete
    assert reader.leftover == b"X"


def test_extensions_are_dropped_between_bare_frames() -> None:
    reader = ChunkedReader()
    reader.framed = True
    pieces = reader.feed(b"1\r\na\r\n1\r\nb\r\n2;x=y\r\ncc\r\n1\r\nd\r\n0;z\r\n\r\n")
    assert pieces == [b"1\r\na\r\n1\r\nb\r\n", b"2\r\ncc\r\n", b"1\r\nd\r\n"]


@pytest.mark.parametrize("size", [4000, 4001])
def test_length_of_extensions(size: int) -> None:
    body = b"1;" + b"e" * size + b"\r\na\r\n0\r\n\r\n"
    if size == 4000:
        assert read([body[:3000], body[3000:]], framed=True) == (b"a", b"")
    else:
        with pytest.raises(BrokenFraming):
            read([body], framed=True)


@pytest.mark.parametrize("reader", [ChunkedReader(), LengthReader(1)])
def test_bytes_behind_the_message_add_up(reader: BodyReader) -> None:
    body = b"1\r\na\r\n0\r\n\r\n" if isinstance(reader, ChunkedReader) else b"a"
    assert reader.feed(body + b"x")
    assert reader.feed(b"") == []
    assert reader.feed(b"y") == []
    assert reader.feed(b"\r\nz") == []
    assert reader.complete
    assert reader.leftover == b"xy\r\nz"


def test_a_large_chunk_in_many_reads() -> None:
    payload = random.Random(1).randbytes(1_000_000)
    body = chunk(payload) + LAST_CHUNK
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    for framed in (False, True):
        assert read(pieces, framed=framed) == (payload, b"")


def test_length() -> None:
    reader = LengthReader(5)
    assert reader.feed(b"") == []
    assert reader.feed(b"he") == [b"he"]
    assert not reader.closed()
    assert reader.feed(b"llo") == [b"llo"]
    assert reader.complete
    assert reader.closed()
    assert reader.leftover == b""
    empty = LengthReader(0)
    assert empty.complete
    assert empty.feed(b"x") == []
    assert empty.leftover == b"x"


def test_until_close() -> None:
    reader = UntilCloseReader()
    assert reader.feed(b"") == []
    assert reader.feed(b"abc") == [b"abc"]
    reader.framed = True
    assert reader.feed(b"0123456789") == [b"a\r\n0123456789\r\n"]
    assert reader.feed(b"") == []
    assert not reader.complete
    assert reader.closed()
    assert reader.complete


extensions = st.sampled_from([b"", b"", b"", b";", b";a=b", b' ; q="x;y"', b"\t;z"])
frame_parts = st.tuples(st.binary(min_size=1, max_size=40), extensions, st.integers(0, 3), st.booleans())


def encode(payload: bytes, extension: bytes, zeros: int, upper: bool) -> bytes:
    size = b"0" * zeros + (b"%X" if upper else b"%x") % len(payload)
    return size + extension + b"\r\n" + payload + b"\r\n"


@properties
@given(
    st.lists(frame_parts, max_size=8),
    st.sampled_from([b"", b"X: y\r\n", b"A: b\r\nC: d\r\n"]),
    st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"\r\n", b"0\r\n\r\n"]),
    st.lists(st.integers(0, 400), max_size=12),
    st.booleans(),
)
def test_random_chunkings_and_reads(
    parts: list[tuple[bytes, bytes, int, bool]], trailer: bytes, behind: bytes, reads: list[int], framed: bool
) -> None:
    body = b"".join(encode(*part) for part in parts) + b"0\r\n" + trailer + b"\r\n" + behind
    points = [0, *sorted(min(at, len(body)) for at in reads), len(body)]
    pieces = [body[start:end] for start, end in pairwise(points)]
    assert read(pieces, framed=framed) == (b"".join(part[0] for part in parts), behind)


@properties
@given(seeds, st.lists(frame_parts, min_size=1, max_size=4), st.lists(st.integers(0, 200), max_size=6))
def test_a_damaged_body_has_the_same_outcome_however_it_is_read(
    seed: int, parts: list[tuple[bytes, bytes, int, bool]], reads: list[int]
) -> None:
    rng = random.Random(seed)
    damaged = bytearray(b"".join(encode(*part) for part in parts) + b"0\r\n\r\n")
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.choice(b"\r\n0159afgx;_ -+\t.\x00\xff")
    body = bytes(damaged)

    def outcome(pieces: list[bytes], framed: bool) -> object:
        try:
            return read(pieces, framed=framed)
        except BrokenFraming:
            return "broken"

    points = [0, *sorted(min(at, len(body)) for at in reads), len(body)]
    pieces = [body[start:end] for start, end in pairwise(points)]
    whole = outcome([body], False)
    assert outcome([body], True) == whole
    assert outcome(pieces, False) == whole
    assert outcome(pieces, True) == whole


@pytest.mark.parametrize("field", [b"content-length: 2", b"Transfer-Encoding: chunked", b"CONTENT-LENGTH:2"])
def test_trailers_do_not_frame(field: bytes) -> None:
    reader = ChunkedReader()
    with pytest.raises(BrokenFraming):
        reader.feed(b"2\r\nok\r\n0\r\nx: y\r\n" + field + b"\r\n\r\n")
    assert not reader.complete
