"""What all requests of one process share."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from proxy.admission.setup import make_admission
from proxy.fleet.member import Member, SoleMember
from proxy.fleet.worker_lists import WORKERS, WorkerLists
from proxy.lifecycle.orphans import OrphanDrains
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.ids import RequestIds
from proxy.wire.versions import WorkerVersion
from proxy.workers.registry import Registry
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.config.settings import Settings
    from proxy.wire.request import InferenceRequest


class Service:
    """Made inside the event loop, once per process; `start` and `close` frame its life.

    Attributes:
        settings: the configuration in force; its worker lists may be replaced.
        member: this process's place among the processes of the fleet.
        registry: the workers.
        admission: limits, queue and pause.
        orphans: hand-offs whose clients have left.
        request_ids: mints `disagg_request_id`s.
        draining: the process is about to end; it says that it is not ready and still serves.
        version: what the workers' version knows.
        node_id: the part of the ids that tells proxies apart; from the configuration, else random.
        chat_policy, completions_policy: the field rules of the two routes.
    """

    def __init__(self, settings: Settings, member: Member | None = None) -> None:
        self.settings = settings
        self.member = member if member is not None else SoleMember()
        self.loop = asyncio.get_running_loop()
        self.version = WorkerVersion(settings.proxy.worker_version)
        self.node_id = settings.node_id if settings.node_id is not None else secrets.randbelow(256)
        self.request_ids = RequestIds(self.node_id, self.member.index)
        self.registry = Registry(settings, table=self.member.load_table, columns=self.member.columns)
        self.orphans = OrphanDrains()
        self.admission = make_admission(
            settings.proxy,
            loop=self.loop,
            member=self.member,
            context=lambda: self._batch_sizes(Role.CONTEXT),
            generation=lambda: self._batch_sizes(Role.GENERATION),
        )
        self.draining = False
        options = Options(accept_prompt_token_ids=settings.proxy.accept_prompt_token_ids)
        accepted = ACCEPTED[self.version]
        self.chat_policy = FieldPolicy(accepted, chat=True, options=options)
        self.completions_policy = FieldPolicy(accepted, chat=False, options=options)

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
        self.registry.start()
        self.member.commands.register(WORKERS, self._change_workers)

    async def _change_workers(self, arguments: Any) -> None:
        settings = WorkerLists.read(arguments).put_into(self.settings)
        await self.member.prepare(worker.address for worker in settings.workers)
        self.settings = settings
        self.registry.apply(settings.workers)

    async def close(self) -> None:
        """End the drains of orphans and close all connections to the workers."""
        await self.orphans.close()
        await self.registry.close()

    def is_harmony(self, request: InferenceRequest) -> bool:
        """Whether the model's workers tokenise by themselves: no base64 ids, no cut history."""
        return request.model in self.settings.proxy.harmony_models

    def base64_ids(self, request: InferenceRequest) -> bool:
        """Whether to ask the context worker for base64; only its ordinary chat handler knows it."""
        return self.settings.gen_tokids_ctxbytes and request.chat and not self.is_harmony(request)
