"""Whatever bytes a worker sends: an answer or an error, at once, and never another answer than h11 or llhttp see."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutation import corpus, mutated, pieces
from worker_bytes import MODES, by_h11, by_httptools, lenient, outcome

from proxy.errors import BrokenAnswer, ConnectionBroken, LegTimeout

NAMES = [name for name, _ in corpus("responses")]
SAMPLES = dict(corpus("responses"))
ENDS = ("closed", "reset", "deadline")


def seen_by_others(data, *, closed):
    """What h11 and llhttp make of it."""
    forms = {data, lenient(data)}
    return {by(form, closed=closed) for form in forms for by in (by_h11, by_httptools)}


async def check(data: bytes, rng: random.Random) -> None:
    mode, end = rng.choice(MODES), rng.choice(ENDS)
    result = await outcome(pieces(rng, data), mode, end, rng)
    if isinstance(result, tuple):
        assert result in seen_by_others(data, closed=end == "closed"), (mode, end, data, result)
    else:
        assert isinstance(result, BrokenAnswer | ConnectionBroken | LegTimeout)
        assert isinstance(result, LegTimeout) <= (end == "deadline")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
async def test_samples(name, mode):
    """The way in which an answer is read or arrives does not matter."""
    data = SAMPLES[name]
    results = set()
    for seed in range(12):
        rng = random.Random(seed)
        result = await outcome(pieces(rng, data), mode, "closed", rng)
        results.add(result if isinstance(result, tuple) else type(result))
    (result,) = results
    if isinstance(result, tuple):
        assert result in seen_by_others(data, closed=True)


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
        [b"content-length: 2", b"content-length: 0", b"transfer-encoding: chunked", b"connection: close"]
    )
    | st.binary(max_size=12),
    max_size=4,
)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    status=st.sampled_from([b"200 OK", b"100 C", b"204", b"101 S", b"304 N", b"500 E"]),
    lines=_LINES,
    body=st.sampled_from([b"ok", b"2\r\nok\r\n0\r\n\r\n", b"", b"ok2\r\n"]) | st.binary(max_size=20),
    seed=st.integers(0, 2**32),
)
async def test_built_heads(status, lines, body, seed):
    data = b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""]) + body
    await check(data, random.Random(seed))
