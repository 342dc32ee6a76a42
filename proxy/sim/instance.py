"""A JSON value that satisfies a JSON schema, for structured answers and tool arguments."""

from collections.abc import Mapping
from typing import Any

PLAIN_VALUES: dict[str, Any] = {
    "string": "grün",
    "integer": 3,
    "number": 2.5,
    "boolean": True,
    "null": None,
}
DEFAULT_OBJECT = {"answer": "grün", "count": 3}
MAX_DEPTH = 16


def instance_of(schema: Mapping[str, Any], depth: int = 0) -> Any:
    """A value for ``schema``; covers const, enum, anyOf/oneOf/allOf (first), objects, arrays and plain types."""
    if depth > MAX_DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return instance_of(schema[key][0], depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties") or {}
        return {name: instance_of(part, depth + 1) for name, part in properties.items()}
    if kind == "array":
        items = schema.get("items")
        one = instance_of(items, depth + 1) if isinstance(items, dict) else None
        return [one] * max(1, int(schema.get("minItems", 1)))
    if kind in ("integer", "number") and "minimum" in schema:
        return schema["minimum"]
    if kind is None:
        return dict(DEFAULT_OBJECT)
    return PLAIN_VALUES.get(kind)
