"""What a worker accepts, read from its OpenAPI document.

Workers are FastAPI applications, so that `/openapi.json` lists the members of their request models.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.wire.fields.accepted import ACCEPTED, CLIENT_TOKEN_IDS, INTERNAL, Accepted
from proxy.wire.versions import WorkerVersion

_CHAT_PATH = "/v1/chat/completions"
_COMPLETIONS_PATH = "/v1/completions"
_PREFIX = "#/components/schemas/"
_NOT_FOR_CLIENTS = INTERNAL | CLIENT_TOKEN_IDS


def read_schema(document: bytes) -> Accepted | None:
    """Read an OpenAPI document; None when it does not describe the routes (the built-in tables have to do then).

    A field with an alias is shown under the alias only: `max_tokens` on chat stands for both names.
    """
    try:
        root = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        return None
    schemas = _get(root, "components", "schemas")
    if not isinstance(schemas, dict):
        return None
    reader = _Reader(schemas)
    chat_model = reader.model(_request(root, _CHAT_PATH), "ChatCompletionRequest")
    completion_model = reader.model(_request(root, _COMPLETIONS_PATH), "CompletionRequest")
    chat, completions = _names(chat_model), _names(completion_model)
    if not chat >= {"messages", "model"} or not completions >= {"prompt", "model"}:
        return None
    parameters = reader.nested(chat_model, "disaggregated_params") or reader.nested(
        completion_model, "disaggregated_params"
    )
    known = ACCEPTED[WorkerVersion.JUL if parameters is None else _version(_names(parameters))]
    tool = reader.nested(chat_model, "tools")
    both_budgets = {"max_tokens", "max_completion_tokens"} if "max_tokens" in chat else set()
    return Accepted(
        chat=(chat | both_budgets) - _NOT_FOR_CLIENTS,
        completions=completions - _NOT_FOR_CLIENTS,
        parameters=_names(parameters) or known.parameters,
        base64_ids="prompt_token_ids_b64" in chat,
        function=_names(reader.nested(tool, "function")) or known.function,
        stream_options=_names(reader.nested(chat_model, "stream_options")) or known.stream_options,
        response_format=_names(reader.nested(chat_model, "response_format")) or known.response_format,
        tool=_names(tool) or known.tool,
        thinking=_names(reader.nested(chat_model, "thinking")) or known.thinking,
        efforts=_words(_get(chat_model, "properties", "reasoning_effort")),
        exact=parameters is not None,
    )


def request_members(root: Any, path: str) -> frozenset[str]:
    """The members that the document `root` shows for a POST of `path`; empty when it shows none."""
    schemas = _get(root, "components", "schemas")
    reader = _Reader(schemas if isinstance(schemas, dict) else {})
    return _names(reader.model(_request(root, path), ""))


def read_parameter_names(names: frozenset[str]) -> Accepted:
    """What a worker accepts, judged by the keys of the `disaggregated_params` that it returns.

    Workers write all keys that they know, nulls included.
    """
    return msgspec.structs.replace(ACCEPTED[_version(names)], parameters=names)


def _version(parameters: frozenset[str]) -> WorkerVersion:
    if "resolved_thinking" in parameters:
        return WorkerVersion.NEW
    return WorkerVersion.JUL if "return_prompt_token_ids_b64" in parameters else WorkerVersion.OLD


class _Reader:
    """Finds models among the schemas of a document."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas

    def model(self, schema: Any, name: str) -> Any:
        """The model that a schema refers to, or the one of that name."""
        found = self._resolved(schema)
        return found if _names(found) else self._schemas.get(name)

    def nested(self, model: Any, name: str) -> Any:
        """The model of a member, seen through `| None` and lists; None when it has none."""
        found = self._resolved(_get(model, "properties", name))
        return found if _names(found) else None

    def _resolved(self, schema: Any, depth: int = 0) -> Any:
        if not isinstance(schema, dict) or depth > 8:  # references may go round in circles
            return None
        if "properties" in schema:
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(_PREFIX):
            return self._resolved(self._schemas.get(reference.removeprefix(_PREFIX)), depth + 1)
        for inner in (schema.get("items"), *_alternatives(schema)):
            found = self._resolved(inner, depth + 1)
            if found is not None:
                return found
        return None


def _request(root: Any, path: str) -> Any:
    return _get(root, "paths", path, "post", "requestBody", "content", "application/json", "schema")


def _alternatives(schema: dict[str, Any]) -> list[Any]:
    return [
        each
        for key in ("anyOf", "oneOf", "allOf")
        if isinstance(schema.get(key), list)
        for each in schema[key]
    ]


def _names(model: Any) -> frozenset[str]:
    properties = _get(model, "properties")
    return frozenset(properties) if isinstance(properties, dict) else frozenset()


def _words(schema: Any) -> frozenset[str] | None:
    """The values of an enumeration, or None when it is not one."""
    if not isinstance(schema, dict):
        return None
    found = {word for each in (schema, *_alternatives(schema)) for word in _enumerated(each)}
    return frozenset(found) or None


def _enumerated(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    words = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []


def _get(document: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document
