import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import (
    REQUEST_ID,
    USAGE,
    Writer,
    base64_ids,
    chat_answer,
    dump,
    integers,
    members,
    names,
    parameters,
    properties,
    seeds,
    texts,
    values,
)

from proxy.wire.errors import BrokenHandOff
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.handoff import read_context_answer
from proxy.wire.legs import context_body, generation_body, generation_parameters
from proxy.wire.members import JSONBytes, split_object
from proxy.wire.versions import WorkerVersion

JUL, OLD, NEW = WorkerVersion.JUL, WorkerVersion.OLD, WorkerVersion.NEW

CLIENT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "be terse"},
        {"role": "user", "content": "Name one colour. \u00e9"},
    ],
    "max_completion_tokens": 32,
    "seed": 2**53 + 1,
    "stream": True,
    "stream_options": {"include_usage": True},
}


def whole_context_body(*args: Any, **options: Any) -> bytes:
    return b"".join(context_body(*args, **options))


def generation(client: Mapping[str, JSONBytes], body: bytes, *, chat: bool = True, **options: Any) -> Any:
    answer = read_context_answer(body)
    return json.loads(
        b"".join(generation_body(client, answer, generation_parameters(answer), chat=chat, **options))
    )


@pytest.mark.parametrize(
    ("version", "base64", "extra"),
    [
        (OLD, False, {}),
        (OLD, True, {}),
        (JUL, False, {"schedule_style": 0}),
        (JUL, True, {"schedule_style": 0, "return_prompt_token_ids_b64": True}),
        (NEW, False, {"schedule_style": 0}),
        (NEW, True, {"schedule_style": 0, "return_prompt_token_ids_b64": True}),
    ],
)
def test_context_body(version: WorkerVersion, base64: bool, extra: dict[str, Any]) -> None:
    body = whole_context_body(members(**CLIENT), 2**63 - 2, ACCEPTED[version], base64_ids=base64)
    expected = {name: value for name, value in CLIENT.items() if name != "stream_options"}
    expected["stream"] = False
    expected["disaggregated_params"] = {
        "request_type": "context_only",
        "disagg_request_id": 2**63 - 2,
        **extra,
    }
    assert json.loads(body) == expected


def test_context_body_as_bytes() -> None:
    client = split_object(b'{"model": "m" , "messages":[ {"role":"user"} ],"stream":true, "x\\u0041":1.50}')
    assert whole_context_body(client, 7, ACCEPTED[OLD], base64_ids=False) == (
        b'{"model":"m","messages":[ {"role":"user"} ],"xA":1.50,"stream":false,'
        b'"disaggregated_params":{"request_type":"context_only","disagg_request_id":7}}'
    )


def test_parameters_of_a_client_never_pass() -> None:
    client = members(**CLIENT, disaggregated_params={"ctx_info_endpoint": "tcp://evil:1"})
    assert b"evil" not in whole_context_body(client, 1, ACCEPTED[JUL], base64_ids=False)
    assert (
        generation(client, dump(chat_answer()))["disaggregated_params"]["ctx_info_endpoint"] != "tcp://evil:1"
    )


def test_an_empty_request_still_makes_json() -> None:
    assert json.loads(whole_context_body({}, 1, ACCEPTED[OLD], base64_ids=False))["stream"] is False
    for answer in (chat_answer(), chat_answer(prompt_token_ids=None)):
        for chat in (True, False):
            assert "disaggregated_params" in generation({}, dump(answer), chat=chat)
    assert list(generation(members(prompt="x"), dump(chat_answer()), chat=False)) == [
        "disaggregated_params",
        "prompt",
    ]


def parameters_of(params: dict[str, Any], **changes: Any) -> dict[str, Any]:
    answer = read_context_answer(dump(chat_answer(params=params, **changes)))
    return {name: json.loads(bytes(value)) for name, value in generation_parameters(answer).items()}


def test_generation_parameters() -> None:
    assert parameters_of(parameters()) == parameters(request_type="generation_only", ctx_usage=USAGE)


def test_unknown_keys_are_relayed() -> None:
    unknown = {
        "resolved_thinking": True,
        "prefill_artifact_id": {"a": [2**70, None]},
        "sch\u00e9ma": "\U0001f600",
    }
    sent = parameters_of(parameters(**unknown))
    assert {name: sent[name] for name in unknown} == unknown


