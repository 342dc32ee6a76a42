"""OpenAI's Responses API: its requests as chat, its answers and events in their own shape.

With ``next_routes`` the answers of context legs carry the hand-off at the top level.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.sim.answer import Answer
from proxy.sim.inference import Inference, Usage
from proxy.sim.shapes import Choice
from proxy.sim.tokens import encode_ids, unpack_ids
from proxy.sim.validation import BodyError

PATH = "/v1/responses"
_INCOMPLETE = frozenset({"length", "not_finished"})
_encode = msgspec.json.encode


def chat_body(body: Any, *, hand_offs: bool) -> dict[str, Any]:
    """The chat body with the same prompt and answer. Raises `BodyError`; unknown members are taken."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or "input" not in body:
        raise BodyError("model and input are required")
    if "disaggregated_params" in body and not hand_offs:
        raise BodyError("disaggregated_params: Extra inputs are not permitted")
    try:
        return _chat_body(body)
    except (KeyError, TypeError) as error:
        raise BodyError(f"input: {error!r}") from error


def _chat_body(body: Mapping[str, Any]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body["input"]
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    else:
        messages += [{"role": item["role"], "content": _text(item["content"])} for item in given]
    chat: dict[str, Any] = {"model": body["model"], "messages": messages}
    for name in ("stream", "disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64"):
        if name in body:
            chat[name] = body[name]
    if body.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    return chat


def _text(content: Any) -> Any:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def response_body(
    inference: Inference, model: str, choice: Choice, usage: Usage, prompt_ids: bytes | None
) -> bytes:
    """A whole answer."""
    shown = _response(_new_id("resp"), model, choice.answer, choice.finish_reason, usage)
    if inference.params:
        as_base64 = bool(inference.params.get("return_prompt_token_ids_b64")) and prompt_ids is not None
        shown["finish_reason"] = choice.finish_reason
        shown["prompt_token_ids"] = None if prompt_ids is None or as_base64 else unpack_ids(prompt_ids)
        shown["prompt_token_ids_b64"] = encode_ids(prompt_ids) if as_base64 and prompt_ids else None
        shown["disaggregated_params"] = choice.params
    return _encode(shown)


class ResponseStream:
    """Builds the events of one answer; as `proxy.sim.stream.EventStream` does."""

    def __init__(self, inference: Inference, answer: Answer, model: str, usage: Usage, params: Any) -> None:
        self._inference = inference
        self._answer = answer
        self._model = model
        self._usage = usage
        self._params = params
        self._id = _new_id("resp")
        self._number = 0

    def opening(self) -> list[bytes]:
        """That the response was created and is in progress."""
        shown = _response(self._id, self._model, self._answer, None, self._usage)
        shown |= {"status": "in_progress", "output": [], "usage": None}
        return [
            self._event("response.created", response=shown),
            self._event("response.in_progress", response=shown),
        ]

    def token(self, index: int, position: int) -> bytes:
        """The event of one output token."""
        return self._event("response.output_text.delta", output_index=0, delta=self._answer.pieces[position])

    def usage_event(self) -> bytes:
        """Never asked for: the last event has it."""
        raise NotImplementedError

    def closing(self) -> bytes:
        """The whole response; workers echo the hand-off in it."""
        reason = self._answer.finish_reason
        shown = _response(self._id, self._model, self._answer, reason, self._usage)
        if self._params is not None:
            shown |= {"finish_reason": reason, "prompt_token_ids": None, "disaggregated_params": self._params}
        return self._event(f"response.{shown['status']}", response=shown)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(data))


def _response(
    identifier: str, model: str, answer: Answer, reason: str | None, usage: Usage
) -> dict[str, Any]:
    incomplete = reason in _INCOMPLETE
    content = {"type": "output_text", "text": answer.text, "annotations": []}
    message = {
        "type": "message",
        "id": f"msg_{identifier}",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }
    tokens = len(answer.token_ids)
    return {
        "id": identifier,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if incomplete else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
        "model": model,
        "output": [message],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + tokens,
        },
    }


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(8)}"
