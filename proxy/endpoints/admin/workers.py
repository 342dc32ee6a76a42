"""POST /admin/workers/drain and /admin/workers/resume: take workers out of service and back, in all processes."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.endpoints.admin.body import read_body
from proxy.endpoints.admin.fleet import ask
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.answer import send_json
from proxy.errors import InvalidRequest, NotFound
from proxy.lifecycle.commands import HOLD_WORKERS
from proxy.lifecycle.service import Service


class NamedWorkers(msgspec.Struct, forbid_unknown_fields=True):
    """The body: addresses as the configuration or `/cluster_info` writes them."""

    workers: list[str]


class WorkerHolds:
    """Who drains by an operator's order, for the whole fleet: changed by one request after the other.

    The legs that run on such a worker end, new ones do not come, whatever the worker lists say.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._changing = asyncio.Lock()

    async def change(self, action: Literal["drain", "resume"], names: list[str]) -> list[str]:
        """Returns the addresses of all that are held now.

        Raises:
            InvalidRequest: an address cannot be read.
            NotFound: one that is neither listed nor held.
            FleetIncomplete: not every process has taken the order; it stands for those that start.
        """
        registry = self._service.registry
        addresses = {_parsed(name) for name in names}
        async with self._changing:
            known = {worker.address for worker in registry.workers} | registry.held
            for address in addresses - known:
                raise NotFound(f"there is no worker {address.text}", code="worker_not_found")
            held = registry.held | addresses if action == "drain" else registry.held - addresses
            texts = sorted(address.text for address in held)
            await ask(self._service.member, HOLD_WORKERS, texts, keep=HOLD_WORKERS)
        return texts


class WorkersEndpoint:
    """One of the two routes."""

    def __init__(self, holds: WorkerHolds, action: Literal["drain", "resume"]) -> None:
        self._holds = holds
        self._action = action

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            UnsupportedMediaType, InvalidRequest: the body or a parameter.
            NotFound, FleetIncomplete: see `WorkerHolds.change`.
        """
        read_query(scope, ())
        body = await read_body(scope, receive, NamedWorkers)
        await send_json(send, 200, {"held": await self._holds.change(self._action, body.workers)})


def _parsed(name: str) -> WorkerAddress:
    try:
        return parse_worker_address(name)
    except ValueError as error:
        raise InvalidRequest(f"{name!r} is no address of a worker: {error}", param="workers") from None
