"""Fields of the request: dropped, renamed, refused, and the cut history."""

import pytest
from e2e_bodies import CHAT, answer_text, chat, completion

from proxy.sim import expected_text

DROPPED = "x-disagg-proxy-dropped"
LEGS = ("context", "generation")
HISTORY = [
    {"role": "system", "content": "be terse"},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "Name one colour."},
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_unknown_members_are_dropped_and_named(stack, stream):
    body = chat(stream=stream)
    response = stack.post({**body, "metadata": {"a": 1}, "store": True, "x y": 1})
    assert response.status_code == 200
    assert response.headers[DROPPED] == "metadata,store,other"
    for leg in LEGS:
        assert not stack.only_request(leg).json().keys() & {"metadata", "store", "x y"}
    assert stack.metric("dropped_fields_total", field="metadata") >= 1


def test_null_members_are_dropped_silently(stack):
    body = completion()
    response = stack.post({**body, "n": None, "temperature": None, "metadata": None, "stream": None})
    assert DROPPED not in response.headers
    assert answer_text(response.json()) == expected_text(body)
    for leg in LEGS:
        assert not stack.only_request(leg).json().keys() & {"n", "temperature", "metadata"}


@pytest.mark.parametrize(
    ("profile", "dropped"),
    [
        ("old", "conversation_params,parallel_tool_calls,priority"),
        ("jul", "parallel_tool_calls,priority"),
        ("new", None),
    ],
)
def test_what_each_version_knows(make_stack, profile, dropped):
    stack = make_stack({"profile": profile})
    fields = {
        "conversation_params": {"conversation_id": "c-1"},
        "parallel_tool_calls": False,
        "priority": 0.5,
    }
    response = stack.post(chat(**fields))
    assert response.status_code == 200
    assert response.headers.get(DROPPED) == dropped
    kept = fields.keys() - set((dropped or "").split(","))
    for leg in LEGS:
        assert stack.only_request(leg).json().keys() & fields.keys() == kept


def test_both_names_of_the_budget(stack):
    body = chat(max_tokens=20, max_completion_tokens=5)
    response = stack.post(body)
    assert response.json()["usage"]["completion_tokens"] == 5
    assert answer_text(response.json()) == expected_text(chat(max_tokens=5))
    for leg in LEGS:
        sent = stack.only_request(leg).json()
        assert "max_completion_tokens" not in sent
        assert sent["max_tokens"] == 5


def test_max_completion_tokens_of_completions(stack):
    body = completion(max_completion_tokens=3)
    del body["max_tokens"]
    response = stack.post(body)
    assert response.json()["usage"]["completion_tokens"] == 3


def test_stream_options_without_stream(stack):
    response = stack.post(chat(stream_options={"include_usage": True}))
    assert response.status_code == 200
    assert response.headers[DROPPED] == "stream_options"


