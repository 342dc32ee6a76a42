"""Answers to scripts of other origins, relayed ones and errors included."""

import pytest
from running_proxy import CHAT, chat, running_proxy

ORIGIN = "https://app.example"


async def test_off_by_default():
    async with running_proxy() as proxy:
        response = await proxy.send(headers={"origin": ORIGIN})
        assert not [name for name in response.headers if name.startswith("access-control")]
        headers = {"origin": ORIGIN, "access-control-request-method": "POST"}
        assert (await proxy.client.options(CHAT, headers=headers)).status_code == 405


@pytest.mark.parametrize("kind", ["own", "uvicorn"])
@pytest.mark.parametrize(
    "body", [chat(), chat(stream=True), {"model": "sim"}], ids=["whole", "stream", "error"]
)
async def test_answers_to_an_allowed_origin(kind, body):
    async with running_proxy(kind=kind, cors_allow_origins=[ORIGIN]) as proxy:
        response = await proxy.send(body, headers={"origin": ORIGIN})
        assert response.headers.get_list("access-control-allow-origin") == [ORIGIN]
        assert response.headers.get_list("vary") == ["origin"]
        assert "x-request-id" in response.headers["access-control-expose-headers"]
        health = await proxy.client.get("/health", headers={"origin": ORIGIN})
        assert health.headers["access-control-allow-origin"] == ORIGIN


async def test_other_origins_get_no_permission():
    async with running_proxy(cors_allow_origins=[ORIGIN]) as proxy:
        for headers in ({}, {"origin": "https://evil.example"}):
            response = await proxy.send(headers=headers)
            assert response.status_code == 200
            assert "access-control-allow-origin" not in response.headers
            assert response.headers["vary"] == "origin"
        headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        assert (await proxy.client.options(CHAT, headers=headers)).status_code == 405


async def test_browsers_may_ask_first(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a:secret")
    async with running_proxy(cors_allow_origins=[ORIGIN], api_keys_file=str(keys)) as proxy:
        headers = {
            "origin": ORIGIN,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        }
        response = await proxy.client.options(CHAT, headers=headers)
        assert response.status_code == 204
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert response.headers["access-control-allow-methods"] == "GET, POST"
        assert response.headers["access-control-allow-headers"] == "authorization, content-type"
        assert "access-control-allow-credentials" not in response.headers
        # The key is needed all the same.
        refused = await proxy.send(headers={"origin": ORIGIN})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == ORIGIN


async def test_all_origins():
    async with running_proxy(cors_allow_origins=["*"]) as proxy:
        for headers in ({}, {"origin": "https://any.example"}):
            response = await proxy.send(headers=headers)
            assert response.headers["access-control-allow-origin"] == "*"
            assert "vary" not in response.headers
