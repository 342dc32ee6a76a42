"""The signature that workers with `internal_request_auth_key` require on generation legs."""

import hashlib
import hmac
import json

AUTH_HEADER = b"x-trtllm-disagg-auth"


def protected_payload(ctx_info_endpoint: str | None, encoded_opaque_state: str | None) -> bytes:
    """The bytes that are signed: compact JSON with sorted keys and Python's ASCII escapes, as workers build it."""
    fields = {"ctx_info_endpoint": ctx_info_endpoint, "encoded_opaque_state": encoded_opaque_state}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def sign_hand_off(key: str, ctx_info_endpoint: str | None, encoded_opaque_state: str | None) -> bytes | None:
    """The header value `sha256=<hex>`, or None when neither protected field is present (nothing is signed then)."""
    if ctx_info_endpoint is None and encoded_opaque_state is None:
        return None
    payload = protected_payload(ctx_info_endpoint, encoded_opaque_state)
    return b"sha256=" + hmac.new(key.encode(), payload, hashlib.sha256).hexdigest().encode()