def test_keys_that_the_worker_does_not_know_are_not_added() -> None:
    params = parameters(schedule_style=..., ctx_usage=..., ctx_info_endpoint=..., request_type=...)
    sent = parameters_of(params)
    assert sent == {**params, "request_type": "generation_only"}


def test_keys_that_are_null_are_set() -> None:
    sent = parameters_of(parameters(schedule_style=None, ctx_usage=None))
    assert (sent["schedule_style"], sent["ctx_usage"]) == (0, USAGE)
    assert parameters_of(parameters(), usage=None)["ctx_usage"] is None
    assert parameters_of(parameters(), usage=...)["ctx_usage"] is None


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://a:1", "tcp://a:1"),
        (None, None),
        (["tcp://a:1"], "tcp://a:1"),
        (["tcp://a:1", "tcp://b:2"], "tcp://a:1"),
        ([], None),
        ([None], None),
    ],
)
def test_endpoint_lists(endpoint: object, expected: object) -> None:
    assert parameters_of(parameters(ctx_info_endpoint=endpoint))["ctx_info_endpoint"] == expected


def test_the_request_id_of_the_context_worker_wins() -> None:
    sent = parameters_of(parameters(disagg_request_id=2**63 - 1, ctx_request_id=2**53 + 1))
    assert (sent["disagg_request_id"], sent["ctx_request_id"]) == (2**63 - 1, 2**53 + 1)


@pytest.mark.parametrize("count", [4, 100_000])
def test_chat_carries_ids_beside_messages(count: int) -> None:
    ids = list(range(count))
    client = members(**CLIENT)
    expected = {**CLIENT, "disaggregated_params": parameters(request_type="generation_only", ctx_usage=USAGE)}
    array = generation(client, dump(chat_answer(prompt_token_ids=ids)))
    assert array == {**expected, "prompt_token_ids": ids}
    b64 = generation(client, dump(chat_answer(prompt_token_ids=None, prompt_token_ids_b64=base64_ids(ids))))
    assert b64 == {**expected, "prompt_token_ids_b64": base64_ids(ids)}
    assert generation(client, dump(chat_answer(prompt_token_ids=None))) == expected


@pytest.mark.parametrize("count", [4, 100_000])
def test_completions_carry_ids_as_prompt(count: int) -> None:
    ids = list(range(count))
    client = members(model="m", prompt="Once \u00e9", max_tokens=16)
    sent = generation(client, dump(chat_answer(prompt_token_ids=ids, prompt_token_ids_b64=...)), chat=False)
    params = parameters(request_type="generation_only", ctx_usage=USAGE)
    assert sent == {"model": "m", "prompt": ids, "max_tokens": 16, "disaggregated_params": params}
    assert generation(client, dump(chat_answer(prompt_token_ids=None)), chat=False)["prompt"] == "Once \u00e9"


def test_base64_is_no_prompt() -> None:
    """A completions worker would take it for text."""
    sent = generation(
        members(model="m", prompt="Once"),
        dump(chat_answer(prompt_token_ids=None, prompt_token_ids_b64="AQAAAA==")),
        chat=False,
    )
    assert sent["prompt"] == "Once"
    assert "prompt_token_ids_b64" not in sent


def test_ids_of_the_context_worker_replace_those_of_the_client() -> None:
    client = members(**CLIENT, prompt_token_ids=[7])
    assert generation(client, dump(chat_answer(prompt_token_ids=[1, 2])))["prompt_token_ids"] == [1, 2]
    b64 = generation(client, dump(chat_answer(prompt_token_ids=None, prompt_token_ids_b64="AQAAAA==")))
    assert "prompt_token_ids" not in b64
    assert generation(client, dump(chat_answer(prompt_token_ids=None)))["prompt_token_ids"] == [7]


def test_history_is_cut_only_with_ids() -> None:
    client = members(**CLIENT)
    last = msgspec.Raw(b'{"role":"user"}')
    assert generation(client, dump(chat_answer()), last_message=last)["messages"] == [{"role": "user"}]
    whole = generation(client, dump(chat_answer(prompt_token_ids=None)), last_message=last)
    assert whole["messages"] == CLIENT["messages"]
    assert client.keys() == CLIENT.keys(), "the client's members are not changed"


