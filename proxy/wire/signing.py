"""The signature that workers with `internal_request_auth_key` require on generation legs."""

import hashlib
import hmac
import json
from collections.abc import Mapping

import msgspec

from proxy.wire.errors import BrokenHandOff
from proxy.wire.members import JSONBytes

_TEXT = msgspec.json.Decoder(str | None)

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


def sign_parameters(key: str, parameters: Mapping[str, JSONBytes]) -> bytes | None:
    """Sign the protected members of a generation leg's `disaggregated_params`; see `sign_hand_off`.

    Raises:
        BrokenHandOff: one of them is neither a string nor null.
    """
    return sign_hand_off(
        key, _text(parameters, "ctx_info_endpoint"), _text(parameters, "encoded_opaque_state")
    )


def _text(parameters: Mapping[str, JSONBytes], name: str) -> str | None:
    value = parameters.get(name)
    if value is None:
        return None
    try:
        return _TEXT.decode(value)
    except msgspec.DecodeError:
        raise BrokenHandOff(f"{name} of the hand-off is not a string") from None