@pytest.mark.parametrize(
    "text",
    [
        '{"model":"sim","messages":[{"role":"user","content":"x"}],"max_tokens":3,%s}',
        '{%s,"model":"sim","messages":[{"role":"user","content":"x"}],"max_tokens":3}',
    ],
    ids=["behind", "before"],
)
@pytest.mark.parametrize(
    "members",
    [
        '"disaggregated_params":{"request_type":"generation_only","encoded_opaque_state":"AAAA"}',
        '"disaggregated_params":{"request_type":"context_only"},"disaggregated_params":{"ctx_dp_rank":1}',
        '"disaggregated\\u005fparams":{"request_type":"context_only"},"prompt_token_ids\\u005fb64":"AAAA"',
        '"prompt_token_ids_b64":"AQAAAA=="',
    ],
    ids=["plain", "twice", "escaped", "base64"],
)
def test_hand_off_members_of_a_client_never_pass(stack, text, members):
    content = (text % members).encode()
    response = stack.http.post(CHAT, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 200
    body = {"model": "sim", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    assert answer_text(response.json()) == expected_text(body)
    named = set(response.headers[DROPPED].split(","))
    assert named <= {"disaggregated_params", "prompt_token_ids_b64"}
    params = stack.only_request("context").json()["disaggregated_params"]
    own = {"request_type", "disagg_request_id", "schedule_style", "return_prompt_token_ids_b64"}
    assert params.keys() == own
    assert b'"AAAA"' not in stack.only_request("generation").body


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt_token_ids": [1, 2]}, "unsupported_field", "prompt_token_ids"),
        ({"input_ids": [1, 2]}, "unsupported_field", "input_ids"),
        ({"n": 1000}, "unsupported_value", "n"),
        ({"n": 2, "best_of": 1}, "invalid_value", "best_of"),
        ({"use_beam_search": True}, "unsupported_value", "use_beam_search"),
        ({"chat_template": "{{ x }}"}, "unsupported_field", "chat_template"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"model": 1}, "invalid_type", "model"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": "x"}, "invalid_type", "messages"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refused_before_any_leg(stack, fields, code, param):
    response = stack.post(chat(**fields))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
    assert not stack.requests("context")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"model": "sim"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000],
    ids=["empty", "open", "array", "null", "cut", "binary", "deep-array", "deep-object"],
)
def test_bodies_that_are_no_json_object(stack, content):
    response = stack.http.post(CHAT, content=content)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


def test_an_encoded_body(stack):
    response = stack.http.post(CHAT, content=b"x", headers={"content-encoding": "gzip"})
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "unsupported_content_encoding"


def test_a_chat_template_where_it_is_allowed(make_stack):
    stack = make_stack({"allow_chat_template": True}, allow_request_chat_template=True)
    body = chat(chat_template="{{ messages }}")
    assert answer_text(stack.post(body).json()) == expected_text(body)
    assert stack.only_request("generation").json()["chat_template"] == "{{ messages }}"


def test_token_ids_from_clients_that_may_send_them(make_stack):
    stack = make_stack(accept_prompt_token_ids=True)
    body = chat(prompt_token_ids=[1, 5, 6, 7])
    assert answer_text(stack.post(body).json()) == expected_text(body)


class TestHistory:
    @pytest.fixture
    def stack(self, make_stack):
        return make_stack(gen_tokids_ctxbytes=True, gen_strip_message_history=True)

    def messages_of(self, stack, leg):
        return stack.only_request(leg).json()["messages"]

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_only_the_last_message_goes_to_the_generation_worker(self, stack, stream):
        body = chat(messages=HISTORY, stream=stream)
        response = stack.post(body)
        assert response.status_code == 200
        if not stream:
            assert answer_text(response.json()) == expected_text(body)
        assert self.messages_of(stack, "context") == HISTORY
        assert self.messages_of(stack, "generation") == HISTORY[-1:]

    @pytest.mark.parametrize(
        ("messages", "fields"),
        [
            (
                [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/i"}}]}],
                {},
            ),
            ([{"role": "system", "content": "s", "tools": [{"type": "function"}]}], {}),
            ([], {"echo": True}),
        ],
        ids=["media", "tools", "echo"],
    )
    def test_guards_that_keep_the_history(self, stack, messages, fields):
        messages = [*messages, *HISTORY]
        response = stack.post(chat(messages=messages, **fields))
        assert response.status_code == 200
        assert self.messages_of(stack, "generation") == messages

    def test_no_ids_no_cut(self, stack):
        stack.cluster.context_workers[0].add_fault(kind="missing_ids", count=1)
        body = chat(messages=HISTORY)
        assert answer_text(stack.post(body).json()) == expected_text(body)
        assert self.messages_of(stack, "generation") == HISTORY


def test_models_that_render_by_themselves_keep_history_and_get_no_base64(make_stack):
    stack = make_stack(gen_tokids_ctxbytes=True, gen_strip_message_history=True, harmony_models=["sim"])
    assert stack.post(chat(messages=HISTORY)).status_code == 200
    assert "return_prompt_token_ids_b64" not in stack.only_request("context").json()["disaggregated_params"]
    assert stack.only_request("generation").json()["messages"] == HISTORY
