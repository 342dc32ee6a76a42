"""GET and POST /workers, DELETE /workers/{id or url}, POST /workers/{id or url}/drain and /resume.

What they say of a worker holds for the whole fleet, over all other sources of workers, until the proxy ends. Legs that
run are never touched: a worker that is removed or drained gets no new ones.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.errors import ConfigError
from proxy.config.listed_worker import ListedWorker
from proxy.config.values import Entry
from proxy.config.worker_list import read_worker_entry
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.admin.statement import state
from proxy.endpoints.answer import send_json
from proxy.endpoints.control.arguments import read_arguments
from proxy.endpoints.control.fleet_workers import fleet_workers, shown, worker_id
from proxy.errors import InvalidRequest, MethodNotAllowed, NotFound
from proxy.fleet.member import Member
from proxy.lifecycle.service import Service
from proxy.router import REST
from proxy.workers.discovery.operator import Standing, Statement

# Names that other routers give the roles (`worker_type`).
_ROLES = {"prefill": "context", "ctx": "context", "decode": "generation", "gen": "generation"}
_STANDINGS: dict[str, Standing] = {"drain": "draining", "resume": "listed"}


class WorkersEndpoint:
    """All workers, and the adding of one."""

    def __init__(self, service: Service) -> None:
        self._member = service.member
        self._operator = service.registry.operator

    async def list(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve GET: also which addresses are removed, since they stay so whoever lists them.

        Raises:
            InvalidRequest: a parameter.
            FleetIncomplete: a process did not tell.
        """
        read_query(scope, ())
        workers = [shown(status) for status in await fleet_workers(self._member)]
        removed = [address.text for address in self._operator.removed]
        await send_json(send, 200, {"workers": workers, "total": len(workers), "removed": removed})

    async def add(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve POST: `{url, role, model, labels}`. A worker that is listed already takes these over, and is no
        longer drained or removed.

        Raises:
            InvalidRequest: no such worker can be.
            FleetIncomplete: not every process has taken it; those that start again will.
        """
        read_query(scope, ())
        listed = _read_worker(await read_arguments(receive))
        address = listed[0].address
        await state(self._member, Statement(address, "listed", tuple(listed)))
        await _send_workers(self._member, address, 200, send)


class WorkerEndpoint:
    """One worker, named by its id or its url."""

    def __init__(self, service: Service) -> None:
        self._member = service.member
        self._operator = service.registry.operator

    async def get(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve GET.

        Raises:
            NotFound, InvalidRequest, FleetIncomplete.
        """
        read_query(scope, ())
        await _send_workers(self._member, await self._find(scope[REST]), 200, send)

    async def remove(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve DELETE: the worker drains, and is gone when its last leg has ended.

        Raises:
            NotFound, InvalidRequest, FleetIncomplete.
        """
        read_query(scope, ())
        address = await self._find(scope[REST])
        await state(self._member, Statement(address, "removed"))
        await _send_workers(self._member, address, 202, send)

    async def change(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve POST of `.../drain` (the worker stays listed without getting legs) and `.../resume`.

        Raises:
            NotFound, InvalidRequest, FleetIncomplete.
        """
        read_query(scope, ())
        name, _, action = scope[REST].rpartition("/")
        standing = _STANDINGS.get(action)
        if standing is None:
            raise MethodNotAllowed("POST takes /drain or /resume behind the worker", allow=b"DELETE, GET")
        address = await self._find(name)
        before = self._operator.statement(address)
        await state(self._member, Statement(address, standing, before.listed))
        await _send_workers(self._member, address, 200, send)

    async def _find(self, name: str) -> WorkerAddress:
        try:
            wanted = parse_worker_address(name)
        except ValueError:
            wanted = None
        for status in await fleet_workers(self._member):
            if status.address == wanted or worker_id(status) == name:
                return status.address
        raise NotFound("there is no such worker", code="worker_not_found")


async def _send_workers(member: Member, address: WorkerAddress, status: int, send: Send) -> None:
    """Answer with the roles of a worker; none when it is gone."""
    roles = [shown(each) for each in await fleet_workers(member) if each.address == address]
    await send_json(send, status, {"workers": roles, "total": len(roles)})


def _read_worker(arguments: dict[str, Any]) -> list[ListedWorker]:
    given = dict(arguments)
    if "worker_type" in given:
        given["role"] = given.pop("worker_type")
    role = given.get("role")
    if isinstance(role, str):
        given["role"] = _ROLES.get(role.lower(), role)
    try:
        return read_worker_entry("worker", Entry(given, ""))
    except ConfigError as error:
        raise InvalidRequest(error.problem, param=error.key.removeprefix("worker.")) from None
