"""What workers accept: found out, kept up to date, respected worker by worker."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from running_proxy import RunningProxy, become, chat, eventually, running_proxy

from proxy.sim.openapi import openapi_document
from proxy.sim.profiles import PROFILES
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.policy import Options
from proxy.wire.fields.schema import read_schema
from proxy.wire.members import split_object
from proxy.wire.versions import WorkerVersion
from proxy.workers.capabilities import Capabilities, Known, PoolCapabilities, generation_of

OLD, JUL, NEW = WorkerVersion.OLD, WorkerVersion.JUL, WorkerVersion.NEW
LOGGER = "proxy.workers"


def refusal(*path: str) -> bytes:
    location = ", ".join(map(repr, ("body", *path)))
    text = f"[{{'type': 'extra_forbidden', 'loc': ({location}), 'msg': 'Extra inputs are not permitted'}}]"
    return json.dumps({"error": text}).encode()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.0.0", OLD),
        ("1.2.0rc6", OLD),
        ("1.2.1", OLD),
        ("1.3.0rc1", OLD),
        ("1.3.0rc23", OLD),
        ("1.3.0rc24", JUL),
        ("1.3.0rc29.post1", JUL),
        ("1.3.0rc30", NEW),
        ("1.3.0.rc31", NEW),
        ("1.3.0", NEW),
        ("1.3.1rc0", NEW),
        ("v1.4.0rc1+abc", NEW),
        ("2.0", NEW),
        ("", None),
        ("main", None),
        (None, None),
    ],
)
def test_generations_by_version(version: str | None, expected: WorkerVersion | None) -> None:
    assert generation_of(version) is expected


class Document:
    """A worker that answers every question with the same document."""

    def __init__(self, document: bytes | None) -> None:
        self._document = document

    async def document(self, path: bytes, longest: int) -> bytes | None:
        assert path == b"/openapi.json"
        return self._document


class TestOneWorker:
    @pytest.mark.parametrize(
        ("document", "version", "accepted", "known"),
        [
            (openapi_document(PROFILES["new"]), "1.2.0", NEW, Known.SCHEMA),
            (None, "1.3.0rc25", JUL, Known.VERSION),
            (b"<html>", "1.3.0rc30", NEW, Known.VERSION),
            (b"{}", "nightly", OLD, Known.ASSUMED),
            (None, None, OLD, Known.ASSUMED),
        ],
    )
    async def test_sources(
        self, document: bytes | None, version: str | None, accepted: WorkerVersion, known: Known
    ) -> None:
        capabilities = Capabilities()
        await capabilities.look_up(Document(document), version)
        assert capabilities.known is known
        assert capabilities.accepted.chat == ACCEPTED[accepted].chat

    async def test_what_is_configured_is_not_asked_for(self) -> None:
        capabilities = Capabilities(OLD)
        await capabilities.look_up(Document(openapi_document(PROFILES["new"])), "1.3.0")
        capabilities.answered(["resolved_thinking"])
        assert (capabilities.accepted, capabilities.known) == (ACCEPTED[OLD], Known.CONFIGURED)

    async def test_another_version_after_a_restart(self) -> None:
        changes: list[int] = []
        capabilities = Capabilities(None, lambda: changes.append(1))
        for version in ("old", "new", "new"):
            await capabilities.look_up(Document(openapi_document(PROFILES[version])), None)
        assert len(changes) == 2
        assert capabilities.accepted.chat == ACCEPTED[NEW].chat

    async def test_the_first_answer_tells(self) -> None:
        capabilities = Capabilities()
        capabilities.answered(PROFILES["jul"].disaggregated_keys)
        assert capabilities.known is Known.ANSWER
        assert capabilities.accepted.base64_ids
        assert capabilities.accepted.parameters == set(PROFILES["jul"].disaggregated_keys)
        capabilities.answered(PROFILES["old"].disaggregated_keys)
        assert capabilities.accepted.base64_ids, "only the first"
        await capabilities.look_up(Document(openapi_document(PROFILES["old"])), None)
        assert not capabilities.accepted.base64_ids

    async def test_refusals(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, LOGGER)
        capabilities = Capabilities(JUL)
        body = refusal("disaggregated_params", "return_prompt_token_ids_b64")
        assert capabilities.refused(body, chat=True)
        assert not capabilities.refused(body, chat=True), "it was not sent again, so this is another 400"
        assert len(caplog.records) == 1
        assert "disaggregated_params.return_prompt_token_ids_b64" in caplog.text
        assert "return_prompt_token_ids_b64" not in capabilities.accepted.parameters
        assert not capabilities.refused(refusal("temperature"), chat=True)
        assert not capabilities.refused(b"null", chat=True)

    def test_workers_of_a_kind_share_one_object(self) -> None:
        first, second = Capabilities(), Capabilities()
        for capabilities in (first, second):
            capabilities.told(read_schema(openapi_document(PROFILES["jul"])), None)
        assert first.accepted is second.accepted


def pool(*known: str | None, options: Options | None = None) -> tuple[PoolCapabilities, list[Any]]:
    """A pool with one worker each of these versions; None says nothing about itself."""
    capabilities = PoolCapabilities(None, options or Options())
    instances: list[Any] = [SimpleNamespace(capabilities=capabilities.of_new_worker()) for _ in known]
    capabilities.watch(lambda: instances)
    for instance, version in zip(instances, known, strict=True):
        if version is not None:
            instance.capabilities.told(read_schema(openapi_document(PROFILES[version])), None)
    return capabilities, instances


class TestPool:
    def sent(self, capabilities: PoolCapabilities, **fields: Any) -> set[str]:
        body = json.dumps({"model": "m", "messages": [], **fields}).encode()
        applied = capabilities.policy(chat=True).apply(split_object(body))
        return set(applied.members) - {"model", "messages"}

    def test_hints_are_kept_for_those_who_know_them(self) -> None:
        capabilities, (old, new) = pool("old", "new")
        fields = {
            "priority": 0.5,
            "parallel_tool_calls": True,
            "conversation_params": {"conversation_id": "c"},
        }
        assert self.sent(capabilities, **fields) == set(fields)
        assert capabilities.withheld(old, chat=True) == set(fields)
        assert capabilities.withheld(new, chat=True) == frozenset()
        assert capabilities.withheld(old, chat=False) >= {"priority", "conversation_params"}

    def test_meaning_must_not_depend_on_the_place(self) -> None:
        capabilities, _ = pool("jul", "new")
        with pytest.raises(ValueError, match="thinking"):
            self.sent(capabilities, thinking={"type": "enabled"})
        assert self.sent(pool("new", "new")[0], thinking={"type": "enabled"}) == {"thinking"}

    @pytest.mark.parametrize(
        ("versions", "expected"),
        [
            (("jul", "new"), True),
            (("old", "new"), False),
            ((), False),
            ((None, "jul"), True),
            ((None,), False),
        ],
    )
    def test_base64_needs_both_legs(self, versions: tuple[str | None, ...], expected: bool) -> None:
        assert pool(*versions)[0].base64_ids is expected

    def test_one_answer_tells_of_all_that_say_nothing(self) -> None:
        capabilities, (silent, other, old) = pool(None, None, "old")
        capabilities.answered(silent, PROFILES["new"].disaggregated_keys)
        assert silent.capabilities.known is other.capabilities.known is Known.ANSWER
        assert old.capabilities.known is Known.SCHEMA
        assert "priority" in capabilities.policy(chat=True).route

    def test_one_refusal_tells_of_all_that_are_alike(self) -> None:
        capabilities, (first, second, new) = pool("jul", "jul", "new")
        assert capabilities.refused(first, refusal("conversation_params"), chat=True)
        assert "conversation_params" not in second.capabilities.accepted.chat
        assert "conversation_params" in new.capabilities.accepted.chat
        assert not capabilities.refused(second, refusal("conversation_params"), chat=True)

    def test_policies_follow(self) -> None:
        capabilities, (first,) = pool("new")
        policy = capabilities.policy(chat=True)
        assert capabilities.policy(chat=True) is policy
        first.capabilities.told(read_schema(openapi_document(PROFILES["old"])), None)
        assert "thinking" in policy.route
        assert "thinking" not in capabilities.policy(chat=True).route


def bodies(proxy: RunningProxy, leg: str) -> list[Any]:
    return [
        request.json()
        for worker in proxy.cluster.workers
        for request in worker.requests
        if request.leg == leg
    ]


async def ask(
    proxy: RunningProxy, count: int = 1, headers: dict[str, str] | None = None, **fields: Any
) -> None:
    for _ in range(count):
        response = await proxy.client.post("/v1/chat/completions", json=chat(**fields), headers=headers)
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("openapi", [True, False], ids=["schema", "version"])
@pytest.mark.parametrize("profile", ["old", "jul", "new"])
async def test_legs_of_each_version(profile: str, openapi: bool) -> None:
    headers = {"x-session-id": "s-1"}
    async with running_proxy(cluster={"profile": profile, "openapi": openapi}) as proxy:
        await ask(proxy, headers=headers, conversation_params=None)
        (context,), (generation,) = bodies(proxy, "context"), bodies(proxy, "generation")
    told = {"conversation_params": {"conversation_id": "s-1"}} if profile != "old" else {}
    for body in (context, generation):
        assert body.get("conversation_params") == told.get("conversation_params")
    parameters = context["disaggregated_params"]
    newer = profile != "old"
    assert ("schedule_style" in parameters) is newer
    assert parameters.get("return_prompt_token_ids_b64", False) is newer
    assert ("prompt_token_ids_b64" in generation) is newer
    assert ("ctx_usage" in generation["disaggregated_params"]) is newer
    # Among the parameters only where the schema says so.
    expected = "s-1" if openapi and profile != "new" else None
    assert parameters.get("conversation_id") == expected


@pytest.mark.parametrize("setting", [True, False, None])
async def test_base64_is_used_where_it_is_known_unless_switched_off(setting: bool | None) -> None:
    async with running_proxy(gen_tokids_ctxbytes=setting) as proxy:
        await ask(proxy)
        (generation,) = bodies(proxy, "generation")
    assert ("prompt_token_ids_b64" in generation) is (setting is not False)


@pytest.mark.parametrize(
    ("context", "generation"), [("old", "new"), ("new", "old"), ("new", "jul"), ("jul", "new")]
)
async def test_roles_of_different_versions(context: str, generation: str) -> None:
    async with running_proxy(profiles={"context-0": context, "generation-0": generation}) as proxy:
        await ask(proxy, 3, headers={"x-session-id": "s"}, parallel_tool_calls=True, priority=0.5)
        await ask(proxy, 3, stream=True, stream_options={"include_usage": True})


async def test_versions_mixed_within_each_role() -> None:
    profiles = {"context-0": "old", "context-1": "new", "generation-0": "new", "generation-1": "old"}
    async with running_proxy(cluster={"context": 2, "generation": 2}, profiles=profiles) as proxy:
        for fields in (
            {"priority": 0.5, "parallel_tool_calls": False},
            {"tools": [tool()]},
            {"stream": True},
        ):
            await ask(proxy, 8, headers={"x-session-id": "s"}, **fields)
        seen = {
            worker.profile.name: {name for request in worker.requests for name in request.json()}
            for worker in proxy.cluster.workers
        }
        statuses = [worker.statuses for worker in proxy.cluster.workers]
    assert {"priority", "parallel_tool_calls", "conversation_params"} <= seen["new"]
    assert not {"priority", "parallel_tool_calls", "conversation_params"} & seen["old"]
    assert all(set(each) == {200} for each in statuses), "no worker refused anything"


def tool() -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}


async def test_a_worker_that_comes_back_is_asked_again() -> None:
    async with running_proxy(
        profiles={"context-0": "old", "generation-0": "old"}, probe_interval=0.02, eject_after=1
    ) as proxy:
        capabilities = proxy.service.registry.capabilities
        assert not capabilities.base64_ids
        for worker in proxy.cluster.workers:
            become(worker, "new")
            worker.add_fault(kind="starting", seconds=0.1)
        await eventually(lambda: capabilities.base64_ids, "another look")
        await eventually(lambda: proxy.service.ready, "readiness")
        await ask(proxy, thinking={"type": "enabled"})


async def test_what_is_learnt_from_the_first_answer() -> None:
    """No schema and no version that could be read: after one request it is known all the same."""
    async with running_proxy(cluster={"openapi": False, "profile": "jul"}, profiles={}) as proxy:
        for instance in proxy.service.registry.instances:
            instance.capabilities.told(None, None)
        assert not proxy.service.registry.capabilities.base64_ids
        await ask(proxy, 2, headers={"x-session-id": "s"})
        first, second = bodies(proxy, "context")
    assert "schedule_style" not in first["disaggregated_params"]
    assert "conversation_params" not in first
    assert second["disaggregated_params"]["return_prompt_token_ids_b64"] is True
    assert second["conversation_params"] == {"conversation_id": "s"}


class TestLearningFromRefusals:
    """The proxy believes its workers to be newer than they are."""

    @pytest.mark.parametrize("stream", [False, True])
    async def test_both_legs(self, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, LOGGER)
        cluster = {"context": 2, "generation": 2, "profile": "old"}
        async with running_proxy(cluster=cluster, worker_version="jul") as proxy:
            await ask(proxy, 4, headers={"x-session-id": "s"}, stream=stream)
            refused = sum(worker.statuses[400] for worker in proxy.cluster.workers)
        assert refused == 1, "one 400 of one worker is enough for all of them"
        assert "workers refuse" in caplog.text

    async def test_base64_that_the_generation_worker_does_not_know(self) -> None:
        profiles = {"context-0": "jul", "generation-0": "old"}
        async with running_proxy(profiles=profiles, worker_version="jul") as proxy:
            await ask(proxy, 3)
            first, *others = bodies(proxy, "generation")
            refused = [worker.statuses[400] for worker in proxy.cluster.workers]
        assert "prompt_token_ids_b64" in first
        assert all("prompt_token_ids" in body for body in others)
        assert refused == [0, 1]

    async def test_the_mistakes_of_clients_are_not_tried_again(self) -> None:
        async with running_proxy(worker_version="jul") as proxy:
            response = await proxy.client.post("/v1/chat/completions", json=chat(temperature="hot"))
            assert response.status_code == 400
            assert "temperature" in response.text
            assert proxy.legs("context") == 1