def test_large_ids_are_not_copied() -> None:
    body = dump(chat_answer(prompt_token_ids=list(range(100_000))))
    answer = read_context_answer(body)
    pieces = generation_body(members(**CLIENT), answer, generation_parameters(answer), chat=True)
    assert len(pieces) == 3
    assert isinstance(pieces[1], memoryview)
    assert pieces[1].obj is body


@pytest.mark.parametrize("chat", [True, False])
def test_a_long_prompt_is_not_copied(chat: bool) -> None:
    text = json.dumps("x" * 20_000)
    source = (
        f'{{"messages":[{{"role":"user","content":{text}}}]}}' if chat else f'{{"prompt":{text}}}'
    ).encode()
    client = split_object(source)
    body = dump(chat_answer(prompt_token_ids=list(range(1000)) if chat else None))
    answer = read_context_answer(body)
    for pieces in (
        context_body(client, 1, ACCEPTED[JUL], base64_ids=False),
        generation_body(client, answer, generation_parameters(answer), chat=chat),
    ):
        large = [piece for piece in pieces if len(piece) > 10_000]
        assert len(large) == 1
        assert isinstance(large[0], memoryview)
        sent = json.loads(b"".join(pieces))
        assert sent["messages" if chat else "prompt"] == json.loads(source)["messages" if chat else "prompt"]


# What a plain JSON implementation would build


def plain_context(client: dict[str, Any], version: WorkerVersion, base64: bool) -> dict[str, Any]:
    params: dict[str, Any] = {"request_type": "context_only", "disagg_request_id": REQUEST_ID}
    if version is not OLD:
        params["schedule_style"] = 0
        if base64:
            params["return_prompt_token_ids_b64"] = True
    leg = dict(client)
    leg.pop("stream_options", None)
    return {**leg, "stream": False, "disaggregated_params": params}


def plain_generation(client: dict[str, Any], answer: dict[str, Any], chat: bool) -> dict[str, Any]:
    params = dict(answer["choices"][0]["disaggregated_params"])
    params["request_type"] = "generation_only"
    if "schedule_style" in params:
        params["schedule_style"] = 0
    if "ctx_usage" in params:
        params["ctx_usage"] = answer.get("usage")
    if isinstance(params.get("ctx_info_endpoint"), list):
        params["ctx_info_endpoint"] = (params["ctx_info_endpoint"] or [None])[0]
    leg = {**client, "disaggregated_params": params}
    b64, array = answer.get("prompt_token_ids_b64"), answer.get("prompt_token_ids")
    if not chat:
        return {**leg, "prompt": array} if array and not b64 else leg
    if b64 or array:
        leg.pop("prompt_token_ids", None)
        leg.pop("prompt_token_ids_b64", None)
        leg["prompt_token_ids_b64" if b64 else "prompt_token_ids"] = b64 or array
    return leg


def test_the_plain_builders_agree_with_the_documented_example() -> None:
    client = {"model": "m", "prompt": "Once upon a time", "stream": True}
    assert plain_generation(client, chat_answer(prompt_token_ids=[1, 9]), chat=False)["prompt"] == [1, 9]


id_lists = st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=5) | st.just(list(range(1500)))
id_texts = st.none() | st.just("") | st.lists(st.integers(0, 2**31 - 1), max_size=5).map(base64_ids) | st.just(
    base64_ids(list(range(1500)))
)  # fmt: skip


@properties
@given(
    st.lists(st.tuples(names, values), max_size=6),
    st.dictionaries(texts, values, max_size=3),
    st.fixed_dictionaries(
        {"ctx_usage": values, "schedule_style": st.none() | integers},
        optional={
            "ctx_info_endpoint": st.none() | texts | st.lists(texts, max_size=2),
            "draft_tokens": values,
        },
    ),
    id_lists,
    id_texts,
    st.booleans(),
    st.sampled_from(list(WorkerVersion)),
    seeds,
)
def test_legs_equal_those_of_a_plain_implementation(
    pairs: list[tuple[str, Any]],
    extra: dict[str, Any],
    some: dict[str, Any],
    array: list[int] | None,
    b64: str | None,
    chat: bool,
    version: WorkerVersion,
    seed: int,
) -> None:
    writer = Writer(seed)
    pairs = [*pairs, ("messages" if chat else "prompt", "p")]
    source = writer.padded(writer.pairs(pairs)).encode()
    client, plain_client = split_object(source), dict(pairs)
    base64 = bool(seed % 2)
    body = whole_context_body(client, REQUEST_ID, ACCEPTED[version], base64_ids=base64)
    assert json.loads(body) == plain_context(plain_client, version, base64)

    params = {**extra, **some, "ctx_request_id": seed, "disagg_request_id": REQUEST_ID + seed}
    answer = {**extra, **chat_answer(params=params, prompt_token_ids=array, prompt_token_ids_b64=b64)}
    answer["usage"] = some["ctx_usage"]
    if seed % 3:
        answer = dict(reversed(list(answer.items())))
    text = writer.document(answer) if seed % 5 else dump(answer)
    assert generation(client, text, chat=chat) == plain_generation(plain_client, answer, chat)


