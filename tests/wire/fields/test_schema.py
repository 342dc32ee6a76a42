import json
from typing import Any

import pytest

from proxy.sim.openapi import openapi_document
from proxy.sim.profiles import PROFILES
from proxy.wire.fields.accepted import ACCEPTED, Accepted, common
from proxy.wire.fields.schema import read_parameter_names, read_schema
from proxy.wire.versions import WorkerVersion

VERSIONS = list(WorkerVersion)


def document(version: str = "jul") -> Any:
    return json.loads(openapi_document(PROFILES[version]))


def read(changed: Any) -> Accepted | None:
    return read_schema(json.dumps(changed).encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_worker_says_what_the_table_says(version: WorkerVersion) -> None:
    told, table = read_schema(openapi_document(PROFILES[version])), ACCEPTED[version]
    assert told is not None
    for name in (
        "chat",
        "completions",
        "base64_ids",
        "function",
        "tool",
        "stream_options",
        "response_format",
    ):
        assert getattr(told, name) == getattr(table, name), name
    assert told.exact
    assert not table.exact
    own = {"conversation_id"} if version is not WorkerVersion.NEW else set()
    assert told.parameters - own == table.parameters
    assert "max_completion_tokens" in told.chat, "shown under its alias only"


def test_models_are_found_by_the_routes_that_use_them() -> None:
    changed = document()
    schemas = changed["components"]["schemas"]
    schemas["Renamed"] = schemas.pop("ChatCompletionRequest")
    schemas["Renamed"]["properties"]["brand_new"] = {}
    changed["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ] = {"allOf": [{"$ref": "#/components/schemas/Renamed"}]}
    told = read(changed)
    assert told is not None
    assert "brand_new" in told.chat


def test_models_are_found_by_name_where_routes_take_any_body() -> None:
    changed = document()
    del changed["paths"]
    told = read(changed)
    assert told is not None
    assert told.chat == ACCEPTED[WorkerVersion.JUL].chat


def test_words_of_an_enumeration() -> None:
    changed = document()
    properties = changed["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    properties["reasoning_effort"] = {
        "anyOf": [{"enum": ["low", "high"], "type": "string"}, {"const": "none"}, {"type": "null"}]
    }
    told = read(changed)
    assert told is not None
    assert told.efforts == {"low", "high", "none"}


def test_missing_nested_models_are_filled_from_the_table() -> None:
    changed = document()
    schemas = changed["components"]["schemas"]
    for name in ("StreamOptions", "FunctionDefinition", "DisaggregatedParams"):
        del schemas[name]
    told = read(changed)
    assert told is not None
    assert told.stream_options == ACCEPTED[WorkerVersion.JUL].stream_options
    assert told.function == ACCEPTED[WorkerVersion.JUL].function
    assert told.parameters == ACCEPTED[WorkerVersion.JUL].parameters
    assert not told.exact


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"components":1}',
        b'{"components":{"schemas":[]}}',
        b'{"components":{"schemas":{}}}',
        b'{"components":{"schemas":{"ChatCompletionRequest":{"properties":{"model":{}}}}}}',
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_other_documents(text: bytes) -> None:
    assert read_schema(text) is None


def test_references_in_a_circle() -> None:
    changed = document()
    schemas = changed["components"]["schemas"]
    schemas["Loop"] = {"$ref": "#/components/schemas/Loop"}
    schemas["ChatCompletionRequest"]["properties"]["tools"] = {"$ref": "#/components/schemas/Loop"}
    told = read(changed)
    assert told is not None
    assert told.tool == ACCEPTED[WorkerVersion.JUL].tool


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_of_an_answer(version: WorkerVersion) -> None:
    names = frozenset(PROFILES[version].disaggregated_keys)
    told = read_parameter_names(names)
    assert told.chat == ACCEPTED[version].chat
    assert told.parameters == names


def test_common() -> None:
    old, jul, new = (ACCEPTED[version] for version in VERSIONS)
    assert common([jul, jul]) is jul
    assert common([new, old]).chat == old.chat
    assert common([new, old, jul]).parameters == old.parameters
    assert not common([new, old]).base64_ids
    told = read_schema(openapi_document(PROFILES["new"]))
    assert told is not None
    assert not common([told, new]).exact


def test_without() -> None:
    jul = ACCEPTED[WorkerVersion.JUL]
    less = jul.without(("disaggregated_params", "ctx_usage"), chat=True)
    assert less.parameters == jul.parameters - {"ctx_usage"}
    assert not less.takes_parameter("ctx_usage")
    assert less.takes_parameter("of_the_future")
    assert not less.takes_parameters({"ctx_usage", "ctx_request_id"})
    assert not jul.without(("prompt_token_ids_b64",), chat=True).base64_ids
    assert "conversation_params" not in jul.without(("conversation_params",), chat=True).chat
    assert "conversation_params" in jul.without(("conversation_params",), chat=True).completions
    assert jul.without(("tools", "x"), chat=True) is jul
