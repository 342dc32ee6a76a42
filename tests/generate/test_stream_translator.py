import json
from types import SimpleNamespace

import pytest

from proxy.endpoints.generate.generated import Generated
from proxy.endpoints.generate.shape import Asked
from proxy.endpoints.generate.stream import StreamTranslator
from proxy.endpoints.generate.texts import Texts
from proxy.errors import BrokenAnswer, RequestAborted

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"content-length", b"9"), (b"x-a", b"b")]
DONE = b"data: [DONE]\n\n"


def told(error=None):
    generated = Generated()
    return SimpleNamespace(
        generated=generated,
        record=SimpleNamespace(error=error),
        answer=lambda: {"ids": list(generated.token_ids), "reason": generated.finish_reason},
        aborted=lambda error: {"ids": list(generated.token_ids), "aborted": error.message},
    )


def token(number, reason=None, usage=None):
    choice = {"text": "", "token_ids": [number], "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3}}\n\n'


async def translate(pieces, headers=STREAM, status=200, **more):
    """The headers, and what became of each piece that something became of."""
    sent = []

    async def send(message):
        sent.append(message)

    translator = StreamTranslator(send, told(**more))
    await translator({"type": "http.response.start", "status": status, "headers": headers})
    for number, piece in enumerate(pieces, 1):
        await translator({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})
    start, *bodies = sent
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
    return start["headers"], [each["body"] for each in bodies]


def payloads(bodies):
    lines = b"".join(bodies).decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line and "[DONE]" not in line]


STEPS = [{"ids": [1], "reason": None}, {"ids": [1, 2], "reason": None}, {"ids": [1, 2, 3], "reason": "stop"}]


async def test_each_event_repeats_those_before():
    headers, bodies = await translate([token(1), token(2), token(3, "stop"), USAGE, DONE])
    assert (b"content-length", b"9") not in headers
    assert (b"x-a", b"b") in headers
    assert payloads(bodies) == STEPS
    assert bodies[-1].endswith(DONE)


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_whatever_the_pieces(size):
    stream = token(1) + token(2) + token(3, "stop") + USAGE + DONE
    _, bodies = await translate([stream[at : at + size] for at in range(0, len(stream), size)])
    assert payloads(bodies) == STEPS


async def test_events_that_come_together_become_one():
    _, bodies = await translate([token(1) + token(2), token(3, "stop") + USAGE + DONE])
    assert payloads(bodies) == STEPS[1:]


async def test_comments_and_errors_pass():
    error = b'data: {"error":{"code":"worker_disconnected"}}\n\n'
    _, bodies = await translate([b": keep-alive\n\n", token(1), error])
    assert bodies[0] == b": keep-alive\n\n"
    assert bodies[-1] == error


async def test_an_abort_is_the_last_event():
    error = b'data: {"error":{"code":"aborted"}}\n\n'
    _, bodies = await translate([token(1), error], error=RequestAborted("stop it"))
    assert payloads(bodies) == [STEPS[0], {"ids": [1], "aborted": "stop it"}]
    assert bodies[-1].endswith(DONE)


async def test_another_answer_passes_as_it_is():
    headers, bodies = await translate(
        [b'{"error"', b":1}"],
        status=400,
        headers=[(b"content-type", b"application/json"), (b"content-length", b"11")],
    )
    assert (b"content-length", b"11") in headers
    assert bodies == [b'{"error"', b":1}"]


async def test_a_success_in_another_form_is_none():
    """It would reach the client as a completions answer."""
    with pytest.raises(BrokenAnswer):
        await translate([b'{"choices":[]}'], headers=[(b"content-type", b"application/json")])


@pytest.mark.parametrize("end", [b"", DONE.rstrip(), DONE.removesuffix(b"\n")])
@pytest.mark.parametrize("usage", [b"", USAGE])
async def test_the_last_tokens_are_told_whatever_the_end(end, usage):
    """It waits for the usage; a stream may end without, and without [DONE] or a blank line behind it."""
    _, bodies = await translate([token(1), token(2), token(3, "stop") + usage, end])
    assert payloads(bodies) == STEPS
    assert b"".join(bodies).count(DONE) == (b"DONE" in end)


async def test_a_stream_that_ends_in_the_middle_tells_what_came():
    _, bodies = await translate([token(1), token(2).rstrip()])
    assert payloads(bodies) == STEPS[:2]


@pytest.mark.parametrize("broken", [b'"\xff"', b"[" * 100_000 + b"]" * 100_000])
async def test_nothing_is_told_behind_an_event_that_cannot_be_read(broken):
    """What it said would be missing."""
    unreadable = b'data: {"choices":[],"x":{"text":' + broken + b"}}\n\n"
    unreadable = (
        unreadable if b"[[" in broken else unreadable.replace(b'[],"x":', b"[").replace(b"}}", b"}]}")
    )
    _, bodies = await translate([token(1), unreadable, token(2), token(3, "stop"), USAGE, DONE])
    assert b"".join(bodies[1:]) == unreadable + DONE


async def test_a_usage_that_cannot_be_read_takes_nothing_away():
    usage = b'data: {"choices":[],"usage":[1]}\n\n'
    _, bodies = await translate([token(1), token(2), token(3, "stop"), usage, DONE])
    assert [each for each in payloads(bodies) if "usage" not in each] == STEPS


async def test_an_event_without_an_end():
    with pytest.raises(BrokenAnswer):
        await translate([token(1), b"data: " + b"x" * (17 * 1024 * 1024)])


@pytest.mark.parametrize("keep", [False, True])
def test_texts_of_ids(keep):
    class Tokenizer:
        def decode(self, ids, *, skip_special_tokens):
            return f"{ids} {skip_special_tokens}"

    generated = Generated()
    generated.take(b'{"choices":[{"text":"","token_ids":[1,2],"finish_reason":null}]}')
    Texts(Tokenizer(), Asked({}, keep_special=keep)).fill(generated)
    assert generated.text == f"[1, 2] {not keep}"
    generated.text = "as it came"
    Texts(Tokenizer(), Asked({}, ids=False)).fill(generated)
    Texts(None, Asked({})).fill(generated)
    assert generated.text == "as it came"
