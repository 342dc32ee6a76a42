"""Reading out of a worker's 400 which members it does not know.

Workers answer with the text of pydantic's validation error, in one of two envelopes and two spellings:
`[{'type': 'extra_forbidden', 'loc': ('body', 'disaggregated_params', 'ctx_usage'), ...}]` from FastAPI, and
`disaggregated_params.ctx_usage\\n  Extra inputs are not permitted [type=extra_forbidden, ...` from pydantic itself.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Path = tuple[str, ...]

_MARK = b"extra_forbidden"
_FASTAPI = re.compile(r"'type': 'extra_forbidden', 'loc': \(([^()]*)\)")
_PYDANTIC = re.compile(r"^([A-Za-z0-9_.]+)\n\s+Extra inputs are not permitted", re.MULTILINE)
_NAME = re.compile(r"'([^']*)'")
# An error repeats the refused values, so it may be long.
_LONGEST = 1024 * 1024

OWN_MEMBERS = frozenset({"conversation_params", "prompt_token_ids", "prompt_token_ids_b64"})
"""Top-level members that the proxy adds; so it does all of `disaggregated_params`."""


def refused_members(body: bytes) -> list[Path]:
    """The members that a worker refused as unknown, of those that the proxy adds by itself.

    Args:
        body: of an answer with status 400.
    """
    if _MARK not in body or len(body) > _LONGEST:
        return []
    text = _text(body)
    paths = [tuple(_NAME.findall(found)) for found in _FASTAPI.findall(text)]
    paths += [tuple(found.split(".")) for found in _PYDANTIC.findall(text)]
    without_root = (path[1:] if path[:1] == ("body",) else path for path in paths)
    return [path for path in without_root if _own(path)]


def _own(path: Path) -> bool:
    if len(path) == 2:
        return path[0] == "disaggregated_params"
    return len(path) == 1 and path[0] in OWN_MEMBERS


def _text(body: bytes) -> str:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    for name in ("error", "message"):
        if isinstance(document, dict) and name in document:
            document = document[name]
    return _string(document)


def _string(document: Any) -> str:
    return document if isinstance(document, str) else ""
