"""Nothing but errors of the wire layer comes out of it, whatever goes in."""

import contextlib
import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import base64_ids, chat_answer, dump, parameters, properties, seeds

from proxy.wire.answers import clean_answer
from proxy.wire.chunks import ChunkedReader, LengthReader, UntilCloseReader
from proxy.wire.errors import WireError
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.policy import FieldPolicy, Options, header_value
from proxy.wire.finished import as_json, as_stream
from proxy.wire.handoff import Outcome, read_context_answer
from proxy.wire.history import last_message
from proxy.wire.legs import context_body, generation_body, generation_parameters
from proxy.wire.members import join_object, split_array, split_object
from proxy.wire.request import read_request
from proxy.wire.signing import sign_parameters
from proxy.wire.sse import Tail
from proxy.wire.token_ids import cut_token_ids
from proxy.wire.versions import WorkerVersion

MEMBERS = split_object(dump({"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}]}))
TRUSTING = Options(accept_prompt_token_ids=True)


def as_json_text(text: bytes) -> None:
    """What was built is JSON. (Bytes inside of strings are the client's or the worker's; nobody checks them here.)"""
    json.loads(text.decode("utf-8", "replace"), parse_int=str, strict=False)


def client_body(data: bytes) -> None:
    members = split_object(data)
    as_json_text(join_object(members))
    last_message(members)
    for chat in (True, False):
        for version in WorkerVersion:
            with contextlib.suppress(WireError):
                applied = FieldPolicy(ACCEPTED[version], chat=chat, options=TRUSTING).apply(members)
                header_value(applied.dropped)
                request = read_request(applied.members, chat=chat)
                as_json_text(b"".join(context_body(request.members, 1, ACCEPTED[version], base64_ids=True)))


def context_answer(data: bytes) -> None:
    answer = read_context_answer(data)
    as_json(answer)
    for chat in (True, False):
        if answer.outcome is Outcome.HAND_OFF:
            assert 0 <= answer.request_id < 2**63
            sent = generation_parameters(answer)
            with contextlib.suppress(WireError):
                sign_parameters("key", sent)
            as_json_text(b"".join(generation_body(MEMBERS, answer, sent, chat=chat, last_message=b"{}")))
            continue
        with contextlib.suppress(WireError):
            text = as_stream(answer, chat=chat, include_usage=True)
            for event in text.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")[:-1]:
                as_json_text(event.removeprefix(b"data: "))


def answer_to_clean(data: bytes) -> None:
    cleaned = clean_answer(data)
    with contextlib.suppress(WireError):
        before, after = split_object(data), split_object(cleaned)
        assert set(before) - set(after) <= {
            "prompt_token_ids",
            "prompt_token_ids_b64",
            "disaggregated_params",
        }
        for name, value in after.items():
            assert name == "choices" or bytes(value) == bytes(before[name])


def framing(data: bytes) -> None:
    for at in (1, 7, len(data) // 2):
        for reader in (ChunkedReader(), LengthReader(20), UntilCloseReader()):
            with contextlib.suppress(WireError):
                for piece in (data[:at], data[at:], data):
                    reader.feed(piece)
            reader.closed()


def other(data: bytes) -> None:
    cut_token_ids(data)
    tail = Tail()
    tail.saw(data)
    assert tail.between_events in (True, False)
    split_array(data)


FUNCTIONS = [client_body, context_answer, answer_to_clean, framing, other]
SAMPLES = [
    dump({
        "model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "h\u00e9\n\U0001f600"}]}, {}],
        "stream": True, "stream_options": {"include_usage": True}, "n": 1, "store": None, "max_completion_tokens": 7,
        "prompt_token_ids": [1, 2], "echo": False,
    }),
    dump({"model": "m", "prompt": [[1, 2, 3]], "max_completion_tokens": 7, "best_of": 1, "use_beam_search": False}),
    dump(chat_answer()),
    dump(chat_answer(params=parameters(ctx_info_endpoint=["tcp://a:1"]), finish_reason="length")),
    dump(chat_answer(finish_reason="stop")),
    dump(chat_answer(finish_reason=None)),
    dump(chat_answer(prompt_token_ids=None, prompt_token_ids_b64=base64_ids(list(range(600))))),
    json.dumps(chat_answer(finish_reason="tool_calls", message={"role": "x", "tool_calls": [{"id": "\u00e9"}]}))
    .encode(),
    b'5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nX: y\r\n\r\nrest',
]  # fmt: skip
SNIPPETS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"\r\n", b"\n", b" ", b"\x00", b"\xff", b"\xc3",
    b"\\u0064", b"\\ud800", b"1e999", b"-", b"9" * 5000, b"true", b'"prompt_token_ids":[', b'"prompt_token_ids_b64":"',
    b'"disaggregated_params":', b"[" * 2000, b'{"a":' * 2000, b"0", b"ffffffffffffffff",
]  # fmt: skip


def mutated(seed: int) -> bytes:
    rng = random.Random(seed)
    data = rng.choice(SAMPLES)
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice([0, 0, 1, 1, 2, 5, 40]))
        middle = rng.choice(
            [b"", rng.choice(SNIPPETS), rng.randbytes(2), data[rng.randrange(len(data) + 1) :][:40]]
        )
        data = data[:start] + middle + data[end:]
    return data


@pytest.mark.parametrize("function", FUNCTIONS)
def test_samples(function: Callable[[bytes], None]) -> None:
    for sample in SAMPLES:
        with contextlib.suppress(WireError):
            function(sample)


@pytest.mark.parametrize("function", FUNCTIONS)
@properties
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes(function: Callable[[bytes], None], data: bytes) -> None:
    with contextlib.suppress(WireError):
        function(data)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_mutations(function: Callable[[bytes], None]) -> None:
    for seed in range(1500):
        data = mutated(seed)
        with contextlib.suppress(WireError):
            function(data)


@pytest.mark.parametrize("function", FUNCTIONS)
@properties
@given(seed=seeds)
def test_more_mutations(function: Callable[[bytes], None], seed: int) -> None:
    with contextlib.suppress(WireError):
        function(mutated(seed))


def test_a_deep_stack() -> None:
    """Nesting that passes near the top of the stack may not pass deeper down; that is an error of ours as well."""
    bodies = [
        b'{"model":"m","messages":[{"content":' + b"[" * depth + b"]" * depth + b"},{}]}"
        for depth in (100, 500, 900)
    ]

    def call(depth: int, body: bytes) -> None:
        if depth:
            call(depth - 1, body)
            return
        for function in FUNCTIONS:
            with contextlib.suppress(WireError):
                function(body)

    for body in bodies:
        call(400, body)
