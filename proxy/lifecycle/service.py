"""What all requests of one process share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from proxy.admission.setup import make_admission
from proxy.fleet.discovered import DISCOVERED, DiscoveredList
from proxy.fleet.member import Member, SoleMember
from proxy.fleet.worker_lists import WORKERS, WorkerLists
from proxy.lifecycle.canary import ServiceCanary
from proxy.lifecycle.orphans import OrphanDrains
from proxy.lifecycle.retry import RetryBudget
from proxy.wire.fields.accepted import Accepted
from proxy.wire.ids import RequestIds
from proxy.workers.discovery.discovery import Discovery
from proxy.workers.discovery.table import make_sources
from proxy.workers.registry import Registry
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.config.listed_worker import ListedWorker
    from proxy.config.settings import Settings
    from proxy.tokenisation.frontend import FrontendTokenisation
    from proxy.tokenisation.threads import TokenThreads
    from proxy.tokenisation.tokenizer import PromptTokenizer
    from proxy.wire.request import InferenceRequest
    from proxy.workers.worker import Worker


_NOTHING: frozenset[str] = frozenset()


class Service:
    """Made inside the event loop, once per process; `start` and `close` frame its life.

    Attributes:
        settings: the configuration in force; its worker lists may be replaced.
        member: this process's place among the processes of the fleet.
        registry: the workers.
        discovery: what tells of more workers; None where the supervisor follows the sources.
        admission: limits, queue and pause.
        orphans: hand-offs whose clients have left.
        retry_budget: how many legs may be sent again.
        request_ids: mints `disagg_request_id`s.
        tokenizer, token_threads: the model's, if one is configured, and where it serves its routes.
        tokenisation: prompts become token ids here, if that is configured.
        draining: the process is about to end; it says that it is not ready and still serves.
        node_id: the part of the ids that tells proxies apart; from the configuration, else random.
    """

    def __init__(self, settings: Settings, member: Member | None = None) -> None:
        self.settings = settings
        self.member = member if member is not None else SoleMember()
        self.loop = asyncio.get_running_loop()
        self.node_id = settings.node_id if settings.node_id is not None else secrets.randbelow(256)
        self.request_ids = RequestIds(self.node_id, self.member.index)
        self.registry = Registry(settings, table=self.member.load_table, columns=self.member.columns)
        self.discovery = (
            Discovery(make_sources(settings), self._discovered) if self.member.central is not None else None
        )
        self._changing_workers = asyncio.Lock()
        self.orphans = OrphanDrains(settings.proxy.timeout_first_byte)
        self.retry_budget = RetryBudget(settings.proxy.retry_budget, self.loop.time)
        self.admission = make_admission(
            settings.proxy,
            loop=self.loop,
            member=self.member,
            context=lambda: self._batch_sizes(Role.CONTEXT),
            generation=lambda: self._batch_sizes(Role.GENERATION),
        )
        self.draining = False
        self.tokenizer: PromptTokenizer | None = None
        self.token_threads: TokenThreads | None = None
        self.tokenisation: FrontendTokenisation | None = None

    @property
    def ready(self) -> bool:
        """Whether balancers should send requests here."""
        return self.registry.ready and not self.draining

    def _batch_sizes(self, role: Role) -> list[int | None]:
        """For `auto` limits: what the usable workers have told."""
        return [
            worker.instance.max_batch_size
            for worker in self.registry.workers
            if worker.role is role and worker.ready
        ]

    def start(self) -> None:
        """Begin to probe the workers, and to take other lists of them."""
        self.registry.start(ServiceCanary(self))
        self.member.commands.register(WORKERS, self._change_workers)
        self.member.commands.register(DISCOVERED, self._change_discovered)
        if self.discovery is not None and self.member.central is not None:
            for name, handler in self.discovery.commands.items():
                self.member.central.register(name, handler)
            self.discovery.start()

    async def _change_workers(self, arguments: Any) -> None:
        async with self._changing_workers:  # one after the other, in the order in which they came
            settings = WorkerLists.read(arguments).put_into(self.settings)
            await self.member.prepare(worker.address for worker in settings.workers)
            self.settings = settings
            self.registry.apply(settings.workers)

    async def _change_discovered(self, arguments: Any) -> None:
        found = DiscoveredList.read(arguments)
        await self._discovered(found.source, found.workers)

    async def _discovered(self, source: str, workers: Sequence[ListedWorker]) -> None:
        async with self._changing_workers:
            await self.member.prepare(worker.address for worker in workers)
            self.registry.apply(workers, source=source)

    async def close(self) -> None:
        """End the drains of orphans, forget the sources of workers and close all connections to the workers."""
        if self.discovery is not None:
            await self.discovery.close()
        for each in (self.tokenisation, self.token_threads):
            if each is not None:
                each.close()
        await self.orphans.close()
        await self.registry.close()

    def accepted(self, worker: Worker) -> Accepted:
        """What a worker knows."""
        return worker.instance.capabilities.accepted

    def withheld(self, worker: Worker, request: InferenceRequest) -> frozenset[str]:
        """Members of a request that this worker does not know, unlike others; usually none."""
        if request.responses:  # workers take any member there
            return _NOTHING
        return self.registry.capabilities.withheld(worker.instance, chat=request.chat)

    def is_harmony(self, request: InferenceRequest) -> bool:
        """Whether the model's workers tokenise by themselves: no base64 ids, no cut history."""
        return request.model in self.settings.proxy.harmony_models

    def base64_ids(self, request: InferenceRequest) -> bool:
        """Whether to ask the context worker for base64; only its ordinary chat handler knows it."""
        wanted = self.settings.gen_tokids_ctxbytes
        return (
            wanted is not False
            and request.chat
            and not self.is_harmony(request)
            and self.registry.capabilities.base64_ids
        )
