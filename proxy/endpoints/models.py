"""GET /v1/models: the models of all workers, merged, and the aliases."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import msgspec
from starlette.types import Receive, Scope, Send

from proxy.endpoints.answer import send_json
from proxy.errors import NotReady
from proxy.lifecycle.service import Service
from proxy.workers.probe import control_client
from proxy.workers.worker import Worker


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]


class ModelsEndpoint:
    """Asks every ready worker at once; the first to name a model describes it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            NotReady: no worker answered.
        """
        workers = {worker.address: worker for worker in self._service.registry.workers if worker.ready}
        answers = await asyncio.gather(*(self._ask(worker) for worker in workers.values()))
        models: dict[str, dict[str, Any]] = {}
        for model in (model for answer in answers for model in answer):
            name = model.get("id")
            if isinstance(name, str):
                models.setdefault(name, model)
        if not models:
            raise NotReady("no worker tells its models")
        for alias, name in self._service.settings.proxy.model_aliases.items():
            if name in models:
                models.setdefault(alias, {**models[name], "id": alias, "root": name})
        await send_json(send, 200, {"object": "list", "data": list(models.values())})

    async def _ask(self, worker: Worker) -> list[dict[str, Any]]:
        with contextlib.suppress(httpx.HTTPError, msgspec.MsgspecError, TimeoutError):
            async with asyncio.timeout(self._service.settings.proxy.probe_timeout):
                async with control_client(worker.address, self._service.registry.access) as client:
                    answer = await client.get("/v1/models")
                if answer.status_code == 200:
                    return msgspec.json.decode(answer.content, type=_Models).data
        return []
