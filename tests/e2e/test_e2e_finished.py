"""Requests that the context worker ends by itself: finished, given up, or out of budget."""

import json

import pytest
from e2e_bodies import answer_text, chat, completion, streamed_text
from e2e_bodies import events as events_of

from proxy.sim import expected_text

MARK = "[sim:context-stop]"
HAND_OFF = ("disaggregated_params", "prompt_token_ids")


def stopping(route, **fields):
    if route == "chat":
        return chat(messages=[{"role": "user", "content": f"Hello {MARK}"}], **fields)
    return completion(prompt=f"Hello {MARK}", **fields)


@pytest.fixture(params=["old", "jul", "new"])
def stack(make_stack, request):
    return make_stack({"profile": request.param}, gen_tokids_ctxbytes=True)


@pytest.mark.parametrize("route", ["chat", "completions"])
class TestFinished:
    def test_whole(self, stack, route):
        body = stopping(route)
        response = stack.post(body)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        answer = response.json()
        assert answer_text(answer) == expected_text(body)
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 1
        assert not any(name in response.text for name in HAND_OFF)
        assert not stack.requests("generation")

    @pytest.mark.parametrize("usage", [False, True], ids=["no-usage", "usage"])
    def test_stream(self, stack, route, usage):
        """`trtllm-serve disaggregated` sends nothing but [DONE] here."""
        body = stopping(route, stream=True)
        if usage:
            body["stream_options"] = {"include_usage": True}
        response = stack.post(body)
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert streamed_text(response.text) == expected_text(body) != ""
        assert not any(name in response.text for name in HAND_OFF)
        events = events_of(response.text)
        if route == "chat":
            assert events[0]["choices"][0]["delta"] == {"role": "assistant"}
            assert response.text.partition("\n\n")[0].endswith(" ")
        finishes = [choice.get("finish_reason") for event in events[:-1] for choice in event["choices"]]
        assert finishes[-1] == "stop"
        assert not any(finishes[:-1])
        counted = [event["usage"] for event in events[:-1] if event.get("usage")]
        assert [usage["completion_tokens"] for usage in counted] == ([1] if usage else [])
        assert len({event["id"] for event in events[:-1]}) == 1
        assert not stack.requests("generation")


@pytest.mark.parametrize("reason", ["timeout", "cancelled", None], ids=str)
@pytest.mark.parametrize("route", ["chat", "completions"])
class TestGivenUp:
    def body(self, stack, reason, route, **fields):
        stack.cluster.context_workers[0].add_fault(
            kind="finish", finish_reason=reason, handoff="null_ids", count=1
        )
        return chat(**fields) if route == "chat" else completion(**fields)

    def test_whole(self, stack, reason, route):
        response = stack.post(self.body(stack, reason, route))
        assert response.status_code == 200
        assert response.json()["choices"][0]["finish_reason"] == reason
        assert not any(name in response.text for name in HAND_OFF)
        assert not stack.requests("generation")

    def test_stream(self, stack, reason, route):
        """One event, then the end."""
        response = stack.post(self.body(stack, reason, route, stream=True))
        events = events_of(response.text)
        assert len(events) == 2
        assert events[0]["choices"][0].get("finish_reason") == reason
        assert events[1] == "[DONE]"
        assert not stack.requests("generation")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_tool_calls_and_reasoning(make_stack, stream):
    """`tool_calls` as finish reason of the context leg is final, too."""
    stack = make_stack()
    calls = [
        {"id": f"call-{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        for number in range(2)
    ]
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "disaggregated_params": None}
    answer = {"id": "chatcmpl-1", "created": 1, "model": "sim", "choices": [choice], "usage": None}
    stack.cluster.context_workers[0].add_fault(kind="status", status=200, body=json.dumps(answer), count=1)
    response = stack.post(chat(stream=stream))
    assert response.status_code == 200
    if not stream:
        del choice["disaggregated_params"]
        assert response.json() == answer
        return
    first, second, done = events_of(response.text)
    assert done == "[DONE]"
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant"}}]
    numbered = [{"index": number, **call} for number, call in enumerate(calls)]
    delta = {"reasoning_content": "hm", "tool_calls": numbered}
    assert second["choices"] == [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]
