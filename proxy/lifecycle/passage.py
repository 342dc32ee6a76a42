"""One request on its way: what all its phases share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from proxy.errors import LegFault, Source, error_body
from proxy.lifecycle.headers import to_client
from proxy.lifecycle.leg import Leg
from proxy.lifecycle.nemo_timing import NemoStamps
from proxy.lifecycle.priority import DEFAULT_PRIORITY
from proxy.lifecycle.retry import delay_before
from proxy.lifecycle.timing import add_timing
from proxy.lifecycle.watch import Watch
from proxy.lifecycle.worker_timing import ASKED, combined, leg_metrics, without_metrics
from proxy.placement.policy import NO_PLACEMENT, Placement
from proxy.wire import sse
from proxy.workers.outcome import retry_after_seconds
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.config.address import WorkerAddress
    from proxy.errors import ProxyError
    from proxy.lifecycle.client import Client, Headers
    from proxy.lifecycle.record import RequestRecord
    from proxy.lifecycle.service import Service
    from proxy.lifecycle.wanted_ids import WantedIds
    from proxy.upstream.connection import Answer
    from proxy.wire.handoff import ContextAnswer
    from proxy.wire.request import InferenceRequest
    from proxy.wire.rewriting import Rewriter
    from proxy.workers.pool import WorkerPool
    from proxy.workers.worker import Worker

ErrorEvent = Callable[["ProxyError"], bytes]
"""Says in a stream what has gone wrong, in the shape of its route."""

_chance = random.Random()  # noqa: S311 - jitter


def openai_event(error: ProxyError) -> bytes:
    """As OpenAI's servers say it."""
    return sse.event(error_body(error))


