"""Which routes a worker has, read from its OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.wire.fields.schema import request_members


class Routes(msgspec.Struct, frozen=True):
    """Paths of a worker.

    Attributes:
        paths: all of them.
        hand_offs: those whose requests may carry `disaggregated_params`: they can be served in two legs.
    """

    paths: frozenset[str]
    hand_offs: frozenset[str]


def read_routes(document: bytes) -> Routes | None:
    """Read an OpenAPI document; None when it is none."""
    try:
        root: Any = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError):
        return None
    paths = root.get("paths") if isinstance(root, dict) else None
    if not isinstance(paths, dict):
        return None
    handing = {path for path in paths if "disaggregated_params" in request_members(root, path)}
    return Routes(frozenset(paths), frozenset(handing))
