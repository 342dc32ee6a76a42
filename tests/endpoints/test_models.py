import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from proxy.endpoints import models
from proxy.endpoints.models import ModelsEndpoint
from proxy.errors import NotReady


def world(
    answers: dict[str, Any], aliases: dict[str, str] | None = None, *, away: frozenset[str] = frozenset()
) -> Any:
    """An endpoint over workers that answer these bodies (or statuses, or errors)."""
    workers = [SimpleNamespace(address=name, ready=name not in away) for name in answers]
    service: Any = SimpleNamespace(
        registry=SimpleNamespace(workers=[*workers, *workers], access=None),  # each is listed in both roles
        settings=SimpleNamespace(proxy=SimpleNamespace(probe_timeout=1.0, model_aliases=aliases or {})),
    )
    return ModelsEndpoint(service)


async def ask(
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, Any],
    aliases: dict[str, str] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """The list that a client gets."""
    asked: list[str] = []

    def client(address: str, access: Any) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(address)
            told = answers[address]
            if isinstance(told, Exception):
                raise told
            if isinstance(told, int):
                return httpx.Response(told)
            return httpx.Response(200, content=told if isinstance(told, bytes) else json.dumps(told))

        return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://w")

    monkeypatch.setattr(models, "control_client", client)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await world(answers, aliases, **options)({}, None, send)
    assert len(asked) == len(set(asked))
    body = json.loads(sent[1]["body"])
    assert (sent[0]["status"], body["object"]) == (200, "list")
    return body["data"]


def told(*names: str, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}


async def test_models_are_merged_in_order_and_the_first_describes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = await ask(
        monkeypatch, {"a": told("m", by="a"), "b": told("m", "n", by="b"), "c": told("n", by="c")}
    )
    assert [(model["id"], model["by"]) for model in data] == [("m", "a"), ("n", "b")]


async def test_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    data = await ask(monkeypatch, {"a": told("m", "n")}, {"gpt-4": "m", "n": "m", "x": "unknown"})
    assert [(model["id"], model.get("root")) for model in data] == [("m", None), ("n", None), ("gpt-4", "m")]


@pytest.mark.parametrize(
    "answer",
    [
        500,
        b"not JSON",
        b"[]",
        b'{"data": null}',
        b'{"data": ["m"]}',
        {"data": [{"name": "no id"}, {"id": None}, {"id": ["m"]}]},
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("not HTTP"),
    ],
)
async def test_a_worker_that_cannot_tell_is_passed_over(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    data = await ask(monkeypatch, {"a": answer, "b": told("m")})
    assert [model["id"] for model in data] == ["m"]
    with pytest.raises(NotReady):
        await ask(monkeypatch, {"a": answer})


async def test_only_ready_workers_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    data = await ask(monkeypatch, {"a": AssertionError("asked"), "b": told("m")}, away=frozenset({"a"}))
    assert [model["id"] for model in data] == ["m"]
    with pytest.raises(NotReady):
        await ask(monkeypatch, {"a": told("m")}, away=frozenset({"a"}))