class Pause:
    """A wait that the watch can end."""

    __slots__ = ("_timer", "over")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.over: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_later(seconds, self._done)

    def _done(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def abort(self, _exchange: int, error: ProxyError) -> None:
        """See `proxy.lifecycle.watch.Abortable`."""
        if not self.over.done():
            self.over.set_exception(error)

    def close(self) -> None:
        """The wait is over."""
        self._timer.cancel()


class Passage:
    """See the module's docstring.

    Args:
        service: what all requests share.
        request: what the client asked, after the field policy.
        client: who asked.
        record: filled in on the way.
        target: path and query string for the workers.
        headers: encoded header lines for both legs.
        response_headers: headers that every answer to this client carries.
        total: seconds for the whole request, 0 = no limit.
        priority: in the queue, 0 to 1, higher first.
        placement: what the placement policies know of the request.

    Attributes:
        watch: ends the running leg when the client leaves or a deadline passes.
        rewriters: what changes the answer on its way to the client; empty for nearly all requests. See
            `proxy.lifecycle.rewriters`.
        wanted_ids: token ids that the answer is to have, None for nearly all requests.
        stamps: when it came and went on, if answers are to tell (`nemo_timing`), else None.
        failed: generation workers that have failed this request: the second pass avoids them too.
        worker_metrics: those of the context leg, if the client asks for any, else None.
        error_event: how a stream that breaks off says so.
    """

    __slots__ = (
        "client",
        "error_event",
        "failed",
        "headers",
        "placement",
        "priority",
        "record",
        "request",
        "response_headers",
        "rewriters",
        "service",
        "stamps",
        "target",
        "wanted_ids",
        "watch",
        "worker_metrics",
    )

    def __init__(
        self,
        service: Service,
        request: InferenceRequest,
        client: Client,
        record: RequestRecord,
        *,
        target: bytes,
        headers: bytes,
        response_headers: Headers,
        total: float = 0.0,
        priority: float = DEFAULT_PRIORITY,
        placement: Placement = NO_PLACEMENT,
    ) -> None:
        self.service = service
        self.request = request
        self.client = client
        self.record = record
        self.target = target
        self.headers = headers
        self.response_headers = response_headers
        self.priority = priority
        self.placement = placement
        self.error_event: ErrorEvent = openai_event
        self.failed: list[WorkerAddress] = []
        self.rewriters: Sequence[Rewriter] = ()
        self.wanted_ids: WantedIds | None = None
        self.worker_metrics: Headers | None = [] if ASKED in headers else None
        proxy = service.settings.proxy
        self.stamps = NemoStamps(record.received, headers) if proxy.nemo_timing else None
        self.watch = Watch(client, service.loop, stall_timeout=proxy.client_stall_timeout, total=total)

    def pool(self, role: Role) -> WorkerPool:
        """The workers of a role that serve the request's model."""
        model = self.request.model
        return self.service.registry.pool(role, self.service.settings.proxy.model_aliases.get(model, model))

    def forget_prompt(self) -> None:
        """The answer has begun: no leg will be sent any more, and a stream can last for hours.

        The members are slices of the client's body, which each of them keeps alive; all who hold them hold this
        dictionary.
        """
        self.request.members.clear()

    def stamp(self) -> None:
        """The request goes on to its first worker, which is told when."""
        if self.stamps is not None:
            self.headers = self.stamps.forwarded()

    def leg(self, worker: Worker, headers: bytes, phase: str, seconds: float) -> Leg:
        """A leg of this request; see `Leg`."""
        head = worker.request_head(self.target)
        return Leg(worker, head, headers, self.watch, phase=phase, seconds=seconds)

    async def pause(
        self, pool: WorkerPool, failed: Collection[WorkerAddress], last: Answer | LegFault
    ) -> bool:
        """Wait before a leg is sent again; False when that would be in vain or the retry budget is used up.

        Args:
            pool: of the leg's role.
            failed: the workers that have failed this request, the latest included.
            last: what the latest said.

        Raises:
            ClientGone, LegTimeout, Aborted: the request is over.
        """
        retry_after = None
        if not isinstance(last, LegFault) and not any(w.address not in failed for w in pool.available()):
            retry_after = retry_after_seconds(last.head.get(b"retry-after"))
        seconds = delay_before(len(failed), retry_after, _chance)
        if seconds is None or not self.service.retry_budget.take():
            return False
        self.record.retries += 1
        if pool.role is Role.GENERATION:
            self.record.generation_retries += 1
        self.watch.check()
        pause = Pause(self.service.loop, seconds)
        self.watch.guard(pause, 0, "total", 0)
        try:
            await pause.over
        finally:
            self.watch.release()
            pause.close()
        return True

    def learn(self, answer: Answer, worker: Worker | None) -> bool:
        """Whether a worker refused the leg for a member that the proxy had added, which it will not get again: the
        leg is then worth another try, and nothing has been done yet."""
        return (
            answer.head.status == 400
            and worker is not None
            and not self.request.responses
            and self.service.registry.capabilities.refused(
                worker.instance, answer.body, chat=self.request.chat
            )
        )

    def learn_keys(self, hand_off: ContextAnswer) -> None:
        """A hand-off shows what the version of its worker knows, if it could not be asked."""
        if self.record.context_worker is not None:
            instance = self.record.context_worker.instance
            self.service.registry.capabilities.answered(instance, hand_off.parameters)

    async def pass_on(self, answer: Answer, source: str) -> None:
        """Send a worker's answer to the client as it is."""
        self.record.answered_by = source
        headers = to_client(answer.head, [])
        if self.worker_metrics is not None:
            own = leg_metrics(answer.head, b"gen") if source == Source.GENERATION.value else []
            headers = without_metrics(headers) + combined(self.worker_metrics, own, self.record)
        await self.respond(answer.head.status, headers, answer.body)

    async def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole answer to the client."""
        record = self.record
        record.status = status
        record.response_size = len(body)
        record.first_byte = perf_counter()
        await self.client.respond(status, self.complete([*headers, *self.response_headers]), body)

    def complete(self, headers: Headers) -> Headers:
        """Tell the client in the headers of its answer where the time went so far; returns them."""
        if self.service.settings.proxy.timing_headers:
            self.record.waited = self.watch.waited
            add_timing(headers, self.record)
        return headers
