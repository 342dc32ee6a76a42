"""The signature of generation legs that carry protected hand-off fields."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

AUTH_HEADER = b"x-trtllm-disagg-auth"
PROTECTED = ("ctx_info_endpoint", "encoded_opaque_state")
REFUSAL = "Invalid internal disaggregated request authentication"


def signature(key: str, params: Mapping[str, Any]) -> str:
    """``sha256=<hex>`` over the compact JSON of the two protected fields, keys sorted, nulls shown."""
    fields = {name: params.get(name) for name in PROTECTED}
    payload = json.dumps(fields, separators=(",", ":"), sort_keys=True)
    return "sha256=" + hmac.new(key.encode(), payload.encode(), hashlib.sha256).hexdigest()


def is_signed(key: str | None, params: Mapping[str, Any], header: bytes | None) -> bool:
    """Whether the leg may pass: no key, nothing to protect, or the right signature."""
    if key is None or all(params.get(name) is None for name in PROTECTED):
        return True
    return header is not None and hmac.compare_digest(signature(key, params).encode(), header)
