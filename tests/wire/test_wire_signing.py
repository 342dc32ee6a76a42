import msgspec
import pytest

from proxy.wire.errors import BrokenHandOff
from proxy.wire.signing import AUTH_HEADER, protected_payload, sign_hand_off, sign_parameters


@pytest.mark.parametrize(
    ("endpoint", "state", "payload", "signature"),
    [
        (
            None,
            "b3BhcXVl",
            b'{"ctx_info_endpoint":null,"encoded_opaque_state":"b3BhcXVl"}',
            b"sha256=dd0226a7360fb1d422781ed05d4db132774395583e9f79091e0113371cae3257",
        ),
        (
            "tcp://10.0.0.1:5000",
            None,
            b'{"ctx_info_endpoint":"tcp://10.0.0.1:5000","encoded_opaque_state":null}',
            b"sha256=9f231f1556947f2cc0d68b742964cb16e8662f6b41262d536be4f2692f786130",
        ),
    ],
)
def test_known_signatures(endpoint: str | None, state: str | None, payload: bytes, signature: bytes) -> None:
    assert protected_payload(endpoint, state) == payload
    assert sign_hand_off("secret", endpoint, state) == signature


def test_nothing_to_sign() -> None:
    assert sign_hand_off("secret", None, None) is None


def test_empty_is_not_absent() -> None:
    assert sign_hand_off("secret", "", None) is not None


def test_ascii_escapes_as_python_writes_them() -> None:
    assert protected_payload('\u00e9"/\U0001f600', None) == (
        b'{"ctx_info_endpoint":"\\u00e9\\"/\\ud83d\\ude00","encoded_opaque_state":null}'
    )


def test_each_part_matters() -> None:
    signatures = {
        sign_hand_off(key, endpoint, state)
        for key in ("a", "\u00e9")
        for endpoint in (None, "x")
        for state in ("x", "y")
    }
    assert len(signatures) == 8


def test_header_name() -> None:
    assert AUTH_HEADER == b"x-trtllm-disagg-auth"


def test_parameters() -> None:
    encoded = {
        "ctx_info_endpoint": b"null",
        "encoded_opaque_state": msgspec.Raw(b'"b3Bh\\u0063XVl"'),
        "x": b"1",
    }
    assert sign_parameters("secret", encoded) == sign_hand_off("secret", None, "b3BhcXVl")
    assert sign_parameters("secret", {"ctx_info_endpoint": b'"tcp://a:1"'}) == sign_hand_off(
        "secret", "tcp://a:1", None
    )
    assert sign_parameters("secret", {"ctx_info_endpoint": b"null"}) is None
    assert sign_parameters("secret", {}) is None


@pytest.mark.parametrize("name", ["ctx_info_endpoint", "encoded_opaque_state"])
@pytest.mark.parametrize("value", [b"7", b"[]", b"{}", b"true", b'"\xff"'])
def test_parameters_that_are_no_text(name: str, value: bytes) -> None:
    with pytest.raises(BrokenHandOff, match=name):
        sign_parameters("secret", {name: value})
