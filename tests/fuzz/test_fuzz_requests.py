"""Whatever bytes a client sends: valid answers or a closed connection, and no request that others do not see."""

import random
import re

import h11
import pytest
from client_bytes import BODY, Request, answers, by_h11, by_httptools, serve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutation import corpus, mutated, pieces

SAMPLES = dict(corpus("requests"))
REFUSALS = {400, 405, 408, 413, 431, 501, 505}
_BLANK_BEFORE_EXTENSION = re.compile(rb"([0-9A-Fa-f])[ \t]{1,16};")
_TRAILERS = re.compile(rb"(?<=\r\n)(0+(?:;[^\r\n]*)?\r\n)(?:[^\r\n]+\r\n)+\r\n")
_AUTHORITY = re.compile(rb"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*")
_UPGRADE = re.compile(rb"(?i)upgrade")


async def check(data: bytes, rng: random.Random) -> None:
    seen = await serve(pieces(rng, data), rng)
    try:
        said = answers(seen.written, seen.requests)
    except h11.ProtocolError as error:
        raise AssertionError(f"not a valid answer: {error}\n{seen.written!r}") from error
    served, refused = said[: len(seen.requests)], said[len(seen.requests) :]
    for request, (status, body, _) in zip(seen.requests, served, strict=True):
        assert status == 200
        assert body == (b"" if request.method == "HEAD" else BODY)
    assert len(refused) <= 1
    for status, body, closes in refused:
        assert status in REFUSALS
        assert closes
        assert b'"error"' in body
    assert not any(closes for _, _, closes in said[:-1]), "an answer behind the last one"
    compare(data, seen.requests)


def compare(data: bytes, requests: list[Request]) -> None:
    """Each request that was served is what h11 or llhttp read at the same place."""
    forms = [data, _BLANK_BEFORE_EXTENSION.sub(rb"\1;", data)]
    # We drop trailers whatever they say; the others read framing fields among them.
    forms += [_TRAILERS.sub(rb"\1\r\n", form) for form in forms]
    # We read the body behind an upgrade that is not made; llhttp stops there.
    forms += [_UPGRADE.sub(b"upgrad_", form) for form in forms]
    others = [by(form) for form in forms for by in (by_h11, by_httptools)]
    for number, request in enumerate(requests):
        views = [other[number] for other in others if len(other) > number]
        assert any(_same(request, view) for view in views), (data, number, request, views)


def _same(ours: Request, theirs: Request) -> bool:
    """The target of an absolute form is its path; an empty query is none."""
    target = _AUTHORITY.sub(b"", theirs.target.partition(b"#")[0]).removesuffix(b"?") or b"/"
    if target.startswith(b"?"):
        target = b"/" + target
    return ours.method == theirs.method and ours.body == theirs.body and ours.target == target


@pytest.mark.parametrize("name", SAMPLES)
async def test_samples(name):
    for seed in range(12):
        rng = random.Random(seed)
        await check(SAMPLES[name], rng)


async def test_smuggling_samples_end_the_connection():
    """Whoever sends one of these gets one answer at most."""
    for name, data in SAMPLES.items():
        if not name.startswith("smuggle-") or name in ("smuggle-get-body", "smuggle-te-tab"):
            continue
        seen = await serve([data], random.Random(1))
        assert seen.requests == [], name
        ((status, _, closes),) = answers(seen.written, [])
        assert (status, closes) == (400, True) or status == 413, name


async def test_mutations(time_box):
    samples = list(SAMPLES.values())
    for number in time_box:
        rng = random.Random(number)
        await check(mutated(rng, samples), rng)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=300), seed=st.integers(0, 2**32))
async def test_arbitrary_bytes(data, seed):
    await check(data, random.Random(seed))


_LINES = st.lists(
    st.sampled_from(
        [
            b"Host: p",
            b"Content-Length: 2",
            b"Content-Length: 0",
            b"Transfer-Encoding: chunked",
            b"Connection: close",
            b"Transfer-Encoding: chunked ",
            b"Transfer-Encoding: x",
            b"Expect: 100-continue",
            b"Upgrade: h2c",
        ]
    )
    | st.binary(max_size=12),
    max_size=5,
)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    line=st.sampled_from([b"POST / HTTP/1.1", b"GET /a?b HTTP/1.1", b"POST / HTTP/1.0", b"HEAD / HTTP/1.1"]),
    lines=_LINES,
    body=st.sampled_from([b"{}", b"2\r\n{}\r\n0\r\n\r\n", b"", b"GET / HTTP/1.1\r\nHost: p\r\n\r\n"])
    | st.binary(max_size=20),
    seed=st.integers(0, 2**32),
)
async def test_built_heads(line, lines, body, seed):
    data = b"\r\n".join([line, b"Host: p", *lines, b"", b""]) + body
    await check(data, random.Random(seed))