class TestWorkersThatKnowLess:
    def legs(self, accepted: Any, **options: Any) -> Any:
        answer = read_context_answer(
            dump(chat_answer(prompt_token_ids=None, prompt_token_ids_b64=base64_ids([1, -2])))
        )
        parameters = generation_parameters(answer, accepted)
        body = generation_body(members(**CLIENT), answer, parameters, chat=True, **options)
        return json.loads(b"".join(body))

    def test_parameters_that_a_worker_certainly_refuses_are_left_out(self) -> None:
        table = ACCEPTED[OLD]
        exact = msgspec.structs.replace(table, exact=True)
        assert "ctx_usage" in self.legs(table)["disaggregated_params"], (
            "a table may be wrong about newer keys"
        )
        sent = self.legs(exact)["disaggregated_params"]
        assert sent.keys() <= table.parameters
        assert sent["request_type"] == "generation_only"
        taught = table.without(("disaggregated_params", "ctx_usage"), chat=True)
        assert "ctx_usage" not in self.legs(taught)["disaggregated_params"]

    def test_base64_is_decoded_for_them(self) -> None:
        assert "prompt_token_ids_b64" in self.legs(None)
        leg = self.legs(None, base64_ids=False)
        assert "prompt_token_ids_b64" not in leg
        assert leg["prompt_token_ids"] == [1, -2]

    @pytest.mark.parametrize("text", ["AAA", "AAAA", "!!!!", "AAAAAAA="])
    def test_what_is_not_base64_of_ids(self, text: str) -> None:
        answer = read_context_answer(dump(chat_answer(prompt_token_ids=None, prompt_token_ids_b64=text)))
        with pytest.raises(BrokenHandOff):
            generation_body(members(**CLIENT), answer, {}, chat=True, base64_ids=False)

    def test_members_that_only_others_know(self) -> None:
        without = frozenset({"seed", "absent"})
        context = whole_context_body(members(**CLIENT), 1, ACCEPTED[JUL], base64_ids=False, without=without)
        assert "seed" not in json.loads(context)
        assert "seed" not in self.legs(None, without=without)

    def test_the_conversation_among_the_parameters(self) -> None:
        knows = msgspec.structs.replace(
            ACCEPTED[OLD], parameters=ACCEPTED[OLD].parameters | {"conversation_id"}
        )
        for accepted, expected in ((knows, "c"), (ACCEPTED[OLD], None), (ACCEPTED[NEW], None)):
            body = whole_context_body({}, 1, accepted, base64_ids=False, conversation=b'"c"')
            assert json.loads(body)["disaggregated_params"].get("conversation_id") == expected
        answer = read_context_answer(dump(chat_answer(params=parameters(conversation_id=None))))
        assert generation_parameters(answer, conversation=b'"c"')["conversation_id"] == b'"c"'


def test_ids_of_the_proxys_own() -> None:
    body = json.loads(
        whole_context_body(members(**CLIENT), 1, ACCEPTED[JUL], base64_ids=True, token_ids=b'"AQAAAA=="')
    )
    assert body["prompt_token_ids_b64"] == "AQAAAA=="
    assert body["messages"] == CLIENT["messages"]
    client = split_object(b'{"model":"m","prompt":"text"}')
    assert json.loads(whole_context_body(client, 1, ACCEPTED[OLD], base64_ids=False, token_ids=b"[1,2]"))[
        "prompt"
    ] == [1, 2]
