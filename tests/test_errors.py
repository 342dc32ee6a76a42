"""The tree of errors: what clients are told, and that its description is true."""

import json
import re

import pytest

from proxy import errors
from proxy.downstream.refusal import Refusal
from proxy.endpoints.admin.fleet import FleetIncomplete
from proxy.endpoints.admin.pause import PauseTimeout
from proxy.endpoints.cluster_storage import StorageForbidden, StorageUnavailable
from proxy.errors import InvalidRequest, LegFault, MethodNotAllowed, NotReady, ProxyError, Retry, Source


def all_errors(base: type[ProxyError] = ProxyError) -> list[type[ProxyError]]:
    return [each for kind in base.__subclasses__() for each in (kind, *all_errors(kind))]


BASES = {errors.ClientFault, LegFault}
OURS = [kind for kind in all_errors() if kind.__module__ == errors.__name__ and kind not in BASES]


def make(kind: type[ProxyError]) -> ProxyError:
    options = {
        "MethodNotAllowed": {"allow": b"GET"},
        "ConnectionBroken": {"retry": Retry.NEVER},
        "WorkersBusy": {"retry_after": 2},
    }
    try:
        return kind("what happened", **options.get(kind.__name__, {}))
    except TypeError as problem:
        pytest.fail(f"{kind.__name__} cannot be made from a message: {problem}")


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_body_is_openais(kind: type[ProxyError]) -> None:
    error = make(kind)
    body = json.loads(errors.error_body(error))
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"] == "what happened"
    assert body["error"]["code"] == error.code
    assert re.fullmatch(r"[a-z_]+", error.code)
    assert re.fullmatch(r"[a-z_]+", error.type)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_headers_say_whose_fault_it_is(kind: type[ProxyError]) -> None:
    error = make(kind)
    headers = dict(errors.error_headers(error))
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"x-disagg-proxy-error"] == f"{error.source.value};{error.code}".encode()
    assert b"content-length" not in headers
    assert all(name == name.lower() for name in headers)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_statuses_fit_their_source(kind: type[ProxyError]) -> None:
    assert 400 <= kind.status <= 599
    if issubclass(kind, LegFault):
        assert kind.status in (502, 504)
    elif issubclass(kind, errors.ClientFault):
        assert kind.source is Source.CLIENT
        assert kind.status < 500
        assert kind.retry is Retry.NEVER
    elif kind.status == 503:
        assert dict(kind.headers).get(b"retry-after") or kind in (errors.Aborted, errors.ShuttingDown)


def test_the_description_shows_every_error_with_its_status() -> None:
    assert errors.__doc__ is not None
    shown = dict(re.findall(r"[├└]── (\w+) +\(?(\d{3})?\)?", errors.__doc__))
    everywhere = [kind for kind in all_errors() if kind.__module__.startswith("proxy.")]
    elsewhere = {Refusal, FleetIncomplete, PauseTimeout, StorageForbidden, StorageUnavailable}
    assert elsewhere < set(everywhere)
    assert shown.keys() == {kind.__name__ for kind in everywhere}
    for kind in set(everywhere) - {Refusal}:  # whose status differs from case to case
        if shown[kind.__name__]:
            assert int(shown[kind.__name__]) == kind.status, kind.__name__


def test_details() -> None:
    error = InvalidRequest("no", code="invalid_type", param="model")
    assert (error.status, error.code, error.param) == (400, "invalid_type", "model")
    assert json.loads(errors.error_body(error))["error"]["param"] == "model"
    assert MethodNotAllowed("no", allow=b"GET").headers == ((b"allow", b"GET"),)
    assert NotReady("x", code="no_context_worker").code == "no_context_worker"
    assert NotReady("x").code == "not_ready"


def test_messages_are_encoded_whatever_they_hold() -> None:
    for message in ('"quoted"', "line\nend", "\x00", "€ \U0001f600", ""):
        assert json.loads(errors.error_body(InvalidRequest(message)))["error"]["message"] == message


@pytest.mark.parametrize("kind", [kind for kind in OURS if issubclass(kind, LegFault)])
def test_a_leg_tells_whose_it_was(kind: type[LegFault]) -> None:
    error = make(kind)
    for source in (Source.CONTEXT, Source.GENERATION):
        error.source = source
        headers = dict(errors.error_headers(error))
        assert headers[b"x-disagg-proxy-error"].startswith(source.value.encode())
