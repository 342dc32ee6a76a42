"""POST /admin/workers/drain and /admin/workers/resume: take workers out of service and back, in all processes."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.endpoints.admin.body import read_body
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.admin.statement import state
from proxy.endpoints.answer import send_json
from proxy.errors import InvalidRequest, NotFound
from proxy.lifecycle.service import Service
from proxy.workers.discovery.operator import Statement


class NamedWorkers(msgspec.Struct, forbid_unknown_fields=True):
    """The body: addresses as the configuration or `/admin/status` writes them."""

    workers: list[str]


class WorkersEndpoint:
    """One of the two routes. The legs that run on a drained worker end, new ones do not come, until it is resumed,
    whatever the worker lists say.

    Args:
        service: its processes and workers.
        standing: what is said of the workers.
    """

    def __init__(self, service: Service, standing: Literal["draining", "listed"]) -> None:
        self._service = service
        self._standing: Literal["draining", "listed"] = standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            UnsupportedMediaType, InvalidRequest: the body or a parameter.
            NotFound: one of the workers, and nothing has been done.
            FleetIncomplete: not every process has done it; those that start again will.
        """
        read_query(scope, ())
        body = await read_body(scope, receive, NamedWorkers)
        operator = self._service.registry.operator
        addresses = [self._find(name) for name in body.workers]
        for address in addresses:
            listed = operator.statement(address).listed
            await state(self._service.member, Statement(address, self._standing, listed))
        await send_json(send, 200, {self._standing: [address.text for address in addresses]})

    def _find(self, name: str) -> WorkerAddress:
        try:
            address = parse_worker_address(name)
        except ValueError as error:
            raise InvalidRequest(f"{name!r} is no address of a worker: {error}", param="workers") from None
        registry = self._service.registry
        if any(worker.address == address for worker in registry.workers):
            return address
        # One that drains and is not listed at present.
        if registry.operator.statement(address).standing == "draining":
            return address
        raise NotFound(f"there is no worker {name}", code="worker_not_found")
