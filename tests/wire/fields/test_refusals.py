import json

import pytest

from proxy.sim.profiles import PROFILES
from proxy.sim.validation import BodyError, Validator
from proxy.wire.fields.refusals import refused_members

FASTAPI = (
    "[{'type': 'extra_forbidden', 'loc': ('body', 'disaggregated_params', 'ctx_usage'), 'msg': 'Extra inputs are not "
    "permitted', 'input': {'a': 1}}, {'type': 'extra_forbidden', 'loc': ('body', 'prompt_token_ids_b64'), 'msg': "
    "'Extra inputs are not permitted', 'input': 'AAAA'}]"
)
PYDANTIC = (
    "2 validation errors for ChatCompletionRequest\ndisaggregated_params.schedule_style\n  Extra inputs are not "
    "permitted [type=extra_forbidden, input_value=0, input_type=int]\n    For further information visit "
    "https://errors.pydantic.dev/2.11/v/extra_forbidden\nconversation_params\n  Extra inputs are not permitted "
    "[type=extra_forbidden, input_value={}, input_type=dict]"
)


@pytest.mark.parametrize("envelope", ["error", "message", "openai"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FASTAPI, [("disaggregated_params", "ctx_usage"), ("prompt_token_ids_b64",)]),
        (PYDANTIC, [("disaggregated_params", "schedule_style"), ("conversation_params",)]),
        (FASTAPI.replace("extra_forbidden", "missing"), []),
        (FASTAPI.replace("prompt_token_ids_b64", "temperature"), [("disaggregated_params", "ctx_usage")]),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'tools', 0, 'x')}]", []),
        ("[{'type': 'extra_forbidden', 'loc': ('body',)}]", []),
        ("[{'type': 'extra_forbidden', 'loc': ()}]", []),
        ("", []),
    ],
)
def test_texts(text: str, expected: list[tuple[str, ...]], envelope: str) -> None:
    body = {"error": {"message": text}} if envelope == "openai" else {envelope: text, "code": 400}
    assert refused_members(json.dumps(body).encode()) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"extra_forbidden",
        b"[extra_forbidden",
        b'"extra_forbidden"',
        b'{"error":["extra_forbidden"]}',
        b'{"x":"extra_forbidden"}',
    ],
)
def test_other_bodies(body: bytes) -> None:
    assert refused_members(body) == []


def test_the_simulated_worker_is_understood() -> None:
    body = {"model": "m", "prompt": "x", "conversation_params": {"conversation_id": "c"}}
    body["disaggregated_params"] = {"request_type": "context_only", "schedule_style": 0}  # type: ignore[assignment]
    with pytest.raises(BodyError) as error:
        Validator(PROFILES["old"]).check(body, chat=False)
    answer = json.dumps({"error": str(error.value)}).encode()
    assert set(refused_members(answer)) == {
        ("conversation_params",),
        ("disaggregated_params", "schedule_style"),
    }
