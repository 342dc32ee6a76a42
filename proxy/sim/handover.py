"""How a generation worker reaches the KV of a context worker, in its own process or in another one."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from proxy.sim.kv import Handoff, HandoffError, KvRegistry

TRANSFER_SECONDS = 60.0  # kv_transfer_timeout_ms of real workers
_NO_LIMITS = httpx.Limits()
POLL_SECONDS = 0.01  # generation first: how often KV that is not computed yet is asked for


@dataclass(frozen=True, slots=True)
class ContextAddress:
    """Which worker holds the KV: its name and ``host:port`` or ``unix:/path``."""

    worker: str
    address: str

    def as_state(self) -> str:
        """As ``encoded_opaque_state``: base64 of a JSON object."""
        return base64.b64encode(
            msgspec.json.encode({"worker": self.worker, "address": self.address})
        ).decode()

    def as_endpoint(self) -> str:
        """As ``ctx_info_endpoint``."""
        return f"tcp://{self.address}#{self.worker}"

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ContextAddress":
        """Read it from a generation leg's params: the state when given, else the endpoint."""
        state = params.get("encoded_opaque_state")
        if state is not None:
            try:
                return cls(**msgspec.json.decode(base64.b64decode(state, validate=True)))
            except (binascii.Error, msgspec.DecodeError, TypeError, ValueError) as error:
                raise HandoffError(f"encoded_opaque_state cannot be read: {error}") from error
        endpoint = params.get("ctx_info_endpoint")
        if endpoint is None:
            raise HandoffError("neither encoded_opaque_state nor ctx_info_endpoint names the context worker")
        address, mark, worker = endpoint.removeprefix("tcp://").partition("#")
        if not mark:
            raise HandoffError(f"ctx_info_endpoint {endpoint!r} cannot be read")
        return cls(worker=worker, address=address)


class KvReach:
    """Takes hand-offs from this process's registry, or over HTTP from the process that holds them."""

    def __init__(self, registry: KvRegistry) -> None:
        self.registry = registry
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def take(
        self,
        context: ContextAddress,
        request_id: int,
        *,
        wait_seconds: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> Handoff:
        """Take KV once. With ``wait_seconds`` it may still be computed (generation first)."""
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            try:
                if self.registry.knows(context.worker):
                    if wait_seconds and not self.registry.peek(context.worker, request_id):
                        raise HandoffError(f"no KV cache for disagg_request_id {request_id} yet")
                    return self.registry.take(context.worker, request_id)
                return await self._take_remote(context, request_id, waiting=bool(wait_seconds))
            except HandoffError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await sleep(POLL_SECONDS)

    async def _take_remote(self, context: ContextAddress, request_id: int, *, waiting: bool) -> Handoff:
        body = msgspec.json.encode(
            {"worker": context.worker, "disagg_request_id": request_id, "waiting": waiting}
        )
        client = self._client(context.address)
        try:
            try:
                response = await client.post("/sim/kv/take", content=body)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                # The other process closed an idle connection just then, which is nothing that transceivers know.
                response = await client.post("/sim/kv/take", content=body)
        except httpx.HTTPError as error:
            raise HandoffError(f"context worker {context.worker} cannot be reached: {error!r}") from error
        if response.status_code != 200:
            raise HandoffError(f"context worker {context.worker}: {response.text}")
        fields = msgspec.json.decode(response.content)
        return Handoff(
            worker=fields["worker"],
            request_id=fields["disagg_request_id"],
            prompt_digest=fields["prompt_digest"],
            prompt_tokens=fields["prompt_tokens"],
            first_tokens=tuple(fields["first_gen_tokens"]),
            expires=0.0,
        )

    def _client(self, address: str) -> httpx.AsyncClient:
        client = self._clients.get(address)
        if client is None:
            if address.startswith("unix:"):
                transport = httpx.AsyncHTTPTransport(uds=address.removeprefix("unix:"), limits=_NO_LIMITS)
                client = httpx.AsyncClient(
                    base_url="http://worker", transport=transport, timeout=TRANSFER_SECONDS
                )
            else:
                client = httpx.AsyncClient(
                    base_url=f"http://{address}",
                    trust_env=False,
                    timeout=TRANSFER_SECONDS,
                    limits=_NO_LIMITS,
                )
            self._clients[address] = client
        return client

    async def aclose(self) -> None:
        """Close the connections to other processes."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()
