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
def openapi_document(profile: Profile, *, next_routes: bool = False) -> bytes:
    """The OpenAPI document as JSON bytes; ``components.schemas`` lists exactly the accepted fields.

    ``next_routes``: see `proxy.sim.settings`.
    """
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
        path: _post(_reference(model))
        for path, model in (
            ("/v1/completions", "CompletionRequest"),
            ("/v1/chat/completions", "ChatCompletionRequest"),
        )
    }
    for path, members in _more_routes(profile, next_routes).items():
        properties = {name: {} for name in members}
        paths[path] = _post({"type": "object", "properties": properties})
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "FastAPI", "version": "0.1.0"},
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _more_routes(profile: Profile, next_routes: bool) -> dict[str, tuple[str, ...]]:
    """Routes that only some versions have, and what of their requests matters here."""
    routes: dict[str, tuple[str, ...]] = {}
    if profile.name != "old":
        routes["/v1/responses"] = ("model", "input", "stream", "store")
    if next_routes:
        routes["/v1/responses"] += ("disaggregated_params", "prompt_token_ids", "prompt_token_ids_b64")
        routes["/v1/messages"] = ("model", "messages", "max_tokens")
        routes["/v1/messages/count_tokens"] = ("model", "messages")
    return routes


def _post(schema: dict[str, Any]) -> dict[str, Any]:
    return {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}


def _reference(model: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model}"}
