"""Damages messages: the same number always gives the same bytes."""

import random
from collections.abc import Sequence
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

SNIPPETS = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b" ", b"\t", b":", b";", b",", b"0", b"00", b"f", b"x", b"-", b"+",
    b'"', b"\x00", b"\x0b", b"\xff", b"\xc3\xbc", b"HTTP/1.1 ", b"HTTP/1.0", b"0\r\n\r\n", b"5\r\nhello\r\n",
    b"1;a=b\r\n", b"Content-Length: 5\r\n", b"content-length:0\r\n", b"Content-Length: 18446744073709551616\r\n",
    b"Host: q\r\n",
    b"Transfer-Encoding: chunked\r\n", b"transfer-encoding: identity\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive, upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"X: y\r\n z\r\n",
    b"GET / HTTP/1.1\r\nHost: p\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"HTTP/1.1 100 C\r\n\r\n",
    b"ffffffffffffffff\r\n", b"10000000000000000\r\n", b"9" * 400, b"a" * 300, b"data: [DONE]\n\n",
]  # fmt: skip


def corpus(name: str) -> list[tuple[str, bytes]]:
    """The messages of a folder with their names."""
    files = sorted((CORPUS / name).glob("*.http"))
    assert files
    return [(file.stem, file.read_bytes()) for file in files]


def mutated(rng: random.Random, samples: Sequence[bytes]) -> bytes:
    """A sample with a few things put in, taken out, doubled or exchanged; sometimes plain noise."""
    if rng.random() < 0.02:
        return rng.randbytes(rng.randrange(200))
    data = rng.choice(samples)
    if rng.random() < 0.2:
        data += rng.choice(samples)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice([0, 0, 0, 1, 1, 2, 5, 30]))
        kind = rng.randrange(5)
        if kind == 0:
            middle = rng.randbytes(rng.randrange(1, 3))
        elif kind == 1:
            middle = data[rng.randrange(len(data) + 1) :][:40]
        elif kind == 2:
            middle = _lines(rng, data)
        else:
            middle = rng.choice(SNIPPETS)
        data = data[:start] + middle + data[end:]
    return data


def _lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return rng.choice(lines) if lines else b""


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """The data as it might arrive: whole, byte by byte, or cut somewhere."""
    kind = rng.randrange(4)
    if kind == 0 or len(data) < 2:
        return [data] if data else []
    if kind == 1 and len(data) < 400:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.randrange(1, 5))))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
