"""The ``/openapi.json`` of a worker: the accepted fields, in the form that FastAPI gives them."""

from functools import cache
from typing import Any

import msgspec

from proxy.sim.profiles import REQUIRED, Profile

# What FastAPI would show for the simple checks; anything else is shown without a type.
JSON_TYPES: dict[str, str] = {
    "string": "string",
    "filled_string": "string",
    "conversation_id": "string",
    "integer": "integer",
    "positive_integer": "integer",
    "schedule_style": "integer",
    "number": "number",
    "unit_number": "number",
    "boolean": "boolean",
    "object": "object",
    "logit_bias": "object",
    "integers": "array",
    "strings": "array",
    "list": "array",
    "documents": "array",
    "messages": "array",
}
ITEM_MODELS: dict[str, str] = {"tools": "ChatCompletionToolsParam"}


def _schema(kind: str, models: dict[str, dict[str, str]]) -> dict[str, Any]:
    name = kind.removesuffix("?")
    if name in models:
        shown: dict[str, Any] = {"$ref": f"#/components/schemas/{name}"}
    elif name in ITEM_MODELS:
        shown = {"type": "array", "items": {"$ref": f"#/components/schemas/{ITEM_MODELS[name]}"}}
    else:
        shown = {"type": JSON_TYPES[name]} if name in JSON_TYPES else {}
    return {"anyOf": [shown, {"type": "null"}]} if kind.endswith("?") else shown


@cache
def openapi_document(profile: Profile) -> bytes:
    """The OpenAPI document as JSON bytes; ``components.schemas`` lists exactly the accepted fields."""
    schemas: dict[str, Any] = {}
    for model, fields in profile.models.items():
        properties = {
            name: {**_schema(kind, profile.models), "title": name.replace("_", " ").title()}
            for name, kind in fields.items()
            # pydantic shows a field with an alias under the alias only.
            if not (model == "ChatCompletionRequest" and name == "max_completion_tokens")
        }
        if not properties:
            continue
        schemas[model] = {
            "properties": properties,
            "additionalProperties": False,
            "type": "object",
            "required": sorted(REQUIRED.get(model, frozenset())),
            "title": model,
        }
    paths = {
        path: {"post": {"requestBody": {"content": {"application/json": {"schema": _reference(model)}}}}}
        for path, model in (
            ("/v1/completions", "CompletionRequest"),
            ("/v1/chat/completions", "ChatCompletionRequest"),
        )
    }
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "FastAPI", "version": "0.1.0"},
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _reference(model: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model}"}
